//! What a responder has to say to peers in other processes, where there is no room for it yet: replies, and the data of reads.

use std::collections::VecDeque;
use std::sync::Arc;

use rdma_mummy_sys::ibv_access_flags;

use super::arriving::target_of;
use super::responder::{Responder, Stop};
use super::{QueuePair, away};
use crate::engine::events::PairEvent;
use crate::engine::limits::MAX_QP_WR;
use crate::engine::network::SharedEntry;
use crate::engine::packet::{Answer, AnswerKind, Carrier, MAX_PAYLOAD, Packet, Part, Payload, Stuck};
use crate::engine::request::{Refusal, Reply};

/// No peer waits for more answers: what it has on its way, and what it has given up.
pub(super) const MOST: usize = 2 * MAX_QP_WR as usize;

/// To whom an answer goes, and to what.
#[derive(Clone, Debug)]
pub(super) struct Return {
    carrier: Arc<dyn Carrier>,
    number: u32,
    psn: u32,
    attempt: u32,
}

impl Return {
    #[inline]
    pub(super) fn of(part: &Part, carrier: &Arc<dyn Carrier>) -> Self {
        let Part { request, attempt, .. } = part;
        Self { carrier: Arc::clone(carrier), number: request.source_number, psn: request.psn, attempt: *attempt }
    }

    pub(super) fn is_by(&self, carrier: &Arc<dyn Carrier>) -> bool {
        Arc::ptr_eq(&self.carrier, carrier)
    }

    /// Whether a part is of the same message.
    #[inline]
    pub(super) fn is_of(&self, part: &Part) -> bool {
        (self.number, self.psn, self.attempt) == (part.request.source_number, part.request.psn, part.attempt)
    }

    #[inline]
    fn put(&self, pair: &QueuePair, kind: AnswerKind, payload: Payload<'_>) -> Result<(), Stuck> {
        let &Self { number, psn, attempt, .. } = self;
        let answer = Answer { number, source_number: pair.number, psn, attempt, kind };
        away::put(pair, &self.carrier, &Packet::Answer(answer), payload)
    }

    #[inline]
    fn reply(&self, pair: &QueuePair, reply: Reply) -> Result<(), Stuck> {
        self.put(pair, AnswerKind::Reply(reply), Payload::Bytes(&[]))
    }
}

/// A read whose data has not gone in whole.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) address: u64,
    pub(super) rkey: u32,
    pub(super) length: u64,
    pub(super) offset: u64,
    /// Of XRC.
    pub(super) entry: Option<SharedEntry>,
}

#[derive(Debug)]
enum What {
    Reply(Reply),
    Read(Box<Reading>),
}

/// The answers that wait, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Answers {
    waiting: VecDeque<(Return, What)>,
    reads: usize,
}

impl Answers {
    /// The reads that are not answered in whole.
    pub(super) fn reads(&self) -> usize {
        self.reads
    }

    /// A carrier is gone, and what was to go by it.
    pub(super) fn lose(&mut self, carrier: &Arc<dyn Carrier>) {
        let reads = &mut self.reads;
        self.waiting.retain(|(back, what)| {
            let stays = !back.is_by(carrier);
            *reads -= usize::from(!stays && matches!(what, What::Read(_)));
            stays
        });
    }

    /// Reads are not answered any more.
    pub(super) fn cut(&mut self) {
        for (_, what) in &mut self.waiting {
            if matches!(what, What::Read(_)) {
                *what = What::Reply(Reply::Silence);
            }
        }
        self.reads = 0;
    }

    /// The queue pair is reset or closed: what finds room now still goes.
    pub(super) fn drop_all(&mut self, pair: &QueuePair) {
        self.cut();
        for (back, what) in self.waiting.drain(..) {
            if let What::Reply(reply) = what
                && let Err(stuck) = back.reply(pair, reply)
            {
                log::debug!("queue pair {:#x}: an answer is lost: {stuck:?}", pair.number);
            }
        }
    }
}

impl Responder {
    /// Answers a message; whether that was the end of the queue pair.
    pub(super) fn reply(&mut self, pair: &QueuePair, back: Return, reply: Reply) -> bool {
        if self.answers.waiting.is_empty() {
            match back.reply(pair, reply) {
                Err(Stuck::Full) => {}
                Ok(()) | Err(Stuck::Gone | Stuck::Fault) => return false,
            }
        }
        self.answers.waiting.push_back((back, What::Reply(reply)));
        if self.answers.waiting.len() <= MOST {
            return self.pump(pair);
        }
        log::warn!("queue pair {:#x}: its peer takes no answers", pair.number);
        self.answers.waiting.clear();
        self.answers.reads = 0;
        self.break_off(pair, PairEvent::RequestError);
        true
    }

    /// Answers a read; whether that was the end of the queue pair.
    pub(super) fn answer_read(&mut self, pair: &QueuePair, back: Return, reading: Reading) -> bool {
        self.answers.waiting.push_back((back, What::Read(Box::new(reading))));
        self.answers.reads += 1;
        self.pump(pair)
    }

    /// Puts what there is room for; whether that was the end of the queue pair.
    pub(super) fn pump(&mut self, pair: &QueuePair) -> bool {
        let mut has_failed = false;
        while let Some((back, mut what)) = self.answers.waiting.pop_front() {
            if let What::Read(reading) = &mut what {
                let reply = match self.give(pair, &back, reading) {
                    Ok(true) => Reply::Done { original: 0 },
                    // There is no room.
                    Ok(false) => {
                        self.answers.waiting.push_front((back, what));
                        break;
                    }
                    Err(stop) => {
                        log::debug!("queue pair {:#x} ends a read: {stop:?}", pair.number);
                        has_failed = true;
                        self.break_off(pair, PairEvent::AccessError);
                        Reply::Refused(if let Stop::Refused(refusal) = stop {
                            refusal
                        } else {
                            Refusal::OperationError
                        })
                    }
                };
                // Also by `break_off`, which has not seen this one.
                self.answers.reads = self.answers.reads.saturating_sub(1);
                what = What::Reply(reply);
            }
            if let What::Reply(reply) = what
                && back.reply(pair, reply) == Err(Stuck::Full)
            {
                self.answers.waiting.push_front((back, what));
                break;
            }
        }
        has_failed
    }

    /// Puts the data of a read, of which the memory is looked up anew for each part. Whether all of it went, or never will.
    fn give(&mut self, pair: &QueuePair, back: &Return, reading: &mut Reading) -> Result<bool, Stop> {
        while reading.offset < reading.length {
            let target = target_of(pair, reading.entry.as_ref())?;
            let length = (reading.length - reading.offset).min(u64::from(MAX_PAYLOAD));
            let access = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
            let address = reading.address.wrapping_add(reading.offset);
            let segment = target.remote(reading.rkey, address, length, access)?;
            // Of `MAX_PAYLOAD` at most.
            let kind = AnswerKind::Data { offset: reading.offset, length: length as u32 };
            match back.put(pair, kind, Payload::Memory(&[segment])) {
                Ok(()) => reading.offset += length,
                Err(Stuck::Full) => return Ok(false),
                Err(Stuck::Gone) => return Ok(true),
                // It passed the checks, and cannot be used nevertheless.
                Err(Stuck::Fault) => return Err(Stop::Refused(Refusal::OperationError)),
            }
        }
        Ok(true)
    }

    /// The end of the queue pair by an answer that cannot be given.
    fn break_off(&mut self, pair: &QueuePair, event: PairEvent) {
        pair.fail();
        pair.parts.events.happened(event);
        self.end(pair);
    }
}
