//! One alarm for each thing of a queue pair that waits.

use std::time::Instant;

use super::QueuePair;
use crate::qp::timer;

/// When the queue pair is called, where that is still to come. What waits may have changed meanwhile, also by a reset: the alarm is
/// there nevertheless, and another only where it is to ring earlier.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<Instant>);

impl Alarm {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Has the queue pair called at `until`, or earlier: who is called too early sets it again.
    pub(super) fn set(&mut self, pair: &QueuePair, until: Instant, now: Instant) {
        if self.0.is_none_or(|set| set <= now || set > until) {
            self.0 = Some(until);
            timer::at(until, pair.this.clone());
        }
    }
}
