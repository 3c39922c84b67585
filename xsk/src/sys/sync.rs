//! Primitives of the rings, in one module so that the loom tests can replace them.

pub(crate) use std::sync::atomic::{AtomicU32, Ordering};

/// The entries of a ring, in memory that the kernel shares.
///
/// Contains only a pointer: the kernel writes entries that it owns, so no reference to an entry may exist.
#[derive(Debug)]
pub(crate) struct Slots<T>(*mut T);

// This is not derived, because a pointer is `Copy` even if `T` is not.
impl<T> Clone for Slots<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slots<T> {}

impl<T: Copy> Slots<T> {
    pub(crate) fn new(first: *mut T) -> Self {
        Self(first)
    }

    /// Reads the entry at this position in bytes.
    ///
    /// # Safety
    ///
    /// The ring has an entry there, and its memory is mapped. The peer has published the entry and does not write it
    /// until it is released.
    #[inline]
    pub(crate) unsafe fn read(self, position: usize) -> T {
        // SAFETY: the caller ensures that the entry exists and that nothing writes it.
        unsafe { self.0.byte_add(position).read() }
    }

    /// Writes the entry at this position in bytes.
    ///
    /// # Safety
    ///
    /// The ring has an entry there, and its memory is mapped. The peer does not read the entry until it is published.
    #[inline]
    pub(crate) unsafe fn write(self, position: usize, value: T) {
        // SAFETY: the caller ensures that the entry exists and that nothing reads it.
        unsafe { self.0.byte_add(position).write(value) }
    }
}
