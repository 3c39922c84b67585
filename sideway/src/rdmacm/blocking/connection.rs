//! An established connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::deadline::Deadline;
use super::watch::Watch;
use super::{ConnectCause, ConnectError, ConnectStep};
use crate::rdmacm::communication_manager::{ConnectionInfo, Event, EventChannel, EventKind, Identifier};

/// An established connection. It can be disconnected, and it reports how it ended. Use the queue pair to transfer data.
///
/// The connection and the queue pair created through its identifier keep the identifier alive. When both are dropped,
/// the connection ends and the peer is notified.
///
/// Several threads can wait for the end of the connection at the same time. Each of them is woken up.
#[derive(Debug)]
pub struct Connection {
    id: Arc<Identifier>,
    info: ConnectionInfo,
    peer: Option<SocketAddr>,
    life: Watch<Life>,
}

#[derive(Debug, Default)]
struct Life {
    end: Option<Ended>,
    has_address_changed: bool,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// The peer disconnected, possibly abruptly, or confirmed the disconnect.
    Disconnected,
    /// This side disconnected, and the peer did not confirm this within the kernel's time limit.
    NoAnswer,
    /// The device is being removed.
    DeviceRemoval,
}

impl Connection {
    /// `end` is `Some` if the connection has already ended.
    pub(super) fn new(id: Arc<Identifier>, info: ConnectionInfo, end: Option<Ended>) -> Self {
        let life = Watch::default();
        life.lock_known(|life: &mut Life| life.end = end);
        Self { peer: id.peer_address(), id, info, life }
    }

    /// Returns the identifier.
    pub fn identifier(&self) -> &Arc<Identifier> {
        &self.id
    }

    /// Returns the identifier's channel, for programs that poll(2) many connections. When it becomes readable, call
    /// [`ended`](Self::ended) to check whether the connection has ended.
    pub fn event_channel(&self) -> Arc<EventChannel> {
        self.id.event_channel()
    }

    /// Returns the peer's parameters. On the passive side they are those of the peer's request, and on the active side
    /// those of its reply.
    pub fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Returns the peer's address.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns this side's address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// Waits for the end of the connection, without a time limit if `timeout` is `None`. After the end, each call
    /// returns the reason again.
    ///
    /// If the peer has disconnected, it waits for a confirmation. To confirm, call [`disconnect`](Self::disconnect), or
    /// drop all owners of the identifier. Outstanding receives are then flushed.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::TimedOut`]: the connection has not ended.
    /// - [`ConnectCause::Verb`]: the errors of [`EventChannel::get_cm_event`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Ended, ConnectError> {
        self.wait_in(ConnectStep::Wait, timeout)
    }

    /// Returns how the connection ended, or `None` if it has not.
    ///
    /// # Errors
    ///
    /// The errors are those of [`wait`](Self::wait), except that this method returns `Ok(None)` instead of `TimedOut`.
    pub fn ended(&self) -> Result<Option<Ended>, ConnectError> {
        match self.wait(Some(Duration::ZERO)) {
            Ok(ended) => Ok(Some(ended)),
            Err(error) if error.is_timed_out() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the connection has ended, or its state can no longer be read. [`ended`](Self::ended) distinguishes these
    /// two cases.
    pub fn is_ended(&self) -> bool {
        !matches!(self.ended(), Ok(None))
    }

    /// Whether the network device's hardware address has changed since the connection was established (bonding),
    /// according to the events so far. A new connection uses the new address.
    pub fn has_address_changed(&self) -> bool {
        self.life.lock_known(|life| life.has_address_changed)
    }

    /// `rdma_disconnect(id)` — disconnects, and waits for the peer's confirmation. Without a `timeout` this takes at
    /// most the kernel's limit of one or two minutes. If the peer disconnected first, the call confirms this and does
    /// not wait.
    ///
    /// A queue pair that was created through the identifier enters the error state, and its outstanding requests are
    /// flushed. Before calling this, wait for the completions of all requests whose data must arrive.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::TimedOut`]: the peer did not confirm. The connection has ended nevertheless.
    /// - [`ConnectCause::Verb`]: the errors of [`Identifier::disconnect`].
    pub fn disconnect(&self, timeout: Option<Duration>) -> Result<Ended, ConnectError> {
        match (self.id.disconnect(), self.ended()) {
            (_, Ok(Some(ended))) => Ok(ended),
            (Err(error), _) => Err(ConnectError::new(ConnectStep::Disconnect, self.peer, error)),
            _ => self.wait_in(ConnectStep::Disconnect, timeout),
        }
    }

    fn wait_in(&self, step: ConnectStep, timeout: Option<Duration>) -> Result<Ended, ConnectError> {
        let deadline = Deadline::within(timeout);
        let look = |life: &mut Life| Ok(life.end);
        let learn = |life: &mut Life, event: Event| life.learn(&self.id, event);
        self.life
            .wait(&self.id.event_channel(), &deadline, look, learn)
            .map_err(|cause: ConnectCause| ConnectError::new(step, self.peer, cause))
    }
}

impl Life {
    fn learn(&mut self, id: &Arc<Identifier>, event: Event) {
        if !Arc::ptr_eq(event.cm_id(), id) {
            rdma_mummy_sys::log!(warn, "{event}: ignored an event of another identifier on a connection's channel");
            return;
        }
        let end = match event.kind() {
            EventKind::Disconnected(_)
                if event.status().errno().is_some_and(|errno| errno.raw() == libc::ETIMEDOUT) =>
            {
                Ended::NoAnswer
            }
            EventKind::Disconnected(_) => Ended::Disconnected,
            EventKind::DeviceRemoval => Ended::DeviceRemoval,
            EventKind::AddressChange => {
                self.has_address_changed = true;
                return;
            }
            EventKind::TimewaitExit => return,
            _ => {
                rdma_mummy_sys::log!(warn, "{event}: ignored for an established connection");
                return;
            }
        };
        self.end.get_or_insert(end);
    }
}
