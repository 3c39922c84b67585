//! Queue pairs: a requester, which executes the send queue, and a responder, which handles incoming messages.
//!
//! Requester and responder each have a lock. The holder of a requester's lock may take a responder's lock, of its own
//! QP or of a peer's, and then the locks of receive and completion queues; the reverse order is forbidden. Other
//! threads also create work for a requester: a thread whose responder fails must flush the send queue, and the timer
//! retries requests. Such a thread sets a flag, and runs the work if `try_lock` succeeds. Otherwise the holder of the
//! lock runs the work after unlocking.
//!
//! If the peer is in the same process, the verb that posts a request executes it and queues its completion before the
//! verb returns. The exceptions are a peer without a posted receive and a peer that is not ready. A message to another
//! process is sent in parts, several of which may be in flight. The responses arrive later in the inbox. The lock of
//! the inbox is the innermost one. Congestion and reordering do not occur. A message takes one PSN for each packet that
//! it would have on a network.
//!
//! If a peer answers a send with a message, the program sees the completion of its send before it receives the answer,
//! also between processes and hosts. There are two exceptions: an earlier read is in flight on the same QP, or a thread
//! that posts is held up for more than 3 s (`wire::transport::MAX_UNSETTLED`). Between QPs of one process, another thread may
//! receive the answer first.
//!
//! | file | contents |
//! |---|---|
//! | `send/` | the requester: the send queue, its requests and their replies |
//! | `recv/` | the responder: messages and their responses |
//! | `registry/` | QP numbers, multicast groups, and delivery from other processes |
//! | `exchange`, `datagram` | a message between requester and responder |
//! | `attributes` | attributes and states |
//! | `route` | how a QP reaches its peer: by the registry, or by a connection of its own |
//! | `gate` | what changes the course of messages: the condition of the device |
//! | `timer`, `deferred_run` | work that runs later, or after another thread unlocks |

mod attributes;
mod datagram;
mod deferred_run;
pub(crate) mod exchange;
mod gate;
mod recv;
pub(crate) mod registry;
mod route;
mod send;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod timer;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

pub(crate) use attributes::{Attributes, PairEvent, PairEvents, Parts, Reach, State};
pub(crate) use datagram::check_sum;
pub(crate) use send::batch::Batch;
pub(crate) use send::work::{Destination, SendWork};

use self::gate::Faults;
use self::recv::Responder;
use self::route::Route;
use self::send::inbox::Inbox;
use self::send::requester::Requester;
use crate::qp::exchange::Exchange;
use crate::qp::registry::QpRegistry;
use crate::srq::ReceiveQueue;
use crate::sys::cpu::prefetch;
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::bytes::Segment;
use crate::wire::message::{Reply, Request};
use crate::wire::operation::Service;
use crate::wire::packet::{MAX_NUMBER, Packet, Part, Payload, Response};
use crate::wire::transport::{Carrier, Stuck, Wake};

/// Bit of `hindrances`: the QP is closed.
const CLOSED: u8 = 1;
/// Bit of `hindrances`: messages pass the [`gate`].
const GATED: u8 = 2;
/// Bit of `pending`: the inbox contains replies.
const REPLIES: u8 = 1;
/// Bit of `pending`: an alarm has expired, or a carrier may have space again.
const ALARM: u8 = 2;

/// A QP.
///
/// The order of the fields, in this struct and in its parts, keeps the number of cache lines per message low, because
/// with many QPs each line costs a cache miss.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct QueuePair {
    number: u32,
    /// The PSN of the next request, as counted by the requester.
    sq_psn: AtomicU32,
    /// A [`State`]. A change to an error state requires the requester's or the responder's lock; any other change
    /// requires both locks.
    state: AtomicU8,
    /// The reasons why the QP does not work as usual, as the bits [`CLOSED`] and [`GATED`].
    hindrances: AtomicU8,
    /// Whether a thread has requested a run of the requester that has not begun yet.
    deferred: AtomicBool,
    /// The work of the requested run, as the bits [`REPLIES`] and [`ALARM`].
    pending: AtomicU8,
    /// Whether the QP is in SQD with unfinished requests.
    is_draining: AtomicBool,
    /// Whether the requester handles replies that it has taken out of the inbox. Set while the inbox is locked.
    is_handling: AtomicBool,
    parts: Parts,
    /// The reference to this QP that the timer uses.
    this: Weak<Self>,
    requester: Mutex<Requester>,
    responder: Mutex<Responder>,
    /// The inbox, whose lock is the innermost one.
    inbox: Mutex<Inbox>,
    route: Route,
    /// The faults that the next messages meet.
    faults: Faults,
}

