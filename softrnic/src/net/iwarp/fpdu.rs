//! FPDUs, which are the frames of the byte stream (RFC 5044, section 4). A frame consists of a length, a segment,
//! padding to four bytes, and a CRC-32C. Markers are not supported.

use std::ops::Range;

use super::code::Code;

/// The number of bytes that a frame has in addition to its segment and its padding.
pub(super) const OVERHEAD: usize = 6;
/// The size of the longest frame. The length in a frame has 16 bits.
const MAX_FRAME: usize = 2 + u16::MAX as usize + 3 + 4;
/// The size of a new receive buffer, and the size of the largest one.
const FIRST_CAPACITY: usize = 4 << 10;
const CAPACITY: usize = 256 << 10;
const _: () = assert!(CAPACITY > MAX_FRAME, "there is always space for the rest of a frame");

/// Returns the length of the longest segment whose frame fits into a TCP segment of `mss` bytes.
pub(super) fn max_segment(mss: u16) -> usize {
    usize::from(mss & !3).saturating_sub(OVERHEAD)
}

/// Returns the length of the frame of a segment.
pub(super) fn frame_length(segment: u16) -> usize {
    (2 + usize::from(segment)).next_multiple_of(4) + 4
}

/// Appends the frame of a segment, which consists of a header and a payload. The length of the segment must fit into 16
/// bits.
pub(super) fn emit(header: &[u8], payload: &[u8], has_crc: bool, out: &mut Vec<u8>) {
    let start = out.len();
    let length = header.len() + payload.len();
    debug_assert!(u16::try_from(length).is_ok(), "the sender cuts messages");
    out.extend((length as u16).to_be_bytes());
    out.extend(header);
    out.extend(payload);
    out.resize(start + (2 + length).next_multiple_of(4), 0);
    let crc = if has_crc { crc32c::crc32c(&out[start..]) } else { 0 };
    out.extend(crc.to_le_bytes());
}

/// Changes a byte of the segment of the first frame, so that its checksum is wrong.
pub(super) fn damage(frames: &mut [u8]) {
    if let Some((length, rest)) = frames.split_first_chunk_mut()
        && let Some(byte) = rest.get_mut(usize::from(u16::from_be_bytes(*length)) / 2)
    {
        *byte ^= 0xff;
    }
}

/// Splits the stream of bytes that arrives into segments.
#[derive(Debug)]
pub(super) struct Frames {
    has_crc: bool,
    /// The receive buffer. It grows only while bytes arrive faster than they are read, so that an idle connection needs
    /// little memory.
    buffer: Vec<u8>,
    /// The range of the bytes that have arrived but were not returned as segments yet.
    received: Range<usize>,
    /// Whether the bytes that arrived last have filled the buffer. The buffer may then grow before the next read.
    is_full: bool,
}

/// The position of a segment in the buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found(Range<usize>);

impl Frames {
    pub(super) fn new(has_crc: bool) -> Self {
        Self { has_crc, buffer: Vec::new(), received: 0..0, is_full: false }
    }

