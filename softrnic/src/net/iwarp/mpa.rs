//! The start-up frames of MPA (RFC 5044, section 7.1, and RFC 6581, section 9).

/// The maximum length of the private data of a frame.
pub(super) const MAX_PRIVATE: usize = 512;

/// The maximum length of the private data that this end sends. The kernel's siw ends the connection if it receives
/// more.
pub(super) const MAX_SENT: usize = 256;
/// The length of the fields of revision 2.
pub(super) const ENHANCED_LENGTH: usize = 4;

/// The length of a frame without its private data.
pub(super) const HEADER: usize = 20;

const REQUEST: [u8; 16] = *b"MPA ID Req Frame";
const REPLY: [u8; 16] = *b"MPA ID Rep Frame";

const MARKERS: u16 = 0x8000;
const CRC: u16 = 0x4000;
const REJECT: u16 = 0x2000;
const ENHANCED: u16 = 0x1000;
const REVISION: u16 = 0x00ff;

/// A start-up frame, which is a request or a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) is_reply: bool,
    pub(super) revision: u8,
    /// Whether the sender of the frame requires markers in the stream that it receives.
    pub(super) has_markers: bool,
    pub(super) has_crc: bool,
    pub(super) is_reject: bool,
    pub(super) enhanced: Option<Enhanced>,
    /// The private data, without the fields of `enhanced`.
    pub(super) private: Vec<u8>,
}

/// The read limits and the ready-to-receive (RTR) frames of revision 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Enhanced {
    /// The maximum number of inbound reads that the sender of the frame can serve at a time.
    pub(super) ird: u16,
    /// The maximum number of outbound reads that the sender of the frame has in flight.
    pub(super) ord: u16,
    /// Whether the initiator sends an RTR frame. After this frame, the responder may send before the initiator does.
    pub(super) is_peer_to_peer: bool,
    pub(super) rtr: RtrKinds,
}

/// The kinds of RTR frames that one end supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RtrKinds {
    pub(super) fpdu: bool,
    pub(super) write: bool,
    pub(super) read: bool,
}

/// The value of a read limit that the peer leaves open.
pub(super) const ANY_DEPTH: u16 = 0x3fff;
const FIRST_FLAG: u16 = 0x8000;
const SECOND_FLAG: u16 = 0x4000;

/// The reason why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// The bytes do not begin with the key of this frame.
    Key,
    /// The private data exceeds [`MAX_PRIVATE`].
    Length,
    /// The private data is too short for the fields of revision 2.
    Enhanced,
}

impl Frame {
    /// Parses the frame at the start of `bytes`, and returns the frame and its length. Returns `None` if more bytes are
    /// needed.
    pub(super) fn parse(bytes: &[u8], is_reply: bool) -> Result<Option<(Self, usize)>, Malformed> {
        let key = if is_reply { REPLY } else { REQUEST };
        if !key.starts_with(bytes) && !bytes.starts_with(&key) {
            return Err(Malformed::Key);
        }
        let Some(([.., a, b, c, d], rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let (flags, length) = (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d])));
        if length > MAX_PRIVATE {
            return Err(Malformed::Length);
        }
        let Some(mut private) = rest.get(..length) else {
            return Ok(None);
        };
        let revision = (flags & REVISION) as u8;
        let mut enhanced = None;
        if revision >= 2 && flags & ENHANCED != 0 {
            enhanced = Some(super::take(&mut private).map(Enhanced::of_bytes).ok_or(Malformed::Enhanced)?);
        }
        let frame = Self {
            is_reply,
            revision,
            has_markers: flags & MARKERS != 0,
            has_crc: flags & CRC != 0,
            is_reject: is_reply && flags & REJECT != 0,
            enhanced,
            private: private.to_vec(),
        };
        Ok(Some((frame, HEADER + length)))
    }

    /// Appends the frame to `out`. Returns `false` if the private data is too long.
    #[must_use]
    pub(super) fn emit(&self, out: &mut Vec<u8>) -> bool {
        let length = self.private.len() + self.enhanced.map_or(0, |_| ENHANCED_LENGTH);
        if length > MAX_SENT {
            return false;
        }
        let bit = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
        let flags = u16::from(self.revision)
            | bit(self.has_markers, MARKERS)
            | bit(self.has_crc, CRC)
            | bit(self.is_reject, REJECT)
            | bit(self.enhanced.is_some(), ENHANCED);
        out.extend(if self.is_reply { REPLY } else { REQUEST });
        out.extend(flags.to_be_bytes());
        // The conversion is lossless, because the length is at most `MAX_SENT`.
        out.extend((length as u16).to_be_bytes());
        out.extend(self.enhanced.iter().flat_map(|enhanced| enhanced.bytes()));
        out.extend(&self.private);
        true
    }
}

