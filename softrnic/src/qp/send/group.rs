//! Multicast datagrams to members in other processes. Each process has its own backpressure.

use std::sync::Arc;

use crate::qp::QueuePair;
use crate::qp::registry::QpRegistry;
use crate::qp::send::backpressure::Backpressure;
use crate::qp::send::work::SendWork;
use crate::wire::bytes::Segment;
use crate::wire::message::Request;
use crate::wire::packet::{MULTICAST_NUMBER, Packet, Part, Payload};
use crate::wire::transport::{Carrier, Stuck};

/// The carriers that are too full for the oldest request, if this request is a multicast datagram. Otherwise the list
/// is empty.
#[derive(Debug, Default)]
pub(in crate::qp) struct Unsent(Vec<Arc<dyn Carrier>>);

/// How far a datagram has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qp) enum GroupSend {
    /// The datagram was sent to all processes, or dropped for some of them.
    All,
    /// At least one carrier is still full.
    Some,
    /// The memory of the datagram cannot be read.
    Fault,
}

impl Unsent {
    /// Whether the oldest request was already sent to some members, which may be in this process.
    pub(in crate::qp) fn has_begun(&self) -> bool {
        !self.0.is_empty()
    }

    pub(in crate::qp) fn clear(&mut self) {
        self.0.clear();
    }

    /// Sends a datagram to the other processes that have members of its group, or to those that have not received it
    /// yet. If a carrier is full for too long, only the process of this carrier misses the datagram.
    pub(in crate::qp) fn send(
        &mut self,
        backpressure: &mut Backpressure,
        pair: &QueuePair,
        work: &SendWork,
        request: &Request,
        segments: &[Segment],
    ) -> GroupSend {
        if !self.has_begun() {
            self.0 = QpRegistry::of_process().group(request.destination);
            backpressure.begin();
        }
        // The conversion is lossless, because a datagram has at most 4096 bytes.
        let length = request.length as u32;
        let part = Part { number: MULTICAST_NUMBER, request: *request, offset: 0, length, attempt: 0 };
        let payload = if work.is_inline { Payload::Bytes(&work.inline) } else { Payload::Memory(segments) };
        let mut is_faulty = false;
        self.0.retain(|carrier| match backpressure.put(pair, carrier, &Packet::Part(part), payload) {
            Ok(()) | Err(Stuck::Lost) => false,
            Err(Stuck::Full) => !backpressure.is_given_up(carrier),
            Err(Stuck::Fault) => {
                is_faulty = true;
                false
            }
        });
        if is_faulty {
            self.clear();
            return GroupSend::Fault;
        }
        if self.has_begun() && backpressure.waits(pair, 0) {
            return GroupSend::Some;
        }
        self.0.drain(..).for_each(|carrier| backpressure.give_up(&carrier));
        GroupSend::All
    }
}
