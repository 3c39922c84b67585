//! Polling without a lock, and the operations that must wait until a poll has ended.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::ibverbs::completion::{ExtendedPoller, ExtendedWorkCompletion, PollCompletionQueueError};
use crate::ibverbs::queue_pair::QueuePairCore;

/// An open poll. Dropping the poller ends the poll (`ibv_end_poll`). It then destroys the queue pairs of this queue
/// that were dropped during the poll.
#[doc(alias = "ibv_end_poll")]
#[derive(Debug)]
pub struct SingleThreadedPoller<'cq> {
    // This is the first field, so it is dropped first, and the poll ends before queue pairs are destroyed.
    poller: ExtendedPoller<'cq>,
    #[expect(dead_code, reason = "held until its drop")]
    ended: Ended<'cq>,
}

impl<'cq> SingleThreadedPoller<'cq> {
    /// Combines a poll that has just started with the state of the same queue.
    #[inline]
    pub(super) fn new(poller: ExtendedPoller<'cq>, polling: &'cq Polling) -> Self {
        polling.state.set(State::UnderWay);
        Self { poller, ended: Ended(polling) }
    }

    /// `ibv_next_poll(cq)` — returns the next completion, or `None` if the queue is empty; see
    /// [`ExtendedPoller::next`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`ExtendedPoller::next`].
    #[doc(alias = "ibv_next_poll")]
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot return borrowed items, and the cursor moves")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<ExtendedWorkCompletion<'_>>, PollCompletionQueueError> {
        self.poller.next()
    }

    /// Passes up to `most` completions, but at least one, to `take`; see [`ExtendedPoller`].
    #[inline(always)]
    pub(super) fn give<E: From<PollCompletionQueueError>>(
        mut self,
        most: u32,
        take: impl FnMut(ExtendedWorkCompletion<'_>) -> Result<(), E>,
    ) -> Result<u32, E> {
        self.poller.give(most, take)
    }
}

/// Whether a completion queue is being polled.
///
/// Between two steps of a poll, a driver keeps a pointer to the queue pair of the last completion and reads it later.
/// Usually the driver's lock prevents the destruction of that queue pair during the poll. The queues of this module
/// have no lock, so this type prevents it instead.
#[derive(Debug, Default)]
pub(super) struct Polling {
    state: Cell<State>,
    /// Queue pairs that were dropped during the poll.
    leaving: RefCell<Vec<Arc<QueuePairCore>>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    UnderWay,
    /// A poll is in progress. Queue pairs that are dropped now are destroyed at the end of the poll.
    Awaited,
}

impl Polling {
    pub(super) fn is_active(&self) -> bool {
        self.state.get() != State::Idle
    }

    /// If a poll is open, keeps a queue pair alive until the end of the poll.
    fn keep(&self, qp: &Arc<QueuePairCore>) {
        if self.is_active() {
            self.leaving.borrow_mut().push(Arc::clone(qp));
            self.state.set(State::Awaited);
        }
    }

    #[cold]
    fn release(&self) {
        // The list is taken out before it is dropped, so that the cell is not borrowed while a queue pair is destroyed.
        drop(self.leaving.take());
    }
}

/// Marks the end of a poll when it is dropped.
#[derive(Debug)]
struct Ended<'cq>(&'cq Polling);

impl Drop for Ended<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.state.replace(State::Idle) == State::Awaited {
            self.0.release();
        }
    }
}

/// The polling states of a queue pair's completion queues. They are `None` for a queue that is not set.
#[derive(Clone, Debug, Default)]
pub(super) struct Polls {
    pub(super) send: Option<Rc<Polling>>,
    pub(super) recv: Option<Rc<Polling>>,
}

impl Polls {
    /// Whether a completion queue of the queue pair is being polled.
    pub(super) fn are_active(&self) -> bool {
        self.both().any(|polling| polling.is_active())
    }

    /// Keeps the queue pair alive until all open polls have ended.
    pub(super) fn keep(&self, qp: &Arc<QueuePairCore>) {
        self.both().for_each(|polling| polling.keep(qp));
    }

    fn both(&self) -> impl Iterator<Item = &Rc<Polling>> {
        [&self.send, &self.recv].into_iter().flatten()
    }
}
