//! ResponsesOut of a peer in another process, from whoever receives them to the requester.
//!
//! The inbox has a lock of its own, below all others: who receives may run while another thread, or the same one, holds the
//! requester's. The data of a read is copied to its memory right here; the rest waits for the requester.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::mem::domain::Domain;
use crate::mem::{Memory, Piece};
use crate::wire::bytes::{self, Segment, Segments};
use crate::wire::limits::MAX_QP_WR;
use crate::wire::message::Reply;
use crate::wire::packet::{Answer, AnswerKind};
use crate::wire::transport::Carrier;

/// More replies than this wait for no requester.
const MOST: usize = 2 * MAX_QP_WR as usize;

/// What has come, and what is waited for.
#[derive(Debug)]
pub(in crate::qp) struct Inbox {
    /// ResponsesOut to others are late.
    attempt: u32,
    /// Who answers.
    peer: u32,
    carrier: Option<Weak<dyn Carrier>>,
    is_lost: bool,
    reads: VecDeque<Reading>,
    /// Memory for the next reads.
    spare: Vec<Vec<Piece>>,
    replies: VecDeque<Arrival>,
    /// Counts what came.
    activity: u32,
}

/// A read that waits for its data.
#[derive(Debug)]
struct Reading {
    psn: u32,
    pieces: Vec<Piece>,
    length: u64,
    /// The offset of what comes next.
    next: u64,
    /// Its memory could not be used.
    is_faulty: bool,
}

/// A reply, for the requester.
#[derive(Clone, Copy, Debug)]
pub(in crate::qp) struct Arrival {
    pub(in crate::qp) psn: u32,
    /// None where a read is said to be done and has not all of its data.
    pub(in crate::qp) reply: Option<Reply>,
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

    /// Requests go by this carrier from now on.
    pub(in crate::qp) fn adopt(&mut self, peer: u32, carrier: &Arc<dyn Carrier>) {
        self.peer = peer;
        self.carrier = Some(Arc::downgrade(carrier));
        self.is_lost = false;
    }

    /// Forgets what was waited for: only answers to this attempt count from now on.
    pub(in crate::qp) fn begin_attempt(&mut self, attempt: u32) {
        self.attempt = attempt;
        self.replies.clear();
        while let Some(reading) = self.reads.pop_front() {
            self.keep(reading.pieces);
        }
    }

    /// A read is about to go.
    pub(in crate::qp) fn expect(&mut self, psn: u32, pieces: &[Piece], length: u64) {
        let mut own = self.spare.pop().unwrap_or_default();
        own.extend_from_slice(pieces);
        self.reads.push_back(Reading { psn, pieces: own, length, next: 0, is_faulty: false });
    }

    /// Exchanges `replies`, which are none, for those that have come. Also tells whether the carrier is lost, and counts what came.
    pub(in crate::qp) fn take(&mut self, replies: &mut VecDeque<Arrival>) -> (bool, u32) {
        std::mem::swap(&mut self.replies, replies);
        (self.is_lost, self.activity)
    }

    /// Takes in an answer; whether there is something for the requester.
    pub(in crate::qp) fn arrived(&mut self, domain: &Domain, answer: &Answer, payload: &[Segment]) -> bool {
        if answer.attempt != self.attempt || answer.source_number != self.peer {
            log::debug!("queue pair {:#x}: a late answer", answer.number);
            return false;
        }
        match answer.kind {
            AnswerKind::Data { offset, length } => {
                if self.place(domain, answer.psn, offset, length, payload) {
                    self.activity = self.activity.wrapping_add(1);
                } else {
                    log::debug!("queue pair {:#x}: data that nobody has asked for", answer.number);
                }
                false
            }
            AnswerKind::Reply(reply) => {
                if self.replies.len() >= MOST {
                    log::debug!("queue pair {:#x}: too many replies", answer.number);
                    return false;
                }
                self.activity = self.activity.wrapping_add(1);
                let reply = self.conclude(answer.psn, reply);
                self.replies.push_back(Arrival { psn: answer.psn, reply });
                true
            }
        }
    }

    /// Puts a part of a read's data where it belongs. `false` where it is of no read.
    fn place(&mut self, domain: &Domain, psn: u32, offset: u64, length: u32, payload: &[Segment]) -> bool {
        let Some(reading) = self.reads.iter_mut().find(|reading| reading.psn == psn) else {
            return false;
        };
        let length = u64::from(length);
        if offset != reading.next || length > reading.length - reading.next {
            return false;
        }
        let mut segments = Segments::new();
        let is_there = Memory::of_process().map(domain, &reading.pieces, offset, length, true, &mut segments).is_ok()
            && bytes::copy(payload, &segments).is_ok();
        reading.is_faulty |= !is_there;
        reading.next += length;
        true
    }

    /// Ends a read that is answered, and tells what its answer means.
    fn conclude(&mut self, psn: u32, reply: Reply) -> Option<Reply> {
        let Some(place) = self.reads.iter().position(|reading| reading.psn == psn) else {
            return Some(reply);
        };
        let reading = self.reads.remove(place)?;
        let (is_whole, is_faulty) = (reading.next == reading.length, reading.is_faulty);
        self.keep(reading.pieces);
        match reply {
            Reply::Done { .. } if !is_whole => None,
            Reply::Done { .. } if is_faulty => Some(Reply::LocalFault),
            reply => Some(reply),
        }
    }

    fn keep(&mut self, mut pieces: Vec<Piece>) {
        pieces.clear();
        self.spare.push(pieces);
    }

    /// A carrier is lost; whether it is this one.
    pub(in crate::qp) fn lose(&mut self, carrier: &Arc<dyn Carrier>) -> bool {
        let is_ours = self.carrier.as_ref().is_some_and(|own| is_same(own, carrier));
        self.is_lost |= is_ours;
        is_ours
    }
}

/// Whether both are the same carrier.
pub(in crate::qp) fn is_same(weak: &Weak<dyn Carrier>, carrier: &Arc<dyn Carrier>) -> bool {
    std::ptr::addr_eq(weak.as_ptr(), Arc::as_ptr(carrier))
}
