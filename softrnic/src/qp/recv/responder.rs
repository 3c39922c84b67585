//! The responder: checks what comes from a peer, and does it.

use crate::qp::exchange::{Exchange, TransferFault};
use crate::qp::recv::inbound::Inbound;
use crate::qp::recv::receiving::Taken;
use crate::qp::recv::responses_out::{ResponsesOut, Return};
use crate::qp::recv::target::{Target, shared_entry};
use crate::qp::{Attributes, PairEvent, QueuePair, Service, State};
use crate::wire::address::Gid;
use crate::wire::bytes::Atomic;
use crate::wire::message::{Refusal, Reply, Request};
use crate::wire::operation::Operation;
use crate::wire::packet::psn_after;

/// The receiving side.
#[repr(C)]
#[derive(Debug)]
pub(in crate::qp) struct Responder {
    /// `rq_psn` is the number that is expected next.
    pub(in crate::qp) attributes: Attributes,
    has_told_established: bool,
    has_told_last: bool,
    /// Receives that were taken for messages that did not come through; those of the next from the same queue. Of a target of XRC
    /// there are several queues, otherwise there is one.
    pub(in crate::qp) taken: Vec<Taken>,
    /// A message from another process that has not come in whole.
    pub(in crate::qp) arriving: Option<Box<Inbound>>,
    /// What other processes are still to be answered.
    pub(in crate::qp) answers: ResponsesOut,
    /// Where the answer to the message that is handled goes, as long as it has not gone.
    pub(in crate::qp) early: Option<Return>,
}

/// Why a message is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qp) enum Stop {
    /// It has no receive.
    NotReady,
    /// The memory of the requester failed.
    LocalFault,
    /// It is not allowed. No receive was completed.
    Refused(Refusal),
    /// A receive was completed in error: this is the end of the queue pair, also of an unreliable one.
    Broken(Refusal),
    /// It is larger than its receive, on an unreliable service.
    TooLong,
    /// The completion of its receive was lost: this is the end of the queue pair, and nothing is answered.
    Lost,
}

impl From<TransferFault> for Stop {
    fn from(fault: TransferFault) -> Self {
        match fault {
            TransferFault::Requester(_) => Self::LocalFault,
            // It passed the checks, and cannot be used nevertheless.
            TransferFault::Responder(_) => Self::Refused(Refusal::OperationError),
        }
    }
}

impl Responder {
    pub(in crate::qp) fn new() -> Self {
        Self {
            attributes: Attributes::new(),
            taken: Vec::new(),
            arriving: None,
            answers: ResponsesOut::default(),
            early: None,
            has_told_established: false,
            has_told_last: false,
        }
    }

    /// Forgets its receives: the queue pair is reset or closed. What it has taken of a shared queue is others' again.
    pub(in crate::qp) fn forget(&mut self, pair: &QueuePair) {
        self.answers.drop_all(pair);
        self.end_arriving();
        self.taken.drain(..).rev().for_each(Taken::give_back);
        if !pair.parts.is_shared {
            pair.parts.receives.drain(|_| {});
        }
        *self = Self::new();
    }

    /// Completes the receives as flushed: the queue pair is in the error state. Those of a shared queue stay, and there is an event.
    ///
    /// What came before a message that was refused is answered still; nothing is, after any other error: [`end`](Self::end).
    pub(in crate::qp) fn flush(&mut self, pair: &QueuePair) {
        self.end_arriving();
        self.flush_receives(pair);
        if pair.parts.is_shared && !self.has_told_last {
            self.has_told_last = true;
            pair.parts.events.happened(PairEvent::LastReceiveReached);
        }
    }

    /// The end of the queue pair, which is in the error state, by what is no message of its peer's: reads are not answered any more.
    pub(in crate::qp) fn end(&mut self, pair: &QueuePair) {
        self.answers.cut();
        self.flush(pair);
    }

    /// Handles a message. Also tells whether that was the end of the queue pair, whose requester is then to be looked at.
    pub(in crate::qp) fn answer(
        &mut self,
        pair: &QueuePair,
        request: &Request,
        exchange: &mut dyn Exchange,
    ) -> (Reply, bool) {
        if !self.is_taken_in(pair, request) {
            return (Reply::Silence, false);
        }
        let result = self.perform(pair, request, exchange);
        self.finish(pair, request, result)
    }

    /// Whether a message can be handled now, and is for this queue pair.
    pub(in crate::qp) fn is_taken_in(&self, pair: &QueuePair, request: &Request) -> bool {
        !pair.is_closed() && pair.state().receives() && self.is_for_us(pair, request)
    }

    /// The end of a message: what is to be told of it.
    pub(in crate::qp) fn finish(
        &mut self,
        pair: &QueuePair,
        request: &Request,
        result: Result<u64, Stop>,
    ) -> (Reply, bool) {
        let is_connected = pair.parts.service != Service::UnreliableDatagram;
        if is_connected && result.is_ok() && !self.has_told_established && pair.state() == State::ReadyToReceive {
            self.has_told_established = true;
            pair.parts.events.happened(PairEvent::Established);
        }
        if pair.parts.service.is_reliable() {
            self.acknowledge(pair, request, result)
        } else {
            self.drop_silently(pair, request, result)
        }
    }

