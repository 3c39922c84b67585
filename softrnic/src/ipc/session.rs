//! A session with another process. One process sends requests, and the other one responds. A session consists of two
//! rings and a socket. The socket carries wake-ups, and the session ends when the socket is closed.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

use rdma_mummy_sys::program::Held;
use rustix::net::Shutdown;

use super::codec::{self, Malformed, PART_WORDS, RESPONSE_WORDS};
use super::peers::Peers;
use super::ring::{CONTROL, Consumer, NotPut, Producer, Ring};
use super::shared::Shared;
use super::socket;
use super::wakeup::Wakeup;
use crate::sys::descriptor::Descriptor;
use crate::sys::{fork, unpoisoned};
use crate::wire::packet::{MAX_PAYLOAD, Packet, Payload, ResponseKind};
use crate::wire::transport::{Carrier, Stuck, Wake};

/// The size of each ring in bytes.
pub(super) const RING: usize = 512 << 10;
/// The offset of the data of the rings. The page before the data contains the control blocks of the rings.
pub(super) const DATA: usize = 4096;
/// The size of the shared memory in bytes.
pub(super) const SHARED: usize = DATA + 2 * RING;
/// The maximum numbers of packets and of bytes that a call receives. They ensure that no session delays the others for
/// long.
const PACKETS: usize = 64;
const BYTES: u64 = 256 << 10;
/// The space in a response ring that the data of reads must leave free. It is for the replies to the messages that one
/// call receives, because a message is received only if there is space for its reply. The factor two covers the replies
/// to reads, which may be sent at any time.
const REPLIES: u64 = 2 * (PACKETS * RESPONSE_WORDS * 8) as u64;
/// The maximum number of bytes that are read before their space is freed.
const FREE_EVERY: u64 = RING as u64 / 8;
/// The maximum number of bytes that are sent before the receiver gets a wake-up, if it sleeps.
const WAKE_EVERY: u64 = RING as u64 / 8;

/// The role of this process in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// This process sends requests to the QPs of this block.
    Requester(u32),
    Responder,
}

const ALIVE: u8 = 0;
/// The other process has violated the protocol, so the thread ends the session.
const BROKEN: u8 = 1;
const OVER: u8 = 2;

thread_local! {
    /// The address of the session whose packets this thread receives, and whether it has sent responses on that session
    /// without a wake-up.
    static RECEIVING: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

/// The QPs that wait for space. Each QP is in the queue only once.
#[derive(Default)]
struct WaitQueue {
    /// The QPs, of which the one that has waited longest is the first.
    pairs: VecDeque<Weak<dyn Wake>>,
    /// The addresses of the QPs in the queue, which show whether a QP already waits.
    places: BTreeSet<usize>,
}

impl WaitQueue {
    fn push(&mut self, pair: Weak<dyn Wake>) {
        if self.places.insert(pair.as_ptr().cast::<()>().addr()) {
            self.pairs.push_back(pair);
        }
    }

    /// Removes and returns the first QP. Also returns whether others are left.
    fn pop(&mut self) -> (Option<Weak<dyn Wake>>, bool) {
        let pair = self.pairs.pop_front();
        if let Some(pair) = &pair {
            self.places.remove(&pair.as_ptr().cast::<()>().addr());
        }
        (pair, !self.pairs.is_empty())
    }
}

/// The end of a session that belongs to this process.
pub(super) struct Session {
    peers: &'static Peers,
    this: Weak<Self>,
    generation: u32,
    /// The ID of this session in events of the thread.
    pub(super) id: u64,
    pub(super) role: Role,
    pub(super) socket: Descriptor,
    state: AtomicU8,
    send: Mutex<Producer>,
    receive: Mutex<Consumer>,
    /// The wake-up state of the session, with the QPs that wait for space.
    wakeup: Wakeup<WaitQueue>,
    /// The value of the tail for which the receiver has last got a wake-up, if it slept.
    announced: AtomicU64,
    /// The value of the head after the last packet that was delivered.
    delivered: AtomicU64,
    /// Whether there is too little space for replies. If so, no packet is received until a quarter of the ring is free.
    /// The flag changes under the lock of the waiting QPs, and is set only while `wakeup` requests a wake-up.
    lacks_space: AtomicBool,
}

/// A call that receives packets. Its end, which may be a panic, announces the responses.
struct Receiving<'s> {
    session: &'s Session,
    /// The value of [`RECEIVING`] before the call.
    before: (usize, bool),
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        let (_, has_replied) = RECEIVING.replace(self.before);
        if has_replied {
            self.session.announce();
        }
    }
}

