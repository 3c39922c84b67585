//! A connection that is there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::deadline::Deadline;
use super::watch::Watch;
use super::{ConnectCause, ConnectError, ConnectStep};
use crate::rdmacm::communication_manager::{ConnectionInfo, Event, EventChannel, EventKind, Identifier};

/// A connection: what tells of its end, and ends it. Data goes over the queue pair.
///
/// It holds the identifier, and so does a queue pair that was made through it. When both have gone, so has the connection, and the
/// peer is told.
///
/// Several threads may wait at once: an end is told to all of them.
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

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// The peer has ended it, by force perhaps, or has answered that it is ended.
    Disconnected,
    /// This side has ended it, and the peer has not answered in the kernel's time.
    NoAnswer,
    /// The device is going away.
    DeviceRemoval,
}

impl Connection {
    pub(super) fn new(id: Arc<Identifier>, info: ConnectionInfo) -> Self {
        Self { peer: id.peer_address(), id, info, life: Watch::default() }
    }

    /// The identifier.
    pub fn identifier(&self) -> &Arc<Identifier> {
        &self.id
    }

    /// The channel of the identifier, for who waits for many connections by poll(2): once it is readable, [`ended`](Self::ended)
    /// tells why.
    pub fn event_channel(&self) -> Arc<EventChannel> {
        self.id.event_channel()
    }

    /// What the peer has said of the connection: its proposal, or on the active side its answer.
    pub fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// The peer's address.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// This side's address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// Waits for the end, without limit where `timeout` is `None`; one that has come already is told again.
    ///
    /// A peer that has ended the connection waits for an answer: [`disconnect`](Self::disconnect), or dropping all that holds the
    /// identifier. Receives that are outstanding complete then too, flushed.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::TimedOut`]: the connection stands.
    /// - [`ConnectCause::Verb`]: as [`EventChannel::get_cm_event`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Ended, ConnectError> {
        self.wait_in(ConnectStep::Wait, timeout)
    }

    /// The end, if it has come.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait); that the connection stands is `Ok(None)`.
    pub fn ended(&self) -> Result<Option<Ended>, ConnectError> {
        match self.wait(Some(Duration::ZERO)) {
            Ok(ended) => Ok(Some(ended)),
            Err(error) if error.is_timed_out() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the connection has ended, or can tell nothing any more ([`ended`](Self::ended) says what).
    pub fn is_ended(&self) -> bool {
        !matches!(self.ended(), Ok(None))
    }

    /// Whether the network device has another hardware address since (bonding), by what has come until now: a connection that is
    /// made anew uses it.
    pub fn has_address_changed(&self) -> bool {
        self.life.lock_known(|life| life.has_address_changed)
    }

    /// `rdma_disconnect(id)` — ends the connection, and waits until the peer has answered; without limit where `timeout` is `None`,
    /// which is at most the kernel's limit, a minute or two. Answers the peer, and does not wait, where the peer has ended it.
    ///
    /// A queue pair that was made through the identifier goes to the error state, and what is outstanding completes flushed: what is
    /// to arrive has to have completed before.
    ///
    /// # Errors
    ///
    /// - [`ConnectCause::TimedOut`]: the peer has not answered. The connection has ended all the same.
    /// - [`ConnectCause::Verb`]: as [`Identifier::disconnect`].
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
            log::warn!("{event}: an event of another identifier on a connection's channel is left out");
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
                log::warn!("{event}: means nothing to a connection that is there");
                return;
            }
        };
        self.end.get_or_insert(end);
    }
}
