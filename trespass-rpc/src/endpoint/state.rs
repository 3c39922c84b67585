//! The state of a link, which callers, handlers and the driver change under the link's lock.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use rdma_mummy_sys::program::Held;

use crate::body::Body;
use crate::core::{Connection, IdMap};
use crate::error::{RpcError, Status};

use super::parts::{Job, Keys, Local, Reads};
use super::reply::{guard, wake};
use super::{Reply, Turns};

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) core: Connection<Call>,
    /// The requests of the peer that have streams, attachments or targets, by the number of the request.
    pub(crate) serving: IdMap<Serving>,
    /// Parts of memory to send in frames.
    pub(super) jobs: VecDeque<Job>,
    /// The turns of the handlers to read attachments.
    pub(super) reads: Arc<Turns>,
    /// The RDMA requests of handlers, by the number of the peer's request that the handler serves.
    pub(super) transfers: IdMap<Transfers>,
    /// The keys of calls that ended on this side before the peer had answered them.
    pub(super) late_keys: IdMap<Keys>,
    /// Whether the driver was notified that this link has frames to send.
    pub(crate) is_dirty: bool,
    /// The time at which the driver next checks the time-outs of this link.
    pub(super) looks_at: u64,
    /// Wakers to call and drop after the lock is released, because a waker may own a call of this connection.
    pub(super) later: Later,
}

thread_local! {
    /// An empty vector for the next `Later`, so that calls do not allocate.
    static SPARE: Cell<Vec<Waker>> = const { Cell::new(Vec::new()) };
}

#[derive(Debug, Default)]
pub(super) struct Later {
    first: Option<Waker>,
    others: Vec<Waker>,
    /// Wakers to drop.
    idle: Vec<Waker>,
    /// Handlers whose bytes were sent.
    pub(super) done: Vec<Reply<()>>,
}

impl Later {
    fn is_empty(&self) -> bool {
        // The vector `others` is used only after `first`.
        self.first.is_none() && self.idle.is_empty() && self.done.is_empty()
    }

    pub(super) fn wake(&mut self, waker: Option<Waker>) {
        match &self.first {
            None => self.first = waker,
            Some(_) => {
                if self.others.capacity() == 0 {
                    self.others = SPARE.try_with(Cell::take).unwrap_or_default();
                }
                self.others.extend(waker);
            }
        }
    }

    /// Replaces a waker, unless the new one wakes the same task. The clone of a waker is code of the program, so the
    /// caller clones it before it takes the lock.
    pub(super) fn replace(&mut self, place: &mut Option<Waker>, new: &mut Option<Waker>) {
        if place.as_ref().zip(new.as_ref()).is_none_or(|(known, new)| !known.will_wake(new)) {
            self.idle.extend(mem::replace(place, new.take()));
        }
    }
}

/// The state under the link's lock.
#[derive(Debug)]
pub(crate) struct Guard<'l> {
    state: Option<MutexGuard<'l, State>>,
    /// Dropped after the lock is released.
    _held: Held,
}

impl<'l> Guard<'l> {
    pub(super) fn new(state: &'l Mutex<State>) -> Self {
        let held = Held::new();
        Self { state: Some(state.lock().unwrap_or_else(PoisonError::into_inner)), _held: held }
    }
}

impl Deref for Guard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        match &self.state {
            Some(state) => state,
            None => unreachable!("the lock is held until the drop"),
        }
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("the lock is held until the drop"),
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.later.is_empty() {
            return;
        }
        let Later { first, mut others, idle, done } = mem::take(&mut self.later);
        drop(self.state.take());
        idle.into_iter().for_each(|waker| guard(|| drop(waker)));
        done.into_iter().for_each(|reply| reply.send(()));
        first.into_iter().for_each(wake);
        if others.capacity() != 0 {
            others.drain(..).for_each(wake);

            // If the thread is exiting, this fails and nothing is cached.
            _ = SPARE.try_with(|spare| spare.set(others));
        }
    }
}

/// A call that this side makes.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) waker: Option<Waker>,
    /// The outcome of the call: the status and the body of the answer, or an error.
    pub(crate) outcome: Option<Result<(Status, Body), RpcError>>,
    pub(crate) items: VecDeque<Body>,
    /// The attachments and targets; empty if the request contains the bytes of all.
    pub(crate) bulks: Box<[Local]>,
}

