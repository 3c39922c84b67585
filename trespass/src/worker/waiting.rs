//! Waiting for a worker: tasks and calls that wait for its connections, and threads that sleep on its descriptor.

use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::task::Waker;
use std::time::Duration;

use crate::backend::verbs::Sleeper;
use crate::backend::{LinkId, ListenerId};

use super::driver::Driver;
use super::waiters::{Waiters, Woken};
use super::{Awaited, ConnectionId, Kind, ListenId, Wait, Worker, now};

/// The source of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Connection(ConnectionId, Awaited),
    /// The connections to accept of a listener.
    Acceptor(ListenId),
}

/// A call or a future that waits for an event. Its number identifies it: one task may poll several futures with the same
/// waker.
#[derive(Debug)]
pub(crate) struct Registration(Source, u64);

impl Worker {
    /// Prepares to wait until [`Worker::fd`] is readable. Returns the maximum time to wait, which is zero if work is
    /// already pending.
    ///
    /// # Errors
    ///
    /// The device has failed.
    pub fn arm(&mut self) -> io::Result<Duration> {
        let time = self.prepare()?;
        if self.has_woken() {
            drop(self.take_woken());
            return Ok(Duration::ZERO);
        }
        Ok(time)
    }

    /// Does the same as `arm`, but does not call wakers.
    pub(super) fn prepare(&mut self) -> io::Result<Duration> {
        self.post_all();
        self.look_next();
        self.pass_time();
        // If the worker has a device, earlier turns may have skipped this descriptor. If the descriptor is readable,
        // the caller must not sleep: the next turn polls it.
        let idle = self.arm_backends()? && (self.verbs.is_empty() || !self.is_readable()?);
        Ok(if idle { self.time_left() } else { Duration::ZERO })
    }

    /// Posts what receives have started. The next turn takes what this completes.
    pub(super) fn post_all(&mut self) {
        self.flush();
        self.tcp_silence = 0;
    }

    /// Returns how long the worker needs no turn if no event arrives.
    pub(super) fn time_left(&self) -> Duration {
        Duration::from_millis(self.due().saturating_sub(now()))
    }

    /// Returns the time, in milliseconds, at which the worker needs its next turn even without events.
    pub(super) fn due(&self) -> u64 {
        self.verbs.iter().map(Driver::deadline).fold(self.tcp.deadline(), u64::min)
    }

    fn is_readable(&self) -> io::Result<bool> {
        Sleeper::default().sleep([self.fd()], Duration::ZERO).map(|[is_readable]| is_readable)
    }

    /// Returns what a thread needs to sleep on the worker's descriptor.
    pub(super) fn sleeper(&self) -> Sleeper {
        self.verbs.get(0).map(|verbs| verbs.backend.sleeper()).unwrap_or_default()
    }

    /// Waits until [`Worker::fd`] or `other` is readable, but at most for the time `most`. Call [`Worker::arm`] first. A
    /// signal can end the wait early.
    ///
    /// If the device is in software, this method can be faster than `poll(2)` on the two descriptors, because the thread
    /// does the device's work while it waits.
    ///
    /// # Errors
    ///
    /// The system is out of memory.
    pub fn sleep(&self, other: BorrowedFd<'_>, most: Duration) -> io::Result<()> {
        self.sleeper().sleep([self.fd(), other], most).map(drop)
    }

    /// Waits until there is work, but at most for the time `most`.
    ///
    /// # Errors
    ///
    /// See [`Worker::arm`].
    pub fn wait(&mut self, most: Duration) -> io::Result<()> {
        let time = self.arm()?.min(most);
        if !time.is_zero() {
            self.sleeper().sleep([self.fd()], time)?;
        }
        self.pass_time();
        Ok(())
    }

    /// Registers a task to be woken when a connection may be readable or writable. Call this function after
    /// `WouldBlock`. Each direction has one waker, the last one registered; [`Worker::poll`] and [`Worker::arm`] call
    /// that waker.
    pub fn register(&mut self, id: ConnectionId, what: Wait, waker: &Waker) {
        self.register_task(id, what, &mut Some(waker.clone()));
    }

    /// Registers a task as `register` does. Takes the waker unless it is registered already.
    pub(crate) fn register_task(&mut self, id: ConnectionId, what: Wait, waker: &mut Option<Waker>) {
        match self.waiters(id) {
            Some((waiters, woken)) => waiters.add_task(what.into(), waker, woken),
            None => waker.take().into_iter().for_each(|waker| self.tcp.table.woken.push(waker)),
        }
    }

