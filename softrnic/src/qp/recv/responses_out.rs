//! What a responder has to say to peers in other processes, where there is no room for it yet: replies, and the data of reads.

use std::collections::VecDeque;
use std::sync::Arc;

use rdma_mummy_sys::ibv_access_flags;

use crate::qp::recv::inbound::target_of;
use crate::qp::recv::responder::{Responder, Stop};
use crate::qp::registry::SharedEntry;
use crate::qp::{PairEvent, QueuePair};
use crate::srq::ReceiveQueue;
use crate::wire::limits::MAX_QP_WR;
use crate::wire::message::{Refusal, Reply};
use crate::wire::packet::{Answer, AnswerKind, MAX_PAYLOAD, Packet, Part, Payload};
use crate::wire::transport::{Carrier, Stuck};

/// No peer waits for more answers: what it has on its way, and what it has given up.
pub(in crate::qp) const MOST: usize = 2 * MAX_QP_WR as usize;

/// With so many answers waiting, who is told of nothing but silence is not told of it once more.
const FEW: usize = 64;

/// To whom an answer goes, and to what.
#[derive(Clone, Debug)]
pub(in crate::qp) struct Return {
    carrier: Arc<dyn Carrier>,
    number: u32,
    psn: u32,
    attempt: u32,
}

impl Return {
    #[inline]
    pub(in crate::qp) fn of(part: &Part, carrier: &Arc<dyn Carrier>) -> Self {
        let Part { request, attempt, .. } = part;
        Self { carrier: Arc::clone(carrier), number: request.source_number, psn: request.psn, attempt: *attempt }
    }

    pub(in crate::qp) fn is_by(&self, carrier: &Arc<dyn Carrier>) -> bool {
        Arc::ptr_eq(&self.carrier, carrier)
    }

    /// Whether a part is of the same message.
    #[inline]
    pub(in crate::qp) fn is_of(&self, part: &Part) -> bool {
        (self.number, self.psn, self.attempt) == (part.request.source_number, part.request.psn, part.attempt)
    }

    #[inline]
    fn put(&self, pair: &QueuePair, kind: AnswerKind, payload: Payload<'_>) -> Result<(), Stuck> {
        let &Self { number, psn, attempt, .. } = self;
        let answer = Answer { number, source_number: pair.number, psn, attempt, kind };
        pair.put(&self.carrier, &Packet::Answer(answer), payload)
    }

    #[inline]
    fn reply(&self, pair: &QueuePair, reply: Reply) -> Result<(), Stuck> {
        self.put(pair, AnswerKind::Reply(reply), Payload::Bytes(&[]))
    }
}

/// A read whose data has not gone in whole.
#[derive(Debug)]
pub(in crate::qp) struct Reading {
    pub(in crate::qp) address: u64,
    pub(in crate::qp) rkey: u32,
    pub(in crate::qp) length: u64,
    pub(in crate::qp) offset: u64,
    /// Of XRC.
    pub(in crate::qp) entry: Option<SharedEntry>,
}

#[derive(Debug)]
enum What {
    Reply(Reply),
    Read(Box<Reading>),
}

/// The answers that wait. Those of one carrier wait for no other: whoever can reach this process knows of queue pairs that are not
/// its peers.
#[derive(Debug, Default)]
pub(in crate::qp) struct ResponsesOut {
    /// A line for each carrier that has no room, the oldest first. None is empty.
    lines: Vec<VecDeque<(Return, What)>>,
    reads: usize,
}

impl ResponsesOut {
    /// The reads that are not answered in whole.
    pub(in crate::qp) fn reads(&self) -> usize {
        self.reads
    }

    /// The line of a carrier, where there is one.
    #[inline]
    fn line(&self, carrier: &Arc<dyn Carrier>) -> Option<usize> {
        self.lines.iter().position(|line| line.front().is_some_and(|(back, _)| back.is_by(carrier)))
    }

    /// Adds one, behind those that go by the same carrier; how many wait there.
    fn push(&mut self, back: Return, what: What) -> usize {
        let place = self.line(&back.carrier).unwrap_or_else(|| {
            self.lines.push(VecDeque::new());
            self.lines.len() - 1
        });
        self.lines.get_mut(place).map_or(0, |line| {
            line.push_back((back, what));
            line.len()
        })
    }

    /// A carrier is gone, and what was to go by it.
    pub(in crate::qp) fn lose(&mut self, carrier: &Arc<dyn Carrier>) {
        if let Some(place) = self.line(carrier) {
            let line = self.lines.swap_remove(place);
            self.reads -= line.iter().filter(|(_, what)| matches!(what, What::Read(_))).count();
        }
    }

