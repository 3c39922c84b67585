//! Gates: any number may be in while one is open; who closes it waits until all have left, and then has what is behind it alone.
//!
//! What it is built from comes from `sync`, so that a test can have it of `loom` (`tests/loom`), which tries every order
//! in which threads can come by.

use crate::sys::sync::{AtomicU64, Condvar, Mutex, Ordering, SPINS, spin_loop, unpoisoned};

/// Nobody may enter. The rest counts those who are in.
const CLOSED: u64 = 1 << 63;

/// A gate.
#[derive(Debug)]
pub(crate) struct Rundown(AtomicU64);

/// Those who close any gate sleep on these.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) lock: Mutex<()>,
    pub(crate) left: Condvar,
}

impl Rundown {
    /// A closed one.
    pub(crate) fn closed() -> Self {
        Self(AtomicU64::new(CLOSED))
    }

    /// Enters, unless it is closed. Who has entered sees all that was behind it when it was opened.
    #[inline]
    pub(crate) fn enter<'w>(&self, waiting: impl FnOnce() -> &'w Waiting) -> bool {
        let before = self.0.fetch_add(1, Ordering::Acquire);
        if before & CLOSED != 0 {
            self.leave(waiting);
            return false;
        }
        true
    }

    /// Enters once more, by one who is in, whether it is being closed or not: whoever closes it waits for that one anyway.
    pub(crate) fn enter_again(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Leaves.
    #[inline]
    pub(crate) fn leave<'w>(&self, waiting: impl FnOnce() -> &'w Waiting) {
        if self.0.fetch_sub(1, Ordering::Release) == CLOSED | 1 {
            wake(waiting());
        }
    }

    /// Closes it and waits until nobody is in. `false` where it is closed already.
    pub(crate) fn close<'w>(&self, waiting: impl FnOnce() -> &'w Waiting) -> bool {
        if self.0.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED != 0 {
            return false;
        }
        for _ in 0..SPINS {
            if self.0.load(Ordering::Acquire) == CLOSED {
                return true;
            }
            spin_loop();
        }
        let waiting = waiting();
        let mut lock = unpoisoned(waiting.lock.lock());
        while self.0.load(Ordering::Acquire) != CLOSED {
            lock = unpoisoned(waiting.left.wait(lock));
        }
        true
    }

    /// Opens it, by the one who has closed it.
    pub(crate) fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::Release);
    }
}

/// Called by the last who leaves a closed gate. The lock makes it come before the look or after the sleep of who waits.
#[cold]
fn wake(waiting: &Waiting) {
    drop(unpoisoned(waiting.lock.lock()));
    waiting.left.notify_all();
}
