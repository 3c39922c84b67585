//! The pause between two messages of a latency.

use std::time::{Duration, Instant};

use anyhow::Result;
use sideway::ibverbs::queue_pair::SendQueue;

use super::latency::Samples;
use super::poll::Poll;
use super::qp_driver::QpDriver;
use super::request::Request;
use super::signal::{EMPTY_POLLS, Idle, Signal};
use super::wait::LONGEST;

/// The pause between two messages of a latency.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// How long it is.
    pub(crate) length: Duration,
    /// The thread sleeps meanwhile, rather than poll on.
    pub(crate) sleeps: bool,
}

impl Gap {
    /// Lets the time pass after a message; the next begins now.
    #[cold]
    #[inline(never)]
    pub(super) fn pass<S, R, C>(
        self,
        lane: &mut QpDriver<'_, S, R>,
        queue: &mut C,
        samples: &mut Samples,
        signal: &Signal,
    ) -> Result<()>
    where
        S: SendQueue,
        R: Request<Service = S::Service>,
        C: Poll,
    {
        let (begin, mut idle) = (Instant::now(), Idle::default());
        loop {
            // A device in software does its work by being polled, and a queue pair that fails says so there.
            queue.poll(|done| {
                lane.finish(done.wr_id);
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
