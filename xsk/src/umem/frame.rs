//! An owned frame, and the token that a packet or a sent frame contains.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::packet::Packet;
use super::region::{Region, put_back};

/// Bytes of an Ethernet header, the shortest packet.
pub(crate) const SHORTEST: usize = 14;

/// Whether these bytes of a frame may be a packet. Frames have at most 64 KiB, so an offset has 16 bits.
#[inline]
pub(crate) fn is_packet(frame_size: usize, offset: usize, len: usize) -> bool {
    (SHORTEST..=usize::from(u16::MAX)).contains(&len) && len <= frame_size && offset <= frame_size - len
}

/// Ownership of a frame, with an address in the kernel's format: the start of the frame, plus the offset of the data
/// (aligned mode) or with the offset in the upper 16 bits (unaligned mode).
pub(crate) struct Token {
    region: NonNull<Region>,
    addr: u64,
}

// SAFETY: only the token gives access to the bytes of its frame, and the region may be used from any thread.
unsafe impl Send for Token {}
// SAFETY: a shared reference only reads the bytes.
unsafe impl Sync for Token {}

impl Token {
    /// Creates the token of the frame that contains an address.
    ///
    /// # Safety
    ///
    /// - The region exists, and `outside` counts the frame, either already or as soon as the holder is dropped.
    /// - The address lies in a frame of the region, and no other `Token` of that frame exists.
    #[inline]
    pub(crate) unsafe fn new(region: NonNull<Region>, addr: u64) -> Self {
        Self { region, addr }
    }

    /// Releases the frame; the caller then owns it by its address.
    #[inline]
    pub(crate) fn into_addr(self) -> u64 {
        ManuallyDrop::new(self).addr
    }

    #[inline]
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    #[inline]
    pub(crate) fn belongs_to(&self, region: NonNull<Region>) -> bool {
        self.region == region
    }

    #[inline]
    pub(crate) fn region(&self) -> &Region {
        // SAFETY: a frame keeps the region.
        unsafe { self.region.as_ref() }
    }

    /// Offset of the frame in the UMEM.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        self.addr & self.region().start_mask()
    }

    /// Offset of the address in the frame.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        // Either the difference or the upper bits are zero.
        ((self.addr - self.start()) as u32 | (self.addr >> 48) as u32) as usize & 0xffff
    }

    /// Moves the address to an offset within the frame.
    #[inline]
    pub(crate) fn set_offset(&mut self, offset: usize) {
        self.addr = self.start() + ((offset as u64) << self.region().geometry().offset_shift());
    }

    /// All bytes of the frame.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let len = self.region().geometry().frame_size as usize;
        // SAFETY: the frame lies within the mapping and is initialized; only this value gives access to it.
        unsafe { std::slice::from_raw_parts(self.region().base().as_ptr().add(self.start() as usize), len) }
    }

    /// All bytes of the frame, to write them.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.region().geometry().frame_size as usize;
        // SAFETY: as in `bytes`, and the reference is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.region().base().as_ptr().add(self.start() as usize), len) }
    }
}

impl Drop for Token {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the frame keeps the region, and is given up here.
        unsafe { put_back(self.region, self.addr) }
    }
}

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
        token.addr = token.start();
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
        self.token.addr
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
        let offset = if self.token.region().geometry().has_metadata { super::metadata::LEN } else { 0 };
        let mut packet = self.packet(offset, bytes.len())?;
        packet.bytes_mut().copy_from_slice(bytes);
        Ok(packet)
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("offset", &self.offset()).finish_non_exhaustive()
    }
}
