//! The pause between two messages of a latency test (`--gap`).

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::latency::Samples;
use crate::poll::Poll;
use crate::qp_driver::Drive;
use crate::signal::{EMPTY_POLLS, Idle, Signal};
use crate::wait::LONGEST;

/// The pause between two messages of a latency test.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// Length of the pause.
    pub length: Duration,
    /// Whether the thread sleeps during the pause instead of polling.
    pub sleeps: bool,
}

impl Gap {
    /// Waits for the length of the pause. The next sample starts after the pause.
    #[cold]
    #[inline(never)]
    pub(super) fn pass<D: Drive, C: Poll>(
        self,
        qp: &mut D,
        queue: &mut C,
        samples: &mut Samples,
        signal: &Signal,
    ) -> Result<()> {
        let (begin, mut idle) = (Instant::now(), Idle::default());
        loop {
            // The loop polls during the pause, because polling runs the code of software devices, and returns the error
            // of a queue pair that has failed.
            queue.poll(|done| {
                qp.finish(done.wr_id);
            })?;
            let left = self.length.saturating_sub(begin.elapsed());
            if left.is_zero() || signal.has_stopped() {
                break;
            }
            if self.sleeps {
                std::thread::sleep(left.min(LONGEST));
            } else {
                idle.look(EMPTY_POLLS);
            }
        }
        samples.begin_anew();
        Ok(())
    }
}