impl Enhanced {
    fn of_bytes([a, b, c, d]: [u8; 4]) -> Self {
        let (ird, ord) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Self {
            ird: ird & ANY_DEPTH,
            ord: ord & ANY_DEPTH,
            is_peer_to_peer: ird & FIRST_FLAG != 0,
            rtr: RtrKinds { fpdu: ird & SECOND_FLAG != 0, write: ord & FIRST_FLAG != 0, read: ord & SECOND_FLAG != 0 },
        }
    }

    fn bytes(self) -> [u8; 4] {
        let field = |depth: u16, first: bool, second: bool| {
            depth.min(ANY_DEPTH) | if first { FIRST_FLAG } else { 0 } | if second { SECOND_FLAG } else { 0 }
        };
        let [a, b] = field(self.ird, self.is_peer_to_peer, self.rtr.fpdu).to_be_bytes();
        let [c, d] = field(self.ord, self.rtr.write, self.rtr.read).to_be_bytes();
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request() -> Frame {
        let rtr = RtrKinds { fpdu: false, write: true, read: true };
        let enhanced = Some(Enhanced { ird: 16, ord: 128, is_peer_to_peer: true, rtr });
        Frame {
            is_reply: false,
            revision: 2,
            has_markers: false,
            has_crc: true,
            is_reject: false,
            enhanced,
            private: b"hello".to_vec(),
        }
    }

    #[test]
    fn request_has_the_layout_of_the_rfcs() {
        let mut bytes = Vec::new();
        assert!(request().emit(&mut bytes));
        assert_eq!(&bytes[..16], b"MPA ID Req Frame");
        assert_eq!(bytes[16..24], [0x50, 2, 0, 9, 0x80, 16, 0xc0, 128]);
        assert_eq!(&bytes[24..], b"hello");
    }

    #[test]
    fn incomplete_frame_needs_more_bytes_at_every_cut() {
        let mut bytes = Vec::new();
        assert!(request().emit(&mut bytes));
        let length = bytes.len();
        bytes.extend(b"next");
        for cut in 0..length {
            assert_eq!(Frame::parse(&bytes[..cut], false), Ok(None), "{cut}");
        }
        assert_eq!(Frame::parse(&bytes, false), Ok(Some((request(), length))));
    }

    #[test]
    fn malformed_frames_are_refused() {
        let mut bytes = Vec::new();
        assert!(request().emit(&mut bytes));
        assert_eq!(Frame::parse(&bytes, true), Err(Malformed::Key));
        assert_eq!(Frame::parse(b"GET /", false), Err(Malformed::Key));
        bytes[18..20].copy_from_slice(&513_u16.to_be_bytes());
        assert_eq!(Frame::parse(&bytes, false), Err(Malformed::Length));
        bytes[18..20].copy_from_slice(&3_u16.to_be_bytes());
        assert_eq!(Frame::parse(&bytes, false), Err(Malformed::Enhanced));
    }

    #[test]
    fn private_data_beyond_the_limit_is_not_sent() {
        let mut frame = request();
        frame.private = vec![0; MAX_SENT - ENHANCED_LENGTH];
        assert!(frame.emit(&mut Vec::new()));
        frame.private.push(0);
        assert!(!frame.emit(&mut Vec::new()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

        #[test]
        fn accepted_frames_are_emitted_as_the_same_bytes(
            flags: u8, revision in 0..4_u8, private in proptest::collection::vec(any::<u8>(), 0..64), is_reply: bool,
        ) {
            let mut bytes = if is_reply { REPLY.to_vec() } else { REQUEST.to_vec() };
            // Bits that have no meaning are not preserved.
            let kept = if is_reply { 0xe0 } else { 0xc0 } | if revision >= 2 { 0x10 } else { 0 };
            bytes.extend([flags & kept, revision, 0, private.len() as u8]);
            bytes.extend(&private);
            if let Ok(parsed) = Frame::parse(&bytes, is_reply) {
                let (frame, length) = parsed.unwrap();
                prop_assert_eq!(length, bytes.len());
                let mut again = Vec::new();
                prop_assert!(frame.emit(&mut again));
                prop_assert_eq!(again, bytes);
            } else {
                prop_assert!(private.len() < 4);
            }
        }
    }
}
