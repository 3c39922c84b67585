//! The time in which messages count.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::stats::in_pairs;

/// An interval of which nobody said how long it is begins with this, and is twice as long where there are so many of them.
const SHORTEST: Duration = Duration::from_millis(1);
const ROOM: usize = 4096;

/// What a thread has done in its window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    /// Done within it.
    pub(crate) messages: u64,
    /// Of each whole interval.
    pub(crate) intervals: Vec<u64>,
    /// The length of an interval.
    pub(crate) interval: Duration,
    /// Processor time of the thread.
    pub(crate) cpu: Duration,
    /// Messages of the whole step, where they may be lost and receives count them.
    pub(crate) sent: Option<u64>,
    pub(crate) arrived: Option<u64>,
}

/// A window while it is open.
pub(in crate::run) struct Clock {
    pub(in crate::run) started: Instant,
    cpu: Duration,
    length: Duration,
    /// It does not grow.
    is_given: bool,
    next: Option<Instant>,
    intervals: Vec<u64>,
    /// Messages at the end of the last.
    last: u64,
}

impl Clock {
    pub(in crate::run) fn begin(given: Option<Duration>, done: u64) -> Self {
        let (length, is_given) = (given.unwrap_or(SHORTEST), given.is_some());
        let (cpu, started) = (thread_time(), Instant::now());
        let next = started.checked_add(length);
        let next = next.filter(|_| !length.is_zero());
        Self { started, cpu, length, is_given, next, intervals: Vec::with_capacity(ROOM), last: done }
    }

    /// Ends intervals that are over.
    pub(in crate::run) fn look(&mut self, now: Instant, done: u64) {
        while let Some(next) = self.next.filter(|next| *next <= now) {
            self.intervals.push(done - self.last);
            self.last = done;
            if !self.is_given && self.intervals.len() == ROOM {
                in_pairs(&mut self.intervals);
                self.length *= 2;
            }
            self.next = next.checked_add(self.length);
        }
    }

    pub(super) fn end(self, messages: u64) -> Window {
        self.end_at(Instant::now(), messages)
    }

    /// Of a window that is known to have ended before.
    pub(in crate::run) fn end_at(self, ended: Instant, messages: u64) -> Window {
        let cpu = thread_time().saturating_sub(self.cpu);
        let Self { started, intervals, length: interval, .. } = self;
        Window { started, ended, messages, intervals, interval, cpu, sent: None, arrived: None }
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_in_a_long_run() {
        for (given, count, length) in [(None, ROOM / 2 + 5, 2), (Some(SHORTEST), ROOM + 10, 1)] {
            let mut clock = Clock::begin(given, 0);
            let started = clock.started;
            for at in 1..=ROOM as u64 + 10 {
                clock.look(started + SHORTEST * at as u32, at * 3);
            }
            let window = clock.end(0);
            assert_eq!((window.intervals.len(), window.interval), (count, SHORTEST * length));
            assert!(window.intervals.iter().all(|messages| *messages == 3 * u64::from(length)));
        }
    }
}
