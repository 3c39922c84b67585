//! The memory that two processes share: a file without a name, sealed so that neither can take it from the other.
//!
//! The other process may write anything there at any time. So no reference to it is made but for atomic words, one or a line of
//! them, and each word is read once before it is judged.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::codec::Garbage;
use crate::sys::fork;
use crate::wire::bytes::Segment;

/// All of the seals that keep its size.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The bytes of eight words.
pub(super) const LINE: usize = 64;

/// Memory that is mapped here, and perhaps elsewhere.
#[derive(Debug)]
pub(super) struct Shared {
    start: NonNull<u8>,
    generation: u32,
    length: usize,
    /// Of a test that has no other process.
    #[cfg(any(test, fuzzing))]
    is_heap: bool,
}

// SAFETY: it is used by raw pointers and atomics alone, and by any thread as it is by another process.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Zeros, and the descriptor that another process maps them by. Pages are there once they are touched.
    pub(super) fn create(length: usize) -> Result<(Self, OwnedFd), Errno> {
        let file = rustix::fs::memfd_create("softrnic", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, length as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        let shared = Self::map(&file, length)?;
        Ok((shared, file))
    }

    /// Maps what another process has made.
    pub(super) fn accept(file: &OwnedFd, length: usize) -> Result<Self, Garbage> {
        // Only memory can be sealed: what is neither shrunk nor grown is there wherever it is touched.
        let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| Garbage("a file that is not memory"))?;
        if !seals.contains(SEALS) {
            return Err(Garbage("memory that is not sealed"));
        }
        let status = rustix::fs::fstat(file).map_err(|_| Garbage("memory without a size"))?;
        if u64::try_from(status.st_size) != Ok(length as u64) {
            return Err(Garbage("memory of another size"));
        }
        Self::map(file, length).map_err(|_| Garbage("memory that cannot be mapped"))
    }

    fn map(file: impl AsFd, length: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            generation: fork::generation(),
            start,
            length,
            #[cfg(any(test, fuzzing))]
            is_heap: false,
        })
    }

    /// Of a test: of this process alone.
    #[cfg(any(test, fuzzing))]
    pub(super) fn of_heap(length: usize) -> Self {
        let words = vec![0u64; length.div_ceil(8)].into_boxed_slice();
        // A pointer to no value but the box's own is null.
        let start = NonNull::new(Box::into_raw(words).cast()).expect("a box");
        Self { start, generation: fork::generation(), length, is_heap: true }
    }

    /// A word at `offset`, in bytes.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // Every caller computes it from constants and masks: a panic here is a mistake of ours.
        assert!(offset.is_multiple_of(8) && offset < self.length, "a word outside of the shared memory");
        // SAFETY: it is within the mapping, which is there as long as `self`, and aligned. Whoever else uses it does so with
        // atomics, or in another process.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// The eight words of the line at `offset`, in bytes.
    #[inline]
    pub(super) fn line(&self, offset: usize) -> &[AtomicU64; LINE / 8] {
        let fits = offset.is_multiple_of(8) && offset.checked_add(LINE).is_some_and(|end| end <= self.length);
        assert!(fits, "a line outside of the shared memory");
        // SAFETY: as for `word`, of each; an array has no other alignment than what it is of, and may be where its words may be.
        unsafe { &*self.start.as_ptr().add(offset).cast::<[AtomicU64; LINE / 8]>() }
    }

    #[inline]
    pub(super) fn load(&self, offset: usize, order: Ordering) -> u64 {
        self.word(offset).load(order)
    }

    #[inline]
    pub(super) fn store(&self, offset: usize, value: u64, order: Ordering) {
        self.word(offset).store(value, order);
    }

    /// Takes what is there, and leaves zero.
    pub(super) fn take(&self, offset: usize) -> u64 {
        self.word(offset).swap(0, Ordering::SeqCst)
    }

    /// The bytes from `offset` on.
    ///
    /// # Safety
    ///
    /// The segment goes before `self`. Nobody in this process writes these bytes while another uses them.
    #[inline]
    pub(super) unsafe fn segment(&self, offset: usize, length: usize) -> Segment {
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(fits, "bytes outside of the shared memory");
        // SAFETY: the bytes are within the mapping, and no references to them are made; the rest is the caller's promise.
        unsafe { Segment::of_raw(self.start.as_ptr().add(offset), length) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        #[cfg(any(test, fuzzing))]
        if self.is_heap {
            let words = ptr::slice_from_raw_parts_mut(self.start.as_ptr().cast::<u64>(), self.length.div_ceil(8));
            // SAFETY: it came from this box, and nobody uses it any more.
            drop(unsafe { Box::from_raw(words) });
            return;
        }
        // A child has no use for what was its parent's, and touches none of it.
        if self.generation != fork::generation() {
            return;
        }
        // SAFETY: it was mapped so, and who uses it keeps `self`.
        if let Err(error) = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) } {
            log::error!("shared memory cannot be unmapped: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "maps files")]
    fn memory_is_accepted_as_it_was_made() {
        let (made, file) = Shared::create(8192).unwrap();
        let accepted = Shared::accept(&file, 8192).unwrap();
        made.store(4096, 7, Ordering::Release);
        assert_eq!(accepted.load(4096, Ordering::Acquire), 7);
        assert_eq!(accepted.take(4096), 7);
        assert_eq!(made.load(4096, Ordering::Acquire), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps files")]
    fn nothing_else_is() {
        let (_, file) = Shared::create(8192).unwrap();
        assert_eq!(Shared::accept(&file, 4096).unwrap_err(), Garbage("memory of another size"));
        let file = rustix::fs::memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        assert_eq!(Shared::accept(&file, 8192).unwrap_err(), Garbage("memory that is not sealed"));
        let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        assert_eq!(Shared::accept(&file, 8192).unwrap_err(), Garbage("a file that is not memory"));
        let seals = SEALS.union(SealFlags::WRITE);
        let file = rustix::fs::memfd_create("fixed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        assert_eq!(Shared::accept(&file, 8192).unwrap_err(), Garbage("memory that cannot be mapped"));
    }
}
