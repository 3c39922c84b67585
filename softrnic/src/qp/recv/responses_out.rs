//! Responses to other processes that wait until their carrier has space. They are replies and the data of reads.

use std::collections::VecDeque;
use std::sync::Arc;

use rdma_mummy_sys::ibv_access_flags;

use crate::qp::recv::target::target_of;
use crate::qp::recv::{Responder, Stop};
use crate::qp::registry::SharedEntry;
use crate::qp::{PairEvent, QueuePair};
use crate::srq::ReceiveQueue;
use crate::wire::limits::MAX_QP_WR;
use crate::wire::message::{Refusal, Reply};
use crate::wire::packet::{MAX_PAYLOAD, Packet, Part, Payload, Response, ResponseKind};
use crate::wire::transport::{Carrier, Stuck};

/// The maximum number of pending responses per carrier. A correct peer never causes more: it causes one for each
/// message in flight, and one for each message that it has abandoned.
pub(in crate::qp) const MAX_PENDING: usize = 2 * MAX_QP_WR as usize;

/// If this number of responses is pending, further replies of the kind [`Reply::Silence`] are dropped.
const SILENCE_LIMIT: usize = 64;

/// The return address of a response: the carrier on which it is sent, and the message to which it responds.
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

    /// Whether a part belongs to the message of this return address.
    #[inline]
    pub(in crate::qp) fn is_of(&self, part: &Part) -> bool {
        (self.number, self.psn, self.attempt) == (part.request.source_number, part.request.psn, part.attempt)
    }

    #[inline]
    fn put(&self, pair: &QueuePair, kind: ResponseKind, payload: Payload<'_>) -> Result<(), Stuck> {
        let &Self { number, psn, attempt, .. } = self;
        let response = Response { number, source_number: pair.number, psn, attempt, kind };
        pair.put(&self.carrier, &Packet::Response(response), payload)
    }

    #[inline]
    pub(in crate::qp) fn reply(&self, pair: &QueuePair, reply: Reply) -> Result<(), Stuck> {
        self.put(pair, ResponseKind::Reply(reply), Payload::Bytes(&[]))
    }
}

/// A read for which not all data has been sent.
#[derive(Debug)]
pub(in crate::qp) struct Reading {
    pub(in crate::qp) address: u64,
    pub(in crate::qp) rkey: u32,
    pub(in crate::qp) length: u64,
    pub(in crate::qp) offset: u64,
    /// Whether the read was executed before, and its data is sent again.
    pub(in crate::qp) is_repeat: bool,
    /// The XRC shared receive queue that the read addresses, if any.
    pub(in crate::qp) entry: Option<SharedEntry>,
}

#[derive(Debug)]
enum Pending {
    Reply(Reply),
    Read(Box<Reading>),
}

/// The pending responses. They are queued separately for each carrier, so that a process that is not the peer cannot
/// delay the responses to the peer.
#[derive(Debug, Default)]
pub(in crate::qp) struct ResponsesOut {
    /// One queue for each carrier that is full. Each queue starts with its oldest response. Empty queues are removed.
    queues: Vec<VecDeque<(Return, Pending)>>,
    reads: usize,
}

impl ResponsesOut {
    /// The number of unfinished reads, without those that are repeated.
    pub(in crate::qp) fn reads(&self) -> usize {
        self.reads
    }

    /// Returns the index of the queue of a carrier, if there is one.
    #[inline]
    fn queue(&self, carrier: &Arc<dyn Carrier>) -> Option<usize> {
        self.queues.iter().position(|queue| queue.front().is_some_and(|(back, _)| back.is_by(carrier)))
    }

    /// Appends a response to the queue of its carrier. Returns the length of the queue.
    fn push(&mut self, back: Return, pending: Pending) -> usize {
        let place = self.queue(&back.carrier).unwrap_or_else(|| {
            self.queues.push(VecDeque::new());
            self.queues.len() - 1
        });
        self.queues.get_mut(place).map_or(0, |queue| {
            queue.push_back((back, pending));
            queue.len()
        })
    }

    /// Drops the responses that wait for a carrier that is lost.
    pub(in crate::qp) fn lose(&mut self, carrier: &Arc<dyn Carrier>) {
        if let Some(place) = self.queue(carrier) {
            let queue = self.queues.swap_remove(place);
            let is_counted = |pending: &Pending| matches!(pending, Pending::Read(reading) if !reading.is_repeat);
            self.reads -= queue.iter().filter(|(_, pending)| is_counted(pending)).count();
        }
    }

    /// Abandons all reads.
    pub(in crate::qp) fn cut(&mut self) {
        self.cut_where(|_| true);
    }

    /// Abandons the reads that address an XRC shared receive queue that is being destroyed.
    pub(in crate::qp) fn release(&mut self, queue: &Arc<ReceiveQueue>) {
        self.cut_where(|reading| reading.entry.as_ref().is_some_and(|entry| entry.is(queue)));
    }

    fn cut_where(&mut self, is_over: impl Fn(&Reading) -> bool) {
        for (_, pending) in self.queues.iter_mut().flatten() {
            if let Pending::Read(reading) = pending
                && is_over(reading)
            {
                self.reads -= usize::from(!reading.is_repeat);
                *pending = Pending::Reply(Reply::Silence);
            }
        }
    }

    /// Sends the replies for which the carriers have space, and drops all other responses. This function is called when
    /// the QP is reset or closed.
    pub(in crate::qp) fn drop_all(&mut self, pair: &QueuePair) {
        self.cut();
        for (back, pending) in self.queues.drain(..).flatten() {
            if let Pending::Reply(reply) = pending
                && let Err(stuck) = back.reply(pair, reply)
            {
                rdma_mummy_sys::log!(debug, "QP {:#x}: a response is lost: {stuck:?}", pair.number);
            }
        }
    }
}