    /// Returns the space for more bytes of the stream, which is never empty. The caller writes bytes there, calls
    /// [`filled`](Self::filled), and then [`next`](Self::next) until it returns `None`.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let received = self.received.clone();
        self.buffer.copy_within(received, 0);
        self.received = 0..self.received.len();
        if self.is_full || self.buffer.is_empty() {
            let length = (self.buffer.len() * 4).clamp(FIRST_CAPACITY, CAPACITY);
            self.buffer.resize(length, 0);
        }
        debug_assert!(self.received.len() < MAX_FRAME, "complete frames were returned");
        &mut self.buffer[self.received.end..]
    }

    /// Records that `bytes` bytes were written to the start of the space.
    pub(super) fn filled(&mut self, bytes: usize) {
        self.received.end = self.buffer.len().min(self.received.end + bytes);
        self.is_full = self.received.end == self.buffer.len();
    }

    /// Discards all bytes.
    pub(super) fn discard(&mut self) {
        self.received = 0..0;
    }

    /// Adds bytes, which must fit into the space.
    #[cfg(test)]
    pub(super) fn add(&mut self, bytes: &[u8]) {
        while self.space().len() < bytes.len() {
            self.is_full = true;
        }
        self.space()[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// Finds the next segment, if its frame is complete.
    pub(super) fn next(&mut self) -> Result<Option<Found>, Code> {
        let rest = &self.buffer[self.received.clone()];
        let Some((&length, _)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        let length = u16::from_be_bytes(length);
        let total = frame_length(length);
        let Some((covered, crc)) = rest.get(..total).and_then(<[u8]>::split_last_chunk) else {
            return Ok(None);
        };
        if self.has_crc && crc32c::crc32c(covered) != u32::from_le_bytes(*crc) {
            return Err(Code::CRC);
        }
        let start = self.received.start + 2;
        self.received.start += total;
        Ok(Some(Found(start..start + usize::from(length))))
    }

    /// Returns the bytes of a segment that was found since the last call of [`space`](Self::space).
    pub(super) fn segment(&self, found: &Found) -> &[u8] {
        self.buffer.get(found.0.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn checksum_matches_published_vectors() {
        // These test vectors are from RFC 3720, section B.4.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c::crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn frame_is_padded_and_ends_with_the_checksum() {
        let mut out = vec![9];
        emit(&[1, 2], &[3], true, &mut out);
        assert_eq!(out[..9], [9, 0, 3, 1, 2, 3, 0, 0, 0]);
        assert_eq!(out[9..], crc32c::crc32c(&out[1..9]).to_le_bytes());
        let mut out = Vec::new();
        emit(&[1, 2], &[], false, &mut out);
        assert_eq!(out, [0, 2, 1, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn segment_fits_the_tcp_segment() {
        for mss in (0..=u16::MAX).step_by(if cfg!(miri) { 997 } else { 1 }) {
            let segment = max_segment(mss);
            assert!(segment == 0 || frame_length(segment as u16) <= usize::from(mss), "{mss}");
        }
        assert_eq!(max_segment(1448), 1442);
        assert_eq!(max_segment(3), 0);
    }

    #[test]
    fn each_changed_bit_is_a_checksum_error_or_a_longer_frame() {
        let mut out = Vec::new();
        emit(&[1, 2, 3, 4], b"payload", true, &mut out);
        for bit in 0..out.len() * 8 {
            let mut bytes = out.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut frames = Frames::new(true);
            frames.add(&bytes);
            let is_longer = bit < 16 && frame_length(u16::from_be_bytes([bytes[0], bytes[1]])) > bytes.len();
            assert_eq!(frames.next(), if is_longer { Ok(None) } else { Err(Code::CRC) }, "bit {bit}");
        }
    }

    #[test]
    fn damaged_frame_is_a_checksum_error() {
        for payload in [&b""[..], b"p", &[7; 1000]] {
            let mut out = Vec::new();
            emit(&[1, 2], payload, true, &mut out);
            emit(&[1, 2], b"next", true, &mut out);
            damage(&mut out);
            let mut frames = Frames::new(true);
            frames.add(&out);
            assert_eq!(frames.next(), Err(Code::CRC));
        }
        damage(&mut []);
    }

    #[test]
    fn buffer_grows_only_while_it_is_filled() {
        let mut frames = Frames::new(true);
        for _ in 0..3 {
            assert_eq!(frames.space().len(), FIRST_CAPACITY);
            frames.filled(FIRST_CAPACITY - 1);
            frames.discard();
        }
        for expected in [FIRST_CAPACITY, 16 << 10, 64 << 10, CAPACITY, CAPACITY] {
            assert_eq!(frames.space().len(), expected);
            frames.filled(expected);
            frames.discard();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

        #[test]
        fn segments_survive_any_cuts(
            segments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..8),
            cuts in proptest::collection::vec(1..40_usize, 1..20), has_crc: bool,
        ) {
            let mut stream = Vec::new();
            segments.iter().for_each(|segment| emit(&[], segment, has_crc, &mut stream));
            let (mut frames, mut received, mut rest) = (Frames::new(has_crc), Vec::new(), &stream[..]);
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at(rest.len().min(*cut));
                rest = later;
                frames.add(now);
                while let Some(segment) = frames.next().unwrap() {
                    received.push(frames.segment(&segment).to_vec());
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(received, segments);
        }
    }
}
