//! How messages consume receives, and how these receives complete.

use std::sync::Arc;

use rdma_mummy_sys::{ibv_wc_flags, ibv_wc_opcode, ibv_wc_status};

use crate::cq::{Completion, CompletionQueue};
use crate::mem::Memory;
use crate::qp::exchange::{Exchange, TransferFault};
use crate::qp::recv::target::{Receives, Target};
use crate::qp::recv::{Responder, Stop};
use crate::qp::{QueuePair, Service, datagram};
use crate::srq::{ReceiveQueue, ReceiveWork};
use crate::wire::bytes::{self, Fault, Segments};
use crate::wire::message::{Refusal, Reply, Request};
use crate::wire::operation::Operation;

/// A receive that was taken from its queue.
#[derive(Debug)]
pub(in crate::qp) struct Taken {
    pub(in crate::qp) work: ReceiveWork,
    queue: Arc<ReceiveQueue>,
    completions: Option<Arc<CompletionQueue>>,
}

impl Responder {
    /// Handles a message that consumes a receive.
    pub(in crate::qp) fn receive(
        &mut self,
        target: &Target<'_>,
        request: &Request,
        exchange: &mut dyn Exchange,
    ) -> Result<(), Stop> {
        let work = self.take(target)?;
        let result = place(target, request, exchange, &work);
        self.conclude(target, request, work, result)
    }

    /// Handles a write with immediate data. The data is written only if a receive is posted.
    pub(in crate::qp) fn receive_write(
        &mut self,
        target: &Target<'_>,
        request: &Request,
        write: impl FnOnce(&mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let work = self.take(target)?;
        // If the write fails, the receive does not complete and stays available.
        let result = write(self).map_err(ReceiveError::Other);
        self.conclude(target, request, work, result)
    }

    /// Completes the receives of the QP's own queue as flushed.
    pub(in crate::qp) fn flush_receives(&mut self, pair: &QueuePair) {
        for Taken { work, queue, completions } in std::mem::take(&mut self.taken) {
            if let Some(completions) = &completions {
                let status = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
                completions.push(failed(pair.number, work.wr_id, status), false);
            }
            queue.recycle(work);
        }
        if pair.parts.is_shared {
            return;
        }
        pair.parts.receives.drain(|work| {
            if let Some(completions) = &pair.parts.receive_queue {
                completions.push(failed(pair.number, work.wr_id, ibv_wc_status::IBV_WC_WR_FLUSH_ERR), false);
            }
        });
    }

    /// Takes the receive of an earlier message that was abandoned. If there is none, takes the next receive of the
    /// queue.
    pub(in crate::qp) fn take(&mut self, target: &Target<'_>) -> Result<ReceiveWork, Stop> {
        let queue = target.receives.queue;
        if !self.taken.is_empty()
            && let Some(place) = self.taken.iter().position(|taken| taken.is_of(queue))
        {
            return Ok(self.taken.remove(place).work);
        }
        queue.take().ok_or(Stop::NotReady)
    }

    /// Completes a receive, or keeps it for the next message if the current message does not complete it.
    pub(in crate::qp) fn conclude(
        &mut self,
        target: &Target<'_>,
        request: &Request,
        work: ReceiveWork,
        result: Result<(), ReceiveError>,
    ) -> Result<(), Stop> {
        let receives = target.receives;
        let (completion, stop) = match result {
            Ok(()) => (arrived(target, request, work.wr_id), None),
            // If the service is reliable, the sender receives an error. If the service is unreliable, the message is
            // dropped as the specification requires, and the QP continues. The receive then stays available, but a
            // receive of a shared queue completes in error.
            Err(ReceiveError::TooLong) if !target.service.is_reliable() && !receives.is_shared => {
                self.keep(target, work);
                return Err(Stop::TooLong);
            }
            Err(ReceiveError::Other(stop)) => {
                self.keep(target, work);
                return Err(stop);
            }
            Err(error) => {
                let (status, stop) = error.end(target.service);
                (failed(target.number, work.wr_id, status), Some(stop))
            }
        };
        // As with a NIC, the reply is sent before the completion becomes visible. When a program acts on the
        // completion, the peer already has the reply.
        if stop.is_none()
            && let Some(back) = self.early.take()
        {
            self.reply(target.pair, back, Reply::Done { original: 0 });
        }
        let is_queued = receives.completions.is_none_or(|queue| queue.push(completion, request.is_solicited));
        receives.queue.recycle(work);
        if is_queued { stop.map_or(Ok(()), Err) } else { Err(Stop::Lost) }
    }

    fn keep(&mut self, target: &Target<'_>, work: ReceiveWork) {
        self.taken.push(Taken::new(target, work));
    }
}

impl Taken {
    /// Returns a receive that was not used. If the queue is shared, the next message takes this receive.
    pub(in crate::qp) fn give_back(self) {
        if self.queue.is_shared() {
            self.queue.give_back(self.work);
        }
    }

    pub(in crate::qp) fn is_of(&self, queue: &Arc<ReceiveQueue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }

