//! The window of a run, in which completed messages count.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Length of the first intervals if `--interval` is absent. When [`CAPACITY`] intervals exist, their length doubles.
const SHORTEST: Duration = Duration::from_millis(1);
const CAPACITY: usize = 4096;
/// Maximum number of intervals if `--interval` is given, which is the maximum for a timed test.
const MAX_GIVEN: usize = 100_000;

/// What one thread has counted in its window.
#[derive(Clone, Debug)]
pub struct Window {
    /// Start of the window.
    pub started: Instant,
    /// End of the window.
    pub ended: Instant,
    /// Number of messages that completed in the window.
    pub messages: u64,
    /// Number of messages in each whole interval.
    pub intervals: Vec<u64>,
    /// Length of each interval.
    pub interval: Duration,
    /// Processor time that the thread used in the window.
    pub cpu: Duration,
    /// Number of messages sent in the whole step, if messages may be lost.
    pub sent: Option<u64>,
    /// Number of messages that the receiver counted in the whole step, if messages may be lost.
    pub arrived: Option<u64>,
}

/// Merges each two adjacent intervals. If their number is odd, the last one is dropped.
pub fn in_pairs(intervals: &mut Vec<u64>) {
    let count = intervals.len() / 2;
    for at in 0..count {
        intervals[at] = intervals[2 * at].saturating_add(intervals[2 * at + 1]);
    }
    intervals.truncate(count);
}

/// A window that has not ended yet.
pub(crate) struct Clock {
    pub(crate) started: Instant,
    cpu: Duration,
    length: Duration,
    /// Number of intervals at which they are merged in pairs, so that their length doubles.
    most: usize,
    next: Option<Instant>,
    intervals: Vec<u64>,
    /// Number of messages completed when the window started, and number completed at the end of the last interval.
    first: u64,
    last: u64,
    /// Time of the last update, and number of messages completed until then.
    looked: (Instant, u64),
}

/// Allocates memory for intervals. Called before the window starts, because the first write to a new page causes a page
/// fault.
pub(crate) fn interval_buffer() -> Vec<u64> {
    // The buffer is filled with ones, because an allocation of zeroed memory would not write to the pages.
    let mut buffer = vec![1; CAPACITY];
    buffer.clear();
    buffer
}

impl Clock {
    /// Opens the window. Reads the clock last, so that the window does not include this work.
    pub(crate) fn begin(given: Option<Duration>, done: u64, buffer: Vec<u64>) -> Self {
        let (length, most) = given.map_or((SHORTEST, CAPACITY), |length| (length, MAX_GIVEN));
        let (cpu, started) = (thread_time(), Instant::now());
        let next = started.checked_add(length);
        let next = next.filter(|_| !length.is_zero());
        Self { started, cpu, length, most, next, intervals: buffer, first: done, last: done, looked: (started, done) }
    }

    /// Ends the intervals whose time is over. Messages that completed since the last update are assumed to have
    /// completed at an even rate. If several intervals ended since that update, each interval gets its share of the
    /// messages.
    #[inline]
    pub(crate) fn look(&mut self, now: Instant, done: u64) {
        if self.next.is_some_and(|next| next <= now) {
            self.end_intervals(now, done);
        }
        self.looked = (now.max(self.looked.0), done);
    }

    #[cold]
    #[inline(never)]
    fn end_intervals(&mut self, now: Instant, done: u64) {
        let (looked, before) = self.looked;
        let since = now.saturating_duration_since(looked).as_secs_f64();
        while let Some(next) = self.next.filter(|next| *next <= now) {
            let part = next.saturating_duration_since(looked).as_secs_f64() / since;
            // If no time has passed between two updates, the share is NaN, and all messages belong to this interval.
            let part = if part < 1.0 { (done.saturating_sub(before) as f64 * part).round() as u64 } else { u64::MAX };
            let at_end = before.saturating_add(part).min(done);
            self.intervals.push(at_end.saturating_sub(self.last));
            self.last = at_end;
            if self.intervals.len() == self.most {
                in_pairs(&mut self.intervals);
                self.length *= 2;
            }
            self.next = next.checked_add(self.length);
        }
    }

    pub(super) fn end(self, messages: u64) -> Window {
        self.end_at(Instant::now(), messages)
    }

    /// Closes a window that has ended at the time `ended`, which may be before this call.
    pub(crate) fn end_at(mut self, ended: Instant, messages: u64) -> Window {
        // Some intervals may have ended since the last update.
        self.look(ended, self.first.saturating_add(messages));
        let cpu = thread_time().saturating_sub(self.cpu);
        let Self { started, intervals, length: interval, .. } = self;
        Window { started, ended, messages, intervals, interval, cpu, sent: None, arrived: None }
    }
}

/// Returns the processor time that this thread has used.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_look_gives_each_interval_its_share() {
        let mut clock = Clock::begin(Some(SHORTEST), 100, interval_buffer());
        let at = |tenths: u32| clock.started + SHORTEST * tenths / 10;
        let looks =
            [(5, 150), (40, 500), (45, 500), (60, 560), (60, 570), (70, 570)].map(|(time, done)| (at(time), done));
        for (time, done) in looks {
            clock.look(time, done);
        }
        // 350 messages complete from 0.5 to 4.0, none until 4.5, and 60 until 6.0.
        assert_eq!(clock.intervals, [100, 100, 100, 100, 20, 40, 10]);
    }

    #[test]
    fn end_adds_intervals_since_the_last_look() {
        let clock = Clock::begin(None, 100, interval_buffer());
        let ended = clock.started + SHORTEST * 35 / 10;
        assert_eq!(clock.end_at(ended, 35).intervals, [10, 10, 10]);
    }

    #[test]
    fn intervals_double_in_a_long_run() {
        let (given, many) = (Some(SHORTEST), MAX_GIVEN as u64);
        for (given, looks, count, length) in [
            (None, 4106, CAPACITY / 2 + 5, 2),
            (given, 4106, CAPACITY + 10, 1),
            (given, many + 10, MAX_GIVEN / 2 + 5, 2),
        ] {
            let mut clock = Clock::begin(given, 0, Vec::new());
            let started = clock.started;
            for at in 1..=looks {
                clock.look(started + SHORTEST * at as u32, at * 3);
            }
            let window = clock.end(0);
            assert_eq!((window.intervals.len(), window.interval), (count, SHORTEST * length));
            assert!(window.intervals.iter().all(|messages| *messages == 3 * u64::from(length)));
        }
    }
}
