//! A frame with a packet in it.

use std::fmt;

use super::metadata::{self, MetadataError, TxMetadata};
use super::token::{Token, is_packet};

/// The packet continues in the next descriptor (`XDP_PKT_CONTD`).
pub(crate) const CONTINUES: u32 = 1;
/// Metadata precedes the packet (`XDP_TX_METADATA`).
pub(crate) const HAS_METADATA: u32 = 2;

/// A frame whose bytes from [`offset`](Self::offset) on are a packet, or a piece of one.
///
/// Dropping a packet returns its frame to the UMEM.
pub struct Packet {
    token: Token,
    len: u32,
    options: u32,
}

impl Packet {
    /// The caller ensures that the packet lies within the frame.
    #[inline]
    pub(crate) fn new(token: Token, len: u32, options: u32) -> Self {
        Self { token, len, options }
    }

    #[inline]
    pub(crate) fn token(&self) -> &Token {
        &self.token
    }

    #[inline]
    pub(crate) fn into_token(self) -> Token {
        self.token
    }

    #[inline]
    pub(crate) fn options(&self) -> u32 {
        self.options
    }

    /// Number of bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "no packet is empty")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Position of the first byte in its frame.
    #[inline]
    pub fn offset(&self) -> usize {
        self.token.offset()
    }

    /// Whether the packet continues in the next received piece (multi-buffer).
    #[inline]
    pub fn continues(&self) -> bool {
        self.options & CONTINUES != 0
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // The range is valid by construction. Checking the slice twice is simpler than an unsafe block in each place.
        &self.token.bytes()[self.offset()..][..self.len()]
    }

    /// The bytes, to write them.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (offset, len) = (self.offset(), self.len());
        &mut self.token.bytes_mut()[offset..][..len]
    }

    /// Moves the start and the end of the packet within its frame, in order to prepend or remove a header, or to change
    /// the length.
    ///
    /// # Errors
    ///
    /// Returns `false`, and changes nothing, if the packet would be shorter than 14 bytes or end outside the frame.
    #[inline]
    #[must_use = "the packet is unchanged if this returns false"]
    pub fn resize(&mut self, offset: usize, len: usize) -> bool {
        let size = self.token.region().geometry().frame_size as usize;
        if !is_packet(size, offset, len) {
            return false;
        }
        // Metadata is valid only for the position and length for which it was written.
        self.options &= !HAS_METADATA;
        self.token.set_offset(offset);
        self.len = len as u32;
        true
    }

    /// The `len` bytes before the packet, which an XDP program may have written (`bpf_xdp_adjust_meta`). The XDP
    /// program determines `len`.
    pub fn rx_metadata(&self, len: usize) -> Option<&[u8]> {
        let start = self.offset().checked_sub(len)?;
        Some(&self.token.bytes()[start..self.offset()])
    }

    /// Requests a checksum, a timestamp or a launch time for this packet.
    ///
    /// # Errors
    ///
    /// The UMEM was built without TX metadata, the space before the packet is too small, or the checksum's position
    /// lies outside the packet.
    pub fn set_tx_metadata(&mut self, metadata: &TxMetadata) -> Result<(), MetadataError> {
        let start = metadata::check(self.offset(), self.len(), self.token.region().geometry().has_metadata, metadata)?;
        self.token.bytes_mut()[start..][..metadata::LEN].copy_from_slice(&metadata.encode());
        self.options |= HAS_METADATA;
        Ok(())
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("frame", &self.token.start())
            .field("offset", &self.offset())
            .field("len", &self.len)
            .field("continues", &self.continues())
            .finish_non_exhaustive()
    }
}
