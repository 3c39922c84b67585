//! One attempt to execute a request. It makes the local checks, sends the message to the peer, and interprets the
//! reply.

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rdma_mummy_sys::ibv_wc_status;

use crate::mem::{Memory, Piece};
use crate::qp::exchange::InProcess;
use crate::qp::registry::QpRegistry;
use crate::qp::send::group::GroupSend;
use crate::qp::send::in_flight::InFlight;
use crate::qp::send::outcome::{Outcome, status_of};
use crate::qp::send::remote_send;
use crate::qp::send::work::SendWork;
use crate::qp::{Attributes, QueuePair, Service, datagram};
use crate::wire::address::{Gid, Path};
use crate::wire::bytes::{self, Segment, Segments};
use crate::wire::message::{Reply, Request};
use crate::wire::operation::Operation;
use crate::wire::packet::{packet_count, psn_after};
use crate::wire::transport::Carrier;

/// The number of bytes on which an atomic operates.
const ATOMIC_LENGTH: u64 = 8;

/// The peer of the last message, which is remembered for the next one.
#[derive(Debug, Default)]
pub(in crate::qp) struct Peer {
    number: u32,
    pair: Weak<QueuePair>,
    /// The carrier to the peer at this address, if the peer is in another process.
    carrier: Option<(Gid, Weak<dyn Carrier>)>,
    /// Whether the next request passes the gate.
    pub(in crate::qp) passes_gate: bool,
}

/// Where a peer is: in this process, in another one, or nowhere.
enum Found {
    Local(Arc<QueuePair>),
    Remote(Arc<dyn Carrier>),
    Unknown,
    /// The gate is closed.
    Gated,
}

impl Peer {
    /// Finds a QP by its number. Reuses the result of the last search if it is still valid.
    #[inline]
    fn find(&mut self, pair: &QueuePair, destination: Gid, number: u32) -> Found {
        if self.number == number {
            if let Some(pair) = self.pair.upgrade()
                && !pair.is_closed()
            {
                return Found::Local(pair);
            }
            if let Some((address, carrier)) = &self.carrier
                && *address == destination
                && let Some(carrier) = carrier.upgrade()
            {
                return Found::Remote(carrier);
            }
        }
        self.look_up(pair, destination, number)
    }

    /// Prefetches the peer of the last message into the cache, if it is in this process.
    #[inline]
    pub(in crate::qp) fn prefetch(&self) {
        if self.number != 0 && self.carrier.is_none() {
            QueuePair::prefetch_responder(self.pair.as_ptr());
        }
    }

    #[inline(never)]
    fn look_up(&mut self, pair: &QueuePair, destination: Gid, number: u32) -> Found {
        let is_gated = pair.is_gated();
        if is_gated && !self.takes_pass() {
            return Found::Gated;
        }
        let (found, peer) = if let Some(pair) = pair.route.local(number) {
            let peer = Self { number, pair: Arc::downgrade(&pair), ..Self::default() };
            (Found::Local(pair), peer)
        } else if let Some(carrier) = pair.route.carrier(number) {
            let peer = Self { number, carrier: Some((destination, Arc::downgrade(&carrier))), ..Self::default() };
            (Found::Remote(carrier), peer)
        } else {
            return Found::Unknown;
        };
        // The next request must find the gate.
        if !is_gated {
            *self = peer;
        }
        found
    }

    fn takes_pass(&mut self) -> bool {
        mem::take(&mut self.passes_gate)
    }
}

