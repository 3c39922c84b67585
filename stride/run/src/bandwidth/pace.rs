//! The rate limit (`--rate-limit`, `--burst-size`).

use std::time::{Duration, Instant};

use crate::wait::LONGEST;

/// Limits the rate at which messages are sent, in bursts of `burst` messages.
pub(super) struct Pace {
    per_second: f64,
    burst: u64,
    started: Option<Instant>,
    /// Number of messages of the window. The last burst may be shorter than the others, and is then due earlier.
    total: u64,
    pub(super) sent: u64,
}

impl Pace {
    pub(super) fn new(per_second: f64, burst: u32) -> Self {
        Self { per_second, burst: u64::from(burst.max(1)), started: None, total: u64::MAX, sent: 0 }
    }

    /// Starts the limit again for a window of `total` messages, as if a burst had just been sent, so that even a short
    /// run does not exceed the rate.
    pub(super) fn begin(&mut self, now: Instant, total: u64) {
        (self.started, self.total, self.sent) = (Some(now), total, self.burst);
    }

    /// Returns how many messages may be sent now.
    ///
    /// Idle time does not accumulate credit. The result is therefore at most `most`, or one burst if that is larger.
    pub(super) fn allowed(&mut self, most: u64) -> u64 {
        let passed = self.started.get_or_insert_with(Instant::now).elapsed();
        self.due(passed, most)
    }

    fn due(&mut self, passed: Duration, most: u64) -> u64 {
        // The conversion saturates, and the number is never negative.
        let messages = passed.as_secs_f64() * self.per_second;
        let bursts = (messages / self.burst as f64) as u64;
        let mut due = bursts.saturating_add(1).saturating_mul(self.burst);
        if messages >= self.total as f64 {
            due = due.max(self.burst.saturating_add(self.total));
        }
        self.sent = self.sent.max(due.saturating_sub(most.max(self.burst)));
        due.saturating_sub(self.sent)
    }

    /// Returns the time until the next message is allowed, but at most [`LONGEST`].
    pub(super) fn wait(&self) -> Duration {
        let next = (self.sent - self.sent % self.burst).min(self.total) as f64 / self.per_second;
        let passed = self.started.map_or(0.0, |started| started.elapsed().as_secs_f64());
        Duration::try_from_secs_f64(next - passed).unwrap_or_default().min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_time_is_not_made_up_for() {
        let mut pace = Pace::new(1000.0, 1);
        assert_eq!(pace.due(Duration::from_millis(10), 4), 4);
        pace.sent += 4;
        assert_eq!(pace.due(Duration::from_millis(10), 4), 0);
        assert_eq!(pace.due(Duration::from_millis(12), 4), 2);
        pace.sent += 2;
        assert_eq!(pace.due(Duration::from_secs(5), 4), 4);
        assert_eq!(Pace::new(1e300, 1).due(Duration::from_secs(5), 4), 4);
    }

    #[test]
    fn window_start_discards_earlier_credit() {
        for burst in [1, 10] {
            let mut pace = Pace::new(1000.0, burst);
            pace.sent += pace.due(Duration::from_millis(500), 128) - 1;
            pace.begin(Instant::now(), u64::MAX);
            let time = Duration::from_millis(burst.into());
            assert_eq!(pace.due(Duration::ZERO, 128), 0);
            assert_eq!(pace.due(time / 2, 128), 0);
            assert_eq!(pace.due(time, 128), u64::from(burst));
        }
    }

    #[test]
    fn last_burst_of_a_window_is_due_when_its_messages_are() {
        let mut pace = Pace::new(1000.0, 1000);
        pace.begin(Instant::now(), 100);
        assert_eq!(pace.due(Duration::from_millis(99), 128), 0);
        assert!(pace.wait() <= Duration::from_millis(100));
        assert_eq!(pace.due(Duration::from_millis(100), 128), 100);
        let mut pace = Pace::new(1000.0, 10);
        pace.begin(Instant::now(), 25);
        for (time, allowed) in [(10, 10), (20, 10), (24, 0), (25, 5)] {
            let due = pace.due(Duration::from_millis(time), 128);
            assert_eq!(due, allowed, "after {time} ms");
            pace.sent += due;
        }
    }

    #[test]
    fn bursts_are_due_whole() {
        let mut pace = Pace::new(1000.0, 10);
        assert_eq!(pace.due(Duration::ZERO, 128), 10);
        pace.sent += 10;
        assert_eq!(pace.due(Duration::from_millis(9), 128), 0);
        assert_eq!(pace.due(Duration::from_millis(10), 128), 10);
        // After a part of a burst has been sent, the rest may be sent at once.
        pace.sent += 4;
        assert_eq!(pace.due(Duration::from_millis(19), 128), 6);
        assert_eq!(pace.due(Duration::from_millis(20), 128), 16);
        // If a burst is longer than the send queue, its rest is still sent. Bursts that were missed are not sent later.
        let mut pace = Pace::new(1000.0, 1000);
        assert_eq!(pace.due(Duration::ZERO, 4), 1000);
        pace.sent += 4;
        assert_eq!(pace.due(Duration::from_millis(999), 4), 996);
        assert_eq!(pace.due(Duration::from_secs(5), 4), 1000);
        assert_eq!(Pace::new(1e300, u32::MAX).due(Duration::from_secs(5), 4), u64::from(u32::MAX));
    }

    #[test]
    fn wait_ends_when_the_next_burst_is_due() {
        // The rate allows one burst per hour.
        let mut pace = Pace::new(10.0 / 3600.0, 10);
        assert_eq!(pace.allowed(128), 10);
        pace.sent += 10;
        assert_eq!(pace.wait(), LONGEST);
        pace.sent -= 1;
        assert_eq!(pace.wait(), Duration::ZERO);
    }
}
