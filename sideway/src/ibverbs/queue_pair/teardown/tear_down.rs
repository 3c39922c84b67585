//! Draining and destroying a queue pair, and returning its buffers.

use std::mem::ManuallyDrop;
use std::time::Duration;

use super::{Drained, TearDownError};
use crate::error::VerbError;
use crate::ibverbs::completion::{CompletionRecord, PollCompletions};
use crate::ibverbs::queue_pair::{Pair, SendQueue};

/// The result of tearing down a queue pair.
#[derive(Debug)]
#[non_exhaustive]
pub struct TornDown<B> {
    /// The buffers, which no request uses any more.
    pub buffers: B,
    /// How the requests ended.
    pub drained: Drained,
    /// Whether the queue pair could be destroyed. If flows or asynchronous events still reference it (`EBUSY`),
    /// dropping the last reference destroys it. After any other error it is leaked. In all cases, no request is
    /// outstanding.
    pub destroyed: Result<(), VerbError>,
}

impl<S: SendQueue> Pair<S> {
    /// [Drains](Pair::drain) the queue pair, destroys it, and returns `buffers`, the value that owns the memory of its
    /// requests. The buffers are not dropped as long as the device may use them.
    ///
    /// `buffers` must not include the memory of receives in a shared receive queue. Other queue pairs also consume
    /// these receives, so they end only with the shared receive queue.
    ///
    /// # Errors
    ///
    /// [`TearDownError`] contains the queue pair and the buffers, so the call can be repeated. Dropping the error leaks
    /// the buffers.
    pub fn tear_down<B>(
        mut self,
        queues: &mut [&mut dyn PollCompletions],
        timeout: Duration,
        buffers: B,
        seen: impl FnMut(&CompletionRecord),
    ) -> Result<TornDown<B>, TearDownError<S, B>> {
        // If `seen` panics, the buffers must not be dropped either.
        let buffers = ManuallyDrop::new(buffers);
        match self.drain(queues, timeout, seen) {
            Ok(drained) => {
                Ok(TornDown { buffers: ManuallyDrop::into_inner(buffers), drained, destroyed: self.close() })
            }
            Err(source) => Err(TearDownError::new(source, self, buffers)),
        }
    }
}
