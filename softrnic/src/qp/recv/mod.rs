//! The responder, which handles incoming messages.
//!
//! | file | contents |
//! |---|---|
//! | `mod`, `target` | one message, and the objects that it accesses |
//! | `receiving`, `one_sided` | messages that consume a receive, and those with remote keys |
//! | `inbound`, `responses_out` | messages in parts, and their responses |

mod inbound;
mod one_sided;
pub(super) mod receiving;
pub(super) mod responses_out;
mod target;

use self::inbound::Inbound;
use self::receiving::Taken;
use self::responses_out::{ResponsesOut, Return};
use self::target::{Target, shared_entry};
use crate::qp::exchange::{Exchange, TransferFault};
use crate::qp::{Attributes, PairEvent, QueuePair, Service, State};
use crate::wire::address::Gid;
use crate::wire::bytes::Atomic;
use crate::wire::message::{Refusal, Reply, Request};
use crate::wire::operation::Operation;
use crate::wire::packet::psn_after;

/// The receive side of a QP.
#[repr(C)]
#[derive(Debug)]
pub(in crate::qp) struct Responder {
    /// `rq_psn` is the next expected PSN.
    pub(in crate::qp) attributes: Attributes,
    has_reported_established: bool,
    has_reported_last: bool,
    /// The receives of abandoned messages. The next messages that use the same receive queue take them. An XRC target
    /// uses several queues, and any other QP uses one.
    pub(in crate::qp) taken: Vec<Taken>,
    /// A message from another process of which not all parts have arrived.
    pub(in crate::qp) arriving: Option<Box<Inbound>>,
    /// The responses to other processes that wait to be sent.
    pub(in crate::qp) responses: ResponsesOut,
    /// The return address of the message that is being handled, until the reply is sent.
    pub(in crate::qp) early: Option<Return>,
}

/// The reason why a message does not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qp) enum Stop {
    /// The message consumes a receive, and none is posted.
    NotReady,
    /// The requester's memory failed.
    LocalFault,
    /// The message is not allowed. No receive was completed.
    Refused(Refusal),
    /// A receive has completed in error. The QP fails, even if its service is unreliable.
    Broken(Refusal),
    /// The message is longer than its receive, and the service is unreliable.
    TooLong,
    /// The completion of the receive was lost. The QP fails, and no response is sent.
    Lost,
}

impl From<TransferFault> for Stop {
    fn from(fault: TransferFault) -> Self {
        match fault {
            TransferFault::Requester(_) => Self::LocalFault,
            // The memory passed the checks, but the copy failed.
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
            responses: ResponsesOut::default(),
            early: None,
            has_reported_established: false,
            has_reported_last: false,
        }
    }

    /// Resets the responder when the QP is reset or closed. Receives that the responder has taken from a shared queue
    /// are returned to this queue, although a NIC may lose them.
    pub(in crate::qp) fn forget(&mut self, pair: &QueuePair) {
        self.responses.drop_all(pair);
        self.end_arriving();
        self.taken.drain(..).rev().for_each(Taken::give_back);
        if !pair.parts.is_shared {
            pair.parts.receives.drain(|_| {});
        }
        *self = Self::new();
    }

    /// Completes the receives of a QP in the error state as flushed. If the queue is shared, its receives stay in it,
    /// and an event is raised instead.
    ///
    /// If the QP failed because it refused a message, the responses to earlier messages are still sent. After any other
    /// error, no response is sent, see [`end`](Self::end).
    pub(in crate::qp) fn flush(&mut self, pair: &QueuePair) {
        self.end_arriving();
        self.flush_receives(pair);
        if pair.parts.is_shared && !self.has_reported_last {
            self.has_reported_last = true;
            pair.parts.events.happened(PairEvent::LastReceiveReached);
        }
    }

    /// Abandons the reads that the responder has not finished, so that it sends no more data, and flushes the receives.
    /// This function is called if the QP is in the error state for a reason other than a message of the peer.
    pub(in crate::qp) fn end(&mut self, pair: &QueuePair) {
        self.responses.cut();
        self.flush(pair);
    }

    /// Handles a message. The returned flag is set if the QP failed. The caller must then run the requester of the QP.
    pub(in crate::qp) fn handle(
        &mut self,
        pair: &QueuePair,
        request: &Request,
        exchange: &mut dyn Exchange,
    ) -> (Reply, bool) {
        if !self.is_accepted(pair, request) {
            return self.ignore(pair, request);
        }
        let result = self.perform(pair, request, exchange);
        self.finish(pair, request, result)
    }

    /// Whether a message can be handled now, and belongs to this QP.
    pub(in crate::qp) fn is_accepted(&self, pair: &QueuePair, request: &Request) -> bool {
        pair.is_reached() && pair.state().receives() && self.is_for_us(pair, request)
    }

    /// Returns the reply to a message that is not accepted, which is none unless a fault refuses the message.
    #[cold]
    pub(in crate::qp) fn ignore(&mut self, pair: &QueuePair, request: &Request) -> (Reply, bool) {
        if pair.state().receives()
            && self.is_for_us(pair, request)
            && let Some(refusal) = pair.take_refusal()
        {
            return self.finish(pair, request, Err(Stop::Refused(refusal)));
        }
        (Reply::Silence, false)
    }

    /// Finishes a message and returns its reply.
    pub(in crate::qp) fn finish(
        &mut self,
        pair: &QueuePair,
        request: &Request,
        result: Result<u64, Stop>,
    ) -> (Reply, bool) {
        let is_connected = pair.parts.service != Service::UnreliableDatagram;
        if is_connected && result.is_ok() && !self.has_reported_established && pair.state() == State::ReadyToReceive {
            self.has_reported_established = true;
            pair.parts.events.happened(PairEvent::Established);
        }
        if pair.parts.service.is_reliable() {
            self.acknowledge(pair, request, result)
        } else {
            self.drop_silently(pair, request, result)
        }
    }

    /// Whether a message comes from the QP's peer and has the expected PSN.
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
            // If the service may lose packets, any PSN is accepted, and the message sets the PSN that is expected next.
            && (request.psn == *rq_psn || !request.service.is_reliable())
    }

    /// Returns the reply to a message of a reliable service.
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
        rdma_mummy_sys::log!(debug, "QP {:#x} refused {:?}: {refusal:?}", pair.number, request.operation);
        pair.fail_by_refusal();
        // An error that causes no completion raises an event.
        if let Some(event) = event {
            pair.parts.events.happened(event);
        }
        self.flush(pair);
        (Reply::Refused(refusal), true)
    }

    /// Finishes a message of an unreliable service. Errors are not reported to the sender, for which the message is
    /// lost.
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
        rdma_mummy_sys::log!(debug, "QP {:#x} dropped {:?}: {stop:?}", pair.number, request.operation);
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

    /// Moves the QP to the error state after an overrun of its completion queue.
    #[cold]
    fn break_down(&mut self, pair: &QueuePair) -> (Reply, bool) {
        pair.break_down();
        self.end(pair);
        (Reply::Silence, true)
    }

    fn expect_after(&mut self, request: &Request) {
        self.attributes.rq_psn = psn_after(request.psn, request.packets);
    }

    /// Executes a message. If the message is an atomic, returns the previous value of the memory.
    fn perform(&mut self, pair: &QueuePair, request: &Request, exchange: &mut dyn Exchange) -> Result<u64, Stop> {
        // An XRC target has neither memory nor receives; the shared receive queue of the message has both.
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
