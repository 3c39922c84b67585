//! Sends requests to peers in other processes in parts.

use std::sync::Arc;

use rdma_mummy_sys::ibv_wc_status;

use crate::mem::Memory;
use crate::qp::send::in_flight::InFlight;
use crate::qp::send::outcome::Outcome;
use crate::qp::send::work::SendWork;
use crate::qp::{Attributes, QueuePair};
use crate::wire::bytes::Segments;
use crate::wire::message::Request;
use crate::wire::packet::{MAX_PAYLOAD, Packet, Part, Payload};
use crate::wire::transport::{Carrier, Stuck};

/// Sends a request, or the part of it that was not sent yet. `segments` is the memory of the request.
#[inline]
pub(in crate::qp) fn send(
    pair: &QueuePair,
    work: &SendWork,
    mut request: Request,
    peer: (u32, &Arc<dyn Carrier>),
    attributes: &Attributes,
    flight: &mut InFlight,
    segments: &mut Segments,
) -> Outcome {
    match flight.youngest() {
        Some(youngest) if flight.partial.is_some() => request.psn = youngest.psn,
        _ if flight.holds_back(work, attributes) => return Outcome::Later,
        _ => flight.begin(pair, work, &request, peer),
    }
    let (number, carrier) = peer;
    let total = if request.operation.has_data() { request.length } else { 0 };
    loop {
        let offset = flight.partial.unwrap_or(0);
        // The conversion is lossless, because `MAX_PAYLOAD` is a `u32`.
        let length = total.saturating_sub(offset).min(u64::from(MAX_PAYLOAD)) as u32;
        let payload = match slice(pair, work, (total, offset, length), segments) {
            Some(payload) => payload,
            None => return Outcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR),
        };
        let part = Part { number, request, offset, length, attempt: flight.attempt() };
        match flight.backpressure.put(pair, carrier, &Packet::Part(part), payload) {
            Ok(()) => {}
            Err(Stuck::Lost) => return Outcome::Silence,
            Err(Stuck::Fault) => return Outcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR),
            Err(Stuck::Full) if pair.parts.service.is_reliable() => return Outcome::Stuck,
            Err(Stuck::Full)
                if !flight.backpressure.is_given_up(carrier) && flight.backpressure.waits(pair, carrier.taken()) =>
            {
                return Outcome::Stuck;
            }
            Err(Stuck::Full) => {
                // The message is dropped, and its request completes without an error.
                flight.backpressure.give_up(carrier);
                return Outcome::Done { length: 0 };
            }
        }
        flight.went();
        let end = offset + u64::from(length);
        if end >= total {
            flight.partial = None;
            let is_reliable = pair.parts.service.is_reliable();
            return if is_reliable { Outcome::Sent } else { Outcome::Done { length: 0 } };
        }
        flight.partial = Some(end);
    }
}

/// Returns the payload of a part. If a message has several parts, the memory is checked again for each of them.
#[inline]
fn slice<'p>(
    pair: &QueuePair,
    work: &'p SendWork,
    (total, offset, length): (u64, u64, u32),
    segments: &'p mut Segments,
) -> Option<Payload<'p>> {
    if length == 0 {
        return Some(Payload::Bytes(&[]));
    }
    if work.is_inline {
        let start = usize::try_from(offset).ok()?;
        return work.inline.get(start..start + length as usize).map(Payload::Bytes);
    }
    if u64::from(length) < total {
        segments.clear();
        Memory::of_process().map(&pair.parts.domain, &work.pieces, offset, length.into(), false, segments).ok()?;
    }
    Some(Payload::Memory(segments))
}
