//! The passive side of connections: a request of a peer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::deadline::Deadline;
use super::watch::await_event;
use super::{ConnectCause, ConnectError, ConnectStep, Connection, Ended};
use crate::error::VerbError;
use crate::ibverbs::device_context::DeviceContext;
use crate::rdmacm::communication_manager::{
    ConnectionInfo, ConnectionParameter, Event, EventKind, Identifier, PrivateData,
};

/// A peer's request to connect, or to look up a queue pair for datagrams. Dropping this value rejects the request.
///
/// The request has its own event channel.
#[derive(Debug)]
#[must_use = "the peer waits for a response; dropping the request rejects it"]
pub struct Request {
    id: Arc<Identifier>,
    device: Arc<DeviceContext>,
    peer: Option<SocketAddr>,
    ask: Ask,
    timeout: Duration,
}

#[derive(Debug)]
enum Ask {
    Connection(ConnectionInfo),
    Lookup(PrivateData),
}

impl Request {
    pub(super) fn new(event: Event, timeout: Duration) -> Result<Self, ConnectError> {
        let event_type = event.event_type();
        let (id, kind) = event.into_parts();
        let peer = id.peer_address();
        let error = |cause: ConnectCause| ConnectError::new(ConnectStep::Accept, peer, cause);
        let ask = match kind {
            EventKind::ConnectRequest(info) => Ask::Connection(info),
            EventKind::LookupRequest(private_data) => Ask::Lookup(private_data),
            _ => return Err(error(ConnectCause::Unexpected(event_type))),
        };
        let Some(device) = id.get_device_context() else {
            return Err(error(
                VerbError::invalid("rdma_get_cm_event", "the request has no device and is rejected").into(),
            ));
        };
        Ok(Self { id, device, peer, ask, timeout })
    }

    /// Returns the identifier. Create the queue pair of the connection through it.
    pub fn identifier(&self) -> &Arc<Identifier> {
        &self.id
    }

    /// Returns the device that received the request. All connections over this device return the same object.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.device
    }

    /// Returns the peer's address.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns this side's address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// Returns the peer's private data.
    pub fn private_data(&self) -> &PrivateData {
        match &self.ask {
            Ask::Connection(info) => info.private_data(),
            Ask::Lookup(private_data) => private_data,
        }
    }

    /// Returns the peer's parameters, or `None` for a lookup, which has no parameters.
    pub fn info(&self) -> Option<&ConnectionInfo> {
        match &self.ask {
            Ask::Connection(info) => Some(info),
            Ask::Lookup(_) => None,
        }
    }

    /// Whether the request is a lookup of a queue pair for datagrams ([`accept_lookup`](Self::accept_lookup)).
    pub fn is_lookup(&self) -> bool {
        matches!(self.ask, Ask::Lookup(_))
    }

    /// `rdma_accept(id, conn_param)` — accepts the request, and waits for the peer's confirmation. A queue pair that
    /// was created through the identifier is then ready to send. If the program uses its own queue pair, it first moves
    /// that queue pair to the ready-to-send state, and passes its number in `parameter`.
    ///
    /// A peer that confirms and disconnects at once may make the disconnect arrive first, because the network may lose
    /// or reorder these messages. The peer was connected, and the data that it sent is in the queue pair. The call then
    /// returns a connection that [has ended](Connection::ended).
    ///
    /// If this fails, the request is dropped. The peer is notified when the queue pair is dropped too.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::Verb`]: the errors of [`Identifier::accept`], with `EINVAL` if there is no queue pair or the
    ///   peer has given up.
    /// - [`ConnectCause::TimedOut`]: the peer did not confirm.
    /// - [`ConnectCause::Rejected`], [`ConnectCause::Event`]: the peer gave up.
    pub fn accept(self, parameter: &ConnectionParameter) -> Result<Connection, ConnectError> {
        let Self { id, peer, ask, timeout, .. } = self;
        let error = |cause| ConnectError::new(ConnectStep::Accept, peer, cause);
        let info = match ask {
            Ask::Connection(info) => info,
            Ask::Lookup(_) => {
                return Err(error(refuse(
                    "the request is a lookup, without a connection; call Request::accept_lookup",
                )));
            }
        };
        let accept = || {
            check_queue_pair(&id, parameter)?;
            let deadline = Deadline::within(Some(timeout));
            id.accept(parameter)?;
            await_event(&id, &deadline, |kind| match kind {
                EventKind::Established(_) => Ok(None),
                // Only a peer that received the reply, and is thereby connected, disconnects.
                EventKind::Disconnected(_) => Ok(Some(Ended::Disconnected)),
                other => Err(other),
            })
        };
        let end = accept().map_err(error)?;
        Ok(Connection::new(id, info, end))
    }

    /// `rdma_accept(id, conn_param)` — sends the number of a queue pair for datagrams to the peer. This is the queue
    /// pair that was created through the identifier, or the number in `parameter`. No connection is established.
    ///
    /// # Errors
    ///
    /// [`ConnectCause::Verb`]: as for [`Identifier::accept`]; `EINVAL` if there is no queue pair, or the request is not
    /// a lookup.
    pub fn accept_lookup(self, parameter: &ConnectionParameter) -> Result<(), ConnectError> {
        let accept = || {
            if !self.is_lookup() {
                return Err(refuse("the request is for a connection; call Request::accept"));
            }
            check_queue_pair(&self.id, parameter)?;
            Ok(self.id.accept(parameter)?)
        };
        accept().map_err(|cause| ConnectError::new(ConnectStep::Accept, self.peer, cause))
    }

    /// `rdma_reject(id, private_data, private_data_len)` — rejects the request with private data. The data has at most
    /// 148 bytes for a connection, and 136 bytes for a lookup.
    ///
    /// # Errors
    ///
    /// [`ConnectCause::Verb`]: the errors of [`Identifier::reject`]. The request is rejected nevertheless.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        self.id.reject(private_data).map_err(|error| ConnectError::new(ConnectStep::Reject, self.peer, error))
    }
}

fn check_queue_pair(id: &Arc<Identifier>, parameter: &ConnectionParameter) -> Result<(), ConnectCause> {
    if id.has_queue_pair() || parameter.qp_number() != 0 {
        return Ok(());
    }
    Err(refuse(
        "no queue pair was created through the identifier, and the parameter has no number of another; call \
        Identifier::create_qp",
    ))
}

#[cold]
fn refuse(hint: &'static str) -> ConnectCause {
    ConnectCause::Verb(VerbError::invalid("rdma_accept", hint))
}
