//! The requests of a peer: its packets, in the order of their PSNs, become parts of messages.

use super::packet::{Body, Packet, Place, Range, SendEnd};
use super::psn::distance;
use crate::wire::limits::MAX_MSG_SIZE;
use crate::wire::message::{Request, UNKNOWN_LENGTH};
use crate::wire::operation::Operation;
use crate::wire::packet::{Part, packet_count};

/// The state of the message that is being received.
#[derive(Debug)]
pub(super) struct Assembly {
    mtu: u32,
    /// The number of the QP.
    number: u32,
    /// The requests with which messages are delivered are copies of this one, in which further fields are set.
    template: Request,
    current: Option<Current>,
}

/// A message of which not all packets have arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    /// The PSN of its first packet.
    pub(super) psn: u32,
    /// The number of bytes that have arrived.
    offset: u64,
    /// The memory that it writes, if it is a write.
    range: Option<Range>,
}

/// A packet that does not follow the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfPlace;

impl Assembly {
    pub(super) fn new(mtu: u32, number: u32, template: Request) -> Self {
        Self { mtu, number, template, current: None }
    }

    pub(super) fn current(&self) -> Option<Current> {
        self.current
    }

    /// Returns to an earlier state.
    pub(super) fn set_current(&mut self, current: Option<Current>) {
        self.current = current;
    }

    /// Returns the part that the next packet is.
    pub(super) fn part(&mut self, packet: &Packet, length: usize) -> Result<Part, OutOfPlace> {
        // The conversion is lossless, because a datagram of UDP has at most 64 KiB.
        let length = length as u32;
        let mut request = Request {
            psn: packet.psn,
            packets: 1,
            length: 0,
            is_solicited: packet.is_solicited,
            srq_number: packet.queue().unwrap_or(0),
            ..self.template
        };
        let mut offset = 0;
        match packet.body {
            Body::Send { place, end } => {
                let before = self.begin(place, length, None, false)?;
                self.set_length(&mut request, before, place, length);
                offset = before.map_or(0, |current| current.offset);
                request.operation = match end {
                    SendEnd::Nothing => Operation::Send,
                    SendEnd::Immediate(immediate) => Operation::SendImmediate { immediate },
                    SendEnd::Invalidate(rkey) => Operation::SendInvalidate { rkey },
                };
            }
            Body::Write { place, range, immediate } => {
                let before = self.begin(place, length, range, true)?;
                let Some(range) = before.map_or(range, |current| current.range) else { return Err(OutOfPlace) };
                self.set_length(&mut request, before, place, length);
                offset = before.map_or(0, |current| current.offset);
                let end = offset + u64::from(length);
                let whole = u64::from(range.length);
                let ends_in_place = if place.is_last() { end == whole } else { end < whole };
                if !ends_in_place || range.length > MAX_MSG_SIZE {
                    return Err(OutOfPlace);
                }
                request.length = range.length.into();
                // The QP keeps the first part of a write, whose length is known.
                request.packets = packet_count(range.length.into(), self.mtu);
                let Range { address, rkey, .. } = range;
                request.operation = match immediate {
                    Some(immediate) => Operation::WriteImmediate { address, rkey, immediate },
                    None => Operation::Write { address, rkey },
                };
            }
            _ if self.current.is_some() => return Err(OutOfPlace),
            Body::Read(Range { address, rkey, length }) => {
                if length > MAX_MSG_SIZE {
                    return Err(OutOfPlace);
                }
                request.operation = Operation::Read { address, rkey };
                request.length = length.into();
                request.packets = packet_count(length.into(), self.mtu);
            }
            Body::CompareSwap { address, rkey, compare, swap } => {
                request.operation = Operation::CompareSwap { address, rkey, compare, swap };
                request.length = 8;
            }
            Body::FetchAdd { address, rkey, add } => {
                request.operation = Operation::FetchAdd { address, rkey, add };
                request.length = 8;
            }
            Body::AtomicWrite(Range { address, rkey, .. }) => {
                request.operation = Operation::AtomicWrite { address, rkey };
                request.length = length.into();
            }
            Body::Flush { range: Range { address, rkey, length }, placement, level } => {
                request.operation = Operation::Flush { address, rkey, length: length.into(), placement, level };
            }
            Body::ReadResponse { .. } | Body::Acknowledge(_) | Body::AtomicAcknowledge { .. } | Body::Congestion => {
                return Err(OutOfPlace);
            }
        }
        Ok(Part { number: self.number, request, offset, length, attempt: 0 })
    }

    /// Returns a message that the QP refuses as an invalid request: no packet asks for the operation. The packet with this
    /// PSN is not the one that is due.
    pub(super) fn invalid(&mut self, psn: u32) -> Part {
        let psn = self.current.take().map_or(psn, |current| current.psn);
        let request = Request { operation: Operation::Bind, psn, packets: 1, length: 0, ..self.template };
        Part { number: self.number, request, offset: 0, length: 0, attempt: 0 }
    }

    /// Checks that a packet of a send or a write has the place that is due, and the length of this place. Returns the
    /// message that it continues, if any.
    fn begin(
        &self,
        place: Place,
        length: u32,
        range: Option<Range>,
        is_write: bool,
    ) -> Result<Option<Current>, OutOfPlace> {
        let is_due = match &self.current {
            Some(current) => !place.is_first() && current.range.is_some() == is_write,
            None => place.is_first() && range.is_some() == is_write,
        };
        let is_long = match place {
            Place::First | Place::Middle => length == self.mtu,
            Place::Last => length >= 1 && length <= self.mtu,
            Place::Only => length <= self.mtu,
        };
        if is_due && is_long { Ok(self.current) } else { Err(OutOfPlace) }
    }

    /// Sets the length of a message and its number of packets, which are known with its last packet.
    fn set_length(&self, request: &mut Request, before: Option<Current>, place: Place, length: u32) {
        let first = Current { psn: request.psn, offset: 0, range: None };
        let Current { psn, offset, .. } = before.unwrap_or(first);
        // The conversion is lossless, because the PSN is the next one of the message.
        request.packets = distance(psn, request.psn) as u32 + 1;
        request.psn = psn;
        request.length = if place.is_last() { offset + u64::from(length) } else { UNKNOWN_LENGTH };
    }

    /// Records that a part was accepted, after which the next one is due.
    pub(super) fn accepted(&mut self, part: &Part) {
        let request = &part.request;
        let end = part.offset + u64::from(part.length);
        let is_open = request.operation.has_data() && (request.length == UNKNOWN_LENGTH || end < request.length);
        self.current = is_open.then(|| {
            let range = match request.operation {
                // The conversion is lossless, because a write has at most 2 GiB.
                Operation::Write { address, rkey } => Some(Range { address, rkey, length: request.length as u32 }),
                _ => None,
            };
            Current { psn: request.psn, offset: end, range }
        });
    }
}
