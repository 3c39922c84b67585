//! The passive side: who wants to connect.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::deadline::Deadline;
use super::watch::await_event;
use super::{ConnectCause, ConnectError, ConnectStep, Connection};
use crate::error::VerbError;
use crate::ibverbs::device_context::DeviceContext;
use crate::rdmacm::communication_manager::{
    ConnectionInfo, ConnectionParameter, Event, EventKind, Identifier, PrivateData,
};

/// Somebody who wants to connect, or to know a queue pair for datagrams, and waits for an answer: dropped, it is a no.
///
/// It is on an event channel of its own.
#[derive(Debug)]
#[must_use = "the peer waits for an answer; dropping the request is a no"]
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
                VerbError::invalid("rdma_get_cm_event", "the request came over no device: it is rejected").into(),
            ));
        };
        Ok(Self { id, device, peer, ask, timeout })
    }

    /// The identifier, through which the queue pair is made.
    pub fn identifier(&self) -> &Arc<Identifier> {
        &self.id
    }

    /// The device that the request came over. All connections over it give the same.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.device
    }

    /// Who asks.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// This side's address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// What the peer wanted to be read here.
    pub fn private_data(&self) -> &PrivateData {
        match &self.ask {
            Ask::Connection(info) => info.private_data(),
            Ask::Lookup(private_data) => private_data,
        }
    }

    /// What the peer proposes; `None` of a lookup, which proposes nothing.
    pub fn info(&self) -> Option<&ConnectionInfo> {
        match &self.ask {
            Ask::Connection(info) => Some(info),
            Ask::Lookup(_) => None,
        }
    }

    /// Whether a queue pair for datagrams is looked up ([`accept_lookup`](Self::accept_lookup)).
    pub fn is_lookup(&self) -> bool {
        matches!(self.ask, Ask::Lookup(_))
    }

    /// `rdma_accept(id, conn_param)` — says yes, and waits until the peer knows. The queue pair was made through the identifier, and
    /// is ready to send afterwards; or it is the program's own, ready already, and `parameter` has its number.
    ///
    /// Where it fails, the peer is told once the queue pair has gone too.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::Verb`]: as [`Identifier::accept`]; `EINVAL` where there is no queue pair, or the peer has given up.
    /// - [`ConnectCause::TimedOut`]: the peer has not confirmed.
    /// - [`ConnectCause::Disconnected`], [`ConnectCause::Rejected`], [`ConnectCause::Event`]: the peer has given up.
    pub fn accept(self, parameter: &ConnectionParameter) -> Result<Connection, ConnectError> {
        let Self { id, peer, ask, timeout, .. } = self;
        let error = |cause| ConnectError::new(ConnectStep::Accept, peer, cause);
        let info = match ask {
            Ask::Connection(info) => info,
            Ask::Lookup(_) => {
                return Err(error(refuse(
                    "the request is a lookup, of which no connection comes: Request::accept_lookup",
                )));
            }
        };
        let accept = || {
            check_queue_pair(&id, parameter)?;
            let deadline = Deadline::within(Some(timeout));
            id.accept(parameter)?;
            await_event(&id, &deadline, |kind| match kind {
                EventKind::Established(_) => Ok(()),
                other => Err(other),
            })
        };
        accept().map_err(error)?;
        Ok(Connection::new(id, info))
    }

    /// `rdma_accept(id, conn_param)` — tells the peer the queue pair for datagrams that was made through the identifier, or whose
    /// number `parameter` has. Nothing comes of it here but datagrams.
    ///
    /// # Errors
    ///
    /// [`ConnectCause::Verb`]: as [`Identifier::accept`]; `EINVAL` where there is no queue pair, or the request is not a lookup.
    pub fn accept_lookup(self, parameter: &ConnectionParameter) -> Result<(), ConnectError> {
        let accept = || {
            if !self.is_lookup() {
                return Err(refuse("the request is for a connection: Request::accept"));
            }
            check_queue_pair(&self.id, parameter)?;
            Ok(self.id.accept(parameter)?)
        };
        accept().map_err(|cause| ConnectError::new(ConnectStep::Accept, self.peer, cause))
    }

    /// `rdma_reject(id, private_data, private_data_len)` — says no, with something to read: at most 148 bytes for a connection,
    /// 136 for a lookup.
    ///
    /// # Errors
    ///
    /// [`ConnectCause::Verb`]: as [`Identifier::reject`]. It is a no all the same.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        self.id.reject(private_data).map_err(|error| ConnectError::new(ConnectStep::Reject, self.peer, error))
    }
}

fn check_queue_pair(id: &Arc<Identifier>, parameter: &ConnectionParameter) -> Result<(), ConnectCause> {
    if id.has_queue_pair() || parameter.qp_number() != 0 {
        return Ok(());
    }
    Err(refuse(
        "no queue pair was made through the identifier, and the parameter has no number of another: Identifier::create_qp",
    ))
}

#[cold]
fn refuse(hint: &'static str) -> ConnectCause {
    ConnectCause::Verb(VerbError::invalid("rdma_accept", hint))
}
