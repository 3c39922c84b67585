//! The state that the measuring threads of a side share with the thread that waits for them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::tsc::Tsc;

/// The state that the measuring threads of a side share with the thread that waits for them.
#[derive(Debug, Default)]
pub struct Signal {
    stop: AtomicBool,
    done: AtomicU64,
    /// The lock for the condition variable on which threads without work sleep. If these threads woke up each
    /// millisecond to check for work, the figures of a small machine would be worse.
    sleepers: Mutex<()>,
    stopped: Condvar,
    /// The window of the step. The first thread that starts opens the window, and the first thread that ends closes the
    /// window.
    opened: OnceLock<Moment>,
    closed: OnceLock<Moment>,
    /// The summaries of latency intervals. Threads add to this list rarely.
    intervals: Mutex<Vec<SampleWindow>>,
}

/// A point in time, and the number of messages that had completed by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The point in time.
    pub at: Instant,
    /// Number of messages.
    pub done: u64,
}

/// Summary of the latency samples between two points in time, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleWindow {
    /// Start of the first sample.
    pub start: Tsc,
    /// End of the last sample.
    pub end: Tsc,
    /// Number of samples.
    pub samples: u64,
    /// Minimum. If there are no samples, this is the largest number.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// Sum.
    pub sum: u64,
}

impl SampleWindow {
    /// Returns a summary without samples, which starts at `start`.
    pub fn new(start: Tsc) -> Self {
        Self { start, end: start, samples: 0, min: u64::MAX, max: 0, sum: 0 }
    }

    /// Returns the summary with one more sample.
    pub fn with(self, time: u64) -> Self {
        let (min, max) = (self.min.min(time), self.max.max(time));
        Self { samples: self.samples + 1, min, max, sum: self.sum.saturating_add(time), ..self }
    }

    /// Returns the summary with the end `end`.
    pub fn until(self, end: Tsc) -> Self {
        Self { end, ..self }
    }
}

impl Signal {
    /// Stops the loops of all threads.
    pub fn stop(&self) {
        // Holds the lock while it stores the value. Otherwise a thread could check the value before this store and fall
        // asleep after it.
        let guard = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop.store(true, Ordering::Relaxed);
        drop(guard);
        self.stopped.notify_all();
    }

    /// Whether the loops have to stop.
    #[inline]
    pub fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps until the loops have to stop.
    pub fn wait(&self) {
        let guard = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        // The guard is not needed, because the mutex protects no data.
        drop(self.stopped.wait_while(guard, |()| !self.has_stopped()));
    }

    /// Adds to the number of completed messages.
    pub fn add(&self, messages: u64) {
        self.done.fetch_add(messages, Ordering::Relaxed);
    }

    /// Opens the window, unless another thread has opened it.
    pub fn open(&self, at: Instant) {
        self.opened.get_or_init(|| Moment { at, done: self.done() });
    }

    /// Closes the window, unless another thread has closed it.
    pub fn close(&self, at: Instant) {
        self.closed.get_or_init(|| Moment { at, done: self.done() });
    }

    /// Returns the start of the window, if it is open.
    pub fn opened(&self) -> Option<Moment> {
        self.opened.get().copied()
    }

    /// Returns the end of the window, if it is closed.
    pub fn closed(&self) -> Option<Moment> {
        self.closed.get().copied()
    }

    /// Adds the summary of an interval.
    pub fn add_samples(&self, samples: SampleWindow) {
        self.intervals.lock().unwrap_or_else(PoisonError::into_inner).push(samples);
    }

    /// Takes the summaries that were added since the last call.
    pub fn take_samples(&self) -> Vec<SampleWindow> {
        std::mem::take(&mut *self.intervals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of messages that have completed on all threads.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// Counts polls that find nothing. Yields the processor now and then, in case there are fewer processors than polling
/// threads.
#[derive(Debug, Default)]
pub(crate) struct Idle(u32);

impl Idle {
    /// Counts a poll that has found nothing. Yields the processor after every `most` such polls.
    #[inline]
    pub(crate) fn look(&mut self, most: u32) {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(most) {
            std::thread::yield_now();
        }
    }
}

/// A thread yields after this number of empty polls of a completion queue, which take some tens of microseconds.
pub(crate) const EMPTY_POLLS: u32 = 1024;
/// A thread yields after this number of polls of a byte in memory, which also take some tens of microseconds.
pub(crate) const LOOKS: u32 = 16_384;
