//! The token that a frame, a packet or a sent frame contains: the ownership of its bytes.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

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
