//! The active side: a peer to which the way is known.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::deadline::Deadline;
use super::watch::await_event;
use super::{ConnectCause, ConnectError, ConnectStep, Connection};
use crate::error::VerbError;
use crate::ibverbs::device_context::DeviceContext;
use crate::rdmacm::communication_manager::{
    ConnectionInfo, ConnectionParameter, EventKind, Identifier, RemoteDatagram,
};

const VERB: &str = "rdma_connect";

/// A peer to which the way is known, and the device that leads there: on it, the program makes the connection's queue pair.
#[derive(Debug)]
#[must_use = "nothing is asked of the peer yet"]
pub struct Resolved {
    id: Arc<Identifier>,
    device: Arc<DeviceContext>,
    address: SocketAddr,
    timeout: Duration,
    left: Option<Duration>,
}

impl Resolved {
    pub(super) fn new(
        id: Arc<Identifier>,
        address: SocketAddr,
        timeout: Duration,
        left: Option<Duration>,
    ) -> Result<Self, ConnectError> {
        match id.get_device_context() {
            Some(device) => Ok(Self { id, device, address, timeout, left }),
            None => Err(ConnectError::new(
                ConnectStep::ResolveAddress,
                Some(address),
                VerbError::invalid("rdma_resolve_addr", "the library named no device"),
            )),
        }
    }

    /// The identifier, through which the queue pair is made.
    pub fn identifier(&self) -> &Arc<Identifier> {
        &self.id
    }

    /// The device that leads to the peer. All connections over it give the same.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.device
    }

    /// The peer's address.
    pub fn peer_address(&self) -> SocketAddr {
        self.address
    }

    /// This side's address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// `rdma_connect(id, conn_param)` — connects the queue pair that was made through the identifier, which is ready to send
    /// afterwards, within what is left of [the time](super::Connector::setup_timeout).
    ///
    /// Where it fails, the queue pair is of no more use: destroying it is what makes the kernel forget the attempt.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::Rejected`]: nobody listens at the port, or the program there said no, with data perhaps.
    /// - [`ConnectCause::TimedOut`], [`ConnectCause::Unreachable`]: no answer.
    /// - [`ConnectCause::Event`]: a side could not move its queue pair.
    /// - [`ConnectCause::Verb`]: as [`Identifier::connect`]; `EINVAL` where the identifier has no queue pair.
    pub fn connect(self, parameter: &ConnectionParameter) -> Result<Connection, ConnectError> {
        let connect = || {
            self.check_connections()?;
            if !self.id.has_queue_pair() {
                return Err(refuse(
                    "no queue pair was made through the identifier: make one with Identifier::create_qp, or move one by hand in \
                     Resolved::connect_with",
                ));
            }
            let deadline = self.begin(parameter)?;
            await_event(&self.id, &deadline, |kind| match kind {
                EventKind::Established(info) => Ok(info),
                other => Err(other),
            })
        };
        let info = connect().map_err(|cause| self.error(ConnectStep::Connect, cause))?;
        Ok(Connection::new(self.id, info))
    }

    /// `rdma_connect`, `rdma_establish` — the same with a queue pair that was not made through the identifier, and whose number
    /// `parameter` has: `prepare` moves it to ReadyToSend, as [`Identifier::get_qp_attr`] says, once the peer has accepted.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); [`ConnectCause::Program`] has those of `prepare`.
    pub fn connect_with<E: Into<Box<dyn Error + Send + Sync>>>(
        self,
        parameter: &ConnectionParameter,
        prepare: impl FnOnce(&Arc<Identifier>, &ConnectionInfo) -> Result<(), E>,
    ) -> Result<Connection, ConnectError> {
        let connect = || {
            self.check_connections()?;
            if self.id.has_queue_pair() {
                return Err(refuse(
                    "the queue pair was made through the identifier, which moves it: Resolved::connect",
                ));
            }
            if parameter.qp_number() == 0 {
                return Err(refuse("the peer has to know the queue pair: ConnectionParameter::setup_qp_number"));
            }
            let deadline = self.begin(parameter)?;
            let info = await_event(&self.id, &deadline, |kind| match kind {
                EventKind::ConnectResponse(info) => Ok(info),
                other => Err(other),
            })?;
            prepare(&self.id, &info).map_err(|error| ConnectCause::Program(error.into()))?;
            self.id.establish()?;
            Ok(info)
        };
        let info = connect().map_err(|cause| self.error(ConnectStep::Connect, cause))?;
        Ok(Connection::new(self.id, info))
    }

    /// `rdma_connect(id, conn_param)` — looks the peer's queue pair for datagrams up ([`PortSpace::Udp`]): where to send.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::Unreachable`]: nobody listens at the port, the program there said no, or no answer.
    /// - else as [`connect`](Self::connect).
    ///
    /// [`PortSpace::Udp`]: crate::rdmacm::communication_manager::PortSpace::Udp
    pub fn lookup(self, parameter: &ConnectionParameter) -> Result<RemoteDatagram, ConnectError> {
        let lookup = || {
            if !self.id.port_space().is_datagram() {
                return Err(refuse(
                    "a queue pair for datagrams is looked up in PortSpace::Udp; here, Resolved::connect",
                ));
            }
            let deadline = self.begin(parameter)?;
            await_event(&self.id, &deadline, |kind| match kind {
                EventKind::LookupResponse(found) => Ok(found),
                other => Err(other),
            })
        };
        lookup().map_err(|cause| self.error(ConnectStep::Lookup, cause))
    }

    fn check_connections(&self) -> Result<(), ConnectCause> {
        if self.id.port_space().is_datagram() {
            return Err(refuse("there are no connections in this port space: Resolved::lookup"));
        }
        Ok(())
    }

    /// Asks the peer; gives the time that it has to answer.
    fn begin(&self, parameter: &ConnectionParameter) -> Result<Deadline, ConnectCause> {
        let deadline = Deadline::resume(self.timeout, self.left);
        deadline.check()?;
        self.id.connect(parameter)?;
        Ok(deadline)
    }

    #[cold]
    fn error(&self, step: ConnectStep, cause: ConnectCause) -> ConnectError {
        ConnectError::new(step, Some(self.address), cause)
    }
}

#[cold]
fn refuse(hint: &'static str) -> ConnectCause {
    ConnectCause::Verb(VerbError::invalid(VERB, hint))
}
