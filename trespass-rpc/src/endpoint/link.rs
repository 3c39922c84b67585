//! The link: a connection that callers, handlers and the driver share.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

#[cfg(feature = "tls")]
use rustls::pki_types::CertificateDer;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::body::Body;
use crate::core::{Connection, IdMap, Outgoing};
use crate::error::{Certainty, RpcError, Status};
use crate::memory::MemoryPool;
use crate::wire::PeerMethod;

use super::bulk::{Expected, Job, Keys, Local};
use super::{Shared, TransportInfo};

/// A connection. The driver, callers and handlers have references to it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    /// Index in the driver's table.
    pub(crate) index: u32,
    pub(crate) info: TransportInfo,
    /// Memory for attachments and targets.
    pub(crate) memory: Arc<MemoryPool>,
    /// The methods that the peer serves, after its hello has arrived.
    methods: OnceLock<Vec<PeerMethod>>,
    #[cfg(feature = "tls")]
    certificates: OnceLock<Vec<CertificateDer<'static>>>,
    /// How many bytes of attachments the handlers may request in addition to those in flight.
    reads: Semaphore,
    state: Mutex<State>,
}

/// How long a read waits for other reads.
const PATIENCE: Duration = Duration::from_millis(200);
/// Maximum number of bytes of attachments that handlers read at the same time. A larger number would not make the reads
/// faster, but would fill memory and caches.
const READS: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) core: Connection<Call>,
    /// The requests of the peer that have streams, attachments or targets, by the number of the request.
    pub(crate) serving: IdMap<Serving>,
    /// Parts of memory to send in frames.
    pub(super) jobs: VecDeque<Job>,
    /// The RDMA requests of handlers, by the number of the peer's request that the handler serves.
    pub(super) transfers: IdMap<Transfers>,
    /// The keys of calls that ended on this side before the peer had answered them.
    pub(super) late_keys: IdMap<Keys>,
    /// Whether the driver was notified that this link has frames to send.
    pub(crate) is_dirty: bool,
    /// The time at which the driver next checks the time-outs of this link.
    pub(super) looks_at: u64,
    /// Wakers to call and drop after the lock is released, because a waker may own a call of this connection.
    later: Later,
}

thread_local! {
    /// An empty vector for the next `Later`, so that calls do not allocate.
    static SPARE: Cell<Vec<Waker>> = const { Cell::new(Vec::new()) };
}

#[derive(Debug, Default)]
pub(super) struct Later {
    first: Option<Waker>,
    others: Vec<Waker>,
    idle: Vec<Waker>,
}

impl Later {
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

    /// Replaces a waker.
    fn replace(&mut self, place: &mut Option<Waker>, waker: &Waker) {
        if place.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            self.idle.extend(place.replace(waker.clone()));
        }
    }
}

/// The state under the link's lock.
#[derive(Debug)]
pub(crate) struct Guard<'l>(Option<MutexGuard<'l, State>>);

impl Deref for Guard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        match &self.0 {
            Some(state) => state,
            None => unreachable!("the lock is held until the drop"),
        }
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        match &mut self.0 {
            Some(state) => state,
            None => unreachable!("the lock is held until the drop"),
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let Later { first, mut others, idle } = std::mem::take(&mut self.later);
        drop(self.0.take());
        drop(idle);
        first.into_iter().chain(others.drain(..)).for_each(Waker::wake);
        if others.capacity() != 0 {
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
    pub(crate) bulks: SmallVec<[Local; 2]>,
}

/// The state of a request of the peer that has streams, attachments or targets.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    pub(crate) items: VecDeque<Body>,
    pub(crate) has_ended: bool,
    /// The wakers of the handler: one for when it waits for an item, one for when it waits for credit.
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    pub(super) expected: Option<Expected>,
}

