//! The header of a frame, and whole frames.

use super::WireError;

/// Length of a header, in bytes.
pub const HEADER: usize = 32;
/// The protocol's major version.
pub const VERSION: u8 = 1;
/// High nibble of the first byte.
const MAGIC: u8 = 0xb0;
/// The first byte of a TLS record that belongs to the handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The first frame of each side: versions, limits, credits, methods.
    Hello = 1,
    /// A call.
    Request,
    /// The result of a call. The method field contains the status and the credit.
    Response,
    /// The failure of a call. The method field contains the status and the credit.
    Error,
    /// The caller cancels a call. The peer still answers it.
    Cancel,
    /// Grants credit for items of a call, in bytes. If the call id is 0, it grants credit for calls instead.
    Credit,
    /// Requests a `Pong`; the method field contains the number of the ping.
    Ping,
    /// The answer to the last `Ping`, with the number of that ping.
    Pong,
    /// The sender accepts no further calls; the body contains the reason.
    GoAway,
    /// An item of a stream.
    StreamData,
    /// The caller's stream has ended.
    StreamEnd,
    /// Bytes of an attachment or a target, or a request for such bytes.
    Bulk,
}

impl Kind {
    fn parse(byte: u8) -> Option<Self> {
        use Kind::*;
        const ALL: [Kind; 12] =
            [Hello, Request, Response, Error, Cancel, Credit, Ping, Pong, GoAway, StreamData, StreamEnd, Bulk];
        ALL.get(usize::from(byte).wrapping_sub(1)).copied()
    }
}

/// The flags field: codec in bits 0 to 3, number of bulk descriptors in bits 8 to 11.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// The call is idempotent: it may run more than once.
    pub const IDEMPOTENT: u16 = 1 << 6;
    /// The checksum field is set.
    pub const CHECKSUM: u16 = 1 << 12;
    /// The library answered the call; no handler has run.
    pub const REFUSED: u16 = 1 << 7;
    /// The caller sends a stream of items after the request.
    pub const STREAM_IN: u16 = 1 << 13;

    /// Creates flags from a codec and a number of descriptors.
    pub fn new(codec: u8, bulks: usize) -> Self {
        Self(u16::from(codec & 15) | (bulks as u16 & 15) << 8)
    }

    /// Returns the number of the codec.
    pub fn codec(self) -> u8 {
        self.0 as u8 & 15
    }

    /// Returns the number of descriptors at the start of the body.
    pub fn bulks(self) -> usize {
        usize::from(self.0 >> 8 & 15)
    }

    /// Whether a flag is set.
    pub fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the frame.
    pub kind: Kind,
    /// Flags.
    pub flags: Flags,
    /// The number of the call: odd if the connecting side made the call, otherwise even; 0 for no call.
    pub call: u32,
    /// The method. In an answer, this field contains the status in its low half and the credit in its high half. In a
    /// `Bulk` frame, it contains the offset.
    pub method: u64,
    /// The time that is left for the call, in microseconds; 0 means no limit. In a `Bulk` frame, this field contains
    /// the action.
    pub budget: u32,
}

impl Header {
    /// Creates a header whose method and budget are 0.
    pub fn new(kind: Kind, call: u32) -> Self {
        Self { kind, flags: Flags::default(), call, method: 0, budget: 0 }
    }

    /// Creates the header of an answer.
    pub fn answer(kind: Kind, call: u32, status: u32, credit: u32) -> Self {
        Self { method: u64::from(status) | u64::from(credit) << 32, ..Self::new(kind, call) }
    }

    /// Returns the status of an answer.
    pub fn status(&self) -> u32 {
        self.method as u32
    }

    /// Returns the credit of an answer.
    pub fn credit(&self) -> u32 {
        (self.method >> 32) as u32
    }
}

/// A frame, which borrows from the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'b> {
    /// The header.
    pub header: Header,
    /// Metadata: see [`Metadata`](super::Metadata).
    pub meta: &'b [u8],
    /// The body.
    pub body: &'b [u8],
}

impl<'b> Frame<'b> {
    /// Parses the first frame in the bytes. Returns this frame and the bytes after it.
    ///
    /// # Errors
    ///
    /// [`WireError`]
    pub fn split(bytes: &'b [u8]) -> Result<(Self, &'b [u8]), WireError> {
        let short = |wanted| WireError::Short(bytes.len(), wanted);
        if let Some(&first) = bytes.first() {
            match (first & 0xf0, first & 0x0f) {
                (MAGIC, VERSION) => {}
                (MAGIC, version) => return Err(WireError::Version(version)),
                _ if first == TLS_HANDSHAKE => return Err(WireError::Tls),
                _ => return Err(WireError::Magic(first)),
            }
        }
        let header: &[u8; HEADER] = bytes.first_chunk().ok_or(short(HEADER))?;
        let (body, meta) = (u32_at(header, 16) as usize, u32_at(header, 20) as usize);
        let end = HEADER + body + meta;
        if bytes.len() < end {
            return Err(short(end));
        }
        let flags = Flags(u16::from_le_bytes([header[2], header[3]]));
        if flags.has(Flags::CHECKSUM) && u32_at(header, 28) != checksum(&bytes[..end]) {
            return Err(WireError::Checksum);
        }
        let parsed = Header {
            kind: Kind::parse(header[1]).ok_or(WireError::Field("kind"))?,
            flags,
            call: u32_at(header, 4),
            method: u64::from(u32_at(header, 8)) | u64::from(u32_at(header, 12)) << 32,
            budget: u32_at(header, 24),
        };
        let meta_end = HEADER + meta;
        Ok((Self { header: parsed, meta: &bytes[HEADER..meta_end], body: &bytes[meta_end..end] }, &bytes[end..]))
    }
}

