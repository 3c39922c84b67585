//! Draining, destroying, and returning the buffers.

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
    /// Whether the queue pair could be destroyed. If flows or asynchronous events reference it (`EBUSY`), dropping the
    /// last reference destroys it; after any other error it is leaked. In either case no request is outstanding.
    pub destroyed: Result<(), VerbError>,
}

impl<S: SendQueue> Pair<S> {
    /// [Drains](Pair::drain) the queue pair, destroys it, and returns `buffers`, the owner of its requests' memory. The
    /// buffers are not dropped while the device may use them.
    ///
    /// The memory of receives in a shared receive queue is not included: these receives end with the shared queue,
    /// because other queue pairs also consume them.
    ///
    /// # Errors
    ///
    /// [`TearDownError`] contains the queue pair and the buffers, so the call can be repeated. Dropping it leaks the
    /// buffers.
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
