//! Datagrams to a group, to its members in other processes: those that have no room are waited for, as a single peer is.

use std::sync::Arc;

use crate::qp::QueuePair;
use crate::qp::registry::QpRegistry;
use crate::qp::send::backpressure::Backpressure;
use crate::qp::send::work::SendWork;
use crate::wire::bytes::Segment;
use crate::wire::message::Request;
use crate::wire::packet::{MULTICAST_NUMBER, Packet, Part, Payload};
use crate::wire::transport::{Carrier, Stuck};

/// The ways that had no room for the oldest request, where that is a datagram to a group. None while there is room.
#[derive(Debug, Default)]
pub(in crate::qp) struct Missing(Vec<Arc<dyn Carrier>>);

/// How far a datagram has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qp) enum Went {
    /// It went, or is lost, to all.
    All,
    /// Some process has no room for it yet.
    Some,
    /// Its memory cannot be read.
    Fault,
}

impl Missing {
    /// Whether the oldest request has begun to go, and to this process's members too.
    pub(in crate::qp) fn has_begun(&self) -> bool {
        !self.0.is_empty()
    }

    /// Forgets all.
    pub(in crate::qp) fn clear(&mut self) {
        self.0.clear();
    }

    /// Puts a datagram on its way to the other processes of its group, or to those that are missing. A process that has no room for
    /// too long misses it alone.
    pub(in crate::qp) fn send(
        &mut self,
        room: &mut Backpressure,
        pair: &QueuePair,
        work: &SendWork,
        request: &Request,
        segments: &[Segment],
    ) -> Went {
        if !self.has_begun() {
            self.0 = QpRegistry::of_process().group(request.destination);
            room.begin();
        }
        // Datagrams are of 4096 bytes at most.
        let length = request.length as u32;
        let part = Part { number: MULTICAST_NUMBER, request: *request, offset: 0, length, attempt: 0 };
        let payload = if work.is_inline { Payload::Bytes(&work.inline) } else { Payload::Memory(segments) };
        let mut is_faulty = false;
        self.0.retain(|way| match room.put(pair, way, &Packet::Part(part), payload) {
            Ok(()) | Err(Stuck::Gone) => false,
            Err(Stuck::Full) => !room.is_given_up(way),
            Err(Stuck::Fault) => {
                is_faulty = true;
                false
            }
        });
        if is_faulty {
            self.clear();
            return Went::Fault;
        }
        if self.has_begun() && room.waits(pair, 0) {
            return Went::Some;
        }
        self.0.drain(..).for_each(|way| room.give_up(&way));
        Went::All
    }
}
