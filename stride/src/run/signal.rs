//! What the threads of a side and the one that waits for them tell each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::tsc::Tsc;

/// What the threads of a side and the one that waits for them tell each other.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    stop: AtomicBool,
    done: AtomicU64,
    /// Those who do nothing until then sleep here: on a small machine, whoever looks each millisecond is seen in the figures.
    sleepers: Mutex<()>,
    stopped: Condvar,
    /// The time in which messages count: its begin is the first thread's, and its end too.
    opened: OnceLock<Moment>,
    closed: OnceLock<Moment>,
    /// Times of a latency, of which a thread tells seldom.
    spells: Mutex<Vec<SampleWindow>>,
}

/// A time, and how many messages were done then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(crate) done: u64,
}

/// Times of a latency between two moments, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleWindow {
    pub(crate) start: Tsc,
    pub(crate) end: Tsc,
    pub(crate) samples: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) sum: u64,
}

impl SampleWindow {
    pub(crate) fn new(start: Tsc) -> Self {
        Self { start, end: start, samples: 0, min: u64::MAX, max: 0, sum: 0 }
    }

    /// With one more.
    pub(crate) fn with(self, time: u64) -> Self {
        let (min, max) = (self.min.min(time), self.max.max(time));
        Self { samples: self.samples + 1, min, max, sum: self.sum.saturating_add(time), ..self }
    }

    pub(crate) fn until(self, end: Tsc) -> Self {
        Self { end, ..self }
    }
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

    /// From now on messages count, on this thread.
    pub(crate) fn open(&self, at: Instant) {
        self.opened.get_or_init(|| Moment { at, done: self.done() });
    }

    /// And from now on none does any more.
    pub(crate) fn close(&self, at: Instant) {
        self.closed.get_or_init(|| Moment { at, done: self.done() });
    }

    pub(crate) fn opened(&self) -> Option<Moment> {
        self.opened.get().copied()
    }

    pub(crate) fn closed(&self) -> Option<Moment> {
        self.closed.get().copied()
    }

    /// Tells of times.
    pub(crate) fn tell(&self, spell: SampleWindow) {
        self.spells.lock().unwrap_or_else(PoisonError::into_inner).push(spell);
    }

    /// What was told since the last look.
    pub(crate) fn spells(&self) -> Vec<SampleWindow> {
        std::mem::take(&mut *self.spells.lock().unwrap_or_else(PoisonError::into_inner))
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
