//! Moving a queue pair to the Error state, and polling until all requests are flushed.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::DrainError;
use super::side::{End, is_marker};
use crate::error::VerbError;
use crate::ibverbs::completion::{
    CompletionQueueCore, CompletionRecord, PollCompletionQueueError, PollCompletions, Token,
};
use crate::ibverbs::queue_pair::common::AsQueuePairCore;
use crate::ibverbs::queue_pair::{Pair, QueuePairAttribute, QueuePairCore, QueuePairState as State, SendQueue};
use crate::ibverbs::work_request::PostError;

/// How long the thread sleeps after a poll without completions.
const PAUSE: Duration = Duration::from_micros(50);

/// How long a queue without an end marker must deliver no completions before it is regarded as empty.
const QUIET: Duration = Duration::from_millis(10);

/// How a queue pair was drained. In both cases, the requests of the queue pair no longer use their buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drained {
    /// All requests have completed, and every completion was passed to the program. Or the queue pair was already in
    /// Reset, and nothing was polled.
    Flushed,
    /// The queue pair was reset. Completions that had not arrived before the reset are lost.
    Reset(ResetReason),
}

/// The reason why [`Pair::drain`] reset a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetReason {
    /// The time limit expired.
    TimedOut,
    /// The queue pair could not be moved to the Error state.
    Modify(VerbError),
    /// A completion queue is broken.
    Poll(VerbError),
    /// The driver rejected the request that marks the end of a queue.
    Post(PostError),
    /// The end of a queue cannot be marked. This applies to sends of datagrams and raw packets, and to receives from a
    /// shared receive queue. The completions that arrived before the queue became quiet were passed to the program.
    Unmarked,
}

impl<S: SendQueue> Pair<S> {
    /// Moves the queue pair to the Error state, polls `queues` until all its requests are flushed, and passes every
    /// completion to `seen`, including those of other queue pairs. If this takes longer than `timeout`, or if the last
    /// completion cannot be detected, the queue pair is reset.
    ///
    /// `queues` must contain both completion queues of the queue pair, or the only one if sends and receives use the
    /// same queue. This method posts requests with the numbers [`DRAIN_MARKERS`](super::DRAIN_MARKERS) after all other
    /// requests.
    ///
    /// # Errors
    ///
    /// [`DrainError`]: a completion queue is missing, the pair's queues belong to two queue pairs, or the queue pair
    /// could be neither flushed nor reset, so the device may still use its buffers.
    ///
    /// # References
    ///
    /// InfiniBand specification, volume 1, section 10.3.1 (states of a queue pair)
    pub fn drain(
        &mut self,
        queues: &mut [&mut dyn PollCompletions],
        timeout: Duration,
        mut seen: impl FnMut(&CompletionRecord),
    ) -> Result<Drained, DrainError> {
        if !self.is_whole() {
            return Err(DrainError::MixedQueues);
        }
        let core = Arc::clone(self.core());
        check_queues(&core, queues)?;
        if core.current_state() == State::Reset {
            return Ok(Drained::Flushed);
        }
        match self.flush(&core, queues, timeout, &mut seen) {
            None => Ok(Drained::Flushed),
            Some(reason) => {
                if let Err(source) = core.modify(QueuePairAttribute::new().setup_state(State::Reset)) {
                    return Err(DrainError::Stuck { reason, source });
                }
                // An error of this last poll is ignored: it was already reported, or it is not the reason for the
                // reset.
                let _ = sweep(&core, queues, &mut seen);
                Ok(Drained::Reset(reason))
            }
        }
    }

    /// Flushes all requests, or returns the reason why that failed.
    fn flush(
        &mut self,
        core: &QueuePairCore,
        queues: &mut [&mut dyn PollCompletions],
        timeout: Duration,
        seen: &mut impl FnMut(&CompletionRecord),
    ) -> Option<ResetReason> {
        let deadline = Instant::now().checked_add(timeout);
        if let Err(reason) = to_error(core) {
            return Some(reason);
        }
        // The markers of an earlier drain that failed do not cover the requests that were posted after it.
        if let Err(error) = sweep(core, queues, seen) {
            return Some(ResetReason::Poll(error));
        }
        let (send, recv) = self.queues();
        let mut ends = [End::of_sends(core), End::of_receives(recv)];
        let mut records = Vec::new();
        let mut silent_since = Instant::now();
        loop {
            let receives = ends[1];
            if let Err(error) = ends[0].mark_sends(send).and_then(|()| ends[1].mark_receives(recv)) {
                return Some(ResetReason::Post(error));
            }
            // The soft-RoCE driver does not notify the kernel of a new receive. If a receive is posted after the flush,
            // the kernel notices it only at the next transition.
            if receives != ends[1]
                && let Err(reason) = to_error(core)
            {
                return Some(reason);
            }
            let broken = queues.iter_mut().find_map(|queue| queue.poll_records(&mut records).err());
            let idle = records.is_empty();
            for record in records.drain(..) {
                if !is_marker(core, &record, &mut ends) {
                    seen(&record);
                }
            }
            match broken {
                None | Some(PollCompletionQueueError::CompletionQueueEmpty) => {}
                Some(PollCompletionQueueError::Verb(error)) => return Some(ResetReason::Poll(error)),
            }
            if ends == [End::Seen; 2] {
                return None;
            }
            let now = Instant::now();
            if !idle {
                silent_since = now;
            } else if ends.iter().all(|end| end.is_over()) && now.duration_since(silent_since) >= QUIET {
                return Some(ResetReason::Unmarked);
            }
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Some(ResetReason::TimedOut);
            }
            if idle {
                thread::sleep(PAUSE);
            }
        }
    }
}

fn to_error(core: &QueuePairCore) -> Result<(), ResetReason> {
    let modified = core.modify(QueuePairAttribute::new().setup_state(State::Error));
    modified.map_err(|error| ResetReason::Modify(error.verb_error().clone()))
}

/// Checks that all completion queues of the queue pair are polled.
fn check_queues(core: &QueuePairCore, queues: &[&mut dyn PollCompletions]) -> Result<(), DrainError> {
    let is_given =
        |queue: &Arc<CompletionQueueCore>| queues.iter().any(|given| Arc::ptr_eq(given.queue(Token::new()), queue));
    let parents = core.parents();
    for (queue, which) in [(&parents.send_cq, "sends"), (&parents.recv_cq, "receives")] {
        if queue.as_ref().is_some_and(|queue| !is_given(queue)) {
            return Err(DrainError::QueueMissing { which });
        }
    }
    Ok(())
}

/// Passes all pending completions except those of markers to the program.
fn sweep(
    core: &QueuePairCore,
    queues: &mut [&mut dyn PollCompletions],
    seen: &mut impl FnMut(&CompletionRecord),
) -> Result<(), VerbError> {
    let mut records = Vec::new();
    let mut result = Ok(());
    for queue in queues.iter_mut() {
        // The number of polls is limited by the queue's capacity, because other queue pairs may continue to complete
        // requests.
        for _ in 0..queue.queue(Token::new()).cqe().max(1) {
            let polled = queue.poll_records(&mut records);
            let is_empty = records.is_empty();
            for record in records.drain(..) {
                if !is_marker(core, &record, &mut [End::ToPost; 2]) {
                    seen(&record);
                }
            }
            match polled {
                Ok(()) if !is_empty => continue,
                Err(PollCompletionQueueError::Verb(error)) => result = result.and(Err(error)),
                Ok(()) | Err(PollCompletionQueueError::CompletionQueueEmpty) => {}
            }
            break;
        }
    }
    result
}
