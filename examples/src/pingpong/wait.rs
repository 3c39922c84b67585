//! Waiting until something completes, polling or asleep.

use std::hint;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use sideway::ibverbs::completion::{
    CompletionChannel, CompletionQueue, GenericCompletionQueue, WorkCompletionStatus as Status,
};

use crate::Timeout;

/// After so many polls in vain it is time to look at the clock, and to let another program run.
const PATIENCE: u32 = 1024;

/// A game that waits for completions on one queue.
pub trait Wait {
    /// The queue, and its channel where the game is to sleep until something completes.
    fn queue(&self) -> (&GenericCompletionQueue, Option<&CompletionChannel>);

    /// How long nothing may complete.
    fn timeout(&self) -> Timeout;

    /// Takes what has completed off the queue; whether there was anything.
    ///
    /// # Errors
    ///
    /// As the game says.
    fn poll(&mut self) -> Result<bool>;

    /// Why it goes no further, when nothing has completed within the time.
    fn stuck(&self) -> anyhow::Error;

    /// Waits until something completes.
    ///
    /// # Errors
    ///
    /// What [`poll`](Self::poll) gave, or the channel; [`stuck`](Self::stuck) when the time is over.
    fn wait(&mut self) -> Result<()> {
        let mut polls: u32 = 0;
        let mut deadline = None;
        while !self.poll()? {
            if self.queue().1.is_some() {
                if self.sleep()? {
                    return Ok(());
                }
                continue;
            }
            hint::spin_loop();
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(PATIENCE) {
                let now = Instant::now();
                let end =
                    *deadline.get_or_insert_with(|| self.timeout().0.and_then(|timeout| now.checked_add(timeout)));
                if end.is_some_and(|end| end <= now) {
                    return Err(self.stuck());
                }
                thread::yield_now();
            }
        }
        Ok(())
    }

    /// Sleeps until the channel tells of a completion; returns whether one was polled instead.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    fn sleep(&mut self) -> Result<bool> {
        self.queue().0.req_notify(false)?;
        // What completed before the request raises no event. An event that comes though its completion was polled here does
        // no harm: the next sleep ends at once.
        if self.poll()? {
            return Ok(true);
        }
        let Some(channel) = self.queue().1 else { return Ok(false) };
        match channel.get_cq_event(self.timeout().0) {
            Ok(_) => Ok(false),
            Err(error) if error.errno().raw() == libc::ETIMEDOUT => Err(self.stuck()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What a user can do about a failed message.
#[cold]
pub fn advice(status: Status, is_send: bool) -> &'static str {
    match (status, is_send) {
        (Status::RetryExceededError, _) => {
            ": the peer does not answer; it has ended (has it the same --iters?), or is not reached from this GID (-g)"
        }
        // The soft-RoCE of some kernels has the second for both.
        (Status::LocalLengthError | Status::LocalQueuePairOperationError, false) => {
            ": perhaps the peer's messages are longer; give both sides the same --size"
        }
        (Status::RemoteInvalidRequestError | Status::RemoteOperationError, true) => {
            ": the peer could not take it; perhaps its --size is smaller, see what it says"
        }
        _ => "",
    }
}
