//! Programs that serve the sockets themselves. This saves a switch to the thread of softrnic and back.
//!
//! While a program waits for completion events, the thread does not wait for the sockets. While it polls empty completion
//! queues, the thread does not either, and only checks whether the program has polled since the last check. If not, the
//! program may have stopped, or other work may have its processor. So the thread serves the sockets at this check. It
//! waits for them again only after several such checks. If it did so at once, each short pause of the program would cost
//! several switches between the two.
//!
//! A check interrupts the program if all processors are in use. So the interval grows with the time for which the
//! program polls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::sys::socket_set::{Polls, Reason, SocketSet, TICK};

/// The maximum interval of the thread's checks.
const MAX_INTERVAL: Duration = Duration::from_millis(8);
/// After this number of checks without a polling program, less those with one, the thread waits for the sockets.
const MAX_MISSED: u32 = 8;

/// The times of the thread's checks.
#[derive(Debug)]
pub(in crate::net) struct Checks {
    pub(in crate::net) next: Instant,
    interval: Duration,
    /// The number of checks without a polling program, less the number of checks with one.
    missed: u32,
}

impl Checks {
    pub(in crate::net) fn new(now: Instant) -> Self {
        Self { next: now, interval: TICK, missed: 0 }
    }

    /// Records a check. The next interval is about an eighth of the time for which the program has polled.
    fn count(&mut self, has_polled: bool, now: Instant) {
        (self.interval, self.missed) = match has_polled {
            true => ((self.interval * 9 / 8).min(MAX_INTERVAL), self.missed.saturating_sub(1)),
            false => (TICK, self.missed + 1),
        };
        self.next = now + self.interval;
    }
}

/// The state that determines whether a program or the thread waits for the sockets.
#[derive(Debug)]
pub(in crate::net) struct Attendance {
    /// Whether a program has polled the sockets since the last check of the thread.
    has_polled: AtomicBool,
    /// Whether the thread makes its checks.
    is_checked: AtomicBool,
    pub(in crate::net) polls: Polls,
}

impl Attendance {
    pub(in crate::net) const fn new() -> Self {
        Self { has_polled: AtomicBool::new(false), is_checked: AtomicBool::new(false), polls: Polls::new() }
    }

    pub(in crate::net) fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::SeqCst)
    }

    /// Makes a check if one is due. Returns whether the thread must serve the sockets now.
    pub(in crate::net) fn check(&self, sockets: &SocketSet, checks: &mut Checks, now: Instant) -> bool {
        self.polls.reset();
        if !self.is_checked() || now < checks.next {
            return !sockets.is_attended();
        }
        let has_polled = self.has_polled.swap(false, Ordering::SeqCst);
        checks.count(has_polled, now);
        if checks.missed >= MAX_MISSED || !has_polled && !sockets.has(Reason::Polled) {
            checks.missed = 0;
            self.is_checked.store(false, Ordering::SeqCst);
            sockets.release(Reason::Polled);
        }
        !has_polled || !sockets.is_attended()
    }

    pub(in crate::net) fn begin(&self, sockets: &SocketSet) {
        if !self.has_polled.load(Ordering::Relaxed) {
            self.has_polled.store(true, Ordering::SeqCst);
        }
        sockets.hold(Reason::Polled);
        if !self.is_checked() && !self.is_checked.swap(true, Ordering::SeqCst) {
            sockets.place.wake();
        }
    }
}
