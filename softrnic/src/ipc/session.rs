//! A session with another process: one of the two has requests, and the other answers. Two rings and a socket, which carries
//! wake-ups, and whose end is that of the session.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};

use rustix::net::Shutdown;

use super::codec::{self, ANSWER_WORDS, Garbage, PART_WORDS};
use super::peers::Peers;
use super::ring::{CONTROL, Consumer, NotPut, Producer, Ring};
use super::shared::Shared;
use super::socket;
use super::wakeup::Wakeup;
use crate::sys::descriptor::Descriptor;
use crate::sys::{fork, unpoisoned};
use crate::wire::packet::{MAX_PAYLOAD, Packet, Payload};
use crate::wire::transport::{Carrier, Stuck, Wake};

/// The bytes of each ring.
pub(super) const RING: usize = 512 << 10;
/// Where the data of the rings begin: their control blocks stand in a page before.
pub(super) const DATA: usize = 4096;
/// The bytes that a session shares.
pub(super) const SHARED: usize = DATA + 2 * RING;
/// What one call takes out of a session, so that others have their turn.
const PACKETS: usize = 64;
const BYTES: u64 = 256 << 10;
/// What data leaves free in a ring of answers, for the replies to what one call takes out: a message is taken out only if there is room
/// for its reply. Twice as much, as replies to reads go at any time.
const REPLIES: u64 = 2 * (PACKETS * ANSWER_WORDS * 8) as u64;
/// The producer is told of room at least so often.
const FREE_EVERY: u64 = RING as u64 / 8;

/// Which of the two processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It has requests for the queue pairs of this block.
    Requester(u32),
    Responder,
}

const ALIVE: u8 = 0;
/// The thread is to end it: the other process does not keep to what is agreed.
const BROKEN: u8 = 1;
const OVER: u8 = 2;

/// Who found no room, each once.
#[derive(Default)]
struct Line {
    /// Who has waited longest is the first.
    pairs: VecDeque<Weak<dyn Wake>>,
    /// Their places in memory.
    places: BTreeSet<usize>,
}

impl Line {
    fn push(&mut self, pair: Weak<dyn Wake>) {
        if self.places.insert(pair.as_ptr().cast::<()>().addr()) {
            self.pairs.push_back(pair);
        }
    }

    /// Takes the first; also tells whether others are left.
    fn pop(&mut self) -> (Option<Weak<dyn Wake>>, bool) {
        let pair = self.pairs.pop_front();
        if let Some(pair) = &pair {
            self.places.remove(&pair.as_ptr().cast::<()>().addr());
        }
        (pair, !self.pairs.is_empty())
    }
}

/// A session, from either end.
pub(super) struct Session {
    peers: &'static Peers,
    this: Weak<Self>,
    generation: u32,
    /// By which the thread knows it.
    pub(super) id: u64,
    pub(super) role: Role,
    pub(super) socket: Descriptor,
    state: AtomicU8,
    send: Mutex<Producer>,
    receive: Mutex<Consumer>,
    /// With those who found no room.
    wakeup: Wakeup<Line>,
    /// The head of what was taken out and told.
    told: AtomicU64,
    /// There was no room for replies to what has come: nothing is taken out until a quarter of the ring is free. Changes under the lock
    /// of those who wait, and is set only while `wakeup` wishes for a bell.
    lacks_room: AtomicBool,
}

