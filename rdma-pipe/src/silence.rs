//! Measures how long a peer is silent.

use std::time::{Duration, Instant};

/// The number of steps in which this process waits for a peer. A peer sends something in every second one.
const STEPS: u32 = 8;

/// The time that a peer may still be silent. Time in which this process does not run, for example because Ctrl-Z or the
/// host of a virtual machine has stopped it, counts as one step at most: the same may have stopped the peer.
#[derive(Debug)]
pub(crate) struct Silence {
    left: Duration,
    step: Duration,
}

impl Silence {
    pub(crate) fn new(limit: Duration) -> Silence {
        Silence { left: limit, step: (limit / STEPS).max(Duration::from_millis(1)) }
    }

    /// Calls a function that waits until the given time. Returns `None` without a call if no time is left.
    pub(crate) fn step<T>(&mut self, wait: impl FnOnce(Instant) -> T) -> Option<T> {
        if self.left.is_zero() {
            return None;
        }
        let (step, start) = (self.step.min(self.left), Instant::now());
        let waited = wait(start + step);
        self.left -= start.elapsed().min(step);
        Some(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_this_process_is_stopped_is_one_step() {
        let limit = Duration::from_millis(80);
        let mut silence = Silence::new(limit);
        // Not even the time of many steps ends it at once.
        assert_eq!(silence.step(|_| std::thread::sleep(3 * limit)), Some(()));
        let mut steps = 1;
        while silence.step(|until| std::thread::sleep(until.saturating_duration_since(Instant::now()))).is_some() {
            steps += 1;
        }
        assert!((STEPS..STEPS + 2).contains(&steps), "{steps}");
    }
}