    /// Registers a call or a future, which is woken like a task until it is [removed](Self::remove_call).
    pub(crate) fn register_call(&mut self, source: Source, waker: Waker) -> Registration {
        self.last_call += 1;
        let number = self.last_call;
        match source {
            Source::Connection(id, what) => match self.waiters(id) {
                Some((waiters, _)) => waiters.add_call(what, waker, number),
                None => self.tcp.table.woken.push(waker),
            },
            Source::Acceptor(listener) => {
                // The caller has looked for connections that were added before.
                self.wake_acceptors();
                self.acceptors.entry(listener).or_default().add_call(Awaited::Message, waker, number);
                self.look_next();
            }
        }
        Registration(source, number)
    }

    /// Removes a call or a future that no longer waits. Returns its waker if it was not woken. A waker of the program must
    /// be dropped after the worker's lock is released.
    #[must_use]
    pub(crate) fn remove_call(&mut self, Registration(source, number): Registration) -> Option<Waker> {
        match source {
            Source::Connection(id, _) => self.waiters(id)?.0.remove_call(number),
            Source::Acceptor(listener) => {
                let waiters = self.acceptors.get_mut(&listener)?;
                let waker = waiters.remove_call(number);
                if waiters.is_empty() {
                    self.acceptors.remove(&listener);
                }
                waker
            }
        }
    }

    /// Wakes the calls and futures that wait for an event of a connection.
    pub(crate) fn wake_calls(&mut self, id: ConnectionId, what: Awaited) {
        if let Some((waiters, woken)) = self.waiters(id) {
            waiters.wake(what, woken);
        }
    }

    /// Returns `WouldBlock` until the connection is established.
    pub(crate) fn has_established(&mut self, id: ConnectionId) -> io::Result<()> {
        unless_blocked(self.is_established(id)?)
    }

    /// Returns `WouldBlock` until the peer's NIC has received everything that was sent.
    pub(crate) fn has_flushed(&mut self, id: ConnectionId) -> io::Result<()> {
        unless_blocked(self.is_flushed(id)?)
    }

    fn waiters(&mut self, id: ConnectionId) -> Option<(&mut Waiters, &mut Woken)> {
        match id.kind() {
            Kind::Rdma => self.verbs.get_mut(id.device)?.table.waiters(id.link),
            Kind::Tcp => self.tcp.table.waiters(id.link),
        }
    }

    pub(super) fn wake_acceptors(&mut self) {
        // A connection that waits for another listener must not wake the calls in each turn.
        let take = |has: bool, verbs: &mut Driver<_>| mem::take(&mut verbs.table.has_new_accepted) | has;
        let verbs = self.verbs.iter_mut().fold(false, take);
        if mem::take(&mut self.tcp.table.has_new_accepted) || verbs {
            // A connection of another listener must not wake a call, which may be one that trusts its wake-up.
            let mut waiting: Vec<_> = self.acceptors.keys().copied().collect();
            waiting.retain(|listener| self.has_accepted(*listener));
            waiting.into_iter().for_each(|listener| self.wake_acceptor(listener));
        }
    }

    /// Wakes the calls and futures that wait for a listener.
    pub(super) fn wake_acceptor(&mut self, listener: ListenId) {
        if let Some(mut waiters) = self.acceptors.remove(&listener) {
            waiters.wake_all(&mut self.tcp.table.woken);
        }
    }

    #[cfg(test)]
    pub(super) fn set_ticking(&mut self, is_ticking: bool) {
        self.tcp.table.next_tick = if is_ticking { 0 } else { u64::MAX };
    }

    /// Whether `try_recv` would return a message, the end or an error.
    pub(crate) fn can_receive(&mut self, id: ConnectionId) -> bool {
        let ready = on!(self, id, driver => driver.with(id.link, |protocol, stock, _| Ok(protocol.can_receive(stock))));
        ready.unwrap_or_else(|error| error.kind() != io::ErrorKind::WouldBlock)
    }

    /// Whether the end of the peer's bytes is next. Returns the reason why the connection ended if that is next.
    pub(crate) fn is_at_end(&mut self, id: ConnectionId) -> io::Result<bool> {
        on!(self, id, driver => driver.with(id.link, |protocol, stock, _| protocol.is_at_end(stock)))
    }

    /// Whether `try_send` would accept a message or return an error other than `WouldBlock`.
    pub(crate) fn can_send(&mut self, id: ConnectionId) -> bool {
        let ready = on!(self, id, driver => driver.get(id.link).map(|protocol| {
            protocol.can_send() || protocol.has_ended()
        }));
        ready.unwrap_or_else(|error| error.kind() != io::ErrorKind::WouldBlock)
    }

    /// Whether `try_accept` would return a connection, or an error other than `WouldBlock`.
    pub(crate) fn has_accepted(&self, listener: ListenId) -> bool {
        let has = |accepted: &[(ListenerId, LinkId)]| accepted.iter().any(|(of, _)| *of == listener.0);
        !self.listeners.contains_key(&listener)
            || has(&self.tcp.table.accepted)
            || self.verbs.any(|verbs| has(&verbs.table.accepted))
    }
}

fn unless_blocked(is_done: bool) -> io::Result<()> {
    if is_done { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
}
