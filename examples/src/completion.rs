//! Waiting for one completion.

use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use sideway::ibverbs::completion::{GenericCompletionQueue, GenericWorkCompletion, PollCompletionQueueError};

use crate::Timeout;

/// Waits for the next completion and returns what `take` finds in it. At most one is to be on its way: others that came with it
/// would be lost.
///
/// # Errors
///
/// None came in time, or the queue is broken.
pub fn wait_for_one<T>(
    cq: &mut GenericCompletionQueue,
    timeout: Timeout,
    take: impl FnOnce(&GenericWorkCompletion<'_>) -> T,
) -> Result<T> {
    let deadline = timeout.0.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        match cq.start_poll() {
            Ok(mut poller) => {
                if let Some(completion) = poller.next()? {
                    return Ok(take(&completion));
                }
            }
            // Nothing yet: let another thread run.
            Err(PollCompletionQueueError::CompletionQueueEmpty) => thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            bail!("the device does not tell what became of a request: nothing completed within --timeout");
        }
    }
}
