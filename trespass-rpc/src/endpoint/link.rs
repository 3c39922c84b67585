//! A connection as callers and handlers see it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use crate::body::Body;
use crate::core::{Connection, Outgoing};
use crate::error::{Certainty, RpcError, Status};
use crate::memory::MemoryPool;
use crate::wire::PeerMethod;

use super::bulk::{Expected, Job, Local};
use super::{Shared, TransportInfo};

/// A connection. The driver has one reference, callers and handlers have others.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    /// In the driver's table.
    pub(crate) index: u32,
    pub(crate) info: TransportInfo,
    /// Memory for attachments and targets.
    pub(crate) memory: Arc<MemoryPool>,
    /// What the peer serves, once its hello is there.
    methods: OnceLock<Vec<PeerMethod>>,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) core: Connection<Call>,
    /// Requests of the peer that have streams, by their number.
    pub(crate) serving: HashMap<u32, Serving>,
    /// Bytes to send in frames.
    pub(super) jobs: VecDeque<Job>,
    /// The driver was informed of frames to send.
    pub(crate) is_dirty: bool,
}

/// A call of this side.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) waker: Option<Waker>,
    /// How it ended: the status and the body of the answer.
    pub(crate) outcome: Option<Result<(Status, Body), RpcError>>,
    pub(crate) items: VecDeque<Body>,
    pub(crate) bulks: Vec<Local>,
}

/// A request of the peer, if it has streams, attachments or targets.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    pub(crate) items: VecDeque<Body>,
    pub(crate) has_ended: bool,
    /// Of the handler that waits for an item, or for credit.
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    pub(super) expected: Option<Expected>,
}

impl State {
    /// Whether there is something to send.
    pub(super) fn wants_transmit(&self) -> bool {
        self.core.wants_transmit() || !self.jobs.is_empty()
    }
}

impl Call {
    pub(crate) fn end(&mut self, outcome: Result<(Status, Body), RpcError>) {
        if self.outcome.is_none() {
            self.outcome = Some(outcome);
        }
        self.wake();
    }

    pub(crate) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn wait(&mut self, task: &TaskContext<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(task.waker()),
            None => self.waker = Some(task.waker().clone()),
        }
    }
}

/// Puts the link among those with something to read.
#[derive(Debug)]
pub(super) struct Readable {
    pub(super) shared: Arc<Shared>,
    pub(super) index: u32,
}

impl Wake for Readable {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.shared.poke(|signal| signal.readable.push(self.index));
    }
}

impl Link {
    pub(super) fn new(
        shared: Arc<Shared>,
        index: u32,
        info: TransportInfo,
        memory: Arc<MemoryPool>,
        core: Connection<Call>,
    ) -> Self {
        let state = State { core, serving: HashMap::new(), jobs: VecDeque::new(), is_dirty: false };
        Self { shared, index, info, memory, methods: OnceLock::new(), state: Mutex::new(state) }
    }

    pub(super) fn set_methods(&self, methods: Vec<PeerMethod>) {
        // The core takes one hello.
        _ = self.methods.set(methods);
    }

    pub(crate) fn methods(&self) -> &[PeerMethod] {
        self.methods.get().map_or(&[], Vec::as_slice)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the connection, and leaves what is to be sent to the driver.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = act(&mut state);
        let is_new = !state.is_dirty && state.wants_transmit();
        state.is_dirty |= is_new;
        drop(state);
        if is_new {
            self.shared.poke(|signal| signal.dirty.push(self.index));
        }
        result
    }

    /// Makes a call.
    pub(crate) fn start(
        &self,
        call: &Outgoing<'_>,
        bulks: Vec<Local>,
        task: &TaskContext<'_>,
    ) -> Result<u32, RpcError> {
        let now = self.shared.now();
        let data = Call { bulks, waker: Some(task.waker().clone()), ..Call::default() };
        self.with(|state| state.core.start(call, data, now))
    }

    /// The answer of a call: afterwards the call is no more.
    pub(crate) fn poll_answer(&self, id: u32, task: &TaskContext<'_>) -> Poll<Result<(Status, Body), RpcError>> {
        let mut state = self.lock();
        let Some(call) = state.core.call(id) else { return Poll::Ready(Err(gone())) };
        match call.outcome.take() {
            Some(outcome) => {
                state.core.forget(id);
                Poll::Ready(outcome)
            }
            None => {
                call.wait(task);
                Poll::Pending
            }
        }
    }