/// The state of a request of the peer that has streams, attachments or targets.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    pub(crate) items: VecDeque<Body>,
    pub(crate) has_ended: bool,
    /// The wakers of the handler: one for when it waits for an item, one for when it waits for credit.
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    pub(super) expected: Reads,
}

/// The outstanding RDMA requests of a handler. The handler's answer is sent only after these requests have completed.
/// The caller revokes its keys when the answer arrives, and an RDMA request with a revoked key would end the
/// connection.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    pub(super) count: u32,
    pub(super) answer: Option<(Status, bool, Box<[u8]>)>,
}

impl State {
    /// Whether this link has anything to send.
    pub(super) fn wants_transmit(&self) -> bool {
        self.core.wants_transmit() || !self.jobs.is_empty()
    }

    /// Wakes the tasks that waited until they may send items again.
    pub(super) fn wake_room(&mut self) {
        while let Some(id) = self.core.take_room() {
            self.wake_writer(id);
        }
    }

    pub(super) fn wake_writer(&mut self, id: u32) {
        let call = self.core.call(id).map(|call| call.waker.take());
        self.later.wake(call.unwrap_or_else(|| self.serving.get_mut(&id)?.writer.take()));
    }

    pub(super) fn wake_reader(&mut self, id: u32) {
        let waker = self.serving.get_mut(&id).and_then(|serving| serving.reader.take());
        self.later.wake(waker);
    }

    /// Stores an item of the peer.
    pub(super) fn on_item(&mut self, id: u32, item: Body) {
        if let Some(call) = self.core.call(id) {
            call.items.push_back(item);
            self.later.wake(call.waker.take());
        } else if let Some(serving) = self.serving.get_mut(&id) {
            serving.items.push_back(item);
            self.later.wake(serving.reader.take());
        }
    }

    /// Processes the answer to a call of this side.
    pub(super) fn on_answer(&mut self, id: u32, outcome: Result<(Status, Body), RpcError>) {
        if let Some(call) = self.core.call(id) {
            self.later.wake(call.end(outcome));
        }
    }

    pub(super) fn fail(&mut self, failure: RpcError) {
        let Self { core, later, .. } = self;
        core.fail(failure, |call, error| later.wake(call.end(Err(error))));
    }

    pub(super) fn on_time(&mut self, now: u64, expired: &mut Vec<u32>) -> Result<(), RpcError> {
        let Self { core, later, .. } = self;
        core.on_time(now, |call, error| later.wake(call.end(Err(error))), expired)
    }

    /// Wakes a handler after the lock is released, because the bytes for which it waits have arrived or will not
    /// arrive.
    pub(super) fn wake_later(&mut self, waker: Option<Waker>) {
        self.later.wake(waker);
    }

    /// Answers a request, after its RDMA requests have completed.
    pub(super) fn answer(&mut self, id: u32, status: Status, is_refused: bool, body: &[u8]) {
        let most = self.core.peer().map_or(0, |peer| peer.body as usize);
        if let Some(transfers) = self.transfers.get_mut(&id) {
            transfers.answer.get_or_insert_with(|| (status, is_refused, body.into()));
        } else if body.len() > most {
            let text = format!("the answer has {} bytes, the caller accepts {most}; use a target", body.len());
            self.core.answer(id, Status::TOO_LARGE, false, &[text.as_bytes()]);
        } else {
            self.core.answer(id, status, is_refused, &[body]);
        }
    }

    /// Ends the streams and attachments of a request, and wakes the tasks that wait for them.
    pub(super) fn end_serving(&mut self, id: u32) {
        if !self.serving.is_empty()
            && let Some(serving) = self.serving.remove(&id)
        {
            let wakers = [serving.reader, serving.writer].into_iter().flatten();
            wakers.chain(serving.expected.into_wakers()).for_each(|waker| self.later.wake(Some(waker)));
        }
    }
}

impl Call {
    #[must_use]
    fn end(&mut self, outcome: Result<(Status, Body), RpcError>) -> Option<Waker> {
        if self.outcome.is_none() {
            self.outcome = Some(outcome);
        }
        self.waker.take()
    }
}