impl QueuePair {
    /// Creates a QP in RESET with a new number, and adds it to the registry.
    pub(crate) fn new(parts: Parts) -> Result<Arc<Self>, Errno> {
        let number = QpRegistry::of_process().number()?;
        // The number of the first attempt is random, so that a QP with a reused number ignores responses to the
        // previous QP with this number.
        let attempt = RandomState::new().hash_one(number) as u32;
        let route = Route::of(&parts.reach);
        let pair = Arc::new_cyclic(|this| Self {
            number,
            parts,
            this: this.clone(),
            state: AtomicU8::new(State::Reset as u8),
            sq_psn: AtomicU32::new(0),
            is_draining: AtomicBool::new(false),
            is_handling: AtomicBool::new(false),
            deferred: AtomicBool::new(false),
            hindrances: AtomicU8::new(0),
            requester: Mutex::new(Requester::new(attempt)),
            responder: Mutex::new(Responder::new()),
            inbox: Mutex::new(Inbox::new(attempt)),
            pending: AtomicU8::new(0),
            route,
            faults: Faults::default(),
        });
        QpRegistry::of_process().enter(&pair);
        if pair.parts.condition.hinders() {
            pair.condition_changed();
        }
        Ok(pair)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Reads the current state without a lock.
    pub(crate) fn state(&self) -> State {
        State::from_u8(self.state.load(Ordering::Acquire))
    }

    /// Whether the QP is in SQD with unfinished requests.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Returns the current attributes. They contain the PSNs of the next packets to send and to receive. This function
    /// may be called while a batch is open.
    pub(crate) fn attributes(&self) -> Attributes {
        let mut attributes = unpoisoned(self.responder.lock()).attributes;
        attributes.sq_psn = self.sq_psn.load(Ordering::Relaxed);
        attributes
    }

    /// Moves the QP to the state `to` with these attributes, which the caller has checked against the state `from`. A
    /// move to the error state flushes all queues, and a move to RESET clears them. Returns `EINVAL` if the state is no
    /// longer `from`.
    ///
    /// The transition to RTR sets the receive PSN. The transition from RTR to RTS sets the send PSN.
    ///
    /// A move to the error state first handles the messages and responses that have already arrived. This matters when
    /// a peer disconnects after its last message and the program then moves this QP to the error state.
    pub(crate) fn change(&self, from: State, to: State, attributes: Attributes) -> Result<(), Errno> {
        if to == State::Error {
            self.settle();
        }
        let mut requester = unpoisoned(self.requester.lock());
        if to == State::Error && !self.is_closed() {
            requester.settle(self);
        }
        // A response or a message may already have moved the QP to the error state.
        let from = if to == State::Error && self.state() == to { to } else { from };
        let mut responder = unpoisoned(self.responder.lock());
        if self.state() != from || self.is_closed() {
            drop(responder);
            self.unlock(requester);
            return Err(Errno::INVALID);
        }
        let mut attributes = attributes;
        if to != State::ReadyToReceive {
            attributes.rq_psn = responder.attributes.rq_psn;
        }
        attributes.rq_psn &= MAX_NUMBER;
        if from == State::ReadyToReceive && to == State::ReadyToSend {
            self.sq_psn.store(attributes.sq_psn & MAX_NUMBER, Ordering::Relaxed);
        }
        if matches!(to, State::ReadyToSend | State::SendQueueDrain) {
            self.route.set_depths(attributes.max_rd_atomic, attributes.max_dest_rd_atomic);
        }
        match to {
            State::Reset => {
                self.route.leave();
                attributes = Attributes::new();
                self.state.store(to as u8, Ordering::Release);
                self.sq_psn.store(0, Ordering::Relaxed);
                responder.forget(self);
                self.forget_completions();
                requester.forget(self);
            }
            State::Error => {
                self.fail();
                requester.flush(self);
                responder.end(self);
            }
            _ => self.state.store(to as u8, Ordering::Release),
        }
        responder.attributes = attributes;
        drop(responder);
        requester.attributes = attributes;
        if from != to {
            requester.state_changed();
        }
        requester.run(self);
        self.unlock(requester);
        Ok(())
    }

    /// Begins a batch. The QP must be in RTS, SQD or an error state.
    pub(crate) fn batch(&self) -> Batch<'_> {
        prefetch(ptr::from_ref(self), offset_of!(Self, responder));
        let requester = unpoisoned(self.requester.lock());
        requester.prefetch_peer();
        Batch::new(self, requester)
    }

