//! The inbox, which passes the responses of another process from the thread that receives them to the requester.
//!
//! The inbox has its own lock, because a thread may receive a response while another thread holds the requester's lock.
//! This lock is the innermost one. The data of a read is copied immediately to the memory of the read. Replies wait for
//! the requester.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::mem::domain::Domain;
use crate::mem::{Memory, Piece};
use crate::wire::bytes::{self, Segment, Segments};
use crate::wire::limits::MAX_QP_WR;
use crate::wire::message::Reply;
use crate::wire::packet::{Response, ResponseKind};
use crate::wire::transport::Carrier;

/// The maximum number of replies that wait for the requester.
const MAX_REPLIES: usize = 2 * MAX_QP_WR as usize;

/// The replies that have arrived, and the reads whose data is expected.
#[derive(Debug)]
pub(in crate::qp) struct Inbox {
    /// The number of the current attempt. Responses to other attempts are late and ignored.
    attempt: u32,
    /// The QP number of the responder.
    peer: u32,
    carrier: Option<Weak<dyn Carrier>>,
    is_lost: bool,
    reads: VecDeque<Reading>,
    /// Vectors that later reads reuse.
    spare: Vec<Vec<Piece>>,
    replies: VecDeque<Arrival>,
    /// Counts the responses that have arrived.
    activity: u32,
}

/// A read that waits for its data.
#[derive(Debug)]
struct Reading {
    psn: u32,
    pieces: Vec<Piece>,
    length: u64,
    /// The offset at which the next data must start.
    next: u64,
    /// Whether an access to the memory of the read has failed.
    is_faulty: bool,
}

/// A reply for the requester.
#[derive(Clone, Copy, Debug)]
pub(in crate::qp) struct Arrival {
    pub(in crate::qp) psn: u32,
    pub(in crate::qp) reply: Reply,
}

impl Inbox {
    pub(in crate::qp) fn new(attempt: u32) -> Self {
        Self {
            attempt,
            peer: 0,
            carrier: None,
            is_lost: false,
            reads: VecDeque::new(),
            spare: Vec::new(),
            replies: VecDeque::new(),
            activity: 0,
        }
    }

    /// Sets the carrier and the peer from which the responses to later requests must come.
    pub(in crate::qp) fn adopt(&mut self, peer: u32, carrier: &Arc<dyn Carrier>) {
        self.peer = peer;
        self.carrier = Some(Arc::downgrade(carrier));
        self.is_lost = false;
    }

    /// Starts a new attempt. From now on, only responses to this attempt are accepted.
    pub(in crate::qp) fn begin_attempt(&mut self, attempt: u32) {
        self.attempt = attempt;
        self.replies.clear();
        while let Some(reading) = self.reads.pop_front() {
            self.keep(reading.pieces);
        }
    }

    /// Prepares for the data of a read that is about to be sent.
    pub(in crate::qp) fn expect(&mut self, psn: u32, pieces: &[Piece], length: u64) {
        let mut own = self.spare.pop().unwrap_or_default();
        own.extend_from_slice(pieces);
        self.reads.push_back(Reading { psn, pieces: own, length, next: 0, is_faulty: false });
    }

    /// Whether no replies wait for the requester.
    pub(in crate::qp) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Exchanges the empty queue `replies` for the one with the replies that have arrived. Returns whether the carrier
    /// is lost, and the activity counter.
    pub(in crate::qp) fn take(&mut self, replies: &mut VecDeque<Arrival>) -> (bool, u32) {
        std::mem::swap(&mut self.replies, replies);
        (self.is_lost, self.activity)
    }

    /// Handles a response. Returns whether the requester has work.
    pub(in crate::qp) fn arrived(&mut self, domain: &Domain, response: &Response, payload: &[Segment]) -> bool {
        if response.attempt != self.attempt || response.source_number != self.peer {
            rdma_mummy_sys::log!(debug, "QP {:#x}: ignored a late response", response.number);
            return false;
        }
        match response.kind {
            ResponseKind::Data { offset, length } => {
                if self.place(domain, response.psn, offset, length, payload) {
                    self.activity = self.activity.wrapping_add(1);
                } else {
                    rdma_mummy_sys::log!(debug, "QP {:#x}: ignored unexpected data", response.number);
                }
                false
            }
            ResponseKind::Reply(reply) => {
                if self.replies.len() >= MAX_REPLIES {
                    rdma_mummy_sys::log!(debug, "QP {:#x}: ignored a reply, too many are waiting", response.number);
                    return false;
                }
                self.activity = self.activity.wrapping_add(1);
                let reply = self.conclude(response.psn, reply);
                self.replies.push_back(Arrival { psn: response.psn, reply });
                true
            }
        }
    }

    /// Copies a part of the data of a read to the memory of the read. Returns `false` if the part belongs to no read.
    fn place(&mut self, domain: &Domain, psn: u32, offset: u64, length: u32, payload: &[Segment]) -> bool {
        let Some(reading) = self.reads.iter_mut().find(|reading| reading.psn == psn) else {
            return false;
        };
        let length = u64::from(length);
        if offset != reading.next || length > reading.length - reading.next {
            return false;
        }
        let mut segments = Segments::new();
        let is_copied = Memory::of_process().map(domain, &reading.pieces, offset, length, true, &mut segments).is_ok()
            && bytes::copy(payload, &segments).is_ok();
        reading.is_faulty |= !is_copied;
        reading.next += length;
        true
    }

    /// Finishes a read that the peer has acknowledged, and returns the reply for the requester.
    fn conclude(&mut self, psn: u32, reply: Reply) -> Reply {
        let place = self.reads.iter().position(|reading| reading.psn == psn);
        let Some(reading) = place.and_then(|place| self.reads.remove(place)) else {
            return reply;
        };
        let (is_whole, is_faulty) = (reading.next == reading.length, reading.is_faulty);
        self.keep(reading.pieces);
        match reply {
            Reply::Done { .. } if !is_whole => Reply::BadResponse,
            Reply::Done { .. } if is_faulty => Reply::LocalFault,
            reply => reply,
        }
    }

    fn keep(&mut self, mut pieces: Vec<Piece>) {
        pieces.clear();
        self.spare.push(pieces);
    }

    /// Handles the loss of a carrier. Returns whether this QP uses the carrier.
    pub(in crate::qp) fn lose(&mut self, carrier: &Arc<dyn Carrier>) -> bool {
        let is_ours = self.carrier.as_ref().is_some_and(|own| is_same(own, carrier));
        self.is_lost |= is_ours;
        is_ours
    }
}

/// Whether both references are to the same carrier.
pub(in crate::qp) fn is_same(weak: &Weak<dyn Carrier>, carrier: &Arc<dyn Carrier>) -> bool {
    std::ptr::addr_eq(weak.as_ptr(), Arc::as_ptr(carrier))
}
