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
    pub(super) fn allowed(&mut self) -> u64 {
        let started = *self.started.get_or_insert_with(Instant::now);
        // Saturating, and never below zero.
        let due = (started.elapsed().as_secs_f64() * self.per_second) as u64 + 1;
        due.saturating_sub(self.sent)
    }

    /// How long it is until the next may go, if not too long.
    pub(super) fn wait(&self) -> Duration {
        let next = self.sent as f64 / self.per_second;
        let passed = self.started.map_or(0.0, |started| started.elapsed().as_secs_f64());
        Duration::try_from_secs_f64(next - passed).unwrap_or_default().min(LONGEST)
    }
}
