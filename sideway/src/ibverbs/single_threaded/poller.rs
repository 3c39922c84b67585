//! Polling without a lock, and the operations that must wait until a poll has ended.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::ibverbs::completion::{ExtendedPoller, ExtendedWorkCompletion, PollCompletionQueueError};
use crate::ibverbs::queue_pair::QueuePairCore;

/// An open poll; dropping it ends the poll (`ibv_end_poll`), and destroys the queue's queue pairs that were dropped
/// during it.
#[doc(alias = "ibv_end_poll")]
#[derive(Debug)]
pub struct SingleThreadedPoller<'cq> {
    // First field, so dropped first: the poll ends before queue pairs are destroyed.
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

    /// `ibv_next_poll(cq)` — returns the next completion, or `None` if there is none: see [`ExtendedPoller::next`].
    ///
    /// # Errors
    ///
    /// The same errors as [`ExtendedPoller::next`].
    #[doc(alias = "ibv_next_poll")]
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot return borrowed items, and the cursor moves")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<ExtendedWorkCompletion<'_>>, PollCompletionQueueError> {
        self.poller.next()
    }

    /// Passes up to `most` completions, at least one, to `take`: see [`ExtendedPoller`].
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
/// Between two steps of a poll, a driver keeps and reads a pointer to the queue pair of the last completion; its lock
/// prevents that queue pair's destruction. Queues of this module have no lock, so this type prevents it.
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
    /// A poll is in progress, and dropped queue pairs are destroyed at its end.
    Awaited,
}

impl Polling {
    pub(super) fn is_active(&self) -> bool {
        self.state.get() != State::Idle
    }

    /// Keeps a queue pair until the end of the poll, if one is open.
    fn keep(&self, qp: &Arc<QueuePairCore>) {
        if self.is_active() {
            self.leaving.borrow_mut().push(Arc::clone(qp));
            self.state.set(State::Awaited);
        }
    }

    #[cold]
    fn release(&self) {
        // The list is taken out first, so that nothing is borrowed while a queue pair is destroyed.
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

/// The polling states of a queue pair's completion queues; `None` for a queue that is not set.
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

    /// Keeps the queue pair until all open polls have ended.
    pub(super) fn keep(&self, qp: &Arc<QueuePairCore>) {
        self.both().for_each(|polling| polling.keep(qp));
    }

    fn both(&self) -> impl Iterator<Item = &Rc<Polling>> {
        [&self.send, &self.recv].into_iter().flatten()
    }
}
