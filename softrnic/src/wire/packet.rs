//! What goes between queue pairs that are not in one process: messages in parts, and their answers.

use crate::wire::bytes::Segment;
use crate::wire::message::{Reply, Request};

/// The most bytes that a part carries.
pub(crate) const MAX_PAYLOAD: u32 = 16 << 10;

/// The last number of a queue pair or of a packet: they have 24 bits.
pub(crate) const MAX_NUMBER: u32 = (1 << 24) - 1;

/// The number that a datagram to a multicast group names.
pub(crate) const MULTICAST_NUMBER: u32 = 0xff_ffff;

/// The numbers of a block, which one process has to itself: a number's block is `number / BLOCK`.
pub(crate) const BLOCK: u32 = 4096;

/// A part of a message, on its way to a responder. The parts of a message come in order; between them may be those of other queue
/// pairs. A message without data, and one that asks for data, is one part without payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The queue pair that it goes to; of datagrams to a group [`MULTICAST_NUMBER`].
    pub(crate) number: u32,
    /// The message. Its `length` is that of the whole.
    pub(crate) request: Request,
    /// Where in the message's data the payload stands.
    pub(crate) offset: u64,
    /// The bytes of the payload.
    pub(crate) length: u32,
    /// Comes back with the answer, so that those of attempts that were given up are known.
    pub(crate) attempt: u32,
}

impl Part {
    /// Whether it is the last of its message.
    #[inline]
    pub(crate) fn is_last(&self) -> bool {
        let has_data = self.request.operation.has_data();
        !has_data || self.offset.saturating_add(self.length.into()) >= self.request.length
    }
}

/// What a responder has to say to a message, on its way to the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The queue pair that the message came from.
    pub(crate) number: u32,
    /// The queue pair that answers.
    pub(crate) source_number: u32,
    /// Those of the message.
    pub(crate) psn: u32,
    pub(crate) attempt: u32,
    pub(crate) kind: AnswerKind,
}

/// Of one message: any data first, in order, then the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// Data that a read asked for.
    Data {
        offset: u64,
        length: u32,
    },
    Reply(Reply),
}

/// Either of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packet {
    Part(Part),
    Answer(Answer),
}

impl Packet {
    /// The bytes of the payload.
    #[inline]
    pub(crate) fn length(&self) -> u32 {
        match self {
            Self::Part(part) => part.length,
            Self::Answer(Answer { kind: AnswerKind::Data { length, .. }, .. }) => *length,
            Self::Answer(_) => 0,
        }
    }
}

/// Where the payload of a packet is. It has as many bytes as the packet says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'p> {
    Bytes(&'p [u8]),
    Memory(&'p [Segment]),
}

/// The packets that a message of `length` bytes takes at this MTU: one also where it is empty.
pub(crate) fn packet_count(length: u64, mtu: u32) -> u32 {
    let packets = length.div_ceil(u64::from(mtu.max(1))).max(1);
    // Numbers go round, so more than fit are as good as what is left of them; messages end at 2 GiB anyway.
    u32::try_from(packets).unwrap_or(MAX_NUMBER)
}

/// The number that many packets after `psn`.
pub(crate) fn psn_after(psn: u32, packets: u32) -> u32 {
    psn.wrapping_add(packets) & MAX_NUMBER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_a_packet_per_mtu() {
        assert_eq!(packet_count(0, 1024), 1);
        assert_eq!(packet_count(1, 1024), 1);
        assert_eq!(packet_count(1024, 1024), 1);
        assert_eq!(packet_count(1025, 1024), 2);
        assert_eq!(packet_count(1 << 31, 256), 1 << 23);
    }

    #[test]
    fn numbers_go_round_at_24_bits() {
        assert_eq!(psn_after(0xff_fffe, 1), 0xff_ffff);
        assert_eq!(psn_after(0xff_ffff, 1), 0);
        assert_eq!(psn_after(0xff_ffff, 3), 2);
    }
}
