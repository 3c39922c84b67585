//! The Terminate message (RFC 5040, section 4.8).

use arrayvec::ArrayVec;

use super::code::Code;
use super::ddp::UNTAGGED;
use super::rdmap::ReadRequest;

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
