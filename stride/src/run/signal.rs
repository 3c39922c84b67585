//! What the threads of a side and the one that waits for them tell each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// What the threads of a side and the one that waits for them tell each other.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    stop: AtomicBool,
    done: AtomicU64,
    /// Those who do nothing until then sleep here: on a small machine, whoever looks each millisecond is seen in the figures.
    sleepers: Mutex<()>,
    stopped: Condvar,
}

impl Signal {
    /// The loops are to end.
    pub(crate) fn stop(&self) {
        // With the lock, so that nobody falls asleep between his look and this.
        let guard = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop.store(true, Ordering::Relaxed);
        drop(guard);
        self.stopped.notify_all();
    }

    /// Whether they are.
    #[inline]
    pub(crate) fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps until they are.
    pub(crate) fn wait(&self) {
        let guard = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        // A guard of a mutex that protects nothing.
        drop(self.stopped.wait_while(guard, |()| !self.has_stopped()));
    }

    /// So many messages more are done.
    pub(crate) fn add(&self, messages: u64) {
        self.done.fetch_add(messages, Ordering::Relaxed);
    }

    /// How many are, of all threads.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// Who looks in vain: now and then others have their turn, where there are fewer processors than threads that look.
#[derive(Debug, Default)]
pub(crate) struct Idle(u32);

impl Idle {
    /// One more look in vain, of so many after which others have their turn.
    #[inline]
    pub(crate) fn look(&mut self, most: u32) {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(most) {
            std::thread::yield_now();
        }
    }
}

/// So many empty polls of a completion queue take some tens of microseconds.
pub(crate) const EMPTY_POLLS: u32 = 1024;
/// And so many looks at a byte.
pub(crate) const LOOKS: u32 = 16_384;