impl Session {
    pub(super) fn new(peers: &'static Peers, role: Role, socket: Descriptor, shared: Arc<Shared>) -> Arc<Self> {
        let parts = Ring::new(Arc::clone(&shared), 0, DATA, RING);
        let answers = Ring::new(shared, CONTROL, DATA + RING, RING);
        let (send, receive, words) = match role {
            Role::Requester(_) => (parts, answers, ANSWER_WORDS),
            Role::Responder => (answers, parts, PART_WORDS),
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
            told: AtomicU64::new(0),
            lacks_room: AtomicBool::new(false),
        })
    }

    /// Of one that is not yet shared: the other process is to ring for the first that it puts in, and so is this one.
    pub(super) fn park_both(&self) {
        self.wakeup.receive.park();
        self.wakeup.send.park();
    }

    #[inline]
    pub(super) fn is_alive(&self) -> bool {
        self.state.load(Ordering::Acquire) == ALIVE
    }

    /// Whether there is anything to do: something has come, or there is room for those who wait. Nothing more than two loads where
    /// there is not.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.has_come() || self.wakeup.has_room()
    }

    #[inline]
    fn has_come(&self) -> bool {
        self.wakeup.has_come()
            && self.is_alive()
            && (!self.lacks_room.load(Ordering::Relaxed) || self.has_free_quarter())
    }

    fn has_free_quarter(&self) -> bool {
        self.wakeup.has_free(RING as u64 / 4)
    }

    /// Takes in what has come. Of a session with answers the caller may have the receiving lock of one with requests.
    pub(super) fn serve_all(&self) {
        let mut consumer = unpoisoned(self.receive.lock());
        self.take_in(&mut consumer, usize::MAX, RING as u64, false);
    }

    /// Whether this one has answers that have come, or that another thread has taken out and not told yet.
    pub(super) fn has_answers(&self) -> bool {
        self.role != Role::Responder && self.is_behind()
    }

    /// Whether something has come, or was taken out by another thread and not told yet.
    pub(super) fn is_behind(&self) -> bool {
        let told = self.told.load(Ordering::Acquire);
        self.wakeup.receive.tail() != told && self.is_alive() || self.wakeup.taken() != told
    }

    /// Does what there is to do, up to a bound, unless another thread is at it; whether there was any. The caller holds
    /// no locks.
    pub(super) fn serve(&self) -> bool {
        let mut has_found = false;
        if self.has_come() {
            let consumer = match self.receive.try_lock() {
                Ok(consumer) => Some(consumer),
                Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut consumer) = consumer {
                has_found = self.take_in(&mut consumer, PACKETS, BYTES, true);
            }
        }
        if self.wakeup.has_room() {
            has_found = true;
            self.tell_waiting();
        }
        has_found
    }

    /// Takes in what has come by now; nothing once it is over. Whether there was any.
    ///
    /// Requests only after the answers that have come: a process that answers and then asks is seen to have done so in that order. If
    /// `is_patient`, nothing is taken in until these answers have completed their requests, and there is room for the replies.
    fn take_in(&self, consumer: &mut Consumer, packets: usize, bytes: u64, is_patient: bool) -> bool {
        let Some(back) = self.this.upgrade() else { return false };
        let back: Arc<dyn Carrier> = back;
        let start = consumer.head();
        let most = start.wrapping_add(bytes);
        let tail = self.wakeup.receive.tail();
        if self.role == Role::Responder {
            self.peers.serve_answers();
            if is_patient && (self.peers.is_behind() || !self.has_room_for_replies()) {
                return false;
            }
        }
        for _ in 0..packets {
            if !self.is_alive() {
                return true;
            }
            if consumer.head() == tail {
                break;
            }
            match self.take_one(consumer, &back) {
                Ok(true) => {}
                Ok(false) => break,
                Err(garbage) => {
                    self.give_up(garbage);
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

    /// Whether there is room for the replies to what one call takes in. If not, this side is woken once there is.
    #[inline]
    fn has_room_for_replies(&self) -> bool {
        if self.wakeup.has_free(REPLIES) {
            return true;
        }
        self.wakeup.wait(&self.peers.sleeper, |_| self.lacks_room.store(true, Ordering::Relaxed));
        self.has_free_quarter()
    }

    /// Takes in the next packet, which is answered by `back`, this session; `false` where there is none.
    #[inline]
    fn take_one(&self, consumer: &mut Consumer, back: &Arc<dyn Carrier>) -> Result<bool, Garbage> {
        let Some(words) = consumer.next()? else { return Ok(false) };
        let end = match self.role {
            Role::Requester(_) => {
                let answer = codec::decode_answer(&words)?;
                let pieces = consumer.take(Packet::Answer(answer).length())?;
                self.wakeup.has_taken(pieces.end());
                if !self.peers.deliver.answer(&answer, pieces.as_slice()) {
                    self.peers.falls_behind(answer.number);
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
        // Whoever sees it sees all that was told.
        self.told.store(end, Ordering::Release);
        Ok(true)
    }

    /// Tells those who wait, one after the other, until the room is taken: who then finds none waits behind those who were not told.
    fn tell_waiting(&self) {
        // The wish for a bell may end here: what has come waits for none any more, or wishes again.
        let look = |line: &mut Line| {
            self.lacks_room.store(false, Ordering::Relaxed);
            (line.pairs.len(), !line.pairs.is_empty())
        };
        let take = |line: &mut Line| {
            self.lacks_room.store(false, Ordering::Relaxed);
            line.pop()
        };
        for _ in 0..self.wakeup.next_waiting(look) {
            let Some(pair) = self.wakeup.next_waiting(take) else { return };
            if let Some(pair) = pair.upgrade() {
                pair.wake();
            }
            if self.is_alive() && !self.wakeup.has_room() {
                // The wish for a bell is as it was for those who are left: it goes with a bell, after which the thread renews it.
                return;
            }
        }
    }

    /// Before the thread sleeps: the other process is to ring.
    pub(super) fn park(&self) {
        self.wakeup.park();
    }

    /// The thread looks by itself.
    pub(super) fn unpark(&self) {
        self.wakeup.unpark();
    }

    /// The other process is not to be believed: the thread ends the session once the socket tells it.
    #[cold]
    fn give_up(&self, garbage: Garbage) {
        if self.state.compare_exchange(ALIVE, BROKEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            log::warn!("a session with another process is ended, as that process sends {}", garbage.0);
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
    }

    /// Ends it, once the other process has gone or was given up: what it had put in before is taken in. By the thread.
    pub(super) fn end(&self) {
        self.peers.catch_up();
        // Whoever takes in now does so to its end, and nobody after this: what comes later would wait for a rest that never comes.
        let mut consumer = unpoisoned(self.receive.lock());
        // Bounded also where the other process lives and goes on.
        self.take_in(&mut consumer, usize::MAX, RING as u64, false);
        self.state.store(OVER, Ordering::Release);
        drop(consumer);
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        self.tell_waiting();
        if let Some(this) = self.this.upgrade() {
            let carrier: Arc<dyn Carrier> = this;
            self.peers.deliver.lost(&carrier);
        }
    }
}

impl Carrier for Session {
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck> {
        let is_request = matches!(packet, Packet::Part(_));
        let length = packet.length();
        if !self.is_alive() || self.generation != fork::generation() {
            return Err(Stuck::Gone);
        }
        if is_request != matches!(self.role, Role::Requester(_)) || length > MAX_PAYLOAD {
            log::error!("a packet that cannot go this way: {packet:?}");
            return Err(Stuck::Gone);
        }
        let (words, count) = codec::encode(packet);
        let words = words.get(..count).unwrap_or_default();
        let mut producer = unpoisoned(self.send.lock());
        let spare = if !is_request && length > 0 { REPLIES } else { 0 };
        let result = producer.put(words, payload, length, spare);
        self.wakeup.has_sent(producer.tail());
        drop(producer);
        match result {
            Ok(()) => {}
            Err(NotPut::Full) => return Err(Stuck::Full),
            Err(NotPut::Fault) => return Err(Stuck::Fault),
            Err(NotPut::Garbage(garbage)) => {
                self.give_up(garbage);
                return Err(Stuck::Gone);
            }
        }
        if self.wakeup.send.take_parked() {
            socket::send_wakeup(&self.socket);
        }
        Ok(())
    }

    fn wake(&self, waiting: Weak<dyn Wake>) {
        self.wakeup.wait(&self.peers.sleeper, |line| line.push(waiting));
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