impl Session {
    pub(super) fn new(peers: &'static Peers, role: Role, socket: Descriptor, shared: Arc<Shared>) -> Arc<Self> {
        let parts = Ring::new(Arc::clone(&shared), 0, DATA, RING);
        let responses = Ring::new(shared, CONTROL, DATA + RING, RING);
        let (send, receive, words) = match role {
            Role::Requester(_) => (parts, responses, RESPONSE_WORDS),
            Role::Responder => (responses, parts, PART_WORDS),
        };
        Arc::new_cyclic(|this| Self {
            peers,
            this: this.clone(),
            generation: fork::generation(),
            id: peers.id(),
            role,
            socket,
            state: AtomicU8::new(ALIVE),
            send: Mutex::new(Producer::new(send.clone())),
            receive: Mutex::new(Consumer::new(receive.clone(), words)),
            wakeup: Wakeup::new(send, receive),
            announced: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            lacks_space: AtomicBool::new(false),
        })
    }

    /// Requests wake-ups for the first record in both directions. This function must be called before the session is
    /// shared.
    pub(super) fn park_both(&self) {
        self.wakeup.receive.park();
        self.wakeup.send.park();
    }

    #[inline]
    pub(super) fn is_alive(&self) -> bool {
        self.state.load(Ordering::Acquire) == ALIVE
    }

