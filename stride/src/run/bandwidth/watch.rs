//! When to look at the clock.

use std::time::{Duration, Instant};

/// Between two looks at the clock pass this many rounds of the loop at first, then as many as take a time between these two:
/// rounds without work are short, and a clock may be dear, a system call even.
const ROUNDS: u32 = 64;
const MOST_ROUNDS: u32 = 1024;
const OFTEN: Duration = Duration::from_micros(16);
const SELDOM: Duration = Duration::from_micros(64);

/// Counts the rounds of the loop between two looks.
pub(super) struct Watch {
    /// Rounds until the next look.
    left: u32,
    /// Rounds between two.
    rounds: u32,
    last: Instant,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { left: ROUNDS, rounds: ROUNDS, last: Instant::now() }
    }

    /// Counts a round, and looks where it is time to.
    #[inline]
    pub(super) fn look(&mut self) -> Option<Instant> {
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let now = Instant::now();
        self.set(now);
        Some(now)
    }

    /// The next round looks, since it comes after a sleep.
    pub(super) fn is_due_next(&mut self) {
        self.left = 1;
    }

    fn set(&mut self, now: Instant) {
        match now.saturating_duration_since(self.last) {
            passed if passed < OFTEN => self.rounds = (self.rounds * 2).min(MOST_ROUNDS),
            passed if passed > SELDOM => self.rounds = (self.rounds / 2).max(1),
            _ => {}
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
}
