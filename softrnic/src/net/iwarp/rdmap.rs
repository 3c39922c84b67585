//! The opcodes, and the RDMAP messages that consist of fields (RFC 5040, section 4, and RFC 7306, section 5).

use super::take;

/// The opcode of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Write,
    ReadRequest,
    ReadResponse,
    Send { is_solicited: bool, invalidates: bool },
    Terminate,
    Immediate { is_solicited: bool },
    AtomicRequest,
    AtomicResponse,
}

/// The number of untagged queues.
pub(super) const QUEUES: usize = 4;

impl Opcode {
    pub(super) fn parse(opcode: u8) -> Option<Self> {
        Some(match opcode {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3..=6 => Self::Send { is_solicited: opcode >= 5, invalidates: opcode.is_multiple_of(2) },
            7 => Self::Terminate,
            8 | 9 => Self::Immediate { is_solicited: opcode == 9 },
            10 => Self::AtomicRequest,
            11 => Self::AtomicResponse,
            _ => return None,
        })
    }

    pub(super) fn number(self) -> u8 {
        match self {
            Self::Write => 0,
            Self::ReadRequest => 1,
            Self::ReadResponse => 2,
            Self::Send { is_solicited, invalidates } => 3 + 2 * u8::from(is_solicited) + u8::from(invalidates),
            Self::Terminate => 7,
            Self::Immediate { is_solicited } => 8 + u8::from(is_solicited),
            Self::AtomicRequest => 10,
            Self::AtomicResponse => 11,
        }
    }

    /// Returns the untagged queue of messages with this opcode, or `None` if the messages are tagged.
    pub(super) fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::Send { .. } | Self::Immediate { .. } => Some(0),
            Self::ReadRequest | Self::AtomicRequest => Some(1),
            Self::Terminate => Some(2),
            Self::AtomicResponse => Some(3),
        }
    }
}

/// The fields of a Read Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadRequest {
    pub(super) sink_stag: u32,
    pub(super) sink_offset: u64,
    pub(super) length: u32,
    pub(super) source_stag: u32,
    pub(super) source_offset: u64,
}

impl ReadRequest {
    pub(super) const LENGTH: usize = 28;

    pub(super) fn parse(mut bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::LENGTH {
            return None;
        }
        Some(Self {
            sink_stag: u32::from_be_bytes(take(&mut bytes)?),
            sink_offset: u64::from_be_bytes(take(&mut bytes)?),
            length: u32::from_be_bytes(take(&mut bytes)?),
            source_stag: u32::from_be_bytes(take(&mut bytes)?),
            source_offset: u64::from_be_bytes(take(&mut bytes)?),
        })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LENGTH);
        out.extend(self.sink_stag.to_be_bytes());
        out.extend(self.sink_offset.to_be_bytes());
        out.extend(self.length.to_be_bytes());
        out.extend(self.source_stag.to_be_bytes());
        out.extend(self.source_offset.to_be_bytes());
        out
    }
}

/// The fields of an Atomic Request. The masks are left out, because verbs do not support them and always use all bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtomicRequest {
    pub(super) id: u32,
    pub(super) stag: u32,
    pub(super) offset: u64,
    pub(super) kind: Atomic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Atomic {
    FetchAdd { add: u64 },
    CompareSwap { compare: u64, swap: u64 },
}

impl AtomicRequest {
    const LENGTH: usize = 52;
    const FETCH_ADD: u32 = 0;
    const COMPARE_SWAP: u32 = 2;
    /// If the add mask is zero, the addition carries between all bits.
    const ONE_NUMBER: u64 = 0;
    const ALL_BITS: u64 = u64::MAX;

