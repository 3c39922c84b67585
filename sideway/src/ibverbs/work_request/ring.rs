//! Requests and lists that stand at fixed addresses, so that they can point to each other.

use std::fmt;
use std::ptr::{self, NonNull};

/// An array on the heap that is reached through its address alone.
pub(crate) struct Ring<T> {
    first: NonNull<T>,
    len: usize,
}

// SAFETY: a ring owns its elements as a box does; it hands out addresses, and using those is unsafe.
unsafe impl<T> Send for Ring<T> {}
// SAFETY: as for Send.
unsafe impl<T> Sync for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// The system may promise memory that it has not, and this is more than any queue needs.
    pub(crate) const MOST_BYTES: usize = 1 << 30;

    /// `len` elements, all `value`; `None` where there is no memory for them, or they would take more than
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

    /// The address of the element, whether there is one at `index` or not.
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
    fn what_is_larger_than_any_queue_is_not_made() {
        assert!(Ring::new(0_u64, 0).is_some());
        assert!(Ring::new(0_u64, usize::MAX / 16).is_none());
    }
}
