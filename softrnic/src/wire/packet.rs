//! The packets between QPs of different processes. They are parts of messages, and responses to messages.

use crate::wire::bytes::{Fault, Segment, append_bytes};
use crate::wire::message::{Reply, Request};

/// The destination QP number of iWARP messages, because iWARP peers have no QP number.
pub(crate) const STREAM_PEER: u32 = 1;

/// The largest payload of a part in bytes.
pub(crate) const MAX_PAYLOAD: u32 = 16 << 10;

/// The largest QP number and the largest PSN. Both have 24 bits.
pub(crate) const MAX_NUMBER: u32 = (1 << 24) - 1;

/// The destination QP number of multicast datagrams.
pub(crate) const MULTICAST_NUMBER: u32 = 0xff_ffff;

/// The size of a block of QP numbers. Each block belongs to one process. The block of a number is `number / BLOCK`.
pub(crate) const BLOCK: u32 = 4096;

/// A part of a message to a responder. The parts of a message arrive in order, but parts for other QPs may arrive
/// between them. A message without data and a message that requests data consist of one part without payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The number of the destination QP, which is [`MULTICAST_NUMBER`] for multicast datagrams.
    pub(crate) number: u32,
    /// The message, whose `length` is the length of the whole message.
    pub(crate) request: Request,
    /// The offset of the payload in the data of the message.
    pub(crate) offset: u64,
    /// The length of the payload in bytes.
    pub(crate) length: u32,
    /// The number of the attempt. The response contains it too, so that the requester can ignore the responses to
    /// attempts that it has abandoned.
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
    /// The QP number of the requester.
    pub(crate) number: u32,
    /// The QP number of the responder.
    pub(crate) source_number: u32,
    /// The PSN and the attempt of the message to which this packet responds.
    pub(crate) psn: u32,
    pub(crate) attempt: u32,
    pub(crate) kind: ResponseKind,
}

/// The content of a response. If a message is a read, its data arrives first, in order. Every message then gets one
/// reply.
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
    /// The length of the payload in bytes.
    #[inline]
    pub(crate) fn length(&self) -> u32 {
        match self {
            Self::Part(part) => part.length,
            Self::Response(Response { kind: ResponseKind::Data { length, .. }, .. }) => *length,
            Self::Response(_) => 0,
        }
    }
}

/// The payload of a packet. Its length is the one that the packet states.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'p> {
    Bytes(&'p [u8]),
    Memory(&'p [Segment]),
}

impl Payload<'_> {
    /// Appends the bytes of the payload, which has this length.
    pub(crate) fn append_to(self, bytes: &mut Vec<u8>, length: u32) -> Result<(), Fault> {
        match self {
            Self::Bytes(payload) => bytes.extend_from_slice(payload),
            Self::Memory(segments) => append_bytes(segments, length as usize, bytes)?,
        }
        Ok(())
    }
}

/// Returns how many packets a message of `length` bytes has at this MTU, which is at least one.
pub(crate) fn packet_count(length: u64, mtu: u32) -> u32 {
    let packets = length.div_ceil(u64::from(mtu.max(1))).max(1);
    // No message exceeds 2 GiB, so the exact value of a larger count does not matter.
    u32::try_from(packets).unwrap_or(MAX_NUMBER)
}

/// Returns the PSN that is `packets` packets after `psn`.
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