/// Executes a request, for the first time or as a retry.
pub(in crate::qp) fn attempt(
    pair: &QueuePair,
    work: &SendWork,
    attributes: &Attributes,
    peer: &mut Peer,
    flight: &mut InFlight,
) -> Outcome {
    let service = pair.parts.service;
    if !service.sends(work.operation) {
        return Outcome::Failed(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR);
    }
    match work.operation {
        Operation::LocalInvalidate { .. } | Operation::Bind => return change_keys(pair, work, flight),
        // The QP's limit allows no reads or atomics, so this request can never begin.
        operation if operation.is_read_or_atomic() && attributes.max_rd_atomic == 0 => {
            return Outcome::Failed(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR);
        }
        // RoCE has no packet for this operation.
        Operation::SendInvalidate { .. } if !service.is_reliable() && pair.route.is_connection() => {
            return Outcome::Failed(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR);
        }
        _ => {}
    }
    let length = match message_length(pair, work) {
        Ok(length) => length,
        Err(status) => return Outcome::Failed(status),
    };
    let mut segments = Segments::new();
    if !work.is_inline && !local_memory(pair, work, &mut segments) {
        return Outcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
    }

    let Some((path, number, key)) = destination(pair, work, attributes) else {
        return if work.destination.is_none() && service.is_reliable() {
            Outcome::Silence
        } else {
            Outcome::Failed(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR)
        };
    };
    let first = pair.sq_psn.load(Ordering::Relaxed);
    let request = Request {
        service,
        operation: work.operation,
        length,
        is_solicited: work.is_solicited,
        psn: first,
        packets: packet_count(length, attributes.path_mtu),
        source_number: pair.number,
        source: path.source,
        destination: path.destination,
        key,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        flow_label: path.flow_label,
        service_level: path.service_level,
        srq_number: work.srq_number,
    };
    let mut exchange =
        if work.is_inline { InProcess::Inline(&work.inline) } else { InProcess::Memory(segments.as_slice()) };
    let is_here = work.destination.is_some() && pair.route.is_registry();
    let reply = if is_here && datagram::is_multicast_datagram(&request, number) {
        if pair.is_gated() && !peer.takes_pass() {
            return Outcome::Gated;
        }
        let is_first = !flight.unsent.has_begun();
        let sent = flight.unsent.send(&mut flight.backpressure, pair, work, &request, &segments);
        let reply = match sent {
            GroupSend::Fault => Reply::LocalFault,
            GroupSend::All | GroupSend::Some if is_first => datagram::send_to_group(&request, &mut exchange),
            GroupSend::All | GroupSend::Some => Reply::Done { original: 0 },
        };
        if sent == GroupSend::Some && reply != Reply::LocalFault {
            return Outcome::Stuck;
        }
        reply
    } else if is_here && !QpRegistry::of_process().is_here(request.destination) {
        Reply::Silence
    } else {
        match peer.find(pair, request.destination, number) {
            Found::Local(_) if flight.next() > 0 => return Outcome::Later,
            Found::Local(peer) => peer.handle(&request, &mut exchange),
            Found::Remote(carrier) => {
                let outcome =
                    remote_send::send(pair, work, request, (number, &carrier), attributes, flight, &mut segments);
                if outcome != Outcome::Silence {
                    return outcome;
                }
                // The carrier is forgotten, because another process may own the QP number later.
                *peer = Peer::default();
                Reply::Silence
            }
            Found::Unknown => Reply::Silence,
            Found::Gated => return Outcome::Gated,
        }
    };

    let outcome = match reply {
        Reply::LocalFault => Outcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR),
        Reply::BadResponse => Outcome::Failed(ibv_wc_status::IBV_WC_BAD_RESP_ERR),
        // On an unreliable service, the requester gets no reply.
        _ if !service.is_reliable() => Outcome::Done { length: 0 },
        Reply::Done { original } => finish_response(work, original, &segments),
        Reply::NotReady { timer } => Outcome::NotReady { timer },
        Reply::Silence => Outcome::Silence,
        Reply::Refused(refusal) => Outcome::Failed(status_of(refusal)),
    };
    // If a part of the request was sent to another process, the PSNs of the whole request have already been counted.
    if matches!(outcome, Outcome::Done { .. }) && flight.partial.is_none() {
        pair.sq_psn.store(psn_after(first, request.packets), Ordering::Relaxed);
    }
    outcome
}