    /// Flushes a receive that the program has posted to a QP in the error state.
    pub(crate) fn receive_posted(&self) {
        let mut responder = unpoisoned(self.responder.lock());
        if self.state() == State::Error {
            responder.flush(self);
        }
    }

    /// Prefetches the responder's fields into the cache.
    #[inline]
    fn prefetch_responder(this: *const Self) {
        /// The size in bytes of the reference counts that precede the QP in memory.
        const COUNTS: usize = 16;
        /// How many bytes of the responder a message uses.
        const OWN: usize = 128;
        prefetch(this.wrapping_byte_sub(COUNTS), COUNTS + offset_of!(Self, requester));
        prefetch(this.wrapping_byte_add(offset_of!(Self, responder)), OWN);
    }

    /// Handles a message from a peer in this process.
    pub(crate) fn handle(&self, request: &Request, exchange: &mut dyn Exchange) -> Reply {
        let mut responder = unpoisoned(self.responder.lock());
        let (reply, has_failed) = responder.handle(self, request, exchange);
        drop(responder);
        if has_failed {
            self.run_requester();
        }
        reply
    }

    /// Whether this QP may get packets that arrive with a carrier: datagrams of other hosts are only for the QPs of
    /// devices that reach other hosts.
    pub(crate) fn is_reached_by(&self, back: &Arc<dyn Carrier>) -> bool {
        self.parts.service != Service::UnreliableDatagram || self.route.shared().is_some() == back.is_network()
    }

    /// Handles a part of a message from another process. The responder sends its responses on the carrier `back`.
    pub(crate) fn part_arrived(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>) {
        let has_failed = unpoisoned(self.responder.lock()).part(self, part, payload, back);
        if has_failed {
            self.run_requester();
        }
    }

    /// Sends the data of a read again.
    pub(crate) fn read_again(&self, part: &Part, back: &Arc<dyn Carrier>) {
        let has_failed = unpoisoned(self.responder.lock()).read_again(self, part, back);
        if has_failed {
            self.run_requester();
        }
    }

    /// Handles a response from another process. Returns `false` if another thread holds the requester's lock. That
    /// thread then handles the response later, see [`is_settled`](Self::is_settled).
    pub(crate) fn response_arrived(&self, response: &Response, payload: &[Segment]) -> bool {
        !unpoisoned(self.inbox.lock()).arrived(&self.parts.domain, response, payload) || self.notify(REPLIES)
    }

    /// Whether all responses received so far have been handled. Handles them unless another thread holds the
    /// requester's lock. The state of this lock alone does not tell: a thread that posts all the time holds it at most
    /// moments, and handles the responses whenever it unlocks.
    pub(crate) fn is_settled(&self) -> bool {
        let has_handled = {
            let inbox = unpoisoned(self.inbox.lock());
            inbox.is_empty() && !self.is_handling.load(Ordering::Acquire)
        };
        has_handled || self.run_requester()
    }

    /// Abandons all messages and responses in flight on a carrier that is lost.
    pub(crate) fn carrier_lost(&self, carrier: &Arc<dyn Carrier>) {
        unpoisoned(self.responder.lock()).lose(carrier);
        if unpoisoned(self.inbox.lock()).lose(carrier) {
            self.notify(REPLIES);
        }
    }

    /// Drops the references of this QP to an XRC shared receive queue that is being destroyed. The registry no longer
    /// contains this queue.
    pub(crate) fn release(&self, queue: &Arc<ReceiveQueue>) {
        unpoisoned(self.responder.lock()).release(queue);
    }

    /// Continues the requests that wait. The timer calls this function. The call may execute requests of this QP, and so
    /// copy their messages or wait for the thread that holds the lock of a peer while it copies. The responder of this QP
    /// sets no alarms.
    pub(crate) fn expired(&self) {
        self.notify(ALARM);
    }

