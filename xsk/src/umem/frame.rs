//! An owned frame, whose bytes belong to the program.

use std::fmt;

use super::metadata;
use super::packet::Packet;
use super::token::{Token, is_packet};

/// A frame that is in no ring: its bytes belong to the program.
///
/// Rings and pools take a frame by value. A dropped frame returns to the UMEM, from which the next empty pool takes it.
pub struct Frame {
    token: Token,
}

impl Frame {
    /// Creates the frame of a token.
    #[inline]
    pub(crate) fn new(mut token: Token) -> Self {
        token.set_offset(0);
        Self { token }
    }

    /// Creates the frame of a token whose address is the frame's start.
    #[inline]
    pub(crate) fn at_start(token: Token) -> Self {
        Self { token }
    }

    #[inline]
    pub(crate) fn token(&self) -> &Token {
        &self.token
    }

    #[inline]
    pub(crate) fn into_token(self) -> Token {
        self.token
    }

    /// Offset of the first byte in the UMEM. It identifies the frame.
    pub fn offset(&self) -> u64 {
        self.token.addr()
    }

    /// All bytes of the frame.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.token.bytes()
    }

    /// All bytes of the frame, to write them.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.token.bytes_mut()
    }

    /// Makes a packet of the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// Returns the frame if the packet is shorter than 14 bytes, longer than 65535 bytes, or ends outside the frame.
    #[inline]
    pub fn packet(self, offset: usize, len: usize) -> Result<Packet, Self> {
        if !is_packet(self.token.region().geometry().frame_size as usize, offset, len) {
            return Err(self);
        }
        let mut token = self.token;
        token.set_offset(offset);
        Ok(Packet::new(token, len as u32, 0))
    }

    /// Makes a packet with a copy of these bytes. If the UMEM supports [`TxMetadata`](crate::TxMetadata), space for it
    /// stays free before the packet.
    ///
    /// # Errors
    ///
    /// Returns the frame if [`packet`](Self::packet) would return it.
    #[inline]
    pub fn packet_from(self, bytes: &[u8]) -> Result<Packet, Self> {
        let offset = if self.token.region().geometry().has_metadata { metadata::LEN } else { 0 };
        let mut packet = self.packet(offset, bytes.len())?;
        packet.bytes_mut().copy_from_slice(bytes);
        Ok(packet)
    }
}

impl Packet {
    /// The frame, without the packet.
    #[inline]
    pub fn into_frame(self) -> Frame {
        Frame::new(self.into_token())
    }
}

impl From<Packet> for Frame {
    #[inline]
    fn from(packet: Packet) -> Self {
        packet.into_frame()
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("offset", &self.offset()).finish_non_exhaustive()
    }
}
