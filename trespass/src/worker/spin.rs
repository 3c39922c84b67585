//! The decision to poll or to sleep.

use std::time::{Duration, Instant};

/// Decides whether an idle loop that drives a worker polls or sleeps. The loop polls if its previous wait was short.
/// After N long waits in a row, it sleeps 2^N times without polling.
#[derive(Debug, Default)]
pub struct Spin {
    /// The time since which the loop has been idle.
    idle_since: Option<Instant>,
    is_polling: bool,
    misses: u32,
    skips: u32,
}

impl Spin {
    /// The largest N: after this many long waits, the number of sleeps without polling no longer doubles.
    const MISSES: u32 = 10;
    /// A wait counts as long if it takes more than this many times the limit. Waits become shorter when both sides
    /// poll, so waits that are slightly longer than the limit do not count as long.
    const LONG: u32 = 4;

    /// Records that a turn has processed an event.
    #[inline]
    pub fn found(&mut self, limit: Duration, now: impl FnOnce() -> Instant) {
        let Some(since) = self.idle_since.take() else { return };
        let is_long = !self.is_polling && now() - since > limit.saturating_mul(Self::LONG);
        self.misses = if is_long { Self::MISSES.min(self.misses + 1) } else { 0 };
        if !self.is_polling {
            self.skips = (1 << self.misses) - 1;
        }
    }

    /// Returns whether to poll again after a turn without events.
    #[inline]
    pub fn goes_on(&mut self, limit: Duration, now: impl FnOnce() -> Instant) -> bool {
        if limit.is_zero() {
            return false;
        }
        match self.idle_since {
            Some(since) => self.is_polling = self.is_polling && now() - since < limit,
            None => {
                self.idle_since = Some(now());
                self.is_polling = self.skips == 0;
                self.skips = self.skips.saturating_sub(1);
            }
        }
        self.is_polling
    }

    /// Begins a new wait, because this side has sent a message.
    pub fn restart(&mut self) {
        self.idle_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

    /// Simulates a wait that ends after the given time because an event arrives. Returns whether the loop polled.
    fn wait(spin: &mut Spin, time: Duration) -> bool {
        let begun = Instant::now();
        let polls = spin.goes_on(LIMIT, || begun);
        assert!(!spin.goes_on(LIMIT, || begun + LIMIT) || time < LIMIT);
        spin.found(LIMIT, || begun + time);
        polls
    }

    #[test]
    fn waits_that_are_short_are_polled() {
        let mut spin = Spin::default();
        let short = LIMIT * 3;
        assert!((0..100).all(|_| wait(&mut spin, short)));
        assert!((0..100).filter(|_| wait(&mut spin, LIMIT * 5)).count() < 8);
        // The first short wait ends the pause, so the loop polls again.
        wait(&mut spin, short);
        assert!((0..100).all(|_| wait(&mut spin, short)));
    }

    #[test]
    fn limit_of_zero_never_polls() {
        let mut spin = Spin::default();
        assert!(!(0..3).any(|_| spin.goes_on(Duration::ZERO, Instant::now)));
    }
}
