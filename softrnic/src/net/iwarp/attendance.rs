//! Programs that serve the sockets themselves. This saves a switch to the thread of softrnic and back.
//!
//! A program attends to the sockets while it polls empty completion queues or waits for completion events. During this
//! time, the thread does not wait for the sockets. It only checks whether the program has attended to them since the
//! last check. If not, the program may have stopped, or other work may have its processor. So the thread serves the
//! sockets at this check. It waits for them again only after several such checks. If it did so at once, each short pause
//! of the program would cost several switches between the two.
//!
//! A check interrupts the program if all processors are in use. So the interval grows with the time for which the
//! program attends.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::engine::Engine;
use crate::sys::socket_set::{Polls, SocketSet, TICK, yield_if_empty};
use crate::sys::unpoisoned;
use crate::wire::transport::Sockets;

/// The maximum interval of the thread's checks.
const MAX_INTERVAL: Duration = Duration::from_millis(8);
/// After this number of checks without an attending program, less those with one, the thread waits for the sockets.
const MAX_MISSED: u32 = 8;

/// The times of the thread's checks.
#[derive(Debug)]
pub(super) struct Checks {
    pub(super) next: Instant,
    interval: Duration,
    /// The number of checks without an attending program, less the number of checks with one.
    missed: u32,
}

impl Checks {
    pub(super) fn new(now: Instant) -> Self {
        Self { next: now, interval: TICK, missed: 0 }
    }

    /// Records a check. The next interval is about an eighth of the time for which the program has attended.
    fn count(&mut self, has_attended: bool, now: Instant) {
        (self.interval, self.missed) = match has_attended {
            true => ((self.interval * 9 / 8).min(MAX_INTERVAL), self.missed.saturating_sub(1)),
            false => (TICK, self.missed + 1),
        };
        self.next = now + self.interval;
    }
}

/// The state that determines whether a program or the thread waits for the sockets.
#[derive(Debug)]
pub(super) struct Attendance {
    /// Whether a program attends to the sockets. This flag changes only under the lock `change`.
    is_attended: AtomicBool,
    change: Mutex<()>,
    /// Whether a thread serves the sockets while it waits for an event.
    is_waiting: AtomicBool,
    /// Whether a program has attended to the sockets since the last check of the thread.
    has_attended: AtomicBool,
    /// Whether the thread makes its checks.
    is_checked: AtomicBool,
    polls: Polls,
}

impl Attendance {
    pub(super) const fn new() -> Self {
        Self {
            is_attended: AtomicBool::new(false),
            change: Mutex::new(()),
            is_waiting: AtomicBool::new(false),
            has_attended: AtomicBool::new(false),
            is_checked: AtomicBool::new(false),
            polls: Polls::new(),
        }
    }

    pub(super) fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::SeqCst)
    }

    pub(super) fn is_attended(&self) -> bool {
        self.is_attended.load(Ordering::SeqCst)
    }

    /// Makes a check if one is due. Returns whether the thread must serve the sockets now.
    pub(super) fn check(&self, sockets: &SocketSet, checks: &mut Checks, now: Instant) -> bool {
        self.polls.reset();
        if !self.is_checked() || now < checks.next {
            return !self.is_attended();
        }
        let has_attended = self.has_attended.swap(false, Ordering::SeqCst);
        checks.count(has_attended, now);
        if checks.missed >= MAX_MISSED || !has_attended && !self.is_attended() {
            checks.missed = 0;
            self.is_checked.store(false, Ordering::SeqCst);
            self.end(sockets);
        }
        !has_attended || !self.is_attended()
    }

    pub(super) fn begin(&self, sockets: &SocketSet) {
        if !self.has_attended.load(Ordering::Relaxed) {
            self.has_attended.store(true, Ordering::SeqCst);
        }
        if !self.is_attended() {
            let _change = unpoisoned(self.change.lock());
            if !self.is_attended.swap(true, Ordering::SeqCst) {
                sockets.set_watching(false);
            }
        }
        if !self.is_checked() && !self.is_checked.swap(true, Ordering::SeqCst) {
            sockets.place.wake();
        }
    }

    fn end(&self, sockets: &SocketSet) {
        if self.is_attended() {
            let _change = unpoisoned(self.change.lock());
            if self.is_attended.swap(false, Ordering::SeqCst) {
                sockets.set_watching(true);
            }
        }
    }
}

impl Engine {
    /// Serves the sockets when a program has polled and found no completion. Returns whether anything has arrived on
    /// the sockets.
    #[inline]
    pub(crate) fn progress(&self) -> bool {
        self.has_connections.load(Ordering::Relaxed) && self.polled()
    }

    /// Records that a program will wait for an event instead of polling.
    pub(crate) fn armed(&self) {
        self.attendance.polls.reset();
        if !self.attendance.is_waiting.load(Ordering::Relaxed)
            && let Some(sockets) = self.sockets.get()
        {
            self.attendance.end(sockets);
        }
    }

    fn polled(&self) -> bool {
        let Some(sockets) = self.sockets.get() else { return false };
        let attendance = &self.attendance;
        if !attendance.is_attended.load(Ordering::Relaxed) && attendance.polls.count().is_lt() {
            return false;
        }
        attendance.begin(sockets);
        let only = {
            let connections = unpoisoned(self.connections.read());
            connections.first_key_value().filter(|_| connections.len() == 1).map(|(_, only)| Arc::clone(only))
        };
        let has_found = match only {
            Some(only) => only.serve(false),
            None => self.serve_ready(sockets, false),
        };
        yield_if_empty(has_found);
        has_found
    }
}

impl Sockets for Engine {
    fn attend(&self) -> Option<BorrowedFd<'_>> {
        let sockets = self.sockets.get().filter(|_| self.has_connections.load(Ordering::Relaxed))?;
        if self.attendance.is_waiting.swap(true, Ordering::SeqCst) {
            return None;
        }
        self.attendance.begin(sockets);
        Some(sockets.all.as_fd())
    }

    fn serve(&self) -> bool {
        self.sockets.get().is_some_and(|sockets| self.serve_ready(sockets, true))
    }

    fn leave(&self) {
        let Some(sockets) = self.sockets.get() else { return };
        self.attendance.is_waiting.store(false, Ordering::SeqCst);
        self.attendance.end(sockets);
    }
}