impl Responder {
    /// Sends a reply. Returns whether the QP failed.
    pub(in crate::qp) fn reply(&mut self, pair: &QueuePair, back: Return, reply: Reply) -> bool {
        let queue = if self.responses.queues.is_empty() { None } else { self.responses.queue(&back.carrier) };
        match queue.and_then(|place| self.responses.queues.get(place)) {
            // A `Silence` reply usually goes to a process that is not the peer. If the reply was for the peer, the
            // peer's request times out without it.
            Some(queue) if reply == Reply::Silence && queue.len() >= SILENCE_LIMIT => {
                rdma_mummy_sys::log!(
                    debug,
                    "QP {:#x}: dropped a response to a process that receives none",
                    pair.number
                );
                return false;
            }
            Some(_) => {}
            None => match back.reply(pair, reply) {
                Err(Stuck::Full) => {}
                Ok(()) | Err(Stuck::Lost | Stuck::Fault) => return false,
            },
        }
        // The response is sent when the carrier calls this QP, because other QPs may have waited longer.
        let carrier = Arc::clone(&back.carrier);
        if self.responses.push(back, Pending::Reply(reply)) <= MAX_PENDING {
            return false;
        }
        rdma_mummy_sys::log!(
            warn,
            "QP {:#x} failed: {MAX_PENDING} responses wait, its peer does not receive them",
            pair.number
        );
        self.responses.lose(&carrier);
        self.break_off(pair, PairEvent::RequestError);
        true
    }

    /// Sends the data of a read. Returns whether the QP failed.
    pub(in crate::qp) fn respond_to_read(&mut self, pair: &QueuePair, back: Return, reading: Reading) -> bool {
        self.responses.reads += usize::from(!reading.is_repeat);
        let pending = Pending::Read(Box::new(reading));
        if self.responses.queue(&back.carrier).is_some() {
            self.responses.push(back, pending);
            return false;
        }
        let (has_failed, left) = self.try_respond(pair, &back, pending);
        if let Some(pending) = left {
            self.responses.push(back, pending);
        }
        has_failed
    }

    /// Sends the pending responses for which the carriers have space. Returns whether the QP failed.
    pub(in crate::qp) fn pump(&mut self, pair: &QueuePair) -> bool {
        let mut has_failed = false;
        let mut place = 0;
        while let Some(queue) = self.responses.queues.get_mut(place) {
            let Some((back, pending)) = queue.pop_front() else {
                self.responses.queues.swap_remove(place);
                continue;
            };
            let (has_failed_now, left) = self.try_respond(pair, &back, pending);
            has_failed |= has_failed_now;
            if let (Some(pending), Some(queue)) = (left, self.responses.queues.get_mut(place)) {
                // The carrier is full.
                queue.push_front((back, pending));
                place += 1;
            }
        }
        has_failed
    }

    /// Sends a response or a part of it. Returns whether the QP failed, and the part of the response that was not sent.
    fn try_respond(&mut self, pair: &QueuePair, back: &Return, mut pending: Pending) -> (bool, Option<Pending>) {
        let mut has_failed = false;
        if let Pending::Read(reading) = &mut pending {
            let reply = match self.give(pair, back, reading) {
                Ok(true) => Reply::Done { original: 0 },
                Ok(false) => return (false, Some(pending)),
                // The peer may have read all, and asked again only because the responses were late. Its program then
                // allows this one to end the access.
                Err(stop) if reading.is_repeat => {
                    rdma_mummy_sys::log!(debug, "QP {:#x} does not repeat a read: {stop:?}", pair.number);
                    Reply::Silence
                }
                Err(stop) => {
                    rdma_mummy_sys::log!(debug, "QP {:#x} ended a read: {stop:?}", pair.number);
                    has_failed = true;
                    self.break_off(pair, PairEvent::AccessError);
                    Reply::Refused(if let Stop::Refused(refusal) = stop { refusal } else { Refusal::OperationError })
                }
            };
            self.responses.reads -= usize::from(!reading.is_repeat);
            pending = Pending::Reply(reply);
        }
        let is_stuck = matches!(pending, Pending::Reply(reply) if back.reply(pair, reply) == Err(Stuck::Full));
        (has_failed, is_stuck.then_some(pending))
    }

    /// Sends the data of a read. The memory is checked again for each part. Returns whether the read is finished or
    /// abandoned.
    fn give(&mut self, pair: &QueuePair, back: &Return, reading: &mut Reading) -> Result<bool, Stop> {
        while reading.offset < reading.length {
            let target = target_of(pair, reading.entry.as_ref())?;
            let length = (reading.length - reading.offset).min(u64::from(MAX_PAYLOAD));
            let access = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
            let address = reading.address.wrapping_add(reading.offset);
            let segment = target.remote(reading.rkey, address, length, access)?;
            // The conversion is lossless, because a part has at most `MAX_PAYLOAD` bytes.
            let kind = ResponseKind::Data { offset: reading.offset, length: length as u32 };
            match back.put(pair, kind, Payload::Memory(&[segment])) {
                Ok(()) => reading.offset += length,
                Err(Stuck::Full) => return Ok(false),
                Err(Stuck::Lost) => return Ok(true),
                // The memory passed the checks, but the copy failed.
                Err(Stuck::Fault) => return Err(Stop::Refused(Refusal::OperationError)),
            }
        }
        Ok(true)
    }

    /// Moves the QP to the error state because a response cannot be sent.
    fn break_off(&mut self, pair: &QueuePair, event: PairEvent) {
        pair.fail();
        pair.parts.events.happened(event);
        self.end(pair);
    }
}
