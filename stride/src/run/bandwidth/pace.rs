//! A limit on the rate of messages.

use std::time::{Duration, Instant};

use crate::run::wait::LONGEST;

/// A rate that is not exceeded.
pub(super) struct Pace {
    per_second: f64,
    started: Option<Instant>,
    pub(super) sent: u64,
}

impl Pace {
    pub(super) fn new(per_second: f64) -> Self {
        Self { per_second, started: None, sent: 0 }
    }

    /// How many messages may go now.
    /// What was let pass, as nothing could be sent, is not made up for: there are never more than `most`.
    pub(super) fn allowed(&mut self, most: u64) -> u64 {
        let passed = self.started.get_or_insert_with(Instant::now).elapsed();
        self.due(passed, most)
    }

    fn due(&mut self, passed: Duration, most: u64) -> u64 {
        // Saturating, and never below zero.
        let due = ((passed.as_secs_f64() * self.per_second) as u64).saturating_add(1);
        self.sent = self.sent.max(due.saturating_sub(most));
        due.saturating_sub(self.sent)
    }

    /// How long it is until the next may go, if not too long.
    pub(super) fn wait(&self) -> Duration {
        let next = self.sent as f64 / self.per_second;
        let passed = self.started.map_or(0.0, |started| started.elapsed().as_secs_f64());
        Duration::try_from_secs_f64(next - passed).unwrap_or_default().min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_let_pass_is_not_made_up_for() {
        let mut pace = Pace::new(1000.0);
        assert_eq!(pace.due(Duration::from_millis(10), 4), 4);
        pace.sent += 4;
        assert_eq!(pace.due(Duration::from_millis(10), 4), 0);
        assert_eq!(pace.due(Duration::from_millis(12), 4), 2);
        pace.sent += 2;
        assert_eq!(pace.due(Duration::from_secs(5), 4), 4);
        assert_eq!(Pace::new(1e300).due(Duration::from_secs(5), 4), 4);
    }
}
