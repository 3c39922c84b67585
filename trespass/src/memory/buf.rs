//! The buffers of a pool or of the heap.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use bytes::Bytes;
use sideway::ibverbs::memory_region::MemoryRegion;

use super::HEADROOM;
use super::chunk::Chunk;
use super::pages::Pages;

/// A buffer with one owner. When it is dropped, on any thread, it returns to its pool. It dereferences to its bytes.
///
/// A buffer that has no pool, or is longer than its pool allows, is on the heap, and is copied when it is sent.
pub struct Buf {
    /// Only `drop` moves the value out.
    piece: ManuallyDrop<Box<Piece>>,
}

/// A buffer's memory, and the range of its bytes in use. It is boxed, so that moving a buffer moves only a pointer.
#[derive(Debug)]
pub(super) struct Piece {
    /// The first of the buffer's `room` bytes, all of which are initialised.
    first: NonNull<u8>,
    /// `None` on the heap.
    chunk: Option<Arc<Chunk>>,
    room: u32,
    start: u32,
    end: u32,
    /// Whether the bytes are a notification. They are then on the heap, so no other message uses the piece later.
    is_note: bool,
}

/// A buffer of this length leaves memory for small ones.
const LONG: usize = 64 << 10;
/// Maximum length of a buffer.
const LONGEST: usize = (u32::MAX as usize) - HEADROOM;

// SAFETY: only this value accesses its bytes.
unsafe impl Send for Piece {}
// SAFETY: `&Piece` allows only reading.
unsafe impl Sync for Piece {}

impl Piece {
    /// A part of a chunk: the `room` bytes at `first`.
    ///
    /// # Safety
    ///
    /// - `first` points to `room` initialised bytes, which nothing else uses while the piece and the chunk exist.
    /// - `room` fits 32 bits.
    pub(super) unsafe fn new(chunk: Arc<Chunk>, first: NonNull<u8>, room: usize) -> Self {
        debug_assert!(u32::try_from(room).is_ok());
        Self { first, chunk: Some(chunk), room: room as u32, start: 0, end: 0, is_note: false }
    }

    /// Returns the index of the piece's chunk in the list of its size.
    pub(super) fn index(&self) -> Option<usize> {
        self.chunk.as_ref().map(|chunk| chunk.index())
    }
}

impl Buf {
    /// Creates a buffer whose bytes are the range `start..end` of a piece. If the piece is shorter, the buffer is
    /// shorter too.
    #[inline]
    pub(super) fn of_pool(mut piece: Box<Piece>, start: usize, end: usize) -> Self {
        piece.end = piece.room.min(u32::try_from(end).unwrap_or(u32::MAX));
        piece.start = piece.end.min(u32::try_from(start).unwrap_or(u32::MAX));
        Self { piece: ManuallyDrop::new(piece) }
    }

    /// Creates a buffer on the heap, without a pool. Its length is at most 4 GiB. Aborts the process if there is no
    /// memory, as a `Vec` does. It may take the memory that `try_on_heap` leaves.
    pub(crate) fn on_heap(length: usize) -> Self {
        Self::allocate(length).unwrap_or_else(|| handle_alloc_error(layout(length)))
    }

    /// Creates a buffer on the heap, as `on_heap` does. Returns `None` if there is no memory, or too little would be
    /// left for small buffers.
    pub(crate) fn try_on_heap(length: usize) -> Option<Self> {
        Self::allocate(length).filter(|_| length < LONG || Pages::check_spare().is_ok())
    }

    fn allocate(length: usize) -> Option<Self> {
        let layout = layout(length);
        // SAFETY: the layout is not empty, because of the space for a header.
        let first = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let (start, end) = (HEADROOM as u32, layout.size() as u32);
        let piece = Piece { first, chunk: None, room: end, start, end, is_note: false };
        Some(Self { piece: ManuallyDrop::new(Box::new(piece)) })
    }

    /// Creates the buffer of a notification.
    pub(crate) fn note(bytes: [u8; 8]) -> Self {
        let mut note = Self::on_heap(bytes.len());
        note.copy_from_slice(&bytes);
        note.piece.is_note = true;
        note
    }

