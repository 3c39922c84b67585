//! When something was, as one number.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the clock that only goes forward.
///
/// An `Instant` has seconds and nanoseconds, whose difference takes dozens of instructions: as many as a latency loop has for all else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// Now.
    #[inline]
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        // Since the machine has started: positive, and 2^64 nanoseconds are 584 years.
        Self(now.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.cast_unsigned()))
    }

    /// So much later; as late as can be where that is beyond it.
    pub(crate) fn after(self, time: Duration) -> Self {
        Self(u64::try_from(time.as_nanos()).map_or(u64::MAX, |time| self.0.saturating_add(time)))
    }

    /// So much earlier.
    #[cfg(test)]
    pub(crate) fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time.as_nanos() as u64))
    }

    /// Nanoseconds since an earlier one.
    #[inline]
    pub(super) fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_of_the_clock_of_instants() {
        use std::time::Instant;
        let (begun, first) = (Instant::now(), Stamp::now());
        std::thread::sleep(Duration::from_millis(2));
        let (last, most) = (Stamp::now(), begun.elapsed());
        let passed = Duration::from_nanos(last.since(first));
        assert!(Duration::from_millis(2) <= passed && passed <= most, "{passed:?} of {most:?}");
        assert_eq!(first.since(last), 0);
    }

    #[test]
    fn a_time_beyond_the_last_stamp_is_the_last() {
        let now = Stamp(7);
        assert_eq!(now.after(Duration::from_micros(3)), Stamp(3007));
        assert_eq!(now.after(Duration::from_nanos(u64::MAX)), Stamp(u64::MAX));
        assert_eq!(now.after(Duration::MAX), Stamp(u64::MAX));
    }
}