/// The outstanding RDMA requests of a handler. The handler's answer is sent only after these requests have completed.
/// The caller revokes its keys when the answer arrives, and an RDMA request with a revoked key would end the
/// connection.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    count: u32,
    answer: Option<(Status, bool, Box<[u8]>)>,
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
        if let Some(serving) = self.serving.remove(&id) {
            let puller = serving.expected.and_then(Expected::into_waker);
            [serving.reader, serving.writer, puller].into_iter().for_each(|waker| self.later.wake(waker));
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
        memory: Arc<MemoryPool>,
        core: Connection<Call>,
    ) -> Self {
        let state = State {
            core,
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
            memory,
            methods: OnceLock::new(),
            #[cfg(feature = "tls")]
            certificates: OnceLock::new(),
            reads: Semaphore::new(READS),
            state: Mutex::new(state),
        }
    }

    /// Waits until a handler may read an attachment of this length. Returns `None` if the wait has taken too long: other
    /// handlers may hold their turns without polling them.
    pub(crate) async fn turn_to_read(&self, length: usize) -> Option<SemaphorePermit<'_>> {
        let length = length.min(READS) as u32;
        match self.reads.try_acquire_many(length) {
            Ok(turn) => Some(turn),
            // A handler that another executor polls has no timer.
            Err(_) if Handle::try_current().is_err() => None,
            // The semaphore is never closed, so only the time-out fails.
            Err(_) => timeout(PATIENCE, self.reads.acquire_many(length)).await.ok()?.ok(),
        }
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

    pub(super) fn set_methods(&self, methods: Vec<PeerMethod>) {
        // This cannot fail, because the core accepts only one hello.
        _ = self.methods.set(methods);
    }

    pub(crate) fn methods(&self) -> &[PeerMethod] {
        self.methods.get().map_or(&[], Vec::as_slice)
    }

    pub(super) fn lock(&self) -> Guard<'_> {
        Guard(Some(self.state.lock().unwrap_or_else(PoisonError::into_inner)))
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
        bulks: SmallVec<[Local; 2]>,
        task: &TaskContext<'_>,
    ) -> Result<u32, RpcError> {
        let now = self.shared.now();
        let data = Call { bulks, waker: Some(task.waker().clone()), ..Call::default() };
        self.with(|state| state.core.start(call, data, now))
    }

    /// Waits for the answer to a call. When it has arrived, removes the call and returns the answer.
    pub(crate) fn poll_answer(&self, id: u32, task: &TaskContext<'_>) -> Poll<Result<(Status, Body), RpcError>> {
        let mut state = self.lock();
        let State { core, later, .. } = &mut *state;
        let Some(call) = core.call(id) else { return Poll::Ready(Err(gone())) };
        match call.outcome.take() {
            Some(outcome) => {
                let call = core.forget(id, self.shared.now());
                drop(state);
                drop(call);
                Poll::Ready(outcome)
            }
            None => {
                later.replace(&mut call.waker, task.waker());
                Poll::Pending
            }
        }
    }

    /// Cancels a call.
    pub(crate) fn forget(&self, id: u32) {
        let now = self.shared.now();
        let call = self.with(|state| state.core.forget(id, now));
        // The call is dropped after the lock is released, because its wakers may run code of the program.
        drop(call);
    }

    /// Returns the next item that the peer has sent for a call of this side. After the last item, returns the answer.
    pub(crate) fn poll_reply_item(&self, id: u32, task: &TaskContext<'_>) -> Poll<ReplyItem> {
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
                    ended = core.forget(id, self.shared.now());
                    Poll::Ready(ReplyItem::End(outcome))
                }
                None => {
                    later.replace(&mut call.waker, task.waker());
                    Poll::Pending
                }
            }
        })
    }

    /// Sends an item of the caller's stream. The result is false if the call has ended.
    pub(crate) fn poll_send(&self, id: u32, item: &[u8], task: &TaskContext<'_>) -> Poll<bool> {
        self.with(|state| {
            let State { core, later, .. } = state;
            let Some(call) = core.call(id) else { return Poll::Ready(false) };
            if call.outcome.is_some() {
                return Poll::Ready(false);
            }
            later.replace(&mut call.waker, task.waker());
            match core.item(id, &[item]) {
                Some(true) => Poll::Ready(true),
                // The item has no credit, or its request still waits for credit.
                Some(false) | None => Poll::Pending,
            }
        })
    }

    /// Ends the caller's stream after the request was sent.
    pub(crate) fn poll_end_items(&self, id: u32, task: &TaskContext<'_>) -> Poll<()> {
        self.with(|state| {
            let State { core, later, .. } = state;
            let Some(call) = core.call(id).filter(|call| call.outcome.is_none()) else { return Poll::Ready(()) };
            later.replace(&mut call.waker, task.waker());
            if !core.is_sent(id) {
                return Poll::Pending;
            }
            core.end_items(id);
            Poll::Ready(())
        })
    }

    /// Returns the maximum length of a body that the peer accepts.
    pub(crate) fn longest(&self) -> usize {
        self.with(|state| state.core.peer().map_or(0, |peer| peer.body as usize))
    }

    /// Returns the next item that the caller of a request has sent, or `None` after the last one. Returns an error if
    /// the call ended before its stream did.
    pub(crate) fn poll_request_item(&self, id: u32, task: &TaskContext<'_>) -> Poll<Option<Result<Body, RpcError>>> {
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
            later.replace(&mut serving.reader, task.waker());
            Poll::Pending
        })
    }

    /// Sends an item to the caller of a request. The result is false if the call has ended.
    pub(crate) fn poll_respond(&self, id: u32, item: &[u8], task: &TaskContext<'_>) -> Poll<bool> {
        self.with(|state| match state.core.item(id, &[item]) {
            None => Poll::Ready(false),
            Some(true) => Poll::Ready(true),
            Some(false) => {
                let State { serving, later, .. } = state;
                later.replace(&mut serving.entry(id).or_default().writer, task.waker());
                Poll::Pending
            }
        })
    }

    /// Answers a request.
    pub(crate) fn answer(&self, id: u32, status: Status, is_refused: bool, body: &[u8]) {
        self.with(|state| {
            state.answer(id, status, is_refused, body);
            state.end_serving(id);
        });
    }

    /// Begins an RDMA request of a handler. Returns false if the request was answered already.
    pub(super) fn begin_transfer(&self, id: u32) -> bool {
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