    /// Parses the fields. Also returns `None` for operations and masks that verbs do not support.
    pub(super) fn parse(mut bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::LENGTH {
            return None;
        }
        let operation = u32::from_be_bytes(take(&mut bytes)?) & 0xf;
        let id = u32::from_be_bytes(take(&mut bytes)?);
        let stag = u32::from_be_bytes(take(&mut bytes)?);
        let offset = u64::from_be_bytes(take(&mut bytes)?);
        let mut word = || take(&mut bytes).map(u64::from_be_bytes);
        let (data, data_mask, compare, compare_mask) = (word()?, word()?, word()?, word()?);
        let kind = match (operation, data_mask, compare_mask) {
            (Self::FETCH_ADD, Self::ONE_NUMBER, _) => Atomic::FetchAdd { add: data },
            (Self::COMPARE_SWAP, Self::ALL_BITS, Self::ALL_BITS) => Atomic::CompareSwap { compare, swap: data },
            _ => return None,
        };
        Some(Self { id, stag, offset, kind })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let (operation, words) = match self.kind {
            Atomic::FetchAdd { add } => (Self::FETCH_ADD, [add, Self::ONE_NUMBER, 0, 0]),
            Atomic::CompareSwap { compare, swap } => {
                (Self::COMPARE_SWAP, [swap, Self::ALL_BITS, compare, Self::ALL_BITS])
            }
        };
        let mut out = Vec::with_capacity(Self::LENGTH);
        out.extend(operation.to_be_bytes());
        out.extend(self.id.to_be_bytes());
        out.extend(self.stag.to_be_bytes());
        out.extend(self.offset.to_be_bytes());
        out.extend(words.into_iter().flat_map(u64::to_be_bytes));
        out
    }
}

/// The fields of an Atomic Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtomicResponse {
    pub(super) id: u32,
    pub(super) original: u64,
}

impl AtomicResponse {
    pub(super) fn parse(mut bytes: &[u8]) -> Option<Self> {
        let (id, original) = (take(&mut bytes)?, take(&mut bytes)?);
        let response = Self { id: u32::from_be_bytes(id), original: u64::from_be_bytes(original) };
        bytes.is_empty().then_some(response)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.id.to_be_bytes().into_iter().chain(self.original.to_be_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_have_the_numbers_of_the_rfcs() {
        for number in 0..=255 {
            assert_eq!(Opcode::parse(number).map(Opcode::number), (number < 12).then_some(number));
        }
        assert_eq!(Opcode::parse(4), Some(Opcode::Send { is_solicited: false, invalidates: true }));
        assert_eq!(Opcode::parse(5), Some(Opcode::Send { is_solicited: true, invalidates: false }));
    }

    #[test]
    fn fields_survive_and_other_lengths_are_refused() {
        let read = ReadRequest { sink_stag: 1, sink_offset: 2, length: 3, source_stag: 4, source_offset: 5 };
        let response = AtomicResponse { id: 6, original: u64::MAX - 7 };
        assert_eq!(ReadRequest::parse(&read.bytes()), Some(read));
        assert_eq!(AtomicResponse::parse(&response.bytes()), Some(response));
        for length in (0..60).filter(|length| *length != ReadRequest::LENGTH) {
            assert_eq!(ReadRequest::parse(&vec![0; length]), None);
        }
        for length in (0..60).filter(|length| *length != 12) {
            assert_eq!(AtomicResponse::parse(&vec![0; length]), None);
        }
    }

    #[test]
    fn atomic_request_with_a_foreign_mask_is_refused() {
        for kind in [Atomic::FetchAdd { add: 9 }, Atomic::CompareSwap { compare: 1, swap: 2 }] {
            let request = AtomicRequest { id: 1, stag: 2, offset: 3, kind };
            let mut bytes = request.bytes();
            assert_eq!(AtomicRequest::parse(&bytes), Some(request));
            assert_eq!(AtomicRequest::parse(&bytes[1..]), None);
            bytes[35] ^= 1;
            assert_eq!(AtomicRequest::parse(&bytes), None);
            bytes[3] = 1;
            assert_eq!(AtomicRequest::parse(&bytes), None);
        }
    }
}
