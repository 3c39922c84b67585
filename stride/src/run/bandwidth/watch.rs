//! When to look at the clock.

use std::time::{Duration, Instant};

/// Between two looks at the clock passes one round of the loop at first, then as many as take a time between these two: rounds without work are
/// short, those with many messages long, and a clock may be dear, a system call even.
const ROUNDS: u32 = 1;
const MOST_ROUNDS: u32 = 512;
const OFTEN: Duration = Duration::from_micros(16);
const SELDOM: Duration = Duration::from_micros(64);

/// Counts the rounds of the loop between two looks.
pub(in crate::run) struct Watch {
    /// Rounds until the next look.
    left: u32,
    /// Rounds between two.
    rounds: u32,
    last: Instant,
    /// Since then.
    has_slept: bool,
}

impl Watch {
    pub(in crate::run) fn new() -> Self {
        Self { left: ROUNDS, rounds: ROUNDS, last: Instant::now(), has_slept: false }
    }

    /// Begins anew, at this time: what rounds will be like is not known.
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Self { last: now, ..Self::new() };
    }

    /// Counts a round, and looks where it is time to.
    #[inline]
    pub(in crate::run) fn look(&mut self) -> Option<Instant> {
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let now = Instant::now();
        self.set(now);
        Some(now)
    }

    /// The next round looks, since it comes after a sleep: which says nothing of how long rounds are.
    pub(in crate::run) fn is_due_next(&mut self) {
        self.left = 1;
        self.has_slept = true;
    }

    fn set(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.last);
        if !std::mem::take(&mut self.has_slept) {
            if passed < OFTEN {
                self.rounds = (self.rounds * 2).min(MOST_ROUNDS);
            } else if passed > SELDOM {
                // At once to as many as take the longest time: the next look is not to be late as well.
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
    fn the_clock_is_looked_at_by_time_and_not_by_rounds() {
        for nanoseconds in [1, 20, 300, 1_000, 3_000, 15_000, 200_000] {
            let (round, mut watch) = (Duration::from_nanos(nanoseconds), Watch::new());
            for _ in 0..20 {
                watch.set(watch.last + round * watch.rounds);
            }
            let passed = round * watch.rounds;
            assert!(passed >= OFTEN || watch.rounds == MOST_ROUNDS, "{nanoseconds} ns a round: {passed:?}");
            assert!(passed <= SELDOM || watch.rounds == 1, "{nanoseconds} ns a round: {passed:?}");
            assert_eq!(watch.left, watch.rounds);
        }
    }

    #[test]
    fn one_late_look_is_enough_where_rounds_become_longer() {
        let mut watch = Watch::new();
        watch.rounds = MOST_ROUNDS;
        let round = Duration::from_micros(10);
        watch.set(watch.last + round * watch.rounds);
        assert!(round * watch.rounds <= SELDOM, "{} rounds", watch.rounds);
    }

    #[test]
    fn a_sleep_says_nothing_of_rounds() {
        let mut watch = Watch::new();
        watch.is_due_next();
        assert_eq!(watch.left, 1);
        watch.set(watch.last + Duration::from_secs(1));
        assert_eq!((watch.rounds, watch.left), (ROUNDS, ROUNDS));
    }
}
