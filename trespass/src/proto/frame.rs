//! The frames of a SEND. Each has a header of 16 bytes, little-endian, and a payload.
//!
//! ```text
//!  0 kind u8   1 flags u8   2 credits u16   4 length u32 of the payload   8 a u32   12 b u32   16 payload
//! ```
//!
//! The field `credits` of a SEND's first frame is the number of SENDs, modulo 2^16, that the receiver of the frame may
//! send in total since the start.

pub(crate) const HEADER: usize = 16;

/// The last frame of its message.
pub(crate) const LAST: u8 = 0x01;
/// The message is a notification: one frame with 8 bytes.
pub(crate) const NOTE: u8 = 0x02;
/// If this flag is set, a receiver that does not support the kind skips the frame. If it is not set, such a receiver
/// ends the connection.
pub(crate) const OPTIONAL: u8 = 0x80;

/// The kind of a frame; peers may send any byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) u8);

impl Kind {
    /// Bytes of a message. If a message has several frames, the first has the message's length in `a`.
    pub(crate) const DATA: Kind = Kind(1);
    /// A whole message of `a` bytes, which the receiver READs. The payload is a [`Source`].
    pub(crate) const RTS: Kind = Kind(2);
    /// The receiver has READ or discarded `a` messages since the start.
    pub(crate) const DONE: Kind = Kind(3);
    /// A frame that only transfers credits.
    pub(crate) const GRANT: Kind = Kind(4);
    /// The sender returns credits: its limit falls from `a` to `b` (modulo 2^16).
    pub(crate) const RETURN: Kind = Kind(5);
    /// The confirmation of a RETURN. The limit is now `a` (modulo 2^16).
    pub(crate) const RETURNED: Kind = Kind(9);
    /// The sender sends no further message.
    pub(crate) const FIN: Kind = Kind(6);
    /// The sender closes the connection: it sends no further message, and reads none. `a` is the code, and the payload
    /// is the reason.
    pub(crate) const CLOSE: Kind = Kind(7);
    /// All messages before the FIN or CLOSE have arrived.
    pub(crate) const FIN_ACK: Kind = Kind(8);
    /// Buffers to which the peer may WRITE its next long messages. `a` is the number of the first of them. The payload
    /// consists of [`Offer`]s. This kind and the next three exist since version 2.
    pub(crate) const BUFFERS: Kind = Kind(10);
    /// A whole message of `a` bytes, which the sender has written to the buffer `b`. The sender does not use the buffers
    /// before `b` any more.
    pub(crate) const WRITTEN: Kind = Kind(11);
    /// The sender takes back all buffers that it has announced; `a` is the number after the last one. It announces none
    /// until the confirmation has arrived.
    pub(crate) const WITHDRAW: Kind = Kind(12);
    /// The confirmation of a WITHDRAW: the sender of this frame does not use the buffers from `a` on. It has written to
    /// those before `a`, or skipped them. The next buffer has the number `a`.
    pub(crate) const WITHDRAWN: Kind = Kind(13);

    /// Whether frames of this kind are delivered in order. Such frames wait in the inbox until the program reads them.
    pub(crate) fn is_ordered(self) -> bool {
        matches!(self, Kind::DATA | Kind::RTS | Kind::WRITTEN | Kind::FIN | Kind::CLOSE)
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) credits: u16,
    pub(crate) length: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
}

impl Frame {
    pub(crate) fn new(kind: Kind) -> Frame {
        Frame { kind, flags: 0, credits: 0, length: 0, a: 0, b: 0 }
    }

