//! Packets between QPs of different processes: parts of messages, and their responses.

use crate::wire::bytes::Segment;
use crate::wire::message::{Reply, Request};

/// The destination QP number of iWARP messages; iWARP peers have no QP number.
pub(crate) const STREAM_PEER: u32 = 1;

/// Largest payload of a part.
pub(crate) const MAX_PAYLOAD: u32 = 16 << 10;

/// The largest QP number or PSN, which have 24 bits.
pub(crate) const MAX_NUMBER: u32 = (1 << 24) - 1;

/// The destination QP number of multicast datagrams.
pub(crate) const MULTICAST_NUMBER: u32 = 0xff_ffff;

/// Size of a block of QP numbers. One process owns a block; the block of a number is `number / BLOCK`.
pub(crate) const BLOCK: u32 = 4096;

/// A part of a message to a responder. The parts of a message arrive in order; parts of other QPs may come between
/// them. A message without data, or one that requests data, is one part without payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The destination QP; [`MULTICAST_NUMBER`] for multicast datagrams.
    pub(crate) number: u32,
    /// The message, whose `length` is the length of the whole message.
    pub(crate) request: Request,
    /// Offset of the payload in the message's data.
    pub(crate) offset: u64,
    /// Length of the payload in bytes.
    pub(crate) length: u32,
    /// The number of the attempt. The response returns it, so that responses to abandoned attempts are recognized.
    pub(crate) attempt: u32,
}

impl Part {
    #[inline]
    pub(crate) fn is_last(&self) -> bool {
        let has_data = self.request.operation.has_data();
        !has_data || self.offset.saturating_add(self.length.into()) >= self.request.length
    }
}

/// A responder's response to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// The requester's QP.
    pub(crate) number: u32,
    /// The responder's QP.
    pub(crate) source_number: u32,
    /// The PSN and the attempt of the message.
    pub(crate) psn: u32,
    pub(crate) attempt: u32,
    pub(crate) kind: ResponseKind,
}

/// The responses to one message: the data of a read, in order, then the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// Data of a read.
    Data {
        offset: u64,
        length: u32,
    },
    Reply(Reply),
}

/// A part or a response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packet {
    Part(Part),
    Response(Response),
}

impl Packet {
    /// Length of the payload in bytes.
    #[inline]
    pub(crate) fn length(&self) -> u32 {
        match self {
            Self::Part(part) => part.length,
            Self::Response(Response { kind: ResponseKind::Data { length, .. }, .. }) => *length,
            Self::Response(_) => 0,
        }
    }
}

/// The payload of a packet, with the length that the packet states.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'p> {
    Bytes(&'p [u8]),
    Memory(&'p [Segment]),
}

/// The number of packets of a message of `length` bytes at this MTU; at least one.
pub(crate) fn packet_count(length: u64, mtu: u32) -> u32 {
    let packets = length.div_ceil(u64::from(mtu.max(1))).max(1);
    // PSNs wrap around, so the remainder of a larger count is enough. No message exceeds 2 GiB anyway.
    u32::try_from(packets).unwrap_or(MAX_NUMBER)
}

/// The PSN `packets` packets after `psn`.
pub(crate) fn psn_after(psn: u32, packets: u32) -> u32 {
    psn.wrapping_add(packets) & MAX_NUMBER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_takes_one_packet_per_mtu() {
        assert_eq!(packet_count(0, 1024), 1);
        assert_eq!(packet_count(1, 1024), 1);
        assert_eq!(packet_count(1024, 1024), 1);
        assert_eq!(packet_count(1025, 1024), 2);
        assert_eq!(packet_count(1 << 31, 256), 1 << 23);
    }

    #[test]
    fn psn_wraps_at_24_bits() {
        assert_eq!(psn_after(0xff_fffe, 1), 0xff_ffff);
        assert_eq!(psn_after(0xff_ffff, 1), 0);
        assert_eq!(psn_after(0xff_ffff, 3), 2);
    }
}