    /// Whether the session has work. It has work if packets have arrived, or if there is space for QPs that wait. If
    /// there is no work, this check costs two loads.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.has_come() || self.wakeup.has_space()
    }

    #[inline]
    fn has_come(&self) -> bool {
        self.wakeup.has_come()
            && self.is_alive()
            && (!self.lacks_space.load(Ordering::Relaxed) || self.has_free_quarter())
    }

    fn has_free_quarter(&self) -> bool {
        self.wakeup.has_free(RING as u64 / 4)
    }

    /// Receives all packets that have arrived. If the session receives responses, the caller may hold the receiving
    /// lock of a session that receives requests.
    pub(super) fn serve_all(&self) {
        let _held = Held::new();
        let mut consumer = unpoisoned(self.receive.lock());
        self.receive_packets(&mut consumer, usize::MAX, RING as u64, true);
    }

    /// Whether there are responses that have arrived and are not delivered yet.
    pub(super) fn has_responses(&self) -> bool {
        self.role != Role::Responder && self.has_undelivered()
    }

    /// Whether there are packets that have arrived and are not delivered yet.
    pub(super) fn has_undelivered(&self) -> bool {
        let delivered = self.delivered.load(Ordering::Acquire);
        self.wakeup.receive.tail() != delivered && self.is_alive() || self.wakeup.taken() != delivered
    }

    /// Serves the session up to a limit, unless another thread serves it. Returns whether there was work. The caller
    /// must hold no lock.
    pub(super) fn serve(&self) -> bool {
        let _held = Held::new();
        let mut has_found = false;
        if self.has_come()
            && let Some(mut consumer) = self.try_receive()
        {
            has_found = self.receive_packets(&mut consumer, PACKETS, BYTES, false);
        }
        if self.wakeup.has_space() {
            has_found = true;
            self.wake_waiting();
        }
        has_found
    }

    /// Takes the receiving lock, unless another thread holds it.
    fn try_receive(&self) -> Option<MutexGuard<'_, Consumer>> {
        match self.receive.try_lock() {
            Ok(consumer) => Some(consumer),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Receives packets, unless the session is over. Returns whether a packet was received.
    ///
    /// Requests are received only after all responses that have arrived, so that a peer's response precedes its later
    /// requests. If these responses have not completed their requests yet, or if there is no space for replies, this
    /// function receives no request. With `waits`, it waits for the completions and does not look at the space: it
    /// receives each packet that is there now, and replies without space wait with their QPs, in limited numbers.
    fn receive_packets(&self, consumer: &mut Consumer, packets: usize, bytes: u64, waits: bool) -> bool {
        let tail = self.wakeup.receive.tail();
        if self.role == Role::Responder {
            if waits {
                self.peers.settle();
            } else {
                self.peers.serve_responses();
                if self.peers.has_unsettled() || !self.has_space_for_replies() {
                    return false;
                }
            }
        }
        self.receive_to(tail, consumer, packets, bytes)
    }

    fn receive_to(&self, tail: u64, consumer: &mut Consumer, packets: usize, bytes: u64) -> bool {
        let _receiving = Receiving { session: self, before: RECEIVING.replace((self.addr(), false)) };
        self.receive_until(consumer, tail, packets, bytes)
    }

    /// Receives packets up to this tail. Returns whether there were any.
    fn receive_until(&self, consumer: &mut Consumer, tail: u64, packets: usize, bytes: u64) -> bool {
        let Some(back) = self.this.upgrade() else { return false };
        let back: Arc<dyn Carrier> = back;
        let start = consumer.head();
        let most = start.wrapping_add(bytes);
        for _ in 0..packets {
            if !self.is_alive() {
                return true;
            }
            if consumer.head() == tail {
                break;
            }
            match self.receive_one(consumer, &back) {
                Ok(true) => {}
                Ok(false) => break,
                Err(malformed) => {
                    self.abort(malformed);
                    return true;
                }
            }
            if consumer.unfreed() >= FREE_EVERY && consumer.free() {
                socket::send_wakeup(&self.socket);
            }
            if consumer.head() >= most {
                break;
            }
        }
        if consumer.free() {
            socket::send_wakeup(&self.socket);
        }
        consumer.head() != start
    }

    /// Returns whether there is space for the replies to the packets that one call receives. If not, requests a wake-up
    /// when the space is free.
    #[inline]
    fn has_space_for_replies(&self) -> bool {
        if self.wakeup.has_free(REPLIES) {
            return true;
        }
        self.wakeup.wait(&self.peers.sleeper, |_| self.lacks_space.store(true, Ordering::Relaxed));
        self.has_free_quarter()
    }

    /// Receives the next packet, and returns `false` if there is none. `back` is this session, on which responses are
    /// sent.
    #[inline]
    fn receive_one(&self, consumer: &mut Consumer, back: &Arc<dyn Carrier>) -> Result<bool, Malformed> {
        let Some(words) = consumer.next()? else { return Ok(false) };
        let end = match self.role {
            Role::Requester(_) => {
                let response = codec::decode_response(&words)?;
                let pieces = consumer.take(Packet::Response(response).length())?;
                self.wakeup.has_taken(pieces.end());
                if !self.peers.deliver.response(&response, pieces.as_slice()) {
                    self.peers.unsettled.add(response.number);
                }
                pieces.end()
            }
            Role::Responder => {
                let part = codec::decode_part(&words)?;
                let pieces = consumer.take(part.length)?;
                self.wakeup.has_taken(pieces.end());
                self.peers.deliver.part(&part, pieces.as_slice(), back);
                pieces.end()
            }
        };
        // This store publishes that the packets were delivered.
        self.delivered.store(end, Ordering::Release);
        Ok(true)
    }

    /// Wakes the QPs that wait, one after the other, while space is free. A QP that finds no space waits again, and its
    /// turn comes after the QPs that were not woken yet.
    fn wake_waiting(&self) {
        // `next_waiting` may withdraw the request for a wake-up, so `lacks_space` is cleared. A receiver that still
        // finds too little space sets `lacks_space` and requests the wake-up again.
        let look = |queue: &mut WaitQueue| {
            self.lacks_space.store(false, Ordering::Relaxed);
            (queue.pairs.len(), !queue.pairs.is_empty())
        };
        let take = |queue: &mut WaitQueue| {
            self.lacks_space.store(false, Ordering::Relaxed);
            queue.pop()
        };
        for _ in 0..self.wakeup.next_waiting(look) {
            let Some(pair) = self.wakeup.next_waiting(take) else { return };
            if let Some(pair) = pair.upgrade() {
                pair.wake();
            }
            if self.is_alive() && !self.wakeup.has_space() {
                // The request for a wake-up stays for the remaining QPs. A wake-up ends the request, and the thread
                // then makes it again.
                return;
            }
        }
    }

    /// Sends a wake-up if the receiver sleeps. A wake-up takes longer than the copy of a packet, and the receiver
    /// sleeps again as soon as it has read all packets, so a series of packets has one wake-up.
    #[inline]
    fn announce(&self) {
        self.announced.store(self.wakeup.sent(), Ordering::Relaxed);
        if self.wakeup.send.take_parked() {
            socket::send_wakeup(&self.socket);
        }
    }

    /// Whether `announce` will be called after this packet was sent.
    #[inline]
    fn is_announced_later(&self, packet: &Packet) -> bool {
        match packet {
            // The requester sends the next part, if the ring is not full.
            Packet::Part(part) => !part.is_last(),
            Packet::Response(response) => {
                // `receive_packets` announces the responses to all packets that it receives.
                let is_receiving = RECEIVING.get().0 == self.addr();
                if is_receiving {
                    RECEIVING.set((self.addr(), true));
                }
                // The reply to a read follows its data, if the ring is not full.
                is_receiving || matches!(response.kind, ResponseKind::Data { .. })
            }
        }
    }

    fn addr(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Requests wake-ups before the thread sleeps.
    pub(super) fn park(&self) {
        self.wakeup.park();
    }

    /// Withdraws the wake-up requests, because the thread polls.
    pub(super) fn unpark(&self) {
        self.wakeup.unpark();
    }

    /// Handles a protocol violation by shutting down the socket. The thread ends the session when the socket reports
    /// the shutdown.
    #[cold]
    fn abort(&self, malformed: Malformed) {
        if self.state.compare_exchange(ALIVE, BROKEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            rdma_mummy_sys::log!(warn, "ended the session with another process: protocol violation: {}", malformed.0);
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
    }

    /// Ends the session after the other process has ended or violated the protocol. Packets that were sent before are
    /// still received, unless it has violated the protocol. Returns `false` if another thread receives packets of the
    /// session, or has not handled responses that precede them. The thread of the process then calls this function again
    /// later.
    pub(super) fn end(&self) -> bool {
        if self.state.load(Ordering::Acquire) == OVER {
            return true;
        }
        let tail = self.wakeup.receive.tail();
        // With this lock, no other thread receives, and later none does. A part that was received later would wait forever
        // for the rest of its message.
        let Some(mut consumer) = self.try_receive() else { return false };
        if self.role == Role::Responder {
            self.peers.serve_responses();
            if self.peers.has_unsettled() {
                return false;
            }
        }
        // The loop is bounded, even if the other process continues to send.
        self.receive_to(tail, &mut consumer, usize::MAX, RING as u64);
        self.state.store(OVER, Ordering::Release);
        drop(consumer);
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        self.wake_waiting();
        if let Some(this) = self.this.upgrade() {
            let carrier: Arc<dyn Carrier> = this;
            self.peers.deliver.lost(&carrier);
        }
        true
    }
}

impl Carrier for Session {
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck> {
        let is_request = matches!(packet, Packet::Part(_));
        let length = packet.length();
        if !self.is_alive() || self.generation != fork::generation() {
            return Err(Stuck::Lost);
        }
        if is_request != matches!(self.role, Role::Requester(_)) || length > MAX_PAYLOAD {
            rdma_mummy_sys::log!(error, "dropped a packet that does not match the session's role: {packet:?}");
            return Err(Stuck::Lost);
        }
        let (words, count) = codec::encode(packet);
        let words = words.get(..count).unwrap_or_default();
        let mut producer = unpoisoned(self.send.lock());
        let spare = if !is_request && length > 0 { REPLIES } else { 0 };
        let result = producer.put(words, payload, length, spare);
        let tail = producer.tail();
        self.wakeup.has_sent(tail);
        drop(producer);
        let is_early = tail.wrapping_sub(self.announced.load(Ordering::Relaxed)) < WAKE_EVERY;
        if result.is_err() || !is_early || !self.is_announced_later(packet) {
            self.announce();
        }
        result.map_err(|error| match error {
            NotPut::Full => Stuck::Full,
            NotPut::Fault => Stuck::Fault,
            NotPut::Malformed(malformed) => {
                self.abort(malformed);
                Stuck::Lost
            }
        })
    }

    fn wake(&self, waiting: Weak<dyn Wake>) {
        self.wakeup.wait(&self.peers.sleeper, |queue| queue.push(waiting));
    }

    fn taken(&self) -> u64 {
        self.wakeup.send.head()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("role", &self.role).finish_non_exhaustive()
    }
}
