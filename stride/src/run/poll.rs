//! Polls completion queues of either kind.

use std::time::Duration;

use anyhow::Result;
use sideway::ibverbs::completion::{
    BasicCompletionQueue, ExtendedCompletionQueue, GenericCompletionQueue, PollCompletionQueueError,
    WorkCompletionStatus,
};

use super::cause::Failed;
use super::signal::{EMPTY_POLLS, Idle};

/// The part of a completion that a loop reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// The `wr_id` of the request.
    pub(crate) wr_id: u64,
}

/// A completion queue as the loops use it.
pub(crate) trait Poll: Send {
    /// Takes the available completions and returns their number. A failed request is an error.
    fn poll(&mut self, each: impl FnMut(Done)) -> Result<u32>;

    /// Called when the last poll found nothing, here and on `other` if the loop waits for both. Yields the processor,
    /// or sleeps until an event arrives, at most for `most`. Returns whether this call has slept.
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

/// Selects the kind once per poll: a copy of all loops for each kind would take seconds to compile.
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
