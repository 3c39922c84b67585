//! One frame, owned.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::packet::Packet;
use super::region::{Region, put_back};

/// Bytes of an Ethernet header, the shortest packet.
pub(crate) const SHORTEST: usize = 14;

/// A frame of a UMEM that is in no ring: its bytes belong to the program.
///
/// Rings and pools take it by value. A dropped frame returns to the UMEM, and the next pool that runs empty takes it from there.
pub struct Frame {
    region: NonNull<Region>,
    /// Offset of the frame's first byte in the UMEM.
    start: u32,
}

// SAFETY: a frame is the only access to its bytes, and the region may be used from any thread.
unsafe impl Send for Frame {}
// SAFETY: a shared reference only reads the bytes.
unsafe impl Sync for Frame {}

impl Frame {
    /// The frame that starts there.
    ///
    /// # Safety
    ///
    /// - The region exists, and `outside` counts the frame, now or once its holder is dropped.
    /// - `start` is the offset of a frame, and no other `Frame` of it exists.
    #[inline]
    pub(crate) unsafe fn new(region: NonNull<Region>, start: u32) -> Self {
        Self { region, start }
    }

    /// Gives the frame up; the caller owns it by its offset.
    #[inline]
    pub(crate) fn into_start(self) -> u32 {
        ManuallyDrop::new(self).start
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

    /// Offset of the first byte in the UMEM. It identifies the frame.
    pub fn offset(&self) -> u32 {
        self.start
    }

    /// All bytes of the frame.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let len = self.region().geometry().frame_size as usize;
        // SAFETY: the frame lies within the mapping and is initialized; only this value gives access to it.
        unsafe { std::slice::from_raw_parts(self.region().base().as_ptr().add(self.start as usize), len) }
    }

    /// All bytes of the frame, to write them.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.region().geometry().frame_size as usize;
        // SAFETY: as in `bytes`, and the reference is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.region().base().as_ptr().add(self.start as usize), len) }
    }

    /// Makes a packet of the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// Returns the frame if the packet is shorter than 14 bytes, longer than 65535, or ends outside the frame.
    #[inline]
    pub fn packet(self, offset: usize, len: usize) -> Result<Packet, Self> {
        let size = self.region().geometry().frame_size as usize;
        if len < SHORTEST || len > usize::from(u16::MAX) || offset > size - SHORTEST || len > size - offset {
            return Err(self);
        }
        Ok(Packet::new(self, offset as u16, len as u16, 0))
    }

    /// Makes a packet with a copy of these bytes. Space for [`TxMetadata`](crate::TxMetadata) stays in front if the UMEM has it.
    ///
    /// # Errors
    ///
    /// Returns the frame if [`packet`](Self::packet) does.
    #[inline]
    pub fn packet_from(self, bytes: &[u8]) -> Result<Packet, Self> {
        let offset = if self.region().geometry().has_metadata { super::metadata::LEN } else { 0 };
        let mut packet = self.packet(offset, bytes.len())?;
        packet.bytes_mut().copy_from_slice(bytes);
        Ok(packet)
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the frame keeps the region, and is given up here.
        unsafe { put_back(self.region, self.start) }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("offset", &self.start).finish_non_exhaustive()
    }
}