    /// Whether a message is of a peer that may talk to this queue pair, and comes in its turn.
    fn is_for_us(&self, pair: &QueuePair, request: &Request) -> bool {
        let Attributes { path, destination_number, key, rq_psn, .. } = &self.attributes;
        if request.service != pair.parts.service.peer() {
            return false;
        }
        if request.service == Service::UnreliableDatagram {
            return request.key == *key;
        }
        let is_peer = |source: Gid, destination: Gid| {
            path.is_some_and(|path| path.destination == source && path.source == destination)
        };
        request.source_number == *destination_number
            && is_peer(request.source, request.destination)
            // The first packet of a message begins anew where packets may be lost.
            && (request.psn == *rq_psn || !request.service.is_reliable())
    }

    /// The answer of a reliable service.
    fn acknowledge(&mut self, pair: &QueuePair, request: &Request, result: Result<u64, Stop>) -> (Reply, bool) {
        let (refusal, event) = match result {
            Ok(original) => {
                self.expect_after(request);
                return (Reply::Done { original }, false);
            }
            Err(Stop::NotReady) => return (Reply::NotReady { timer: self.attributes.min_rnr_timer }, false),
            Err(Stop::LocalFault) => return (Reply::LocalFault, false),
            Err(Stop::Refused(Refusal::InvalidRequest)) => (Refusal::InvalidRequest, Some(PairEvent::RequestError)),
            Err(Stop::Refused(refusal)) => (refusal, Some(PairEvent::AccessError)),
            Err(Stop::Broken(refusal)) => (refusal, None),
            Err(Stop::TooLong) => (Refusal::InvalidRequest, None),
            Err(Stop::Lost) => return self.break_down(pair),
        };
        log::debug!("queue pair {:#x} refuses {:?}: {refusal:?}", pair.number, request.operation);
        pair.fail();
        // Errors that no completion tells of.
        if let Some(event) = event {
            pair.parts.events.happened(event);
        }
        self.flush(pair);
        (Reply::Refused(refusal), true)
    }

    /// The end of a message of an unreliable service: what was wrong with it nobody is told, and it is as if it had been lost.
    fn drop_silently(&mut self, pair: &QueuePair, request: &Request, result: Result<u64, Stop>) -> (Reply, bool) {
        if result != Err(Stop::LocalFault) {
            self.expect_after(request);
        }
        let Err(stop) = result else {
            return (Reply::Done { original: 0 }, false);
        };
        if stop == Stop::LocalFault {
            return (Reply::LocalFault, false);
        }
        log::debug!("queue pair {:#x} drops {:?}: {stop:?}", pair.number, request.operation);
        if stop == Stop::Lost {
            return self.break_down(pair);
        }
        let has_failed = matches!(stop, Stop::Broken(_));
        if has_failed {
            pair.fail();
            self.flush(pair);
        }
        (Reply::Silence, has_failed)
    }

    /// The end of the queue pair, as its completion queue has overrun.
    #[cold]
    fn break_down(&mut self, pair: &QueuePair) -> (Reply, bool) {
        pair.break_down();
        self.end(pair);
        (Reply::Silence, true)
    }

    fn expect_after(&mut self, request: &Request) {
        self.attributes.rq_psn = psn_after(request.psn, request.packets);
    }

    /// Does what a message asks for, and gives the value that an atomic found.
    fn perform(&mut self, pair: &QueuePair, request: &Request, exchange: &mut dyn Exchange) -> Result<u64, Stop> {
        // A target of XRC has no memory or receives of its own: the shared receive queue that is named stands for both.
        let entry;
        let target = if pair.parts.service == Service::XrcReceive {
            entry = shared_entry(pair, request.srq_number)?;
            Target::of_shared(pair, &entry)?
        } else {
            Target::of_pair(pair)
        };
        match request.operation {
            Operation::Send | Operation::SendImmediate { .. } | Operation::SendInvalidate { .. } => {
                self.receive(&target, request, exchange)?;
            }
            Operation::Write { address, rkey } => self.write(&target, request, exchange, address, rkey)?,
            Operation::WriteImmediate { address, rkey, .. } => {
                self.receive_write(&target, request, |this| this.write(&target, request, exchange, address, rkey))?;
            }
            Operation::Read { address, rkey } => self.read(&target, request, exchange, address, rkey)?,
            Operation::CompareSwap { address, rkey, compare, swap } => {
                return self.atomic(&target, address, rkey, Atomic::CompareSwap { compare, swap });
            }
            Operation::FetchAdd { address, rkey, add } => {
                return self.atomic(&target, address, rkey, Atomic::FetchAdd(add));
            }
            Operation::AtomicWrite { address, rkey } => self.atomic_write(&target, exchange, address, rkey)?,
            Operation::Flush { address, rkey, length, placement, level } => {
                self.make_visible(&target, rkey, (address, length), placement, level)?;
            }
            Operation::LocalInvalidate { .. } | Operation::Bind => {
                return Err(Stop::Refused(Refusal::InvalidRequest));
            }
        }
        Ok(0)
    }
}
