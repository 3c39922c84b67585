//! Datagrams. Each is one packet, and no state outlives it.

use std::sync::{Arc, Weak};
use std::thread;

use super::engine::Engine;
use super::packet::{Body, DEFAULT_PARTITION, Packet, Place, SendEnd, Transport};
use super::socket::SendError;
use super::socket::arrival::Arrival;
use super::socket::batch::Route;
use crate::sys::errno::Errno;
use crate::wire::address::Gid;
use crate::wire::bytes::with_segment;
use crate::wire::message::Request;
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{MULTICAST_NUMBER, Packet as Carried, Part, Payload};
use crate::wire::transport::{Carrier, Deliver, Stuck, Wake};

/// How often a datagram is passed to a full socket again, before it is dropped.
const TRIES: usize = 1000;
/// The hop limit in the header of a received datagram, which the socket does not tell.
const HOP_LIMIT: u8 = 64;

/// Sends datagrams. It has no state: a datagram states its whole path.
#[derive(Debug)]
pub(super) struct Datagrams(pub(super) &'static Engine);

impl Carrier for Datagrams {
    fn put(&self, packet: &Carried, payload: Payload<'_>) -> Result<(), Stuck> {
        let Carried::Part(part) = packet else { return Ok(()) };
        let request = &part.request;
        let route = Route {
            source: request.source,
            destination: request.destination,
            traffic_class: request.traffic_class,
            hop_limit: request.hop_limit,
            flow_label: request.flow_label,
        };
        let end = match request.operation {
            Operation::SendImmediate { immediate } => SendEnd::Immediate(immediate),
            _ => SendEnd::Nothing,
        };
        let packet = Packet {
            transport: Transport::Datagram { key: request.key, source: request.source_number },
            body: Body::Send { place: Place::Only, end },
            is_solicited: request.is_solicited,
            asks: false,
            has_becn: false,
            partition: DEFAULT_PARTITION,
            destination: part.number,
            psn: request.psn,
        };
        let mut bytes = Vec::new();
        payload.append_to(&mut bytes, part.length).map_err(|_| Stuck::Fault)?;
        send(self.0, &route, &packet, &bytes);
        Ok(())
    }

    fn wake(&self, _waiting: Weak<dyn Wake>) {}

    fn taken(&self) -> u64 {
        0
    }

    fn join_group(&self, group: Gid, member: u32) -> Result<(), Errno> {
        self.0.join_group(group, member)
    }

    fn leave_group(&self, group: Gid, member: u32) {
        self.0.leave_group(group, member);
    }
}

/// Sends a datagram. It is dropped if the socket stays full.
pub(super) fn send(engine: &Engine, route: &Route, packet: &Packet, bytes: &[u8]) {
    let Some(header) = engine.header(route) else { return };
    let mut batch = engine.batch(&header);
    if batch.add(packet, bytes).is_ok() {
        for _ in 0..TRIES {
            match engine.send(&mut batch) {
                Ok(()) => break,
                Err(SendError::Full) => thread::yield_now(),
                Err(error) => {
                    rdma_mummy_sys::log!(debug, "a datagram to QP {:#x} is lost: {error}", packet.destination);
                    break;
                }
            }
        }
    }
    engine.keep(batch);
}

/// Receives nothing: the carrier that is passed with datagrams that have arrived. No response is sent.
#[derive(Debug)]
struct Nowhere;

impl Carrier for Nowhere {
    fn put(&self, _packet: &Carried, _payload: Payload<'_>) -> Result<(), Stuck> {
        Ok(())
    }

    fn wake(&self, _waiting: Weak<dyn Wake>) {}

    fn is_network(&self) -> bool {
        true
    }

    fn taken(&self) -> u64 {
        0
    }
}

/// Delivers a datagram that has arrived.
pub(super) fn arrived(
    deliver: &dyn Deliver,
    arrival: &Arrival<'_>,
    packet: &Packet,
    payload: &[u8],
    (key, source): (u32, u32),
) {
    let operation = match packet.body {
        Body::Send { end: SendEnd::Immediate(immediate), .. } => Operation::SendImmediate { immediate },
        Body::Send { end: SendEnd::Nothing, .. } => Operation::Send,
        _ => return,
    };
    let is_group = arrival.destination.is_multicast();
    if is_group != (packet.destination == MULTICAST_NUMBER) {
        return;
    }
    let request = Request {
        service: Service::UnreliableDatagram,
        operation,
        length: payload.len() as u64,
        is_solicited: packet.is_solicited,
        psn: packet.psn,
        packets: 1,
        source_number: source,
        source: arrival.source,
        destination: arrival.destination,
        key,
        traffic_class: arrival.traffic_class,
        hop_limit: HOP_LIMIT,
        flow_label: 0,
        service_level: 0,
        srq_number: 0,
    };
    // The conversion is lossless, because a datagram of UDP has at most 64 KiB.
    let part = Part { number: packet.destination, request, offset: 0, length: payload.len() as u32, attempt: 0 };
    let nowhere: Arc<dyn Carrier> = Arc::new(Nowhere);
    with_segment(payload, |segments| deliver.part(&part, segments, &nowhere));
}
