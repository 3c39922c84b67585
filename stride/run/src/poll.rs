//! Polls completion queues with the basic or the extended interface.

use std::time::Duration;

use anyhow::Result;
use sideway::ibverbs::completion::{
    BasicCompletionQueue, ExtendedCompletionQueue, GenericCompletionQueue, PollCompletionQueueError,
    WorkCompletionStatus,
};

use crate::cause::Failed;
use crate::signal::{EMPTY_POLLS, Idle};

/// The part of a completion that the loops read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// The `wr_id` of the request.
    pub(crate) wr_id: u64,
}

/// A completion queue, as the loops use it.
pub(crate) trait Poll: Send {
    /// Passes each available completion to `each`, and returns their number. Returns an error if a request has failed.
    fn poll(&mut self, each: impl FnMut(Done)) -> Result<u32>;

    /// Called when the last poll has found nothing. If the loop also waits for another queue, `other` is that queue.
    /// Yields the processor, or sleeps until an event arrives, at most for the time `most`. Returns whether this call
    /// has slept.
    fn rest(&mut self, other: Option<&Self>, most: impl FnOnce() -> Duration, idle: &mut Idle) -> Result<bool>;
}

macro_rules! poll {
    ($($Queue:ty),*) => {$(
        impl Poll for $Queue {
            #[inline]
            fn poll(&mut self, mut each: impl FnMut(Done)) -> Result<u32> {
                let mut poller = match self.start_poll() {
                    Ok(poller) => poller,
                    Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(0),
                    Err(error) => return Err(error.into()),
                };
                let mut count = 0;
                while let Some(completion) = poller.next()? {
                    if completion.status() != WorkCompletionStatus::Success {
                        let (status, vendor) = (completion.status(), completion.vendor_err());
                        return Err(Failed::new(status, vendor, completion.qp_num(), completion.wr_id()).into());
                    }
                    each(Done { wr_id: completion.wr_id() });
                    count += 1;
                }
                Ok(count)
            }

            #[inline(always)]
            fn rest(&mut self, _: Option<&Self>, _: impl FnOnce() -> Duration, idle: &mut Idle) -> Result<bool> {
                idle.look(EMPTY_POLLS);
                Ok(false)
            }
        }
    )*};
}

poll!(BasicCompletionQueue, ExtendedCompletionQueue);

/// Selects the interface once per poll. If each loop were compiled once per interface instead, compilation would take
/// seconds longer.
impl Poll for GenericCompletionQueue {
    #[inline(always)]
    fn poll(&mut self, each: impl FnMut(Done)) -> Result<u32> {
        match self {
            Self::Basic(queue) => queue.poll(each),
            Self::Extended(queue) => queue.poll(each),
        }
    }

    #[inline(always)]
    fn rest(&mut self, _: Option<&Self>, _: impl FnOnce() -> Duration, idle: &mut Idle) -> Result<bool> {
        idle.look(EMPTY_POLLS);
        Ok(false)
    }
}
