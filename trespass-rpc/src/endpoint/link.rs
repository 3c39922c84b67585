//! The link: a connection that callers, handlers and the driver share.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context as TaskContext, Poll, Wake};

#[cfg(feature = "tls")]
use rustls::pki_types::CertificateDer;
use tokio::sync::OwnedSemaphorePermit;

use crate::body::Body;
use crate::core::{Connection, IdMap, Outgoing};
use crate::error::{Certainty, RpcError, Status};
use crate::memory::{Budget, Memory, MemoryPool, STAGE};
use crate::wire::{Hello, PeerMethod};

use super::parts::{Keys, Local};
use super::state::{Call, Guard, Later, State, Transfers};
use super::{Shared, TransportInfo, Turns};

/// A connection. The driver, callers and handlers have references to it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    /// Index in the driver's table.
    pub(crate) index: u32,
    pub(crate) info: TransportInfo,
    /// Memory for attachments and targets.
    pub(crate) memory: Arc<MemoryPool>,
    /// Memory that is not registered.
    pub(crate) heap: Arc<MemoryPool>,
    /// How much registered memory the peer may occupy by announcing attachments.
    pub(crate) budget: Budget,
    /// Registered memory through which bytes pass from or to memory that is not registered.
    pub(crate) stage: Turns,
    /// The peer's hello, after it has arrived.
    peer: OnceLock<Hello>,
    #[cfg(feature = "tls")]
    certificates: OnceLock<Vec<CertificateDer<'static>>>,
    /// The turns of the handlers to read attachments.
    pub(super) reads: Arc<Turns>,
    state: Mutex<State>,
}

/// Maximum number of bytes of attachments that handlers read at the same time. A larger number would not make the reads
/// faster, but would fill memory and caches.
const READS: usize = 4 << 20;
/// Maximum number of bytes that pass at the same time from or to memory that is not registered: while one part is copied,
/// the device transfers the others.
const STAGES: usize = 4 * STAGE;

