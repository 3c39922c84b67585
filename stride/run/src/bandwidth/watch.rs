//! Decides when a loop reads the clock.

use std::time::{Duration, Instant};

/// At first, the clock is read after every round of the loop. Then the number of rounds between two reads adapts, so
/// that the time between the reads stays within the two limits below. A fixed number of rounds would not work well,
/// because a round is short if it finds nothing and long otherwise. Reading the clock in every round would not work
/// well either, because it may require a system call.
const ROUNDS: u32 = 1;
const MAX_ROUNDS: u32 = 512;
const OFTEN: Duration = Duration::from_micros(16);
const SELDOM: Duration = Duration::from_micros(64);

/// Counts the rounds of a loop between two reads of the clock.
pub(crate) struct Watch {
    /// Number of rounds until the next read.
    left: u32,
    /// Number of rounds between two reads.
    rounds: u32,
    last: Instant,
    /// Whether the thread has slept since the last read.
    has_slept: bool,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { left: ROUNDS, rounds: ROUNDS, last: Instant::now(), has_slept: false }
    }

    /// Starts again at the time `now`, because rounds may take more or less time from then on.
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Self { last: now, ..Self::new() };
    }

    /// Counts a round. If a read of the clock is due, returns the time.
    #[inline]
    pub(crate) fn look(&mut self) -> Option<Instant> {
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let now = Instant::now();
        self.set(now);
        Some(now)
    }

    /// Causes the next round to read the clock. The time since the last read includes a sleep, so it is not used to
    /// adapt the number of rounds.
    pub(crate) fn is_due_next(&mut self) {
        self.left = 1;
        self.has_slept = true;
    }

    fn set(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.last);
        if !std::mem::take(&mut self.has_slept) {
            if passed < OFTEN {
                self.rounds = (self.rounds * 2).min(MAX_ROUNDS);
            } else if passed > SELDOM {
                // Divides by the whole factor at once, because otherwise the next read would also be late.
                let times = u32::try_from(passed.as_nanos() / SELDOM.as_nanos() + 1).unwrap_or(u32::MAX);
                self.rounds = (self.rounds / times).max(1);
            }
        }
        self.last = now;
        self.left = self.rounds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_read_at_a_steady_time_for_any_round_length() {
        for nanoseconds in [1, 20, 300, 1_000, 3_000, 15_000, 200_000] {
            let (round, mut watch) = (Duration::from_nanos(nanoseconds), Watch::new());
            for _ in 0..20 {
                watch.set(watch.last + round * watch.rounds);
            }
            let passed = round * watch.rounds;
            assert!(passed >= OFTEN || watch.rounds == MAX_ROUNDS, "{nanoseconds} ns a round: {passed:?}");
            assert!(passed <= SELDOM || watch.rounds == 1, "{nanoseconds} ns a round: {passed:?}");
            assert_eq!(watch.left, watch.rounds);
        }
    }

    #[test]
    fn longer_rounds_cause_one_late_read_only() {
        let mut watch = Watch::new();
        watch.rounds = MAX_ROUNDS;
        let round = Duration::from_micros(10);
        watch.set(watch.last + round * watch.rounds);
        assert!(round * watch.rounds <= SELDOM, "{} rounds", watch.rounds);
    }

    #[test]
    fn sleep_does_not_change_the_round_estimate() {
        let mut watch = Watch::new();
        watch.is_due_next();
        assert_eq!(watch.left, 1);
        watch.set(watch.last + Duration::from_secs(1));
        assert_eq!((watch.rounds, watch.left), (ROUNDS, ROUNDS));
    }
}
