//! A buffer.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use bytes::Bytes;
use sideway::ibverbs::memory_region::MemoryRegion;

use super::HEADROOM;
use super::pool::Shared;

/// A unique buffer, which returns to its pool when it is dropped, in any thread. Dereferences to its bytes.
///
/// Buffers that are longer than the pool allows, or of no pool, are on the heap; such buffers are copied when they are sent.
pub struct Buf {
    /// The first byte of all that the buffer has: `room` bytes, initialised.
    first: NonNull<u8>,
    room: usize,
    start: usize,
    end: usize,
    home: Home,
}

enum Home {
    Pool { pool: Arc<Shared>, number: u32 },
    Heap,
}

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
    /// - `start <= end <= room`.
    #[inline]
    pub(super) unsafe fn of_pool(
        (pool, number): (Arc<Shared>, u32),
        (first, room): (NonNull<u8>, usize),
        start: usize,
        end: usize,
    ) -> Self {
        debug_assert!(start <= end && end <= room);
        Self { first, room, start, end, home: Home::Pool { pool, number } }
    }

    /// A buffer on the heap, of no pool.
    pub(crate) fn on_heap(length: usize) -> Self {
        let room = HEADROOM + length;
        let memory = Box::into_raw(vec![0_u8; room].into_boxed_slice());
        // SAFETY: a box's pointer is not null.
        let first = unsafe { NonNull::new_unchecked(memory.cast::<u8>()) };
        Self { first, room, start: HEADROOM, end: room, home: Home::Heap }
    }

    /// Shortens the buffer to its first `length` bytes; does nothing if it is shorter.
    pub fn truncate(&mut self, length: usize) {
        self.end = self.end.min(self.start.saturating_add(length));
    }

    /// Drops the first `length` bytes, or all.
    pub fn advance(&mut self, length: usize) {
        self.start = self.start.saturating_add(length).min(self.end);
    }

    /// The bytes as [`Bytes`], without a copy. The last clone returns the buffer to the pool.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Makes the buffer `length` bytes long, behind the room for a header; false if its memory is shorter.
    pub(crate) fn resize(&mut self, length: usize) -> bool {
        let start = HEADROOM.min(self.room);
        let fits = length <= self.room - start;
        if fits {
            (self.start, self.end) = (start, start + length);
        }
        fits
    }

    /// Puts a header before the bytes; false if there is no room.
    #[inline]
    pub(crate) fn prepend(&mut self, header: &[u8]) -> bool {
        let Some(start) = self.start.checked_sub(header.len()) else { return false };
        self.start = start;
        self[..header.len()].copy_from_slice(header);
        true
    }

    /// Puts both parts after the bytes; false if there is no room.
    #[inline]
    pub(crate) fn append(&mut self, first: &[u8], second: &[u8]) -> bool {
        let start = self.end;
        let (length, most) = (first.len() + second.len(), self.room());
        if length > most {
            return false;
        }
        self.end += length;
        let at = start - self.start;
        self[at..at + first.len()].copy_from_slice(first);
        self[at + first.len()..].copy_from_slice(second);
        true
    }

    /// Bytes that `append` has room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.room - self.end
    }

    /// The registration that the bytes are in; `None` if no device knows them.
    #[inline]
    pub(crate) fn region(&self) -> Option<&Arc<MemoryRegion>> {
        match &self.home {
            Home::Pool { pool, number } => pool.region(*number),
            Home::Heap => None,
        }
    }

    #[inline]
    pub(super) fn is_of(&self, other: &Arc<Shared>) -> bool {
        matches!(&self.home, Home::Pool { pool, .. } if Arc::ptr_eq(pool, other))
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start <= end <= room`, and the `room` initialised bytes are reached by `self` alone.
        unsafe { slice::from_raw_parts(self.first.as_ptr().add(self.start), self.end - self.start) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only way to the bytes.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr().add(self.start), self.end - self.start) }
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
        match &self.home {
            Home::Pool { pool, number } => pool.take_back(*number),
            Home::Heap => {
                let memory = std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.room);
                // SAFETY: `on_heap` made it from a box of this length, and nothing uses it any more.
                drop(unsafe { Box::from_raw(memory) });
            }
        }
    }
}
