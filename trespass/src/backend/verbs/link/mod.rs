//! One connection: its queue pair, and its posted requests.

mod batch;
mod posted;
mod window;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem;
use std::sync::Arc;

use sideway::error::VerbError;
use sideway::ibverbs::memory_window::MemoryWindowType;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    Connected, GenericQueuePair, GenericSendQueue, PostSendError, PostSendGuard, QueuePair, QueuePairAttribute,
    QueuePairState, SendQueue, WorkRequestFlags,
};
use sideway::rdmacm::Identifier;

use self::batch::Batch;
use self::posted::{Outstanding, Posted};
use self::window::{Landed, Window};
use super::{FEW, SEND_QUEUE, SIGNAL_EVERY, WINDOWS};
use crate::backend::{Ended, HEADER, LinkId, Remote, Request};
use crate::memory::{Buf, Ending, Pool};

pub(super) use self::posted::Retired;
pub(super) use self::window::Held;

/// The state of a link.
#[derive(Debug)]
pub(super) enum State {
    /// A client that has not sent its connect request yet; the bytes are its hello.
    Resolving(Vec<u8>),
    /// A client that has sent its request, or a server that has accepted.
    Connecting,
    Established,
    /// The queue pair is in the error state; the link ends at the deadline, or earlier if its requests are flushed and
    /// the peer has disconnected.
    Draining {
        why: Ended,
        is_flushed: bool,
        is_disconnected: bool,
        deadline: u64,
        /// In how many turns the link was found to be over.
        turns: u8,
    },
}

/// A connection. The queue pair is dropped first: until then the device may use the buffers and the windows.
#[derive(Debug)]
pub(super) struct VerbsLink {
    pub(super) queue_pair: Option<GenericQueuePair>,
    pub(super) identifier: Arc<Identifier>,
    windows: Vec<Window>,
    posted: Outstanding,
    /// Number of windows that must be bound before the next request.
    unbound: usize,
    /// READs that were requested after the link had failed.
    pub(super) refused: Vec<(u32, Buf)>,
    pub(super) id: LinkId,
    /// The upper part of the `wr_id`s of this link; the lower part counts its requests.
    number: u64,
    pub(super) state: State,
    pub(super) qp_number: u32,
    /// Whether this side is the client.
    pub(super) is_client: bool,
    /// Whether the request that marks the end of the flush was posted.
    is_marked: bool,
    /// The number of requests after the last signaled one. Those that are lent to `send_now` are included.
    unsignaled: u32,
    /// How many SENDs `send_now` may post without further checks. Their entries of both queues are reserved.
    lent: u32,
    inline: usize,
}

impl VerbsLink {
    pub(super) fn new(id: LinkId, identifier: Arc<Identifier>, state: State) -> Self {
        Self {
            queue_pair: None,
            identifier,
            windows: Vec::new(),
            posted: Outstanding::default(),
            unbound: 0,
            refused: Vec::new(),
            id,
            number: number(id),
            state,
            qp_number: 0,
            is_client: false,
            is_marked: false,
            unsignaled: 0,
            lent: 0,
            inline: 0,
        }
    }

    /// Stores the queue pair that was created through the identifier.
    pub(super) fn adopt(&mut self, queue_pair: GenericQueuePair, inline: u32) {
        self.qp_number = queue_pair.qp_number();
        self.queue_pair = Some(queue_pair);
        self.inline = inline as usize;
    }

    /// Takes back what is lent to `send_now`. Returns the number of completion queue entries that this frees.
    #[inline]
    pub(super) fn take_back(&mut self) -> usize {
        let lent = mem::take(&mut self.lent);
        self.unsignaled -= lent;
        lent as usize
    }

    /// Posts as many requests from the front as the send queue and `room` allow, in one list. The caller has taken back
    /// what was lent.
    ///
    /// # Errors
    ///
    /// The driver rejected the list, but may have accepted some of its requests, so all stay here until the queue pair
    /// is destroyed.
    pub(super) fn post(
        &mut self,
        requests: &mut VecDeque<Request>,
        room: usize,
        pool: &Pool,
        spare: &mut Vec<Buf>,
    ) -> io::Result<()> {
        let is_short = room < FEW;
        let room = room.min((SEND_QUEUE as usize).saturating_sub(self.posted.len()));
        let Some(queue_pair) = &mut self.queue_pair else { return Ok(()) };
        let first = self.posted.next;
        let mut batch = Batch {
            windows: &mut self.windows,
            posted: &mut self.posted,
            unbound: &mut self.unbound,
            number: self.number,
            unsignaled: &mut self.unsignaled,
            is_short,
            inline: self.inline,
            pool,
        };
        let filled = match queue_pair.queues().0 {
            GenericSendQueue::Basic(queue) => batch.fill(queue, requests, room, spare),
            GenericSendQueue::Extended(queue) => batch.fill(queue, requests, room, spare),
        };
        if filled.is_err() {
            self.posted.reject(first);
        }
        filled
    }

