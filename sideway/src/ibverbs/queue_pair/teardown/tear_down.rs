//! Draining, destroying, and giving the buffers back.

use std::mem::ManuallyDrop;
use std::time::Duration;

use super::{Drained, TearDownError};
use crate::error::VerbError;
use crate::ibverbs::completion::{CompletionRecord, PollCompletions};
use crate::ibverbs::queue_pair::{Pair, SendQueue};

/// What is left of a queue pair.
#[derive(Debug)]
#[non_exhaustive]
pub struct TornDown<B> {
    /// The buffers, which no request uses any more.
    pub buffers: B,
    /// How the requests ended.
    pub drained: Drained,
    /// Whether the queue pair could be destroyed. Where flows or asynchronous events hold it (`EBUSY`) it goes with the last of
    /// them, else it is leaked; without requests in either case.
    pub destroyed: Result<(), VerbError>,
}

impl<S: SendQueue> Pair<S> {
    /// [Drains](Pair::drain) the queue pair, destroys it, and gives `buffers` back: whatever owns the memory of its requests. As
    /// long as the device may use them, they are not dropped.
    ///
    /// The memory of receives in a shared receive queue is none of them: other queue pairs take those receives too, and they
    /// end with the shared queue.
    ///
    /// # Errors
    ///
    /// [`TearDownError`] holds queue pair and buffers: one can try again. Dropped, it leaks the buffers.
    pub fn tear_down<B>(
        mut self,
        queues: &mut [&mut dyn PollCompletions],
        timeout: Duration,
        buffers: B,
        seen: impl FnMut(&CompletionRecord),
    ) -> Result<TornDown<B>, TearDownError<S, B>> {
        // A panic in `seen` must not drop them either.
        let buffers = ManuallyDrop::new(buffers);
        match self.drain(queues, timeout, seen) {
            Ok(drained) => {
                Ok(TornDown { buffers: ManuallyDrop::into_inner(buffers), drained, destroyed: self.close() })
            }
            Err(source) => Err(TearDownError::new(source, self, buffers)),
        }
    }
}
