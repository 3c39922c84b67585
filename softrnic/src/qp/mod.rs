//! Queue pairs: the requester, which takes what is posted, and the responder, which takes what comes.
//!
//! Each has a lock. A thread that holds a requester's may take a responder's, of its own queue pair or of a peer's, and then those
//! of receive and completion queues, never the other way round. A thread that finds work for a requester elsewhere (a
//! responder whose error flushes the send queue, the timer) sets a flag and runs the work if `try_lock` succeeds; if not, the holder
//! of the lock runs it after unlocking.
//!
//! With a peer in this process a request is done when it was tried. To one in another process messages go in parts, several on their
//! way at a time, and the answers come later, to the inbox, whose lock is below all others.
//!
//! | file | what |
//! |---|---|
//! | `send/` | the requester: the send queue, its requests and their replies |
//! | `recv/` | the responder: messages and what is answered |
//! | `registry/` | numbers, multicast groups, and the delivery of what comes from outside |
//! | `exchange`, `datagram` | a message between both |
//! | `attributes` | what is set |
//! | `timer`, `deferred_run` | what runs later, or where a lock is held |

mod attributes;
mod datagram;
mod deferred_run;
pub(crate) mod exchange;
mod recv;
pub(crate) mod registry;
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

pub(crate) use attributes::{Attributes, PairEvent, PairEvents, Parts, State};
pub(crate) use datagram::check_sum;
pub(crate) use send::batch::Batch;
pub(crate) use send::work::{Destination, SendWork};

use self::recv::responder::Responder;
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
use crate::wire::packet::{Answer, MAX_NUMBER, Packet, Part, Payload};
use crate::wire::transport::{Carrier, Stuck, Wake};

/// Something has come.
const REPLIES: u8 = 1;
/// An alarm rang, or there may be room.
const ALARM: u8 = 2;

/// A queue pair.
///
/// The fields of this, and of what is in it, stand in an order by which a message comes by few cache lines: with many queue pairs each
/// of them is a miss.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct QueuePair {
    number: u32,
    /// The packet number of the next request, as the requester counts it.
    sq_psn: AtomicU32,
    /// A [`State`]. Changed with either lock held to an error state, and with both otherwise.
    state: AtomicU8,
    is_closed: AtomicBool,
    /// The requester is to be run.
    deferred: AtomicBool,
    /// [`REPLIES`] if there is something in the inbox, [`ALARM`] if a clock is to be read.
    pending: AtomicU8,
    /// In SQD, and what was begun is not done.
    is_draining: AtomicBool,
    parts: Parts,
    /// For the timer.
    this: Weak<Self>,
    requester: Mutex<Requester>,
    responder: Mutex<Responder>,
    /// Below all other locks.
    inbox: Mutex<Inbox>,
}

