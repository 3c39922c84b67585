//! Arrays at fixed addresses, so that requests and lists can point to each other.

use std::fmt;
use std::ptr::{self, NonNull};

/// An array on the heap, which is accessed only through its address.
pub(crate) struct Ring<T> {
    first: NonNull<T>,
    len: usize,
}

// SAFETY: a ring owns its elements, like a box. It only returns addresses, and using them is unsafe.
unsafe impl<T> Send for Ring<T> {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl<T> Sync for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// The maximum size of a ring, which is more than any queue needs. Without a limit, the system might grant more
    /// memory than it has (overcommit).
    pub(crate) const MOST_BYTES: usize = 1 << 30;

    /// Allocates `len` copies of `value`. Returns `None` if memory is exhausted or the size exceeds
    /// [`MOST_BYTES`](Self::MOST_BYTES).
    pub(crate) fn new(value: T, len: usize) -> Option<Self> {
        if len.checked_mul(size_of::<T>())? > Self::MOST_BYTES {
            return None;
        }
        let mut elements = Vec::new();
        elements.try_reserve_exact(len).ok()?;
        elements.resize(len, value);
        let elements = elements.into_boxed_slice();
        Some(Self { first: NonNull::from(Box::leak(elements)).cast(), len })
    }

    /// Returns the address of element `index`, even if there is no such element.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> *mut T {
        self.first.as_ptr().wrapping_add(index)
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: `new` leaked a boxed slice of this address and length.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len)) });
    }
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_ring_is_not_allocated() {
        assert!(Ring::new(0_u64, 0).is_some());
        assert!(Ring::new(0_u64, usize::MAX / 16).is_none());
    }
}