/// Returns the destination of a request: the path, the QP number and, for a datagram, the Q_Key.
fn destination(pair: &QueuePair, work: &SendWork, attributes: &Attributes) -> Option<(Path, u32, u32)> {
    let is_datagram = pair.parts.service == Service::UnreliableDatagram;
    match &work.destination {
        Some(to) if is_datagram => Some((to.path, to.number, datagram::key(to.key, attributes.key))),
        None if !is_datagram => attributes.path.map(|path| (path, attributes.destination_number, 0)),
        _ => None,
    }
}

/// Executes a request that only changes keys. It does not wait for the responses to earlier requests, unless the
/// program has set the fence flag; it completes after them.
fn change_keys(pair: &QueuePair, work: &SendWork, flight: &mut InFlight) -> Outcome {
    let is_first = flight.next() == 0;
    if !is_first && work.is_fenced {
        return Outcome::Later;
    }
    // If earlier requests are sent again, this request is not executed again.
    let outcome = if flight.has_begun_next() { Outcome::Done { length: 0 } } else { manage(pair, work) };
    if !is_first && matches!(outcome, Outcome::Done { .. }) {
        flight.begin_local();
        return Outcome::Sent;
    }
    outcome
}

/// Executes a request that only changes keys. The specification defines one status for all failures of such a request.
fn manage(pair: &QueuePair, work: &SendWork) -> Outcome {
    let memory = Memory::of_process();
    let domain = &pair.parts.domain;
    let is_done = match (work.operation, &work.bind) {
        (Operation::LocalInvalidate { rkey }, _) => memory.invalidate(domain, pair.number, rkey).is_ok(),
        (Operation::Bind, Some(bind)) => memory.bind(domain, pair.number, bind).is_ok(),
        _ => false,
    };
    if is_done { Outcome::Done { length: 0 } } else { Outcome::Failed(ibv_wc_status::IBV_WC_MW_BIND_ERR) }
}

/// Returns the length of a message, if the operation allows this length.
fn message_length(pair: &QueuePair, work: &SendWork) -> Result<u64, ibv_wc_status> {
    let (length, longest) = (work.length(), u64::from(pair.parts.max_message));
    let is_valid = match work.operation {
        Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => length == ATOMIC_LENGTH && !work.is_inline,
        Operation::AtomicWrite { .. } => length == ATOMIC_LENGTH,
        Operation::Read { .. } => length <= longest && !work.is_inline,
        // The length of a flush counts bytes in the peer's memory. No data is transferred.
        Operation::Flush { .. } => return Ok(0),
        _ => length <= longest,
    };
    if is_valid { Ok(length) } else { Err(ibv_wc_status::IBV_WC_LOC_LEN_ERR) }
}

/// Checks the local memory of a request, and returns segments that keep it in use.
pub(in crate::qp) fn local_memory(pair: &QueuePair, work: &SendWork, segments: &mut Segments) -> bool {
    let is_written = work.operation.is_read_or_atomic();
    // A piece whose length is zero refers to no memory.
    work.pieces.iter().filter(|piece| piece.length > 0).all(|&Piece { address, length, lkey }| {
        Memory::of_process()
            .local(&pair.parts.domain, lkey, address, u64::from(length), is_written)
            .is_ok_and(|segment| segments.try_push(segment).is_ok())
    })
}

/// If the request is an atomic, stores the previous value in the memory of the request. Returns the number of received
/// bytes.
pub(in crate::qp) fn finish_response(work: &SendWork, original: u64, segments: &[Segment]) -> Outcome {
    let length = match work.operation {
        Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => {
            if bytes::write_bytes(&original.to_ne_bytes(), segments).is_err() {
                return Outcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
            }
            ATOMIC_LENGTH
        }
        Operation::Read { .. } => work.length(),
        _ => 0,
    };
    // The conversion is lossless, because a message has at most 2 GiB.
    Outcome::Done { length: u32::try_from(length).unwrap_or(u32::MAX) }
}
