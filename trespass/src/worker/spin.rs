//! The decision to poll or to sleep.

use std::time::{Duration, Instant};

/// Decides whether an idle loop that drives a worker polls or sleeps. The loop polls if its previous wait was short.
/// After N long waits in a row, it sleeps 2^N times without polling. It also does so after N waits that ended soon after it
/// had polled in vain: the loop may have kept its peer from the processor.
#[derive(Debug, Default)]
pub struct Spin {
    /// The time since which the loop has been idle.
    idle_since: Option<Instant>,
    is_polling: bool,
    /// Whether the loop has polled in this wait.
    has_polled: bool,
    misses: u32,
    /// The number of polls in vain since an event was last found by polling.
    in_vain: u32,
    skips: u32,
}

impl Spin {
    /// The largest N: after this many long waits, the number of sleeps without polling no longer doubles.
    const MISSES: u32 = 10;
    /// A wait counts as long if it takes more than this many times the limit. Waits become shorter when both sides
    /// poll, so waits that are slightly longer than the limit do not count as long.
    const LONG: u32 = 4;
    /// A wait of at most this many halves of the limit may be the one in which both sides polled in turn, on one processor.
    const SOON: u32 = 5;
    /// The number of polls in vain after which the loop pauses, and the number after which the pauses no longer double.
    const IN_VAIN: [u32; 2] = [2, 8];

    /// Records that a turn has processed an event.
    #[inline]
    pub fn found(&mut self, limit: Duration, now: impl FnOnce() -> Instant) {
        let Some(since) = self.idle_since.take() else { return };
        if self.is_polling {
            (self.misses, self.in_vain) = (0, 0);
            return;
        }
        let waited = now() - since;
        let is_long = waited > limit.saturating_mul(Self::LONG);
        self.misses = if is_long { Self::MISSES.min(self.misses + 1) } else { 0 };
        let [few, most] = Self::IN_VAIN;
        if self.has_polled && waited <= limit.saturating_mul(Self::SOON) / 2 {
            self.in_vain = most.min(self.in_vain + 1);
            self.skips = if self.in_vain < few { 0 } else { (1 << self.in_vain) - 1 };
        } else if is_long || self.in_vain < few {
            // A long wait does not shorten the pause after polls in vain.
            let pause = (1 << self.misses) - 1;
            self.skips = if self.in_vain < few { pause } else { self.skips.max(pause) };
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
                self.has_polled = self.is_polling;
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
        assert!(time < LIMIT || !spin.goes_on(LIMIT, || begun + LIMIT));
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

    /// Each side polls until its limit, and the other one runs only then.
    #[test]
    fn loops_that_share_a_processor_sleep() {
        let mut spin = Spin::default();
        let mut polled = 0;
        for _ in 0..1000 {
            let time = if spin.skips == 0 { LIMIT * 2 } else { LIMIT / 10 };
            polled += u32::from(wait(&mut spin, time));
        }
        assert!(polled < 20, "{polled}");
        // On a processor of its own, the loop polls again after a pause.
        assert!((0..1000).filter(|_| wait(&mut spin, LIMIT / 10)).count() > 700);
        assert!((0..100).all(|_| wait(&mut spin, LIMIT / 10)));
    }

    #[test]
    fn limit_of_zero_never_polls() {
        let mut spin = Spin::default();
        assert!(!(0..3).any(|_| spin.goes_on(Duration::ZERO, Instant::now)));
    }
}
