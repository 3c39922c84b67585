//! Programs that serve the sockets themselves. This saves a switch to the engine's thread and back.
//!
//! A program attends to the sockets while it polls empty completion queues or waits for completion events. During this
//! time, the thread does not wait for the sockets. It only checks every millisecond whether the program still attends
//! to them, and serves the sockets if it does not.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::engine::{Engine, Reactor};
use crate::sys::unpoisoned;
use crate::wire::transport::Sockets;

/// A program counts as polling after this number of empty polls between two events.
const POLLING_AFTER: u32 = 16;
/// A thread yields after this number of consecutive empty polls.
const YIELD_AFTER: u32 = 64;

thread_local! {
    /// The number of consecutive empty polls of this thread.
    static EMPTY: Cell<u32> = const { Cell::new(0) };
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
    /// Whether the thread makes its checks every millisecond.
    is_checked: AtomicBool,
    polls: AtomicU32,
}

impl Attendance {
    pub(super) const fn new() -> Self {
        Self {
            is_attended: AtomicBool::new(false),
            change: Mutex::new(()),
            is_waiting: AtomicBool::new(false),
            has_attended: AtomicBool::new(false),
            is_checked: AtomicBool::new(false),
            polls: AtomicU32::new(0),
        }
    }

    pub(super) fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::SeqCst)
    }

    /// Makes the thread wait for the sockets again, unless a program has attended to them since the last check.
    pub(super) fn check(&self, reactor: &Reactor) {
        self.polls.store(0, Ordering::Relaxed);
        if self.is_checked() && !self.has_attended.swap(false, Ordering::SeqCst) {
            self.is_checked.store(false, Ordering::SeqCst);
            self.end(reactor);
        }
    }

    fn begin(&self, reactor: &Reactor) {
        if !self.has_attended.load(Ordering::Relaxed) {
            self.has_attended.store(true, Ordering::SeqCst);
        }
        if !self.is_attended.load(Ordering::SeqCst) {
            let _change = unpoisoned(self.change.lock());
            if !self.is_attended.swap(true, Ordering::SeqCst) {
                reactor.set_watching(false);
            }
        }
        if !self.is_checked() && !self.is_checked.swap(true, Ordering::SeqCst) {
            reactor.wake();
        }
    }

    fn end(&self, reactor: &Reactor) {
        if self.is_attended.load(Ordering::SeqCst) {
            let _change = unpoisoned(self.change.lock());
            if self.is_attended.swap(false, Ordering::SeqCst) {
                reactor.set_watching(true);
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
        self.attendance.polls.store(0, Ordering::Relaxed);
        if !self.attendance.is_waiting.load(Ordering::Relaxed)
            && let Some(reactor) = self.reactor.get()
        {
            self.attendance.end(reactor);
        }
    }

    fn polled(&self) -> bool {
        let Some(reactor) = self.reactor.get() else { return false };
        let attendance = &self.attendance;
        if !attendance.is_attended.load(Ordering::Relaxed)
            && attendance.polls.fetch_add(1, Ordering::Relaxed) < POLLING_AFTER
        {
            return false;
        }
        attendance.begin(reactor);
        let only = {
            let connections = unpoisoned(self.connections.read());
            connections.first_key_value().filter(|_| connections.len() == 1).map(|(_, only)| Arc::clone(only))
        };
        let has_found = match only {
            Some(only) => only.serve(false),
            None => self.serve_ready(reactor, false),
        };
        let empty = if has_found { 0 } else { EMPTY.get() + 1 };
        EMPTY.set(empty % YIELD_AFTER);
        if empty == YIELD_AFTER {
            thread::yield_now();
        }
        has_found
    }
}

impl Sockets for Engine {
    fn attend(&self) -> Option<BorrowedFd<'_>> {
        let reactor = self.reactor.get().filter(|_| self.has_connections.load(Ordering::Relaxed))?;
        if self.attendance.is_waiting.swap(true, Ordering::SeqCst) {
            return None;
        }
        self.attendance.begin(reactor);
        Some(reactor.sockets.as_fd())
    }

    fn serve(&self) -> bool {
        self.reactor.get().is_some_and(|reactor| self.serve_ready(reactor, true))
    }

    fn leave(&self) {
        let Some(reactor) = self.reactor.get() else { return };
        self.attendance.is_waiting.store(false, Ordering::SeqCst);
        self.attendance.end(reactor);
    }
}
