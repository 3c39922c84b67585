//! A buffer.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::HEADROOM;
use super::pool::Shared;

/// A unique buffer, which returns to its pool when it is dropped. Dereferences to its bytes.
///
/// Buffers that are longer than the pool allows, or of no pool, are on the heap; such buffers are copied when they are sent.
pub struct Buf {
    /// Headroom and bytes.
    memory: Box<[u8]>,
    start: usize,
    end: usize,
    home: Option<Arc<Shared>>,
}

/// Where a buffer's bytes are, for the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) address: u64,
    pub(crate) local_key: u32,
    pub(crate) remote_key: u32,
}

impl Buf {
    pub(super) fn of_pool(memory: Box<[u8]>, length: usize, home: Arc<Shared>) -> Buf {
        Buf { memory, start: HEADROOM, end: HEADROOM + length, home: Some(home) }
    }

    /// A buffer on the heap, of no pool.
    pub(crate) fn on_heap(length: usize) -> Buf {
        Buf {
            memory: vec![0; HEADROOM + length].into_boxed_slice(),
            start: HEADROOM,
            end: HEADROOM + length,
            home: None,
        }
    }

    /// Shortens the buffer to its first `length` bytes; does nothing if it is shorter.
    pub fn truncate(&mut self, length: usize) {
        self.end = self.end.min(self.start + length);
    }

    /// Drops the first `length` bytes, or all.
    pub fn advance(&mut self, length: usize) {
        self.start = (self.start + length).min(self.end);
    }

    /// Makes the buffer `length` bytes long, from the start of its memory; false if its memory is shorter.
    pub(crate) fn resize(&mut self, length: usize) -> bool {
        let fits = length <= self.memory.len() - HEADROOM;
        if fits {
            (self.start, self.end) = (HEADROOM, HEADROOM + length);
        }
        fits
    }

    /// Puts a header before the bytes; false if there is no room.
    pub(crate) fn prepend(&mut self, header: &[u8]) -> bool {
        let fits = header.len() <= self.start;
        if fits {
            self.start -= header.len();
            self.memory[self.start..self.start + header.len()].copy_from_slice(header);
        }
        fits
    }

    /// Where the bytes are, if a device knows them.
    pub(crate) fn registered(&self) -> Option<Registered> {
        None
    }

    pub(super) fn home(&self) -> Option<&Arc<Shared>> {
        self.home.as_ref()
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.end]
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.take_back(mem::take(&mut self.memory));
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf").field("length", &self.len()).finish_non_exhaustive()
    }
}