/// Adds the link to the list of links with messages to read.
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
        (memory, heap): (Arc<MemoryPool>, Arc<MemoryPool>),
        core: Connection<Call>,
    ) -> Self {
        let reads = Arc::new(Turns::new(READS));
        let state = State {
            core,
            reads: Arc::clone(&reads),
            serving: IdMap::default(),
            jobs: VecDeque::new(),
            transfers: IdMap::default(),
            late_keys: IdMap::default(),
            is_dirty: false,
            looks_at: u64::MAX,
            later: Later::default(),
        };
        Self {
            shared,
            index,
            info,
            budget: memory.budget_of_connection(),
            stage: Turns::new(STAGES),
            memory,
            heap,
            peer: OnceLock::new(),
            #[cfg(feature = "tls")]
            certificates: OnceLock::new(),
            reads,
            state: Mutex::new(state),
        }
    }

    /// Returns registered memory for a part of [`STAGE`] bytes, if this is the handler's turn.
    pub(crate) fn try_stage(&self) -> Option<io::Result<Memory>> {
        self.stage.take(STAGE).map(|turn| self.memory.staged(STAGE, Some(turn)))
    }

    /// Waits for registered memory for a part of [`STAGE`] bytes.
    pub(crate) async fn wait_for_stage(&self) -> io::Result<Memory> {
        self.memory.staged(STAGE, self.stage.wait(STAGE).await)
    }

    /// Waits until a handler may read an attachment of this length.
    pub(crate) async fn turn_to_read(&self, length: usize) -> Option<OwnedSemaphorePermit> {
        self.reads.wait(length).await
    }

    #[cfg(feature = "tls")]
    pub(crate) fn certificates(&self) -> &[CertificateDer<'static>] {
        self.certificates.get().map_or(&[], Vec::as_slice)
    }

    #[cfg(feature = "tls")]
    pub(super) fn set_certificates(&self, certificates: Vec<CertificateDer<'static>>) {
        // This cannot fail, because the core accepts only one hello.
        _ = self.certificates.set(certificates);
    }

    pub(super) fn set_peer(&self, hello: Hello) {
        // This cannot fail, because the core accepts only one hello.
        _ = self.peer.set(hello);
    }

    pub(crate) fn peer(&self) -> Option<&Hello> {
        self.peer.get()
    }

    pub(crate) fn methods(&self) -> &[PeerMethod] {
        self.peer().map_or(&[], |peer| &peer.methods)
    }

    pub(super) fn lock(&self) -> Guard<'_> {
        Guard::new(&self.state)
    }

    /// Runs a function on the state of the connection. The driver then sends the frames that the function has produced.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = act(&mut state);
        state.wake_room();
        let is_new = !state.is_dirty && state.wants_transmit();
        state.is_dirty |= is_new;
        let timeout = state.core.next_timeout();
        let is_earlier = timeout < state.looks_at;
        if is_earlier {
            state.looks_at = timeout;
        }
        drop(state);
        if is_new || is_earlier {
            self.shared.poke(|signal| signal.dirty.push(self.index));
        }
        result
    }

    /// Makes a call.
    pub(crate) fn start(
        &self,
        call: &Outgoing<'_>,
        bulks: Box<[Local]>,
        task: &TaskContext<'_>,
    ) -> Result<u32, RpcError> {
        self.shared.check_process(Certainty::NotSent)?;
        // Without a deadline, the time is not used.
        let now = call.deadline.map_or(0, |_| self.shared.now());
        // A refusal drops the data of the call under the lock.
        let (data, mut waker) = (Call { bulks, ..Call::default() }, Some(task.waker().clone()));
        self.with(|state| {
            let id = state.core.start(call, data, now)?;
            if let Some(call) = state.core.call(id) {
                mem::swap(&mut call.waker, &mut waker);
            }
            Ok(id)
        })
    }

    /// Waits for the answer to a call. When it has arrived, removes the call and returns the answer.
    pub(crate) fn poll_answer(&self, id: u32, task: &TaskContext<'_>) -> Poll<Result<(Status, Body), RpcError>> {
        self.shared.check_process(Certainty::Unknown)?;
        let mut waker = Some(task.waker().clone());
        let mut state = self.lock();
        let State { core, later, .. } = &mut *state;
        let Some(call) = core.call(id) else { return Poll::Ready(Err(gone())) };
        match call.outcome.take() {
            Some(outcome) => {
                let call = core.forget(id, || self.shared.now());
                drop(state);
                drop(call);
                Poll::Ready(outcome)
            }
            None => {
                later.replace(&mut call.waker, &mut waker);
                Poll::Pending
            }
        }
    }

    /// Cancels a call.
    pub(crate) fn forget(&self, id: u32) {
        if self.shared.is_inherited() {
            return;
        }
        let call = self.with(|state| state.core.forget(id, || self.shared.now()));
        // The call is dropped after the lock is released, because its wakers may run code of the program.
        drop(call);
    }

    /// Returns the next item that the peer has sent for a call of this side. After the last item, returns the answer.
    pub(crate) fn poll_reply_item(&self, id: u32, task: &TaskContext<'_>) -> Poll<ReplyItem> {
        if let Err(error) = self.shared.check_process(Certainty::Unknown) {
            return Poll::Ready(ReplyItem::End(Err(error)));
        }
        let mut waker = Some(task.waker().clone());
        let mut ended = None;
        self.with(|state| {
            let State { core, later, .. } = state;
            let Some(call) = core.call(id) else { return Poll::Ready(ReplyItem::End(Err(gone()))) };
            if let Some(item) = call.items.pop_front() {
                core.consumed(id, item.len());
                return Poll::Ready(ReplyItem::Item(item));
            }
            match call.outcome.take() {
                Some(outcome) => {
                    // `ended` is dropped after the lock is released.
                    ended = core.forget(id, || self.shared.now());
                    Poll::Ready(ReplyItem::End(outcome))
                }
                None => {
                    later.replace(&mut call.waker, &mut waker);
                    Poll::Pending
                }
            }
        })
    }

    /// Sends an item of the caller's stream. The result is false if the call has ended.
    pub(crate) fn poll_send(&self, id: u32, item: &[u8], task: &TaskContext<'_>) -> Poll<bool> {
        if self.shared.is_inherited() {
            return Poll::Ready(false);
        }
        let mut waker = Some(task.waker().clone());
        self.with(|state| {
            let State { core, later, .. } = state;
            let Some(call) = core.call(id) else { return Poll::Ready(false) };
            if call.outcome.is_some() {
                return Poll::Ready(false);
            }
            later.replace(&mut call.waker, &mut waker);
            match core.item(id, &[item]) {
                Some(true) => Poll::Ready(true),
                // The item has no credit, or its request still waits for credit.
                Some(false) | None => Poll::Pending,
            }
        })
    }

    /// Ends the caller's stream after the request was sent.
    pub(crate) fn poll_end_items(&self, id: u32, task: &TaskContext<'_>) -> Poll<()> {
        if self.shared.is_inherited() {
            return Poll::Ready(());
        }
        let mut waker = Some(task.waker().clone());
        self.with(|state| {
            let State { core, later, .. } = state;
            let Some(call) = core.call(id).filter(|call| call.outcome.is_none()) else { return Poll::Ready(()) };
            later.replace(&mut call.waker, &mut waker);
            if !core.is_sent(id) {
                return Poll::Pending;
            }
            core.end_items(id);
            Poll::Ready(())
        })
    }

    /// Returns the maximum length of a body that the peer accepts.
    pub(crate) fn longest(&self) -> usize {
        self.peer().map_or(0, |peer| peer.body as usize)
    }

    /// Returns the next item that the caller of a request has sent, or `None` after the last one. Returns an error if
    /// the call ended before its stream did.
    pub(crate) fn poll_request_item(&self, id: u32, task: &TaskContext<'_>) -> Poll<Option<Result<Body, RpcError>>> {
        self.shared.check_process(Certainty::Unknown)?;
        let mut waker = Some(task.waker().clone());
        self.with(|state| {
            let State { core, serving, later, .. } = state;
            let Some(serving) = serving.get_mut(&id) else { return Poll::Ready(Some(Err(gone()))) };
            if let Some(item) = serving.items.pop_front() {
                core.consumed(id, item.len());
                return Poll::Ready(Some(Ok(item)));
            }
            if serving.has_ended {
                return Poll::Ready(None);
            }
            later.replace(&mut serving.reader, &mut waker);
            Poll::Pending
        })
    }

    /// Sends an item to the caller of a request. The result is false if the call has ended.
    pub(crate) fn poll_respond(&self, id: u32, item: &[u8], task: &TaskContext<'_>) -> Poll<bool> {
        if self.shared.is_inherited() {
            return Poll::Ready(false);
        }
        let mut waker = Some(task.waker().clone());
        self.with(|state| match state.core.item(id, &[item]) {
            None => Poll::Ready(false),
            Some(true) => Poll::Ready(true),
            Some(false) => {
                let State { serving, later, .. } = state;
                later.replace(&mut serving.entry(id).or_default().writer, &mut waker);
                Poll::Pending
            }
        })
    }

    /// Answers a request.
    pub(crate) fn answer(&self, id: u32, status: Status, is_refused: bool, body: &[u8]) {
        if self.shared.is_inherited() {
            return;
        }
        self.with(|state| {
            state.answer(id, status, is_refused, body);
            state.end_serving(id);
        });
    }

    /// Begins an RDMA request of a handler. Returns false if the request was answered already.
    pub(super) fn begin_transfer(&self, id: u32) -> bool {
        if self.shared.is_inherited() {
            return false;
        }
        let mut state = self.lock();
        if !state.core.is_serving(id) {
            return false;
        }
        let transfers = state.transfers.entry(id).or_default();
        let is_running = transfers.answer.is_none();
        transfers.count += u32::from(is_running);
        is_running
    }

    pub(super) fn end_transfer(&self, id: u32) {
        self.with(|state| {
            let Some(transfers) = state.transfers.get_mut(&id) else { return };
            transfers.count -= 1;
            if transfers.count == 0
                && let Some(Transfers { answer: Some((status, is_refused, body)), .. }) = state.transfers.remove(&id)
            {
                state.answer(id, status, is_refused, &body);
            }
        });
    }

    /// Revokes the keys of a call, after the peer has answered it.
    pub(crate) fn revoke(&self, id: u32, keys: Keys) {
        if self.shared.is_inherited() {
            return;
        }
        let mut state = self.lock();
        let ended = if state.core.is_unanswered(id) { state.late_keys.insert(id, keys) } else { Some(keys) };
        drop(state);
        drop(ended);
    }
}

/// An event of a call with a stream: an item, or the answer.
pub(crate) enum ReplyItem {
    Item(Body),
    End(Result<(Status, Body), RpcError>),
}

fn gone() -> RpcError {
    RpcError::new(Status::INTERNAL, Certainty::Unknown, "the call has ended already")
}