    /// Posts one inline SEND that contains both parts, if the link is ready and the parts fit. `room` is the number of
    /// free completion queue entries.
    #[inline(always)]
    pub(super) fn send_now(&mut self, header: &[u8; HEADER], payload: &[u8], room: &mut usize) -> bool {
        if HEADER + payload.len() > self.inline {
            return false;
        }
        if self.lent == 0 {
            return self.send_signaled(header, payload, room);
        }
        let is_posted = self.post_inline(WorkRequestFlags::empty(), header, payload);
        self.lent -= u32::from(is_posted);
        is_posted
    }

    /// Posts a SEND as `send_now` does after nothing is lent, and then lends the requests up to the next signaled one.
    #[inline(never)]
    fn send_signaled(&mut self, header: &[u8; HEADER], payload: &[u8], room: &mut usize) -> bool {
        let free = (SEND_QUEUE as usize).saturating_sub(self.posted.len()).min(*room);
        if !matches!(self.state, State::Established) || self.unbound != 0 || free == 0 {
            return false;
        }
        let is_short = *room < FEW;
        let is_signaled = is_short || self.unsignaled + 1 >= SIGNAL_EVERY;
        let flags = if is_signaled { WorkRequestFlags::Signaled } else { WorkRequestFlags::empty() };
        if !self.post_inline(flags, header, payload) {
            return false;
        }
        self.unsignaled = if is_signaled { 0 } else { self.unsignaled + 1 };
        self.lent = if is_short { 0 } else { (SIGNAL_EVERY - 1 - self.unsignaled).min(free as u32 - 1) };
        self.unsignaled += self.lent;
        *room -= 1 + self.lent as usize;
        true
    }

    #[inline(always)]
    fn post_inline(&mut self, flags: WorkRequestFlags, header: &[u8; HEADER], payload: &[u8]) -> bool {
        let parts = [IoSlice::new(header), IoSlice::new(payload)];
        let Some(queue_pair) = &mut self.queue_pair else { return false };
        let number = self.number | u64::from(self.posted.next);
        let is_posted = match queue_pair.queues().0 {
            GenericSendQueue::Basic(queue) => send_inline(queue, number, flags, &parts),
            GenericSendQueue::Extended(queue) => send_inline(queue, number, flags, &parts),
        };
        if is_posted {
            self.posted.push_inline();
        }
        is_posted
    }

    /// Removes all requests of a failed link.
    pub(super) fn refuse(&mut self, requests: &mut VecDeque<Request>, spare: &mut Vec<Buf>) {
        for request in requests.drain(..) {
            match request {
                Request::Send(buf) | Request::Write { from: buf, .. } => spare.push(buf),
                Request::Read { token, into, .. } => self.refused.push((token, into)),
                Request::Land { token, length, .. } => {
                    // The message has arrived, and is reported at the end of the link.
                    if let Some(window) = self.windows.iter_mut().find(|window| window.is_for(&request)) {
                        window.landed = Some(Landed { token, length });
                    }
                }
                Request::Transfer(transfer) => transfer.end(Ending::Lost),
                // The backend returns exposed buffers when the link ends.
                Request::Conceal(_) | Request::Revoke(_) | Request::Bind | Request::Probe => {}
            }
        }
    }

    /// Selects a key for the memory; the key's window is bound before the next request.
    pub(super) fn open(&mut self, held: Held, domain: Option<&Arc<ProtectionDomain>>) -> Result<Remote, Held> {
        let Some(region) = held.region() else { return Err(held) };
        let address = held.address();
        let free = self.windows.iter().position(|window| window.held.is_none());
        let counts = |held: &Held| !held.is_announced();
        if self.windows.len() >= WINDOWS
            && counts(&held)
            && self.windows.iter().filter(|window| window.held.as_ref().is_some_and(counts)).count() >= WINDOWS
        {
            return Err(held);
        }
        let Some(domain) = domain else {
            let key = region.rkey();
            let held = Some(held);
            self.windows.push(Window { window: None, key, held, is_unbound: false, is_closing: false, landed: None });
            return Ok(Remote { address, key: key.raw() });
        };
        let index = match free {
            Some(index) => index,
            None => match domain.alloc_mw(MemoryWindowType::Type2) {
                Ok(window) => {
                    let key = window.rkey();
                    self.windows.push(Window {
                        window: Some(window),
                        key,
                        held: None,
                        is_unbound: false,
                        is_closing: false,
                        landed: None,
                    });
                    self.windows.len() - 1
                }
                Err(error) => {
                    rdma_mummy_sys::log!(warn, "no memory window, so this message is copied: {error}");
                    return Err(held);
                }
            },
        };
        let Some(window) = self.windows.get_mut(index) else { return Err(held) };
        window.key = window.key.inc_rkey();
        (window.held, window.is_unbound) = (Some(held), true);
        self.unbound += 1;
        Ok(Remote { address, key: window.key.raw() })
    }

