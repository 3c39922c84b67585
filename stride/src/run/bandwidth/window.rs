//! The time in which messages count.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::stats::in_pairs;

/// An interval of which nobody said how long it is begins with this, and is twice as long where there are so many of them.
const SHORTEST: Duration = Duration::from_millis(1);
const ROOM: usize = 4096;
/// One whose length was given too, where there are as many as a test by time can have.
const MOST: usize = 100_000;

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
    /// With so many they are made twice as long.
    most: usize,
    next: Option<Instant>,
    intervals: Vec<u64>,
    /// Messages at the begin, and at the end of the last interval.
    first: u64,
    last: u64,
    /// When there was a look, and how many messages there were.
    looked: (Instant, u64),
}

/// Memory for intervals, which is had before the window: where it is new the system has to find some.
pub(in crate::run) fn room() -> Vec<u64> {
    // It is found when it is first written, which zeros need not be.
    let mut room = vec![1; ROOM];
    room.clear();
    room
}

impl Clock {
    /// Begins the window, as the last thing that it does.
    pub(in crate::run) fn begin(given: Option<Duration>, done: u64, room: Vec<u64>) -> Self {
        let (length, most) = given.map_or((SHORTEST, ROOM), |length| (length, MOST));
        let (cpu, started) = (thread_time(), Instant::now());
        let next = started.checked_add(length);
        let next = next.filter(|_| !length.is_zero());
        Self { started, cpu, length, most, next, intervals: room, first: done, last: done, looked: (started, done) }
    }

    /// Ends intervals that are over. When the messages since the last look were done nobody knows: as if they came evenly, so that a look
    /// that is late gives each of the intervals that it ends a part of them.
    #[inline]
    pub(in crate::run) fn look(&mut self, now: Instant, done: u64) {
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
            // Without time between the looks it is not a number, and all are done.
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

    /// Of a window that is known to have ended before.
    pub(in crate::run) fn end_at(mut self, ended: Instant, messages: u64) -> Window {
        // Some may have ended since the last look.
        self.look(ended, self.first.saturating_add(messages));
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
    fn a_late_look_gives_each_interval_its_part() {
        let mut clock = Clock::begin(Some(SHORTEST), 100, room());
        let at = |tenths: u32| clock.started + SHORTEST * tenths / 10;
        let looks =
            [(5, 150), (40, 500), (45, 500), (60, 560), (60, 570), (70, 570)].map(|(time, done)| (at(time), done));
        for (time, done) in looks {
            clock.look(time, done);
        }
        // 350 from 0.5 to 4.0, then none to 4.5, and 60 from there to 6.0.
        assert_eq!(clock.intervals, [100, 100, 100, 100, 20, 40, 10]);
    }

    #[test]
    fn intervals_that_nobody_has_looked_at_are_there_at_the_end() {
        let clock = Clock::begin(None, 100, room());
        let ended = clock.started + SHORTEST * 35 / 10;
        assert_eq!(clock.end_at(ended, 35).intervals, [10, 10, 10]);
    }

    #[test]
    fn intervals_grow_in_a_long_run() {
        let (given, many) = (Some(SHORTEST), MOST as u64);
        for (given, looks, count, length) in
            [(None, 4106, ROOM / 2 + 5, 2), (given, 4106, ROOM + 10, 1), (given, many + 10, MOST / 2 + 5, 2)]
        {
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