impl QueuePair {
    /// Makes one in RESET, with a number of its own, and enters it in the network.
    pub(crate) fn new(parts: Parts) -> Result<Arc<Self>, Errno> {
        let number = QpRegistry::of_process().number()?;
        // A number that came again does not take the answers to the one before.
        let attempt = RandomState::new().hash_one(number) as u32;
        let pair = Arc::new_cyclic(|this| Self {
            number,
            parts,
            this: this.clone(),
            state: AtomicU8::new(State::Reset as u8),
            sq_psn: AtomicU32::new(0),
            is_draining: AtomicBool::new(false),
            deferred: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            requester: Mutex::new(Requester::new(attempt)),
            responder: Mutex::new(Responder::new()),
            inbox: Mutex::new(Inbox::new(attempt)),
            pending: AtomicU8::new(0),
        });
        QpRegistry::of_process().enter(&pair);
        Ok(pair)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// As it is now: without a lock.
    pub(crate) fn state(&self) -> State {
        State::from_u8(self.state.load(Ordering::Acquire))
    }

    /// In SQD, with requests that were begun before and are not done.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// What is set now, with the packet numbers that come next. Also with a batch open.
    pub(crate) fn attributes(&self) -> Attributes {
        let mut attributes = unpoisoned(self.responder.lock()).attributes;
        attributes.sq_psn = self.sq_psn.load(Ordering::Relaxed);
        attributes
    }

    /// Moves it to `to` with these attributes, which the front has checked against the state that it saw (`from`): to the error
    /// state, all that is queued is flushed; to RESET, forgotten. `EINVAL` where the state is not `from` any more.
    ///
    /// Packet numbers are taken over where the state machine sets them: on the way to RTR and from there to RTS.
    ///
    /// What has come from the peer by now is received or done, and not flushed: a peer that has what it waited for disconnects, and
    /// this side moves to the error state for that.
    pub(crate) fn change(&self, from: State, to: State, attributes: Attributes) -> Result<(), Errno> {
        if to == State::Error {
            QpRegistry::of_process().settle();
        }
        let mut requester = unpoisoned(self.requester.lock());
        if to == State::Error && !self.is_closed() {
            requester.settle(self);
        }
        // An answer, or what came, may have moved it there.
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
        match to {
            State::Reset => {
                attributes = Attributes::new();
                self.state.store(to as u8, Ordering::Release);
                self.sq_psn.store(0, Ordering::Relaxed);
                responder.forget(self);
                self.forget_completions();
                requester.forget(self);
            }
            State::Error => {
                self.state.store(to as u8, Ordering::Release);
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

    /// Begins a batch. The queue pair is in RTS, SQD or an error state.
    pub(crate) fn batch(&self) -> Batch<'_> {
        prefetch(ptr::from_ref(self), offset_of!(Self, responder));
        let requester = unpoisoned(self.requester.lock());
        requester.prefetch_peer();
        Batch::new(self, requester)
    }

    /// Tells that a receive was posted to a queue pair in the error state: it is flushed.
    pub(crate) fn receive_posted(&self) {
        let mut responder = unpoisoned(self.responder.lock());
        if self.state() == State::Error {
            responder.flush(self);
        }
    }

    /// Has what the responder needs of a queue pair come into the cache.
    #[inline]
    fn prefetch_responder(this: *const Self) {
        /// The counts of references, in front.
        const COUNTS: usize = 16;
        /// What it reads of itself.
        const OWN: usize = 128;
        prefetch(this.wrapping_byte_sub(COUNTS), COUNTS + offset_of!(Self, requester));
        prefetch(this.wrapping_byte_add(offset_of!(Self, responder)), OWN);
    }

    /// The responder: handles a message of a peer's.
    pub(crate) fn handle(&self, request: &Request, exchange: &mut dyn Exchange) -> Reply {
        let mut responder = unpoisoned(self.responder.lock());
        let (reply, has_failed) = responder.answer(self, request, exchange);
        drop(responder);
        if has_failed {
            self.look_again();
        }
        reply
    }

    /// The responder: handles a part of a message from another process; answers go by `back`.
    pub(crate) fn part_arrived(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>) {
        let has_failed = unpoisoned(self.responder.lock()).part(self, part, payload, back);
        if has_failed {
            self.look_again();
        }
    }

    /// Takes in an answer of another process, for the requester. `false` if another thread has the requester, and takes the answer in
    /// later: until [`is_settled`](Self::is_settled).
    pub(crate) fn answer_arrived(&self, answer: &Answer, payload: &[Segment]) -> bool {
        !unpoisoned(self.inbox.lock()).arrived(&self.parts.domain, answer, payload) || self.notify(REPLIES)
    }

    /// Whether the requester has taken in the answers that have come. It does so here, unless another thread has it.
    pub(crate) fn is_settled(&self) -> bool {
        self.look_again()
    }

    /// A carrier is gone, with all that was to come and go by it.
    pub(crate) fn carrier_lost(&self, carrier: &Arc<dyn Carrier>) {
        unpoisoned(self.responder.lock()).lose(carrier);
        if unpoisoned(self.inbox.lock()).lose(carrier) {
            self.notify(REPLIES);
        }
    }

    /// A shared receive queue of XRC is destroyed, which no message finds any more: lets go of it.
    pub(crate) fn release(&self, queue: &Arc<ReceiveQueue>) {
        unpoisoned(self.responder.lock()).release(queue);
    }

    /// The call of the timer, and of carriers that have room again: what was to wait until now goes on. By a thread that holds no
    /// responder's lock.
    pub(crate) fn expired(&self) {
        let has_failed = unpoisoned(self.responder.lock()).pump(self);
        if has_failed {
            self.look_again();
        }
        self.notify(ALARM);
    }

    /// Sends a packet. If there is no room, the queue pair is called when there is.
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

    /// Whether the requester has taken note, as in [`look_again`](Self::look_again).
    fn notify(&self, kind: u8) -> bool {
        deferred_run::set(&self.pending, kind);
        self.look_again()
    }

    /// Ends it: when this returns no thread uses its memory any more, and no completion of it comes. What it has completed by now stays
    /// in the completion queues, as with the kernel's soft-RoCE: libfabric polls what its peer acknowledged after it has destroyed the
    /// queue pair. No batch of this thread's is open.
    pub(crate) fn close(&self) {
        QpRegistry::of_process().settle();
        QpRegistry::of_process().leave(self.number);
        self.is_closed.store(true, Ordering::SeqCst);
        // Whoever began before has one of the locks; whoever comes later sees that it is closed.
        let mut requester = unpoisoned(self.requester.lock());
        requester.settle(self);
        requester.forget(self);
        drop(requester);
        unpoisoned(self.responder.lock()).forget(self);
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn forget_completions(&self) {
        for queue in [&self.parts.send_queue, &self.parts.receive_queue].into_iter().flatten() {
            queue.forget(self.number);
        }
    }

    /// Moves it to the error state, by its requester or responder, whose lock is held.
    fn fail(&self) {
        self.state.store(State::Error as u8, Ordering::Release);
    }

    /// Moves it to the error state, by its requester or responder, whose lock is held, as its completion queue has lost a completion
    /// of it. That is told as the specification has it: an event, of a local work queue catastrophic error. Whether it was in
    /// another state before, and is to be flushed.
    #[cold]
    fn break_down(&self) -> bool {
        let has_changed = self.state.swap(State::Error as u8, Ordering::AcqRel) != State::Error as u8;
        if has_changed {
            self.parts.events.happened(PairEvent::Fatal);
        }
        has_changed
    }

    /// Moves it to the send queue's error state, unless it is in the error state. The requester's lock is held.
    fn fail_sending(&self) {
        // Only errors of the responder change it meanwhile, and those go first.
        for from in [State::ReadyToSend, State::SendQueueDrain] {
            let to = State::SendQueueError as u8;
            let _ = self.state.compare_exchange(from as u8, to, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Has the requester run: here, or where its lock is held. Whether it ran here.
    fn look_again(&self) -> bool {
        deferred_run::request(&self.deferred, || self.run_deferred())
    }

    /// Lets go of the requester's lock, and does what others have left to do.
    fn unlock(&self, requester: MutexGuard<'_, Requester>) {
        deferred_run::unlock(requester, || self.run_deferred());
    }

    fn run_deferred(&self) -> bool {
        deferred_run::run(&self.deferred, &self.requester, |requester| requester.run(self))
    }
}

impl Wake for QueuePair {
    fn wake(&self) {
        self.expired();
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // Closed before by every way but a failure to make the object around it.
        QpRegistry::of_process().leave(self.number);
    }
}