    /// Reads are not answered any more.
    pub(in crate::qp) fn cut(&mut self) {
        self.cut_where(|_| true);
    }

    /// Nor are those on a shared receive queue of XRC that is destroyed.
    pub(in crate::qp) fn release(&mut self, queue: &Arc<ReceiveQueue>) {
        self.cut_where(|reading| reading.entry.as_ref().is_some_and(|entry| entry.is(queue)));
    }

    fn cut_where(&mut self, is_over: impl Fn(&Reading) -> bool) {
        for (_, what) in self.lines.iter_mut().flatten() {
            if matches!(what, What::Read(reading) if is_over(reading)) {
                *what = What::Reply(Reply::Silence);
                self.reads -= 1;
            }
        }
    }

    /// The queue pair is reset or closed: what finds room now still goes.
    pub(in crate::qp) fn drop_all(&mut self, pair: &QueuePair) {
        self.cut();
        for (back, what) in self.lines.drain(..).flatten() {
            if let What::Reply(reply) = what
                && let Err(stuck) = back.reply(pair, reply)
            {
                log::debug!("queue pair {:#x}: an answer is lost: {stuck:?}", pair.number);
            }
        }
    }
}

impl Responder {
    /// ResponsesOut a message; whether that was the end of the queue pair.
    pub(in crate::qp) fn reply(&mut self, pair: &QueuePair, back: Return, reply: Reply) -> bool {
        let line = if self.answers.lines.is_empty() { None } else { self.answers.line(&back.carrier) };
        match line.and_then(|place| self.answers.lines.get(place)) {
            // Mostly to who is no peer. A peer that misses it finds out by its time-out.
            Some(line) if reply == Reply::Silence && line.len() >= FEW => {
                log::debug!("queue pair {:#x}: somebody takes no answers", pair.number);
                return false;
            }
            Some(_) => {}
            None => match back.reply(pair, reply) {
                Err(Stuck::Full) => {}
                Ok(()) | Err(Stuck::Gone | Stuck::Fault) => return false,
            },
        }
        // It is called when there is room: others may wait who were there before.
        let carrier = Arc::clone(&back.carrier);
        if self.answers.push(back, What::Reply(reply)) <= MOST {
            return false;
        }
        log::warn!("queue pair {:#x}: its peer takes no answers", pair.number);
        self.answers.lose(&carrier);
        self.break_off(pair, PairEvent::RequestError);
        true
    }

    /// ResponsesOut a read; whether that was the end of the queue pair.
    pub(in crate::qp) fn answer_read(&mut self, pair: &QueuePair, back: Return, reading: Reading) -> bool {
        let what = What::Read(Box::new(reading));
        self.answers.reads += 1;
        if self.answers.line(&back.carrier).is_some() {
            self.answers.push(back, what);
            return false;
        }
        let (has_failed, left) = self.try_answer(pair, &back, what);
        if let Some(what) = left {
            self.answers.push(back, what);
        }
        has_failed
    }

    /// Puts what there is room for; whether that was the end of the queue pair.
    pub(in crate::qp) fn pump(&mut self, pair: &QueuePair) -> bool {
        let mut has_failed = false;
        let mut place = 0;
        while let Some(line) = self.answers.lines.get_mut(place) {
            let Some((back, what)) = line.pop_front() else {
                self.answers.lines.swap_remove(place);
                continue;
            };
            let (has_failed_now, left) = self.try_answer(pair, &back, what);
            has_failed |= has_failed_now;
            if let (Some(what), Some(line)) = (left, self.answers.lines.get_mut(place)) {
                // There is no room.
                line.push_front((back, what));
                place += 1;
            }
        }
        has_failed
    }

    /// Puts an answer, or some of it: whether that was the end of the queue pair, and what is left.
    fn try_answer(&mut self, pair: &QueuePair, back: &Return, mut what: What) -> (bool, Option<What>) {
        let mut has_failed = false;
        if let What::Read(reading) = &mut what {
            let reply = match self.give(pair, back, reading) {
                Ok(true) => Reply::Done { original: 0 },
                Ok(false) => return (false, Some(what)),
                Err(stop) => {
                    log::debug!("queue pair {:#x} ends a read: {stop:?}", pair.number);
                    has_failed = true;
                    self.break_off(pair, PairEvent::AccessError);
                    Reply::Refused(if let Stop::Refused(refusal) = stop { refusal } else { Refusal::OperationError })
                }
            };
            self.answers.reads -= 1;
            what = What::Reply(reply);
        }
        let is_stuck = matches!(what, What::Reply(reply) if back.reply(pair, reply) == Err(Stuck::Full));
        (has_failed, is_stuck.then_some(what))
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