    /// Sends a packet. If the carrier is full, it calls the QP when it has space again.
    #[inline]
    fn put(&self, carrier: &Arc<dyn Carrier>, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck> {
        match carrier.put(packet, payload) {
            Err(Stuck::Full) => {
                carrier.wake(self.this.clone());
                carrier.put(packet, payload)
            }
            put => put,
        }
    }

    /// Sets a bit of `pending` and runs the requester like [`run_requester`](Self::run_requester).
    fn notify(&self, kind: u8) -> bool {
        deferred_run::set(&self.pending, kind);
        self.run_requester()
    }

    /// Closes the QP. After this call no thread uses the memory of the QP's requests, and no request completes. Earlier
    /// completions stay in the completion queues, as with the kernel's soft-RoCE; drivers of some NICs remove them.
    /// libfabric relies on this: it polls the completions of QPs that it has destroyed. The caller has no open batch.
    ///
    /// Datagrams that have arrived but were not yet delivered by a poll are dropped. No peer waits for them, and UCX
    /// unmaps the memory of a QP's receives before it destroys the QP.
    pub(crate) fn close(&self) {
        if self.parts.service != Service::UnreliableDatagram {
            self.settle();
        }
        {
            // `connection_ended` waits for this lock, and then flushes nothing, because the QP is closed.
            let _requester = unpoisoned(self.requester.lock());
            // The connection ends before the QP closes, so that later messages of the peer are not reported as errors.
            self.route.leave();
            self.hindrances.fetch_or(CLOSED, Ordering::SeqCst);
        }
        QpRegistry::of_process().leave(self.number);
        // A thread that began to use the QP before it was closed holds one of these locks. Any later thread finds that
        // the QP is closed.
        let mut requester = unpoisoned(self.requester.lock());
        requester.settle(self);
        requester.forget(self);
        drop(requester);
        unpoisoned(self.responder.lock()).forget(self);
    }

    fn is_closed(&self) -> bool {
        self.hindrances.load(Ordering::SeqCst) & CLOSED != 0
    }

    fn forget_completions(&self) {
        for queue in [&self.parts.send_queue, &self.parts.receive_queue].into_iter().flatten() {
            queue.forget(self.number);
        }
    }

    /// Moves the QP to the error state. The caller must hold the requester's or the responder's lock.
    fn fail(&self) {
        self.state.store(State::Error as u8, Ordering::Release);
        self.route.end();
    }

    /// Moves the QP to the error state because of a message from the peer. On a connection, the refusal is sent after the
    /// responses to earlier messages, and then the connection ends.
    fn fail_by_refusal(&self) {
        self.state.store(State::Error as u8, Ordering::Release);
    }

    /// Moves the QP to the error state after the completion queue lost one of its completions, and raises
    /// `IBV_EVENT_QP_FATAL`. The caller holds the requester's or the responder's lock. Returns whether the state has
    /// changed. If so, the caller must flush the QP.
    #[cold]
    fn break_down(&self) -> bool {
        let has_changed = self.state.swap(State::Error as u8, Ordering::AcqRel) != State::Error as u8;
        if has_changed {
            self.parts.events.happened(PairEvent::Fatal);
            self.route.end();
        }
        has_changed
    }

    /// Moves the QP to the send queue's error state, unless it is already in the error state. The caller must hold the
    /// requester's lock.
    fn fail_sending(&self) {
        // While this thread holds the lock, only an error of the responder can change the state. Such an error takes
        // precedence.
        for from in [State::ReadyToSend, State::SendQueueDrain] {
            let to = State::SendQueueError as u8;
            let _ = self.state.compare_exchange(from as u8, to, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Runs the requester on this thread, or leaves the work to the holder of the requester's lock. Returns whether the
    /// requester ran on this thread.
    fn run_requester(&self) -> bool {
        deferred_run::request(&self.deferred, || self.run_deferred())
    }

    /// Releases the requester's lock, and then runs the work that other threads have requested.
    fn unlock(&self, requester: MutexGuard<'_, Requester>) {
        deferred_run::unlock(requester, || self.run_deferred());
    }

    fn run_deferred(&self) -> bool {
        deferred_run::run(&self.deferred, &self.requester, |requester| {
            requester.follow_speed(self);
            if self.is_gated() {
                requester.forget_peer();
            } else {
                requester.departures.clear();
            }
            requester.run(self);
        })
    }
}

impl Wake for QueuePair {
    fn wake(&self) {
        let has_failed = unpoisoned(self.responder.lock()).pump(self);
        if has_failed {
            self.run_requester();
        }
        self.notify(ALARM);
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // The QP has already left the registry, unless the creation of its C object failed.
        QpRegistry::of_process().leave(self.number);
    }
}