    /// Returns the frame at the start of `bytes`, if `bytes` contains its whole payload.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Frame> {
        let (header, payload) = bytes.split_first_chunk::<HEADER>()?;
        let [kind, flags, c0, c1, l0, l1, l2, l3, a0, a1, a2, a3, b0, b1, b2, b3] = *header;
        let frame = Frame {
            kind: Kind(kind),
            flags,
            credits: u16::from_le_bytes([c0, c1]),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            a: u32::from_le_bytes([a0, a1, a2, a3]),
            b: u32::from_le_bytes([b0, b1, b2, b3]),
        };
        (frame.length as usize <= payload.len()).then_some(frame)
    }

    #[inline]
    pub(crate) fn emit(&self) -> [u8; HEADER] {
        // Two words, because the compiler does not combine the stores of single bytes.
        let first = u64::from(self.kind.0)
            | u64::from(self.flags) << 8
            | u64::from(self.credits) << 16
            | u64::from(self.length) << 32;
        let second = u64::from(self.a) | u64::from(self.b) << 32;
        (u128::from(first) | u128::from(second) << 64).to_le_bytes()
    }

    /// Returns the length of the header and the payload together, in bytes.
    #[inline]
    pub(crate) fn extent(&self) -> usize {
        HEADER + self.length as usize
    }
}

/// Sets the credits of a SEND before it is posted.
#[inline]
pub(crate) fn set_credits(send: &mut [u8], credits: u16) {
    if let Some(field) = send.get_mut(2..4) {
        field.copy_from_slice(&credits.to_le_bytes());
    }
}

/// The address and key of a message in the sender's memory: the payload of an RTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) address: u64,
    pub(crate) key: u32,
}

impl Source {
    pub(crate) const LENGTH: usize = 12;

    pub(crate) fn parse(payload: &[u8]) -> Option<Source> {
        let (address, key) = payload.split_first_chunk::<8>()?;
        Some(Source { address: u64::from_le_bytes(*address), key: u32::from_le_bytes(*key.first_chunk::<4>()?) })
    }

    pub(crate) fn emit(&self) -> [u8; Source::LENGTH] {
        let mut bytes = [0; Source::LENGTH];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }
}

/// An announced buffer: its address, key and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) remote: Source,
    pub(crate) length: u32,
}

impl Offer {
    pub(crate) const LENGTH: usize = 16;

    pub(crate) fn parse(bytes: &[u8; Offer::LENGTH]) -> Offer {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3] = *bytes;
        let address = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
        let remote = Source { address, key: u32::from_le_bytes([k0, k1, k2, k3]) };
        Offer { remote, length: u32::from_le_bytes([l0, l1, l2, l3]) }
    }

    pub(crate) fn emit(&self) -> [u8; Offer::LENGTH] {
        let mut bytes = [0; Offer::LENGTH];
        bytes[..Source::LENGTH].copy_from_slice(&self.remote.emit());
        bytes[Source::LENGTH..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_emitted_parses_back() {
        let frame = Frame { kind: Kind::RTS, flags: LAST, credits: 0xfffe, length: 3, a: 0x0102_0304, b: u32::MAX };
        let mut bytes = frame.emit().to_vec();
        bytes.extend_from_slice(b"abc");
        assert_eq!(Frame::parse(&bytes), Some(frame));
        assert_eq!(frame.extent(), 19);
        assert_eq!(bytes[..8], [2, 1, 0xfe, 0xff, 3, 0, 0, 0]);
    }

    #[test]
    fn frame_cut_short_is_none() {
        let bytes = Frame { length: 1, ..Frame::new(Kind::DATA) }.emit();
        assert_eq!(Frame::parse(&bytes), None);
        assert_eq!(Frame::parse(&bytes[..15]), None);
        assert_eq!(Source::parse(&[0; 11]), None);
    }

    #[test]
    fn source_emitted_parses_back() {
        let source = Source { address: 0x0102_0304_0506_0708, key: 9 };
        assert_eq!(Source::parse(&source.emit()), Some(source));
    }

    #[test]
    fn offer_emitted_parses_back() {
        let offer = Offer { remote: Source { address: 0x0102_0304_0506_0708, key: 9 }, length: 0x0a0b_0c0d };
        assert_eq!(Offer::parse(&offer.emit()), offer);
        assert_eq!(offer.emit()[12..], [0x0d, 0x0c, 0x0b, 0x0a]);
    }

    #[test]
    fn credits_are_set_in_place() {
        let mut bytes = Frame::new(Kind::GRANT).emit();
        set_credits(&mut bytes, 513);
        assert_eq!(Frame::parse(&bytes).map(|frame| frame.credits), Some(513));
    }
}
