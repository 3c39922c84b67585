//! The other side of messages that take receives: posts them again, in batches, as they are used.

use std::time::{Duration, Instant};

use anyhow::Result;
use sideway::ibverbs::memory_region::LocalKey;
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::ibverbs::work_request::ReceiveQueue;

use super::lane::lane_of;
use super::poll::Poll;
use super::signal::{Idle, Signal};
use super::wait::LONGEST;

/// The receives of a thread's lanes, which complete on one queue.
#[derive(Debug)]
pub(crate) struct Receives<'q, C> {
    queue: &'q mut C,
    lanes: Vec<Refill<'q>>,
    /// Messages that have come.
    pub(crate) taken: u64,
}

/// Where a lane's receives are posted.
#[derive(Debug)]
pub(crate) enum Intake<'q> {
    /// To its queue pair.
    Own(&'q mut ReceiveQueue),
    /// To the queue that the other side's messages name.
    Named(&'q mut SharedReceiveQueue),
}

/// The receives of a lane, which all have the same place: nobody reads what comes there.
#[derive(Debug)]
pub(crate) struct Refill<'q> {
    intake: Intake<'q>,
    lkey: LocalKey,
    address: u64,
    length: u32,
    /// To be posted again.
    used: u32,
    /// So many are posted together.
    batch: u32,
}

impl<'q> Refill<'q> {
    /// Receives of so many bytes at this address, of which `batch` are posted together.
    ///
    /// # Safety
    ///
    /// The memory there is registered as long as receives wait for messages, and nobody refers to it.
    pub(crate) unsafe fn new(intake: Intake<'q>, lkey: LocalKey, address: u64, length: u32, batch: u32) -> Self {
        Self { intake, lkey, address, length, used: 0, batch: batch.max(1) }
    }

    /// Posts so many, whose number is that of the lane.
    fn post(&mut self, number: usize, count: u32) -> Result<()> {
        /// Posts to either kind of queue.
        macro_rules! post {
            ($queue:expr) => {{
                let mut batch = $queue.start_post_recv();
                for _ in 0..count {
                    let request = batch.construct_wr((number as u64) << 32);
                    // SAFETY: the promise of `new`.
                    unsafe { request.setup_sge(self.lkey, self.address, self.length) };
                }
                Ok(batch.post()?)
            }};
        }
        match &mut self.intake {
            Intake::Own(queue) => post!(queue),
            Intake::Named(queue) => post!(queue),
        }
    }
}

impl<'q, C: Poll> Receives<'q, C> {
    pub(crate) fn new(queue: &'q mut C, lanes: Vec<Refill<'q>>) -> Self {
        Self { queue, lanes, taken: 0 }
    }

    /// The queue on which they complete.
    pub(crate) fn queue(&self) -> &C {
        self.queue
    }

    /// Nothing has come.
    #[inline(always)]
    pub(crate) fn rest(&mut self, idle: &mut Idle) -> Result<bool> {
        self.queue.rest(None, || LONGEST, idle)
    }

    /// Posts so many more on each lane.
    pub(crate) fn add(&mut self, counts: &mut [u32]) -> Result<()> {
        for ((number, lane), count) in self.lanes.iter_mut().enumerate().zip(counts) {
            lane.post(number, std::mem::take(count))?;
        }
        Ok(())
    }

    /// Takes what has come of an earlier step; how many receives of each lane are used.
    pub(crate) fn clear(&mut self) -> Result<Vec<u32>> {
        while self.take_only()? > 0 {}
        Ok(self.lanes.iter_mut().map(|lane| std::mem::take(&mut lane.used)).collect())
    }

    fn take_only(&mut self) -> Result<u32> {
        let Self { queue, lanes, .. } = self;
        queue.poll(|done| {
            // What a driver makes up is of no lane.
            if let Some(lane) = lanes.get_mut(lane_of(done.wr_id)) {
                lane.used += 1;
            }
        })
    }

    /// Takes what has come, and posts as many receives again; how many messages there were.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<u32> {
        let count = self.take_only()?;
        if count > 0 {
            self.taken += u64::from(count);
            for (number, lane) in self.lanes.iter_mut().enumerate() {
                if lane.used >= lane.batch {
                    let used = std::mem::take(&mut lane.used);
                    lane.post(number, used)?;
                }
            }
        }
        Ok(count)
    }
}

/// Receives until so many have come, or nothing has for so long, or the loop is to stop.
pub(crate) fn receive<C: Poll>(
    receives: &mut Receives<'_, C>,
    messages: u64,
    quiet: Option<Duration>,
    signal: &Signal,
) -> Result<()> {
    let (mut told, mut rounds, mut last) = (receives.taken, 0_u32, Instant::now());
    let mut idle = Idle::default();
    while receives.taken < messages && !signal.has_stopped() {
        if receives.take()? == 0 && receives.rest(&mut idle)? {
            // Who sleeps looks at the time whenever it wakes up.
            rounds |= 1023;
        }
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(1024) {
            let more = receives.taken - told;
            if more > 0 {
                signal.add(more);
                (told, last) = (receives.taken, Instant::now());
            } else if quiet.is_some_and(|quiet| last.elapsed() > quiet) {
                break;
            }
        }
    }
    signal.add(receives.taken - told);
    Ok(())
}
