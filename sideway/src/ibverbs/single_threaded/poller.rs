//! Polling without a lock, and what has to wait until a poll has ended.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::ibverbs::completion::{ExtendedPoller, ExtendedWorkCompletion, PollCompletionQueueError};
use crate::ibverbs::queue_pair::QueuePairCore;

/// A poll under way; dropping it ends the poll (`ibv_end_poll`), and destroys the queue pairs of the queue that were dropped
/// meanwhile.
#[doc(alias = "ibv_end_poll")]
#[derive(Debug)]
pub struct SingleThreadedPoller<'cq> {
    // Dropped first: the poll has ended before queue pairs go.
    poller: ExtendedPoller<'cq>,
    #[expect(dead_code, reason = "held for its drop")]
    ended: Ended<'cq>,
}

impl<'cq> SingleThreadedPoller<'cq> {
    /// The poll of a queue that has just begun, and the state of the same queue.
    #[inline]
    pub(super) fn new(poller: ExtendedPoller<'cq>, polling: &'cq Polling) -> Self {
        polling.state.set(State::UnderWay);
        Self { poller, ended: Ended(polling) }
    }

    /// `ibv_next_poll(cq)` — the next completion, `None` when there is no further one: see [`ExtendedPoller::next`].
    ///
    /// # Errors
    ///
    /// As there.
    #[doc(alias = "ibv_next_poll")]
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot return borrowed items, and the cursor moves")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<ExtendedWorkCompletion<'_>>, PollCompletionQueueError> {
        self.poller.next()
    }

    /// Gives up to `most` completions, one at least, to `take`: see [`ExtendedPoller`].
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
/// A driver remembers the queue pair of the last completion from one step of a poll to the next, and reads it; its lock is what
/// keeps a queue pair from being destroyed in between. Where there is no lock, this does.
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
    /// And queue pairs wait for its end.
    Awaited,
}

impl Polling {
    pub(super) fn is_under_way(&self) -> bool {
        self.state.get() != State::Idle
    }

    /// Keeps a queue pair until the poll has ended, if one is under way.
    fn keep(&self, qp: &Arc<QueuePairCore>) {
        if self.is_under_way() {
            self.leaving.borrow_mut().push(Arc::clone(qp));
            self.state.set(State::Awaited);
        }
    }

    #[cold]
    fn release(&self) {
        // Taken out first: nothing is borrowed while a queue pair goes.
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

/// The completion queues of a queue pair, as far as they are set.
#[derive(Clone, Debug, Default)]
pub(super) struct Polls {
    pub(super) send: Option<Rc<Polling>>,
    pub(super) recv: Option<Rc<Polling>>,
}

impl Polls {
    /// Whether a completion queue of the queue pair is being polled.
    pub(super) fn are_under_way(&self) -> bool {
        self.both().any(|polling| polling.is_under_way())
    }

    /// Keeps the queue pair until all polls under way have ended.
    pub(super) fn keep(&self, qp: &Arc<QueuePairCore>) {
        self.both().for_each(|polling| polling.keep(qp));
    }

    fn both(&self) -> impl Iterator<Item = &Rc<Polling>> {
        [&self.send, &self.recv].into_iter().flatten()
    }
}
