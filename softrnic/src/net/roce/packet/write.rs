//! Writing packets.

use super::{
    ACK, ASKS, Acknowledgement, BECN, Body, MIGRATED, NAK, NO_CREDITS, NOT_READY, NOTIFICATION, Nak, PADDING, Packet,
    Range, SOLICITED, SendEnd, Syndrome, Transport,
};

/// The length of the longest headers: those of an atomic operation of XRC.
const LONGEST: usize = 12 + 4 + 28;

impl Packet {
    /// Appends the packet, its payload and its padding, without the ICRC.
    ///
    /// The headers are those that the transport and the body contain: the caller gives a range to the first packet of a
    /// write alone, and an acknowledgement to all packets of a read response except those in the middle.
    pub(crate) fn write(&self, payload: &[u8], to: &mut Vec<u8>) {
        to.reserve(LONGEST + payload.len() + 3);
        let padding = payload.len().wrapping_neg() % 4;
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        to.push(self.opcode());
        // The conversion is lossless, because the length of the padding is less than 4.
        to.push(bit(self.is_solicited, SOLICITED) | MIGRATED | (padding as u8) << PADDING.trailing_zeros());
        to.extend(self.partition.to_be_bytes());
        to.extend(with_top(bit(self.has_becn, BECN), self.destination));
        to.extend(with_top(bit(self.asks, ASKS), self.psn));
        match self.transport {
            Transport::Datagram { key, source } => {
                to.extend(key.to_be_bytes());
                to.extend(with_top(0, source));
            }
            Transport::Extended { queue } => to.extend(with_top(0, queue)),
            Transport::Reliable | Transport::Unreliable | Transport::ExtendedResponse | Transport::Congestion => {}
        }
        self.body.write(to);
        to.extend(payload);
        to.extend(&[0; 3][..padding]);
    }
}

impl Body {
    fn write(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Send { place, end } => match end {
                SendEnd::Immediate(immediate) if place.is_last() => to.extend(immediate.to_ne_bytes()),
                SendEnd::Invalidate(rkey) if place.is_last() => to.extend(rkey.to_be_bytes()),
                _ => {}
            },
            Self::Write { place, range, immediate } => {
                to.extend(range.iter().flat_map(Range::bytes));
                to.extend(immediate.iter().filter(|_| place.is_last()).flat_map(|immediate| immediate.to_ne_bytes()));
            }
            Self::Read(range) | Self::AtomicWrite(range) => to.extend(range.bytes()),
            Self::CompareSwap { address, rkey, compare, swap } => atomic(to, address, rkey, [swap, compare]),
            Self::FetchAdd { address, rkey, add } => atomic(to, address, rkey, [add, 0]),
            Self::Flush { range, placement, level } => {
                to.extend([0, 0, 0, (level & 3) << 4 | placement & 0xf]);
                to.extend(range.bytes());
            }
            Self::ReadResponse { acknowledgement, .. } => {
                to.extend(acknowledgement.iter().flat_map(Acknowledgement::bytes));
            }
            Self::Acknowledge(acknowledgement) => to.extend(acknowledgement.bytes()),
            Self::AtomicAcknowledge { acknowledgement, original } => {
                to.extend(acknowledgement.bytes());
                to.extend(original.to_be_bytes());
            }
            Self::Congestion => to.extend([0; NOTIFICATION]),
        }
    }
}

/// Returns a number of 24 bits and the byte before it.
fn with_top(top: u8, number: u32) -> [u8; 4] {
    let [_, a, b, c] = number.to_be_bytes();
    [top, a, b, c]
}

fn atomic(to: &mut Vec<u8>, address: u64, rkey: u32, operands: [u64; 2]) {
    to.extend(address.to_be_bytes());
    to.extend(rkey.to_be_bytes());
    to.extend(operands.into_iter().flat_map(u64::to_be_bytes));
}

impl Range {
    fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

impl Acknowledgement {
    fn bytes(&self) -> [u8; 4] {
        let syndrome = match self.syndrome {
            Syndrome::Ack => ACK | NO_CREDITS,
            Syndrome::NotReady(time) => NOT_READY | time & 0x1f,
            Syndrome::Nak(nak) => NAK | nak.code(),
        };
        with_top(syndrome, self.messages)
    }
}

impl Nak {
    fn code(self) -> u8 {
        match self {
            Self::Sequence => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperation => 3,
            Self::InvalidDatagram => 4,
        }
    }
}
