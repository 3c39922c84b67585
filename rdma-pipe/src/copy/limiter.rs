//! Limits the bytes per second.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The largest burst after a pause, as the time that it takes at the limited rate.
const BURST: Duration = Duration::from_millis(50);

/// Delays threads so that their total rate stays below the limit.
#[derive(Debug)]
pub(super) struct Limiter {
    rate: u64,
    /// The time at which the next byte may be sent.
    due: Mutex<Instant>,
}

impl Limiter {
    pub(super) fn new(rate: u64) -> Limiter {
        Limiter { rate, due: Mutex::new(Instant::now()) }
    }

    /// Waits until these bytes may be sent.
    pub(super) fn take(&self, bytes: usize) {
        if self.rate == 0 {
            return;
        }
        let now = Instant::now();
        let wait = {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            *due = next(*due, now, bytes, self.rate);
            due.saturating_duration_since(now)
        };
        thread::sleep(wait);
    }
}

/// Returns the time at which the bytes after these may be sent.
fn next(due: Instant, now: Instant, bytes: usize, rate: u64) -> Instant {
    let earliest = now.checked_sub(BURST).unwrap_or(now);
    due.max(earliest) + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_kept_over_many_blocks() {
        let start = Instant::now();
        let due = (0..100).fold(start, |due, _| next(due, start, 1_000, 10_000));
        assert_eq!((due - start).as_millis(), 10_000);
        // After a pause, only a short burst exceeds the rate: the time of the pause does not count as credit.
        let later = start + Duration::from_secs(100);
        assert!(next(due, later, 1_000, 10_000) >= later);
    }
}
