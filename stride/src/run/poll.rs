//! Completions, of either kind of queue.

use anyhow::Result;
use sideway::ibverbs::completion::{
    BasicCompletionQueue, ExtendedCompletionQueue, PollCompletionQueueError, WorkCompletionStatus,
};

use super::cause;

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
                        return Err(cause::failed(completion.status(), completion.vendor_err(), completion.qp_num()));
                    }
                    each(Done { wr_id: completion.wr_id() });
                    count += 1;
                }
                Ok(count)
            }
        }
    )*};
}

poll!(BasicCompletionQueue, ExtendedCompletionQueue);
