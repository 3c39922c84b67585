//! The Terminate message (RFC 5040, section 4.8).

use std::fmt;

use arrayvec::ArrayVec;

use super::ddp::UNTAGGED;
use super::rdmap::ReadRequest;

/// The layer (4 bits), the type (4 bits) and the code (8 bits) of an error. The peer may send any value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(super) u16);

macro_rules! codes {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Code {
            $(pub(super) const $name: Self = Self($value);)*
        }

        impl fmt::Debug for Code {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($value => f.write_str($text),)*
                    unknown => write!(f, "unknown error {unknown:#06x}"),
                }
            }
        }
    };
}

codes! {
    READ_STAG = 0x0100, "RDMAP: invalid STag";
    READ_BOUNDS = 0x0101, "RDMAP: base or bounds";
    ACCESS = 0x0102, "RDMAP: access rights";
    READ_DOMAIN = 0x0103, "RDMAP: STag of another stream";
    INVALIDATION = 0x0109, "RDMAP: STag cannot be invalidated";
    RDMAP_VERSION = 0x0205, "RDMAP: invalid version";
    OPCODE = 0x0206, "RDMAP: unexpected opcode";
    UNSPECIFIED = 0x02ff, "RDMAP: unspecified error";
    TAGGED_STAG = 0x1100, "DDP: invalid STag";
    TAGGED_BOUNDS = 0x1101, "DDP: bounds of the tagged buffer";
    TAGGED_DOMAIN = 0x1102, "DDP: STag of another stream";
    TAGGED_WRAP = 0x1103, "DDP: wrap of the tagged offset";
    TAGGED_VERSION = 0x1104, "DDP: invalid version of a tagged segment";
    QUEUE = 0x1201, "DDP: invalid queue number";
    NO_BUFFER = 0x1202, "DDP: no buffer available";
    MSN = 0x1203, "DDP: MSN out of range";
    OFFSET = 0x1204, "DDP: invalid message offset";
    TOO_LONG = 0x1205, "DDP: message too long for its buffer";
    UNTAGGED_VERSION = 0x1206, "DDP: invalid version of an untagged segment";
    CRC = 0x2002, "MPA: CRC error";
    FRAME = 0x2003, "MPA: invalid frame";
    IRD = 0x2006, "MPA: insufficient IRD";
    RTR = 0x2007, "MPA: no matching RTR";
}

const HAS_LENGTH: u8 = 0x80;
const HAS_DDP: u8 = 0x40;
const HAS_RDMAP: u8 = 0x20;

/// An error, and the headers of the segment that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terminate {
    pub(super) code: Code,
    pub(super) cause: Option<Cause>,
}

/// The segment that caused an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    length: u16,
    /// The DDP header of the segment. If the segment is a Read Request, the fields of the request follow.
    header: ArrayVec<u8, { UNTAGGED + ReadRequest::LENGTH }>,
    has_rdmap: bool,
}

impl Cause {
    /// Describes a segment. `header` is the length of its DDP header. If the segment is a Read Request, its fields
    /// follow this header.
    pub(super) fn new(segment: &[u8], header: usize, is_read_request: bool) -> Self {
        let length = header + if is_read_request { ReadRequest::LENGTH } else { 0 };
        Self {
            // The conversion is lossless, because the length of a segment has 16 bits.
            length: segment.len() as u16,
            header: segment.iter().take(length).copied().collect(),
            has_rdmap: is_read_request && segment.len() >= length,
        }
    }
}

impl Terminate {
    pub(super) fn new(code: Code) -> Self {
        Self { code, cause: None }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = self.code.0.to_be_bytes().to_vec();
        match &self.cause {
            Some(cause) => {
                out.extend([HAS_LENGTH | HAS_DDP | if cause.has_rdmap { HAS_RDMAP } else { 0 }, 0]);
                out.extend(cause.length.to_be_bytes());
                out.extend(&cause.header);
            }
            None => out.extend([0, 0]),
        }
        out
    }

    /// Parses the code of the error. The headers of the segment are ignored, because they only help a reader of a
    /// packet capture.
    pub(super) fn parse(bytes: &[u8]) -> Option<Code> {
        let (&[a, b, _, _], _) = bytes.split_first_chunk()?;
        Some(Code(u16::from_be_bytes([a, b])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_segment() {
        let segment: Vec<u8> = (0..50).collect();
        let terminate = Terminate { code: Code::TAGGED_BOUNDS, cause: Some(Cause::new(&segment, 14, false)) };
        let bytes = terminate.bytes();
        assert_eq!(bytes[..6], [0x11, 1, 0xc0, 0, 0, 50]);
        assert_eq!(bytes[6..], segment[..14]);
        assert_eq!(Terminate::parse(&bytes), Some(Code::TAGGED_BOUNDS));
    }

    #[test]
    fn message_about_a_read_request_has_its_fields() {
        let bytes = Terminate { code: Code::ACCESS, cause: Some(Cause::new(&[7; 46], 18, true)) }.bytes();
        assert_eq!(bytes[..6], [1, 2, 0xe0, 0, 0, 46]);
        assert_eq!(bytes[6..], [7; 46]);
        let short = Terminate { code: Code::ACCESS, cause: Some(Cause::new(&[7; 45], 18, true)) }.bytes();
        assert_eq!((short[2], short.len()), (0xc0, 6 + 45));
    }

    #[test]
    fn unknown_code_is_printed() {
        assert_eq!(format!("{:?}", Code(0x7abc)), "unknown error 0x7abc");
        assert_eq!(format!("{:?}", Code::CRC), "MPA: CRC error");
        assert_eq!(Terminate::parse(&[1, 2, 3]), None);
        assert_eq!(Terminate::parse(&Terminate::new(Code::RTR).bytes()), Some(Code::RTR));
    }
}
