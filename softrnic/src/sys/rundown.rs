//! Run-down protection: an object has any number of users, until one thread refuses new users and waits for the rest.
//! That thread then has exclusive access.
//!
//! Atomics and locks come from `sync`, so that the tests in `tests/models` can replace them by those of loom, which tries
//! the possible interleavings of threads.

use crate::sys::sync::{AtomicU64, Condvar, Mutex, Ordering, SPINS, spin_loop, unpoisoned};

/// The bit that is set while new users are refused. The other bits count the current users.
const CLOSED: u64 = 1 << 63;

/// Counts the users of an object.
#[derive(Debug)]
pub(crate) struct Rundown(AtomicU64);

/// The mutex and condition variable on which threads wait for a run-down.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) lock: Mutex<()>,
    pub(crate) left: Condvar,
}

impl Rundown {
    /// Creates the state of a closed object.
    pub(crate) fn closed() -> Self {
        Self(AtomicU64::new(CLOSED))
    }

    /// Adds a user unless the object is closed. All writes made before the object was opened are visible to the user.
    #[inline]
    pub(crate) fn enter<'w>(&self, waiting: impl FnOnce() -> &'w Waiting) -> bool {
        let before = self.0.fetch_add(1, Ordering::Acquire);
        if before & CLOSED != 0 {
            self.leave(waiting);
            return false;
        }
        true
    }

    /// Adds another use for a current user. Succeeds even during a run-down, which waits for this user anyway.
    pub(crate) fn enter_again(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a user.
    #[inline]
    pub(crate) fn leave<'w>(&self, waiting: impl FnOnce() -> &'w Waiting) {
        if self.0.fetch_sub(1, Ordering::Release) == CLOSED | 1 {
            wake(waiting());
        }
    }

    /// Refuses new users and waits until the current ones have left. Returns `false` if the object is already closed.
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

    /// Admits users again. Only the thread that closed the object calls this function.
    pub(crate) fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::Release);
    }
}

/// Wakes the closing thread. The last user calls this function. The lock ensures that the wake-up happens either before
/// the closing thread checks the count or after it has begun to sleep.
#[cold]
fn wake(waiting: &Waiting) {
    drop(unpoisoned(waiting.lock.lock()));
    waiting.left.notify_all();
}
