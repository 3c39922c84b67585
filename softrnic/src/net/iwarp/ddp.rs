//! The headers of a segment, which contain the DDP control, the RDMAP control and the placement (RFC 5041, section 4).

use arrayvec::ArrayVec;

use super::code::Code;
use super::rdmap::Opcode;
use super::take;

/// The length of the headers of a tagged segment.
pub(super) const TAGGED: usize = 14;
/// The length of the headers of an untagged segment.
pub(super) const UNTAGGED: usize = 18;

const IS_TAGGED: u8 = 0x80;
const IS_LAST: u8 = 0x40;
const DDP_VERSION: u8 = 0x03;
const RDMAP_VERSION: u8 = 0xc0;
pub(super) const OPCODE: u8 = 0x0f;

/// The headers of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) opcode: Opcode,
    pub(super) is_last: bool,
    pub(super) placement: Placement,
}

/// The destination of the payload of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    Tagged {
        stag: u32,
        offset: u64,
    },
    /// `invalidate` has a meaning only in a Send with Invalidate.
    Untagged {
        invalidate: u32,
        queue: u32,
        msn: u32,
        offset: u32,
    },
}

/// Returns the length of the headers that begin with this byte.
pub(super) fn header_length(first: u8) -> usize {
    if first & IS_TAGGED != 0 { TAGGED } else { UNTAGGED }
}

impl Header {
    /// Parses the headers of a segment, and returns them and the payload.
    pub(super) fn parse(segment: &[u8]) -> Result<(Self, &[u8]), Code> {
        let mut rest = segment;
        let Some([ddp, rdmap]) = take(&mut rest) else {
            return Err(Code::UNSPECIFIED);
        };
        let is_tagged = ddp & IS_TAGGED != 0;
        if ddp & DDP_VERSION != 1 {
            return Err(if is_tagged { Code::TAGGED_VERSION } else { Code::UNTAGGED_VERSION });
        }
        if rdmap & RDMAP_VERSION != 1 << 6 {
            return Err(Code::RDMAP_VERSION);
        }
        let opcode = Opcode::parse(rdmap & OPCODE).ok_or(Code::OPCODE)?;
        let fields = if is_tagged { tagged(&mut rest) } else { untagged(&mut rest) };
        let placement = fields.ok_or(Code::UNSPECIFIED)?;
        match placement {
            Placement::Untagged { queue, .. } if queue as usize >= super::rdmap::QUEUES => return Err(Code::QUEUE),
            Placement::Untagged { queue, .. } if opcode.queue() != Some(queue) => return Err(Code::OPCODE),
            Placement::Tagged { .. } if opcode.queue().is_some() => return Err(Code::OPCODE),
            _ => {}
        }
        Ok((Self { opcode, is_last: ddp & IS_LAST != 0, placement }, rest))
    }

    pub(super) fn bytes(&self) -> ArrayVec<u8, UNTAGGED> {
        let kind = if matches!(self.placement, Placement::Tagged { .. }) { IS_TAGGED } else { 0 };
        let last = if self.is_last { IS_LAST } else { 0 };
        let mut out = ArrayVec::new();
        out.extend([kind | last | 1, 1 << 6 | self.opcode.number()]);
        match self.placement {
            Placement::Tagged { stag, offset } => {
                out.extend(stag.to_be_bytes());
                out.extend(offset.to_be_bytes());
            }
            Placement::Untagged { invalidate, queue, msn, offset } => {
                out.extend([invalidate, queue, msn, offset].into_iter().flat_map(u32::to_be_bytes));
            }
        }
        out
    }
}

fn tagged(bytes: &mut &[u8]) -> Option<Placement> {
    let stag = u32::from_be_bytes(take(bytes)?);
    Some(Placement::Tagged { stag, offset: u64::from_be_bytes(take(bytes)?) })
}

fn untagged(bytes: &mut &[u8]) -> Option<Placement> {
    let mut word = || take(bytes).map(u32::from_be_bytes);
    Some(Placement::Untagged { invalidate: word()?, queue: word()?, msn: word()?, offset: word()? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_have_the_layout_of_the_rfcs() {
        let placement = Placement::Untagged { invalidate: 0, queue: 1, msn: 2, offset: 3 };
        let header = Header { opcode: Opcode::ReadRequest, is_last: true, placement };
        assert_eq!(header.bytes()[..], [0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
        let placement = Placement::Tagged { stag: 0x0102_0304, offset: 5 };
        let header = Header { opcode: Opcode::Write, is_last: false, placement };
        assert_eq!(header.bytes()[..], [0x81, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5]);
    }

    #[test]
    fn invalid_headers_name_the_error_of_the_rfcs() {
        let error = |first: u8, second: u8, queue: u8| {
            let mut bytes = [0; UNTAGGED];
            (bytes[0], bytes[1], bytes[9]) = (first, second, queue);
            Header::parse(&bytes).unwrap_err()
        };
        assert_eq!(error(0x42, 0x43, 0), Code::UNTAGGED_VERSION);
        assert_eq!(error(0xc2, 0x40, 0), Code::TAGGED_VERSION);
        assert_eq!(error(0x41, 0x83, 0), Code::RDMAP_VERSION);
        assert_eq!(error(0x41, 0x4c, 0), Code::OPCODE);
        assert_eq!(error(0x41, 0x43, 1), Code::OPCODE, "a Send on the queue of Read Requests");
        assert_eq!(error(0xc1, 0x43, 0), Code::OPCODE, "a tagged Send");
        assert_eq!(error(0x41, 0x40, 0), Code::OPCODE, "an untagged Write");
        assert_eq!(error(0x41, 0x43, 4), Code::QUEUE);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

        #[test]
        fn accepted_headers_are_emitted_as_the_same_bytes(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..40), opcode in 0..12_u8, queue in 0..5_u8,
        ) {
            if let [first, second, .., ] = &mut bytes[..] {
                *first = *first & 0xc0 | 1;
                *second = 0x40 | opcode;
            }
            if let Some(field) = bytes.get_mut(6..10) {
                field.copy_from_slice(&[0, 0, 0, queue]);
            }
            match Header::parse(&bytes) {
                Ok((header, payload)) => {
                    prop_assert_eq!(header.bytes().len(), header_length(bytes[0]));
                    prop_assert_eq!([&header.bytes()[..], payload].concat(), bytes);
                }
                Err(code) => prop_assert_ne!(code, Code::RDMAP_VERSION),
            }
        }
    }
}
