//! Tasks and calls that wait for a worker's connections.

use std::io;
use std::task::Waker;

use crate::backend::{LinkId, ListenerId};

use super::waiters::{Waiters, Woken};
use super::{Awaited, ConnectionId, Kind, ListenId, Wait, Worker};

impl Worker {
    /// Registers a task to be woken when a connection may be readable or writable. Call this function after
    /// `WouldBlock`. Each direction has one waker, the last one registered; [`Worker::poll`] and [`Worker::arm`] call
    /// that waker.
    pub fn register(&mut self, id: ConnectionId, what: Wait, waker: &Waker) {
        match self.waiters(id) {
            Some((waiters, woken)) => waiters.add_task(what.into(), waker, woken),
            None => self.tcp.table.woken.push(waker.clone()),
        }
    }

    /// Registers a call, which is woken like a task until it is [removed](Self::remove_call).
    pub(crate) fn register_call(&mut self, id: ConnectionId, what: Awaited, waker: &Waker) {
        match self.waiters(id) {
            Some((waiters, _)) => waiters.add_call(what, waker),
            None => self.tcp.table.woken.push(waker.clone()),
        }
    }

    pub(crate) fn remove_call(&mut self, id: ConnectionId, what: Awaited, waker: &Waker) {
        if let Some((waiters, _)) = self.waiters(id) {
            waiters.remove_call(what, waker);
        }
    }

    fn waiters(&mut self, id: ConnectionId) -> Option<(&mut Waiters, &mut Woken)> {
        match id.kind {
            Kind::Rdma => self.verbs.as_mut()?.table.waiters(id.link),
            Kind::Tcp => self.tcp.table.waiters(id.link),
        }
    }

    /// Registers a task to be woken when a connection may be pending.
    pub(crate) fn register_acceptor(&mut self, waker: &Waker) {
        if !self.acceptors.iter().any(|known| known.will_wake(waker)) {
            self.acceptors.push(waker.clone());
            self.quiet = 1;
        }
    }

    pub(super) fn wake_acceptors(&mut self) {
        let verbs = self.verbs.as_ref().is_some_and(|verbs| !verbs.table.accepted.is_empty());
        if verbs || !self.tcp.table.accepted.is_empty() {
            self.acceptors.drain(..).for_each(|waker| self.tcp.table.woken.push(waker));
        }
    }

    #[cfg(test)]
    pub(super) fn wake_calls(&mut self, id: ConnectionId, what: Awaited) {
        if let Some((waiters, woken)) = self.waiters(id) {
            waiters.wake(what, woken);
        }
    }

    #[cfg(test)]
    pub(super) fn never_tick(&mut self) {
        self.tcp.table.next_tick = u64::MAX;
    }

    /// Whether `try_recv` would return a message, the end or an error.
    pub(crate) fn can_receive(&mut self, id: ConnectionId) -> bool {
        let ready = on!(self, id.kind, domain => domain.with(id.link, |connection, stock, _| Ok(connection.can_receive(stock))));
        ready.unwrap_or_else(|error| error.kind() != io::ErrorKind::WouldBlock)
    }

    /// Whether `try_send` would accept a message or return an error other than `WouldBlock`.
    pub(crate) fn can_send(&mut self, id: ConnectionId) -> bool {
        let ready = on!(self, id.kind, domain => domain.with(id.link, |connection, _, _| {
            Ok(connection.can_send() || connection.has_ended())
        }));
        ready.unwrap_or_else(|error| error.kind() != io::ErrorKind::WouldBlock)
    }

    /// Whether `accept` would return a connection.
    pub(crate) fn has_accepted(&self, listener: ListenId) -> bool {
        let has = |accepted: &[(ListenerId, LinkId)]| accepted.iter().any(|(of, _)| *of == listener.0);
        has(&self.tcp.table.accepted) || self.verbs.as_ref().is_some_and(|verbs| has(&verbs.table.accepted))
    }
}
