//! A buffer.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use bytes::Bytes;
use sideway::ibverbs::memory_region::MemoryRegion;

use super::HEADROOM;
use super::chunk::Chunk;

/// A unique buffer, which returns to its pool when it is dropped, in any thread. Dereferences to its bytes.
///
/// Buffers that are longer than the pool allows, or of no pool, are on the heap; such buffers are copied when they are sent.
pub struct Buf {
    /// The first byte of all that the buffer has: `room` bytes, initialised.
    first: NonNull<u8>,
    /// `None` on the heap. Lengths are 32 bits wide, so that a buffer is moved in two registers of the vector unit.
    chunk: Option<Arc<Chunk>>,
    number: u32,
    room: u32,
    start: u32,
    end: u32,
}

/// The longest buffer.
const LONGEST: usize = (u32::MAX as usize) - HEADROOM;

// SAFETY: the value alone reaches its bytes, and the pool takes buffers back from any thread.
unsafe impl Send for Buf {}
// SAFETY: `&Buf` gives `&[u8]` at most.
unsafe impl Sync for Buf {}

impl Buf {
    /// A buffer whose bytes are `start..end` of the `room` bytes at `first`.
    ///
    /// # Safety
    ///
    /// - `room` initialised bytes are at `first`, which nothing else uses until the pool gets `number` back.
    /// - `start <= end <= room`, and `room` fits 32 bits.
    #[inline]
    pub(super) unsafe fn of_pool(
        (chunk, number): (Arc<Chunk>, u32),
        (first, room): (NonNull<u8>, usize),
        start: usize,
        end: usize,
    ) -> Self {
        debug_assert!(start <= end && end <= room && u32::try_from(room).is_ok());
        Self { first, chunk: Some(chunk), number, room: room as u32, start: start as u32, end: end as u32 }
    }

    /// A buffer on the heap, of no pool; 4 GiB at most.
    pub(crate) fn on_heap(length: usize) -> Self {
        let room = HEADROOM + length.min(LONGEST);
        let memory = Box::into_raw(vec![0_u8; room].into_boxed_slice());
        // SAFETY: a box's pointer is not null.
        let first = unsafe { NonNull::new_unchecked(memory.cast::<u8>()) };
        Self { first, chunk: None, number: 0, room: room as u32, start: HEADROOM as u32, end: room as u32 }
    }

    /// Shortens the buffer to its first `length` bytes; does nothing if it is shorter.
    #[inline]
    pub fn truncate(&mut self, length: usize) {
        self.end = self.end.min(self.start.saturating_add(u32::try_from(length).unwrap_or(u32::MAX)));
    }

    /// Drops the first `length` bytes, or all.
    #[inline]
    pub fn advance(&mut self, length: usize) {
        self.start = self.start.saturating_add(u32::try_from(length).unwrap_or(u32::MAX)).min(self.end);
    }

    /// The bytes as [`Bytes`], without a copy. The last clone returns the buffer to the pool.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Makes the buffer `length` bytes long, after the room for a header; false if its memory is shorter.
    #[inline]
    pub(crate) fn resize(&mut self, length: usize) -> bool {
        let start = (HEADROOM as u32).min(self.room);
        let fits = length <= (self.room - start) as usize;
        if fits {
            (self.start, self.end) = (start, start + length as u32);
        }
        fits
    }

    /// Empties it: what follows begins after the room for a header.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.start = (HEADROOM as u32).min(self.room);
        self.end = self.start;
    }

    /// Puts a header before the bytes; false if there is no room.
    #[inline]
    pub(crate) fn prepend(&mut self, header: &[u8]) -> bool {
        if header.len() > self.start as usize {
            return false;
        }
        self.start -= header.len() as u32;
        self[..header.len()].copy_from_slice(header);
        true
    }

    /// Puts both parts after the bytes; false if there is no room.
    #[inline]
    pub(crate) fn append(&mut self, first: &[u8], second: &[u8]) -> bool {
        let (length, at) = (first.len() + second.len(), self.len());
        if length > self.room() {
            return false;
        }
        self.end += length as u32;
        self[at..at + first.len()].copy_from_slice(first);
        self[at + first.len()..].copy_from_slice(second);
        true
    }

    /// Whether it has the memory of a segment of this length, and not much more.
    #[inline]
    pub(crate) fn is_segment(&self, length: usize) -> bool {
        let room = self.room as usize;
        room >= length + HEADROOM && room <= 2 * length.max(4 << 10)
    }

    /// Bytes that `append` has room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        (self.room - self.end) as usize
    }

    /// The registration that the bytes are in; `None` if they are not registered.
    #[inline]
    pub(crate) fn region(&self) -> Option<&Arc<MemoryRegion>> {
        self.chunk.as_ref()?.region()
    }

    /// Its place among buffers; `None` on the heap.
    #[inline]
    pub(super) fn chunk(&self) -> Option<&Chunk> {
        self.chunk.as_deref()
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start <= end <= room`, and the `room` initialised bytes are reached by `self` alone.
        unsafe { slice::from_raw_parts(self.first.as_ptr().add(self.start as usize), (self.end - self.start) as usize) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only way to the bytes.
        unsafe {
            slice::from_raw_parts_mut(self.first.as_ptr().add(self.start as usize), (self.end - self.start) as usize)
        }
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf").field("length", &self.len()).finish_non_exhaustive()
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        match &self.chunk {
            Some(chunk) => chunk.take_back(self.number),
            None => {
                let memory = std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.room as usize);
                // SAFETY: `on_heap` made it from a box of this length, and nothing uses it any more.
                drop(unsafe { Box::from_raw(memory) });
            }
        }
    }
}
