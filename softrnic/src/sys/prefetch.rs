//! Having memory come into the cache while something else is done.

/// The size of a cache line; where it is larger, one is asked for twice, which costs next to nothing.
const LINE: usize = 64;

/// Has the first bytes of what `start` points to, up to `bytes`, come into the cache. The pointer need not be valid.
#[inline]
pub(crate) fn prefetch<T>(start: *const T, bytes: usize) {
    for offset in (0..bytes).step_by(LINE) {
        line(start.cast::<u8>().wrapping_add(offset));
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn line(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which reads nothing as far as the program goes, and ignores addresses where nothing is.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

/// Others have no such instruction that Rust knows.
#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline]
fn line(_at: *const u8) {}
