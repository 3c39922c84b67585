//! Completions, of either kind of queue.

use std::time::Duration;

use anyhow::Result;
use sideway::ibverbs::completion::{
    BasicCompletionQueue, ExtendedCompletionQueue, GenericCompletionQueue, PollCompletionQueueError,
    WorkCompletionStatus,
};

use super::cause::Failed;
use super::signal::{EMPTY_POLLS, Idle};

/// What a loop reads of a completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// What the request was called.
    pub(crate) wr_id: u64,
}

/// A completion queue, as a loop sees it.
pub(crate) trait Poll: Send {
    /// Takes what is there; how many there were. A request that failed ends it.
    fn poll(&mut self, each: impl FnMut(Done)) -> Result<u32>;

    /// Nothing was there at the last poll, nor at that of the other queue where the loop waits for both: other threads have their turn, or
    /// this one sleeps until something comes, `most` at most. Whether it has slept.
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

/// Chooses once a poll: a copy of all loops for each kind of queue would take seconds to compile.
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