    pub(in crate::qp) fn new(target: &Target<'_>, work: ReceiveWork) -> Self {
        let Receives { queue, completions, .. } = target.receives;
        Self { work, queue: Arc::clone(queue), completions: completions.cloned() }
    }
}

/// Checks that a message fits into its receive.
pub(in crate::qp) fn check_fits(work: &ReceiveWork, length: u64) -> Result<(), ReceiveError> {
    let capacity: u64 = work.pieces.iter().map(|piece| u64::from(piece.length)).sum();
    if capacity < length { Err(ReceiveError::TooLong) } else { Ok(()) }
}

/// Invalidates the key that a send with invalidate contains. Does nothing for other messages.
pub(in crate::qp) fn invalidate(target: &Target<'_>, request: &Request) -> Result<(), ReceiveError> {
    match request.operation {
        Operation::SendInvalidate { rkey } => target.invalidate(rkey).map_err(|_| ReceiveError::Invalidation),
        _ => Ok(()),
    }
}

/// An error of a message that consumes a receive.
#[derive(Clone, Copy, Debug)]
pub(in crate::qp) enum ReceiveError {
    /// The receive is too small.
    TooLong,
    /// The memory of the receive cannot be used.
    Memory,
    /// The key cannot be invalidated.
    Invalidation,
    /// An error that does not concern the receive.
    Other(Stop),
}

impl ReceiveError {
    /// Returns the status with which the receive completes, and the result of the message.
    pub(in crate::qp) fn end(self, service: Service) -> (ibv_wc_status, Stop) {
        match self {
            Self::TooLong if service.is_reliable() => {
                (ibv_wc_status::IBV_WC_LOC_LEN_ERR, Stop::Broken(Refusal::InvalidRequest))
            }
            Self::TooLong => (ibv_wc_status::IBV_WC_LOC_LEN_ERR, Stop::TooLong),
            Self::Memory => (ibv_wc_status::IBV_WC_LOC_PROT_ERR, Stop::Broken(Refusal::OperationError)),
            Self::Invalidation => {
                (ibv_wc_status::IBV_WC_REM_INV_REQ_ERR, Stop::Broken(Refusal::AccessError(Fault::Invalidation)))
            }
            Self::Other(stop) => (ibv_wc_status::IBV_WC_GENERAL_ERR, stop),
        }
    }
}

/// Copies the data of a message into a receive.
fn place(
    target: &Target<'_>,
    request: &Request,
    exchange: &mut dyn Exchange,
    work: &ReceiveWork,
) -> Result<(), ReceiveError> {
    let header = if target.service == Service::UnreliableDatagram { datagram::HEADER_LENGTH } else { 0 };
    check_fits(work, header + request.length)?;
    let domain = target.receives.domain;
    if header > 0 {
        let mut segments = Segments::new();
        Memory::of_process()
            .map(domain, &work.pieces, 0, header, true, &mut segments)
            .map_err(|_| ReceiveError::Memory)?;
        bytes::write_bytes(&datagram::header(request), &segments).map_err(|_| ReceiveError::Memory)?;
    }
    if request.length > 0 {
        let mut segments = Segments::new();
        Memory::of_process()
            .map(domain, &work.pieces, header, request.length, true, &mut segments)
            .map_err(|_| ReceiveError::Memory)?;
        exchange.take(&segments).map_err(|fault| match fault {
            TransferFault::Requester(_) => ReceiveError::Other(Stop::LocalFault),
            TransferFault::Responder(_) => ReceiveError::Memory,
        })?;
    }
    invalidate(target, request)
}

/// Builds the completion of a successful receive.
fn arrived(target: &Target<'_>, request: &Request, wr_id: u64) -> Completion {
    let is_datagram = target.service == Service::UnreliableDatagram;
    let (flags, immediate) = match request.operation {
        Operation::SendImmediate { immediate } | Operation::WriteImmediate { immediate, .. } => {
            (ibv_wc_flags::IBV_WC_WITH_IMM.0, immediate)
        }
        Operation::SendInvalidate { rkey } => (ibv_wc_flags::IBV_WC_WITH_INV.0, rkey),
        _ => (0, 0),
    };
    let opcode = match request.operation {
        Operation::WriteImmediate { .. } => ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM,
        _ => ibv_wc_opcode::IBV_WC_RECV,
    };
    let length = request.length + if is_datagram { datagram::HEADER_LENGTH } else { 0 };
    Completion {
        wr_id,
        status: ibv_wc_status::IBV_WC_SUCCESS,
        opcode,
        // The conversion is lossless, because a message has at most 2 GiB.
        byte_len: u32::try_from(length).unwrap_or(u32::MAX),
        flags: if is_datagram { flags | ibv_wc_flags::IBV_WC_GRH.0 } else { flags },
        immediate,
        number: target.number,
        source_number: if is_datagram { request.source_number } else { 0 },
        service_level: request.service_level,
        timestamp: 0,
        wall_clock: 0,
        slots: None,
    }
}

/// Builds the completion of a failed receive.
fn failed(number: u32, wr_id: u64, status: ibv_wc_status) -> Completion {
    Completion {
        wr_id,
        status,
        opcode: ibv_wc_opcode::IBV_WC_RECV,
        byte_len: 0,
        flags: 0,
        immediate: 0,
        number,
        source_number: 0,
        service_level: 0,
        timestamp: 0,
        wall_clock: 0,
        slots: None,
    }
}