    /// Returns the number, if this message is a notification ([`Batch::notify`](crate::Batch::notify)). The bytes of a
    /// notification are the number in little-endian order; a message of the same bytes is not a notification.
    pub fn notification(&self) -> Option<u64> {
        self.piece.is_note.then(|| self.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)))?
    }

    /// Shortens the buffer to its first `length` bytes. Does nothing if the buffer is already shorter.
    #[inline]
    pub fn truncate(&mut self, length: usize) {
        self.piece.end = self.piece.end.min(self.piece.start.saturating_add(u32::try_from(length).unwrap_or(u32::MAX)));
    }

    /// Undoes the truncation of a buffer that had `length` bytes before.
    pub(crate) fn extend_to(&mut self, length: usize) {
        self.piece.end =
            self.piece.room.min(self.piece.start.saturating_add(u32::try_from(length).unwrap_or(u32::MAX)));
    }

    /// Removes the first `length` bytes, or all bytes if the buffer is shorter.
    #[inline]
    pub fn advance(&mut self, length: usize) {
        self.piece.start =
            self.piece.start.saturating_add(u32::try_from(length).unwrap_or(u32::MAX)).min(self.piece.end);
    }

    /// Converts the buffer to [`Bytes`] without a copy. When the last clone is dropped, the buffer returns to its pool.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Sets the length of the buffer to `length`. Its bytes then begin after the space for a header. Returns false if
    /// the memory is too short.
    #[inline]
    pub(crate) fn resize(&mut self, length: usize) -> bool {
        let start = (HEADROOM as u32).min(self.piece.room);
        let fits = length <= (self.piece.room - start) as usize;
        if fits {
            (self.piece.start, self.piece.end) = (start, start + length as u32);
        }
        fits
    }

    /// Empties the buffer. Bytes that are appended later begin after the space for a header.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.piece.start = (HEADROOM as u32).min(self.piece.room);
        self.piece.end = self.piece.start;
    }

    /// Writes a header before the bytes. Returns false if there is no space for it.
    #[inline]
    pub(crate) fn prepend(&mut self, header: &[u8]) -> bool {
        if header.len() > self.piece.start as usize {
            return false;
        }
        self.piece.start -= header.len() as u32;
        self[..header.len()].copy_from_slice(header);
        true
    }

    /// Appends bytes. Returns false if there is no space for them.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let at = self.len();
        let fits = bytes.len() <= self.room();
        if fits {
            self.piece.end += bytes.len() as u32;
            self[at..].copy_from_slice(bytes);
        }
        fits
    }

    /// Appends both parts. Returns false if there is no space for them.
    #[inline]
    pub(crate) fn append(&mut self, first: &[u8], second: &[u8]) -> bool {
        let (length, at) = (first.len() + second.len(), self.len());
        if length > self.room() {
            return false;
        }
        self.piece.end += length as u32;
        self[at..at + first.len()].copy_from_slice(first);
        self[at + first.len()..].copy_from_slice(second);
        true
    }

    /// Whether the memory is long enough for a segment of this length, and not much longer.
    #[inline]
    pub(crate) fn is_segment(&self, length: usize) -> bool {
        let room = self.piece.room as usize;
        room >= length + HEADROOM && room <= 2 * length.max(4 << 10)
    }

    /// Returns the number of bytes that `append` can add.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        (self.piece.room - self.piece.end) as usize
    }

    /// Returns the registration of the bytes, or `None` if they are not registered.
    #[inline]
    pub(crate) fn region(&self) -> Option<&Arc<MemoryRegion>> {
        self.piece.chunk.as_ref()?.region()
    }

    /// Returns the chunk that contains the buffer, or `None` if the buffer is on the heap.
    #[inline]
    pub(super) fn chunk(&self) -> Option<&Chunk> {
        self.piece.chunk.as_deref()
    }
}

/// The memory of a buffer on the heap.
fn layout(length: usize) -> Layout {
    // The size is at most 4 GiB, so this fails only where an address has 32 bits.
    Layout::from_size_align(HEADROOM + length.min(LONGEST), HEADROOM).unwrap_or(Layout::new::<[u8; HEADROOM]>())
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start <= end <= room`, and only `self` accesses the `room` initialised bytes.
        unsafe {
            slice::from_raw_parts(
                self.piece.first.as_ptr().add(self.piece.start as usize),
                (self.piece.end - self.piece.start) as usize,
            )
        }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only access to the bytes.
        unsafe {
            slice::from_raw_parts_mut(
                self.piece.first.as_ptr().add(self.piece.start as usize),
                (self.piece.end - self.piece.start) as usize,
            )
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
        // SAFETY: the buffer is being dropped, so nothing uses its piece afterwards.
        let piece = unsafe { ManuallyDrop::take(&mut self.piece) };
        match &piece.chunk {
            Some(chunk) => chunk.home().push(piece),
            None => {
                let layout = layout(piece.room as usize - HEADROOM);
                // SAFETY: `allocate` allocated the memory with this layout, and nothing uses it any more.
                unsafe { dealloc(piece.first.as_ptr(), layout) };
            }
        }
    }
}
