//! What the threads of a side and the one that waits for them tell each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the threads of a side and the one that waits for them tell each other.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    stop: AtomicBool,
    done: AtomicU64,
}

impl Signal {
    /// The loops are to end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether they are.
    #[inline]
    pub(crate) fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
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