    /// Gives a call up.
    pub(crate) fn forget(&self, id: u32) {
        let call = self.with(|state| state.core.forget(id));
        // Its wakers run outside of the lock.
        drop(call);
    }

    /// The next item that the peer sent for a call of this side; the answer after the last one.
    pub(crate) fn poll_reply_item(&self, id: u32, task: &TaskContext<'_>) -> Poll<ReplyItem> {
        self.with(|state| {
            let Some(call) = state.core.call(id) else { return Poll::Ready(ReplyItem::End(Err(gone()))) };
            if let Some(item) = call.items.pop_front() {
                state.core.consumed(id, item.len());
                return Poll::Ready(ReplyItem::Item(item));
            }
            match call.outcome.take() {
                Some(outcome) => {
                    state.core.forget(id);
                    Poll::Ready(ReplyItem::End(outcome))
                }
                None => {
                    call.wait(task);
                    Poll::Pending
                }
            }
        })
    }

    /// Sends an item of the caller's stream. Ready with false if the call has ended.
    pub(crate) fn poll_send(&self, id: u32, item: &[u8], task: &TaskContext<'_>) -> Poll<bool> {
        self.with(|state| {
            let Some(call) = state.core.call(id) else { return Poll::Ready(false) };
            if call.outcome.is_some() {
                return Poll::Ready(false);
            }
            call.wait(task);
            match state.core.item(id, &[item]) {
                Some(true) => Poll::Ready(true),
                // Without credit, or the request itself waits for some.
                Some(false) | None => Poll::Pending,
            }
        })
    }

    /// Ends the caller's stream, once the request has left.
    pub(crate) fn poll_end_items(&self, id: u32, task: &TaskContext<'_>) -> Poll<()> {
        self.with(|state| {
            let Some(call) = state.core.call(id).filter(|call| call.outcome.is_none()) else { return Poll::Ready(()) };
            call.wait(task);
            if !state.core.is_sent(id) {
                return Poll::Pending;
            }
            state.core.end_items(id);
            Poll::Ready(())
        })
    }

    /// Bytes of a body that the peer takes.
    pub(crate) fn longest(&self) -> usize {
        self.with(|state| state.core.peer().map_or(0, |peer| peer.body as usize))
    }

    /// The next item of the caller of a request; `None` after the last one.
    pub(crate) fn poll_request_item(&self, id: u32, task: &TaskContext<'_>) -> Poll<Option<Body>> {
        self.with(|state| {
            let Some(serving) = state.serving.get_mut(&id) else { return Poll::Ready(None) };
            if let Some(item) = serving.items.pop_front() {
                state.core.consumed(id, item.len());
                return Poll::Ready(Some(item));
            }
            if serving.has_ended {
                return Poll::Ready(None);
            }
            serving.reader = Some(task.waker().clone());
            Poll::Pending
        })
    }

    /// Sends an item to the caller of a request. Ready with false if the call has ended.
    pub(crate) fn poll_respond(&self, id: u32, item: &[u8], task: &TaskContext<'_>) -> Poll<bool> {
        self.with(|state| match state.core.item(id, &[item]) {
            None => Poll::Ready(false),
            Some(true) => Poll::Ready(true),
            Some(false) => {
                state.serving.entry(id).or_default().writer = Some(task.waker().clone());
                Poll::Pending
            }
        })
    }

    /// Answers a request.
    pub(crate) fn answer(&self, id: u32, status: Status, body: &[u8]) {
        self.with(|state| {
            let most = state.core.peer().map_or(0, |peer| peer.body as usize);
            if body.len() > most {
                let text = format!("an answer of {} bytes; the caller takes {most}; use a target", body.len());
                state.core.answer(id, Status::TOO_LARGE, &[text.as_bytes()]);
            } else {
                state.core.answer(id, status, &[body]);
            }
            if !state.serving.is_empty() {
                state.serving.remove(&id);
            }
        });
    }
}

/// What arrives on the stream of an answer.
pub(crate) enum ReplyItem {
    Item(Body),
    End(Result<(Status, Body), RpcError>),
}

fn gone() -> RpcError {
    RpcError::new(Status::INTERNAL, Certainty::Unknown, "the call has ended already")
}
