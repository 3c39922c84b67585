//! The active side of connections: a peer with a resolved route.

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

/// A peer with a resolved route, and the device that leads to it. Create the connection's queue pair on this device.
#[derive(Debug)]
#[must_use = "the peer has received no request yet"]
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
                VerbError::invalid("rdma_resolve_addr", "the library returned no device"),
            )),
        }
    }

    /// Returns the identifier. Create the queue pair of the connection through it.
    pub fn identifier(&self) -> &Arc<Identifier> {
        &self.id
    }

    /// Returns the device that leads to the peer. All connections over this device return the same object.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.device
    }

    /// Returns the peer's address.
    pub fn peer_address(&self) -> SocketAddr {
        self.address
    }

    /// Returns this side's address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// `rdma_connect(id, conn_param)` — connects the queue pair that was created through the identifier, within the
    /// time that remains of [the time limit](super::Connector::setup_timeout). The queue pair is then ready to send.
    ///
    /// If this fails, destroy the queue pair. It cannot be used again, and the kernel keeps the failed attempt as long
    /// as the queue pair exists.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::Rejected`]: there is no listener on the port, or the program there rejected the request,
    ///   possibly with private data.
    /// - [`ConnectCause::TimedOut`], [`ConnectCause::Unreachable`]: the peer did not respond.
    /// - [`ConnectCause::Event`]: one side could not modify its queue pair.
    /// - [`ConnectCause::Verb`]: the errors of [`Identifier::connect`], with `EINVAL` if the identifier has no queue
    ///   pair.
    pub fn connect(self, parameter: &ConnectionParameter) -> Result<Connection, ConnectError> {
        let connect = || {
            self.check_connections()?;
            if !self.id.has_queue_pair() {
                return Err(refuse(
                    "no queue pair was created through the identifier; create one with Identifier::create_qp, or \
                    move your own in Resolved::connect_with",
                ));
            }
            let deadline = self.begin(parameter)?;
            await_event(&self.id, &deadline, |kind| match kind {
                EventKind::Established(info) => Ok(info),
                other => Err(other),
            })
        };
        let info = connect().map_err(|cause| self.error(ConnectStep::Connect, cause))?;
        Ok(Connection::new(self.id, info, None))
    }

    /// `rdma_connect`, `rdma_establish` — connects a queue pair that was not created through the identifier. Its number
    /// is in `parameter`. When the peer has accepted, this method calls `prepare`, which must move the queue pair to
    /// ReadyToSend, as described at [`Identifier::get_qp_attr`].
    ///
    /// iWARP devices move the queue pair themselves, so `prepare` is not called. Move the queue pair to Init before
    /// this call.
    ///
    /// # Errors
    ///
    /// The errors are those of [`connect`](Self::connect). In addition, [`ConnectCause::Program`] contains an error of
    /// `prepare`.
    pub fn connect_with<E: Into<Box<dyn Error + Send + Sync>>>(
        self,
        parameter: &ConnectionParameter,
        prepare: impl FnOnce(&Arc<Identifier>, &ConnectionInfo) -> Result<(), E>,
    ) -> Result<Connection, ConnectError> {
        let connect = || {
            self.check_connections()?;
            if self.id.has_queue_pair() {
                return Err(refuse(
                    "the queue pair was created through the identifier, which moves it; call Resolved::connect",
                ));
            }
            if parameter.qp_number() == 0 {
                return Err(refuse(
                    "the peer needs the queue pair's number; set it with \
                    ConnectionParameter::setup_qp_number",
                ));
            }
            let deadline = self.begin(parameter)?;
            let (info, is_established) = await_event(&self.id, &deadline, |kind| match kind {
                EventKind::ConnectResponse(info) => Ok((info, false)),
                EventKind::Established(info) => Ok((info, true)),
                other => Err(other),
            })?;
            if is_established {
                return Ok(info);
            }
            prepare(&self.id, &info).map_err(|error| ConnectCause::Program(error.into()))?;
            self.id.establish()?;
            Ok(info)
        };
        let info = connect().map_err(|cause| self.error(ConnectStep::Connect, cause))?;
        Ok(Connection::new(self.id, info, None))
    }

    /// `rdma_connect(id, conn_param)` — looks up the peer's queue pair for datagrams ([`PortSpace::Udp`]), and returns
    /// its destination address.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::Unreachable`]: there is no listener on the port, the program there rejected the lookup, or the
    ///   peer did not respond.
    /// - Otherwise the errors of [`connect`](Self::connect).
    ///
    /// [`PortSpace::Udp`]: crate::rdmacm::communication_manager::PortSpace::Udp
    pub fn lookup(self, parameter: &ConnectionParameter) -> Result<RemoteDatagram, ConnectError> {
        let lookup = || {
            if !self.id.port_space().is_datagram() {
                return Err(refuse("lookups need PortSpace::Udp; call Resolved::connect in this port space"));
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
            return Err(refuse("this port space has no connections; call Resolved::lookup"));
        }
        Ok(())
    }

    /// Sends the request, and returns the deadline for the response.
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
