//! To the error state, and polling until everything has been flushed.

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

/// How long to sleep when nothing has completed.
const PAUSE: Duration = Duration::from_micros(50);

/// How long nothing comes from a queue whose end cannot be marked, before it is taken to be empty.
const QUIET: Duration = Duration::from_millis(10);

/// How a queue pair was drained. In either case no request of its uses its buffers any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drained {
    /// All requests have completed, and every completion was handed over; or the queue pair was in Reset already, and nothing was
    /// polled.
    Flushed,
    /// The queue pair was reset: completions that had not come by then never will.
    Reset(ResetReason),
}

/// Why [`Pair::drain`] reset a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetReason {
    /// The time was over.
    TimedOut,
    /// The queue pair could not be moved to the error state.
    Modify(VerbError),
    /// A completion queue is broken.
    Poll(VerbError),
    /// The driver refused the request that marks the end of a queue.
    Post(PostError),
    /// The end of a queue cannot be marked: of the sends of datagrams and raw packets, and of receives that come from a shared
    /// receive queue. What came until the queue fell silent was handed over.
    Unmarked,
}

impl<S: SendQueue> Pair<S> {
    /// Moves the queue pair to the error state, polls `queues` until all its requests have been flushed, and hands every
    /// completion that comes to `seen`, those of other queue pairs among them. What does not end within `timeout`, or whose end
    /// cannot be seen, is ended by a reset.
    ///
    /// `queues` has both completion queues of the queue pair, once where they are the same. Requests with the numbers
    /// [`DRAIN_MARKERS`](super::DRAIN_MARKERS) are posted behind the others.
    ///
    /// # Errors
    ///
    /// [`DrainError`]: a completion queue is missing, the pair's queues are of two queue pairs, or the queue pair could neither be
    /// flushed nor reset, and the device may still use its buffers.
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
                // What is broken was told, or is not what stopped the queue pair.
                let _ = sweep(&core, queues, &mut seen);
                Ok(Drained::Reset(reason))
            }
        }
    }

    /// Flushes all requests, or says why that did not end.
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
        // What a drain that was given up has marked says nothing of what was posted since.
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
            // The soft-RoCE driver does not tell its kernel of a receive: one that comes when the queue was flushed already
            // is noticed at the next transition.
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

/// Sees to it that what the queue pair completes on is polled.
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

/// Hands over what has completed by now, without a look at markers.
fn sweep(
    core: &QueuePairCore,
    queues: &mut [&mut dyn PollCompletions],
    seen: &mut impl FnMut(&CompletionRecord),
) -> Result<(), VerbError> {
    let mut records = Vec::new();
    let mut result = Ok(());
    for queue in queues.iter_mut() {
        // As often as the queue can be full of single completions, and no more: other queue pairs may go on completing.
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