/// Appends a frame to `out`. Its body consists of the parts, one after another.
pub fn write(out: &mut Vec<u8>, header: &Header, meta: &[u8], parts: &[&[u8]]) {
    let body: usize = parts.iter().map(|part| part.len()).sum();
    let start = out.len();
    out.reserve(HEADER + meta.len() + body);
    out.extend_from_slice(&header_bytes(header, meta.len(), body));
    out.extend_from_slice(meta);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    seal(&mut out[start..]);
}

/// Encodes a header without a checksum. `meta` and `body` are the lengths of the metadata and of the body that follow.
pub fn header_bytes(header: &Header, meta: usize, body: usize) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[0] = MAGIC | VERSION;
    bytes[1] = header.kind as u8;
    bytes[2..4].copy_from_slice(&header.flags.0.to_le_bytes());
    bytes[4..8].copy_from_slice(&header.call.to_le_bytes());
    bytes[8..16].copy_from_slice(&header.method.to_le_bytes());
    bytes[16..20].copy_from_slice(&(body as u32).to_le_bytes());
    bytes[20..24].copy_from_slice(&(meta as u32).to_le_bytes());
    bytes[24..28].copy_from_slice(&header.budget.to_le_bytes());
    bytes
}

/// Sets the budget of a frame that is already encoded.
pub fn set_budget(frame: &mut [u8], budget: u32) {
    if let Some(field) = frame.get_mut(24..28) {
        field.copy_from_slice(&budget.to_le_bytes());
        seal(frame);
    }
}

fn seal(frame: &mut [u8]) {
    if u16::from_le_bytes([frame[2], frame[3]]) & Flags::CHECKSUM != 0 {
        let sum = checksum(frame);
        frame[28..32].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Computes the CRC32C of a frame without its checksum field.
fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..28]), &frame[HEADER..])
}

fn u32_at(bytes: &[u8; HEADER], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_survives_the_round_trip_with_and_without_checksum() {
        for extra in [0, Flags::CHECKSUM] {
            let flags = Flags(Flags::new(3, 5).0 | extra);
            let header = Header { kind: Kind::Request, flags, call: 7, method: 0x1234_5678_9abc_def0, budget: 99 };
            let mut bytes = Vec::new();
            write(&mut bytes, &header, b"meta", &[b"bo", b"dy"]);
            write(&mut bytes, &Header::new(Kind::Ping, 0), b"", &[]);
            set_budget(&mut bytes[..HEADER + 8], 98);
            let (frame, rest) = Frame::split(&bytes).unwrap();
            assert_eq!(frame.header, Header { budget: 98, ..header });
            assert_eq!((frame.meta, frame.body), (&b"meta"[..], &b"body"[..]));
            let (ping, rest) = Frame::split(rest).unwrap();
            assert_eq!((ping.header.kind, rest.len()), (Kind::Ping, 0));
        }
    }

    #[test]
    fn malformed_frames_return_the_reason() {
        let mut good = Vec::new();
        write(&mut good, &Header { flags: Flags(Flags::CHECKSUM), ..Header::new(Kind::Pong, 2) }, b"", &[b"body"]);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Frame::split(&bytes).map(|_| ()).unwrap_err()
        };
        assert_eq!(with(0, b'G'), WireError::Magic(b'G'));
        assert_eq!(with(0, 0x16), WireError::Tls);
        assert_eq!(with(0, MAGIC | 2), WireError::Version(2));
        assert_eq!(with(33, 0), WireError::Checksum);
        // A frame that announces a length of 4 GiB makes the parser allocate nothing.
        assert!(matches!(with(19, 0xff), WireError::Short(36, _)));
        assert_eq!(Frame::split(&good[..31]).map(|_| ()), Err(WireError::Short(31, 32)));
        let mut kind = Vec::new();
        write(&mut kind, &Header::new(Kind::Bulk, 0), b"", &[]);
        kind[1] = 13;
        assert_eq!(Frame::split(&kind).map(|_| ()), Err(WireError::Field("kind")));
    }
}
