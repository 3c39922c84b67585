//! The deadline of a step.

use std::time::{Duration, Instant};

use super::ConnectCause;

/// The end of a wait. It is `None` if there is no limit, or if the end is beyond the clock's range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    at: Option<Instant>,
    /// The limit that the caller set.
    total: Duration,
}

impl Deadline {
    /// Creates a deadline that expires after `timeout`, or never if `timeout` is `None`.
    pub(super) fn within(timeout: Option<Duration>) -> Self {
        let total = timeout.unwrap_or(Duration::MAX);
        Self::resume(total, timeout)
    }

    /// Creates a deadline whose whole limit is `total`, and for which the time `left` remains.
    pub(super) fn resume(total: Duration, left: Option<Duration>) -> Self {
        Self { at: left.and_then(|left| Instant::now().checked_add(left)), total }
    }

    /// Returns the remaining time, or `None` if there is no deadline.
    pub(super) fn left(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Returns the remaining time, or `Duration::MAX` if there is no deadline.
    pub(super) fn left_or_max(&self) -> Duration {
        self.left().unwrap_or(Duration::MAX)
    }

    pub(super) fn has_passed(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Returns the share of the remaining time for one of the `shares` attempts that remain.
    pub(super) fn share(&self, shares: usize) -> Self {
        let shares = u32::try_from(shares).unwrap_or(u32::MAX);
        match self.left() {
            Some(left) if shares > 1 => Self::resume(whole_milliseconds(left / shares), Some(left / shares)),
            _ => *self,
        }
    }

    /// Fails if no time remains.
    pub(super) fn check(&self) -> Result<(), ConnectCause> {
        if self.has_passed() { Err(self.passed()) } else { Ok(()) }
    }

    #[cold]
    pub(super) fn passed(&self) -> ConnectCause {
        ConnectCause::TimedOut { after: self.total }
    }
}

/// Rounds an attempt's share of the limit, for display. Some time has passed since the program set the limit, so the
/// exact share is a little less than a round number.
fn whole_milliseconds(time: Duration) -> Duration {
    let rounded = time.saturating_add(Duration::from_micros(500));
    Duration::new(rounded.as_secs(), rounded.subsec_millis() * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrepresentable_timeout_means_no_deadline() {
        for timeout in [None, Some(Duration::MAX)] {
            let deadline = Deadline::within(timeout);
            assert_eq!((deadline.left(), deadline.left_or_max()), (None, Duration::MAX));
            assert!(!deadline.has_passed());
            assert_eq!(deadline.share(3).left(), None);
        }
    }

    #[test]
    fn zero_timeout_has_passed_at_once() {
        let deadline = Deadline::within(Some(Duration::ZERO));
        assert!(matches!(deadline.check(), Err(ConnectCause::TimedOut { after: Duration::ZERO })));
        assert_eq!(deadline.share(0).left(), Some(Duration::ZERO));
    }

    #[test]
    fn attempts_share_remaining_time() {
        let deadline = Deadline::within(Some(Duration::from_secs(3000)));
        assert!(deadline.share(3).left_or_max() <= Duration::from_secs(1000));
        let told = whole_milliseconds(Duration::from_nanos(4_999_993_216));
        assert_eq!(told, Duration::from_secs(5));
        assert_eq!(whole_milliseconds(Duration::MAX).subsec_nanos(), 999_000_000);
        let resumed = Deadline::resume(Duration::from_secs(7), Some(Duration::ZERO));
        assert!(matches!(resumed.check(), Err(ConnectCause::TimedOut { after }) if after.as_secs() == 7));
    }
}