    /// Moves the queue pair to the error state, and posts the request that marks the end of the flush. Returns false if
    /// no flush will follow.
    pub(super) fn flush(&mut self) -> bool {
        // The link sends no more messages. What is lent stays reserved until the link ends.
        self.inline = 0;
        let Some(queue_pair) = &mut self.queue_pair else { return false };
        if let Err(error) = queue_pair.modify(QueuePairAttribute::new().setup_state(QueuePairState::Error)) {
            rdma_mummy_sys::log!(debug, "a queue pair is destroyed without a flush: {error}");
            return false;
        }
        let mut guard = queue_pair.start_post_send();
        let number = self.number | u64::from(self.posted.next);
        guard.construct_wr(number, WorkRequestFlags::Signaled).setup_send().setup_no_data();
        self.posted.push(Posted::End);
        self.is_marked = true;
        match guard.post() {
            Ok(()) => true,
            Err(error) => {
                rdma_mummy_sys::log!(debug, "a queue pair is destroyed without a flush: {error}");
                false
            }
        }
    }

    /// Destroys the queue pair and returns its buffers. If the driver fails to destroy it, the buffers are leaked,
    /// because the device may use them.
    ///
    /// # Errors
    ///
    /// The driver's error. The device may then use receives of the shared queue until the process ends.
    pub(super) fn end(mut self, spare: &mut Vec<Buf>, report: impl FnMut(Retired)) -> Result<Ended, VerbError> {
        match self.queue_pair.take().map_or(Ok(()), GenericQueuePair::close) {
            Ok(()) => Ok(self.give_back(spare, report)),
            Err(error) => {
                self.leak();
                Err(error)
            }
        }
    }

    /// Leaks the buffers that the device may use, and fails the operations that wait for them.
    pub(super) fn leak(self) {
        for posted in self.posted.entries.into_iter().map(|(_, posted)| posted).chain(self.posted.rejected) {
            match posted {
                Posted::Transfer(transfer) => transfer.leak(),
                posted => mem::forget(posted),
            }
        }
        for window in self.windows {
            mem::forget(window.window);
            match window.held {
                Some(Held::Region { memory, closed, .. }) => {
                    mem::forget(memory);
                    closed.end(Ending::Lost);
                }
                held => mem::forget(held),
            }
        }
    }

    fn give_back(mut self, spare: &mut Vec<Buf>, mut report: impl FnMut(Retired)) -> Ended {
        let Outstanding { entries, rejected, .. } = &mut self.posted;
        for posted in entries.drain(..).map(|(_, posted)| posted).chain(rejected.drain(..)) {
            match posted {
                Posted::Send(buf) | Posted::Write(buf) => spare.push(buf),
                Posted::Read { token, into } => report(Retired::Read { token, into, whole: false }),
                Posted::Transfer(transfer) => transfer.end(Ending::Lost),
                _ => {}
            }
        }
        for (token, into) in self.refused.drain(..) {
            report(Retired::Read { token, into, whole: false });
        }
        // What the peer has written before the end has arrived.
        let landed = self.windows.drain(..).filter_map(|mut window| window.release(spare));
        landed.for_each(|(token, message)| report(Retired::Landed { token, message }));
        match self.state {
            State::Draining { why, .. } => why,
            _ => Ended::Closed,
        }
    }

    /// Returns the number of completion queue entries that are reserved for the link: for its requests, and for the
    /// request that marks the end of the flush.
    pub(super) fn entries(&self) -> usize {
        let reserved = self.lent as usize + usize::from(!self.is_marked);
        if self.queue_pair.is_none() { 0 } else { self.posted.len() + reserved }
    }
}

/// Maximum number of links of a backend: a request's number has 24 bits for the index of the link.
pub(super) const LINKS: u32 = 1 << 24;

/// Composes the number of a link's first request from seven bits of the link's generation, the link's index, and 32
/// bits for a count.
fn number(id: LinkId) -> u64 {
    let link = u64::from(id.generation & 0x7f) << 24 | u64::from(id.index & (LINKS - 1));
    link << 32
}

/// Returns the index of the link that posted a request.
#[inline]
pub(super) fn index_of(wr_id: u64) -> usize {
    (wr_id >> 32) as usize & (LINKS as usize - 1)
}

/// Whether this link posted the request, rather than an earlier link with the same index.
#[inline]
pub(super) fn is_of(wr_id: u64, id: LinkId) -> bool {
    (wr_id >> 56) as u32 == id.generation & 0x7f
}

#[cold]
fn not_posted(error: &PostSendError) -> bool {
    rdma_mummy_sys::log!(debug, "{error}");
    false
}

#[inline(always)]
fn send_inline<Q: SendQueue<Service = Connected>>(
    queue: &mut Q,
    number: u64,
    flags: WorkRequestFlags,
    parts: &[IoSlice<'_>],
) -> bool {
    let mut guard = queue.start_post_send();
    guard.construct_wr(number, flags).setup_send().setup_inline_data_list(parts);
    match guard.post() {
        Ok(()) => true,
        Err(error) => not_posted(&error),
    }
}
