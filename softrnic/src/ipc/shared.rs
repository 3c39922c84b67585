//! Memory that two processes share. It is an unnamed file with seals, so that neither process can shrink it.
//!
//! The other process may write any value at any time. The only references to the memory are therefore to atomic words
//! or to lines of such words, and each word is read only once before it is checked.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::Resource;

use super::codec::Malformed;
use crate::sys::fork;
use crate::wire::bytes::Segment;

/// The seals that fix the size of the file.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The size of eight words in bytes.
pub(super) const LINE: usize = 64;

/// A mapping of the memory.
#[derive(Debug)]
pub(super) struct Shared {
    start: NonNull<u8>,
    generation: u32,
    length: usize,
    /// Whether the memory is on the heap, so that only this process uses it. Only tests create such memory.
    #[cfg(any(test, fuzzing))]
    is_heap: bool,
}

// SAFETY: the memory is used through raw pointers and atomics only. Access by any thread is as valid as access by
// another process.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Creates zeroed memory and a descriptor that can be passed to another process. The kernel allocates a page when
    /// it is first accessed; if the host never overcommits memory, it allocates all pages now.
    ///
    /// # Errors
    ///
    /// `EFBIG` if the process may not create a file of this length (`RLIMIT_FSIZE`), and the errors of memfd_create(2),
    /// fallocate(2) and mmap(2).
    pub(super) fn create(length: usize) -> Result<(Self, OwnedFd), Errno> {
        // Otherwise the kernel sends SIGXFSZ, which ends the process.
        if rustix::process::getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < length as u64) {
            return Err(Errno::FBIG);
        }
        let file = rustix::fs::memfd_create("softrnic", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, length as u64)?;
        // Otherwise an access to a page that the kernel cannot allocate ends the process with SIGBUS.
        if !overcommits() {
            rustix::io::retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length as u64))?;
        }
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        let shared = Self::map(&file, length)?;
        Ok((shared, file))
    }

    /// Maps memory that another process has created.
    pub(super) fn accept(file: &OwnedFd, length: usize) -> Result<Self, Malformed> {
        // Only memory files have seals. The seals fix the size of the file, so no access to the mapping can fault.
        let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| Malformed("not a memory file"))?;
        if !seals.contains(SEALS) {
            return Err(Malformed("memory without seals"));
        }
        let status = rustix::fs::fstat(file).map_err(|_| Malformed("memory without a size"))?;
        if u64::try_from(status.st_size) != Ok(length as u64) {
            return Err(Malformed("memory of another size"));
        }
        Self::map(file, length).map_err(|_| Malformed("memory cannot be mapped"))
    }

    fn map(file: impl AsFd, length: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the mapping is new, at an address that the kernel selects.
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

    /// Creates memory that only this process uses, for tests.
    #[cfg(any(test, fuzzing))]
    pub(super) fn of_heap(length: usize) -> Self {
        let words = vec![0u64; length.div_ceil(8)].into_boxed_slice();
        // `Box::into_raw` never returns null.
        let start = NonNull::new(Box::into_raw(words).cast()).expect("a box");
        Self { start, generation: fork::generation(), length, is_heap: true }
    }

    /// Returns the word at the byte offset `offset`.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // Callers compute the offset from constants and masks, so this panics only if softrnic has a bug.
        assert!(offset.is_multiple_of(8) && offset < self.length, "a word is within the shared memory");
        // SAFETY: the word is aligned and within the mapping, which exists as long as `self`. All other access uses
        // atomics or happens in another process.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// Returns the eight words of the line at the byte offset `offset`.
    #[inline]
    pub(super) fn line(&self, offset: usize) -> &[AtomicU64; LINE / 8] {
        let fits = offset.is_multiple_of(8) && offset.checked_add(LINE).is_some_and(|end| end <= self.length);
        assert!(fits, "a line is within the shared memory");
        // SAFETY: as for `word`, for each word; an array has the alignment of its elements.
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

    /// Sets the word to zero, and returns its previous value.
    pub(super) fn take(&self, offset: usize) -> u64 {
        self.word(offset).swap(0, Ordering::SeqCst)
    }

    /// Returns the `length` bytes that start at `offset`.
    ///
    /// # Safety
    ///
    /// The segment is dropped before `self`. While a thread of this process uses the bytes, no other thread writes
    /// them.
    #[inline]
    pub(super) unsafe fn segment(&self, offset: usize, length: usize) -> Segment {
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(fits, "the bytes are within the shared memory");
        // SAFETY: the bytes are within the mapping, and no references to them are created; the rest is guaranteed by
        // the caller.
        unsafe { Segment::of_raw(self.start.as_ptr().add(offset), length) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        #[cfg(any(test, fuzzing))]
        if self.is_heap {
            let words = ptr::slice_from_raw_parts_mut(self.start.as_ptr().cast::<u64>(), self.length.div_ceil(8));
            // SAFETY: `words` came from a box of this type, and has no other user.
            drop(unsafe { Box::from_raw(words) });
            return;
        }
        // A child does not change the mapping of its parent.
        if self.generation != fork::generation() {
            return;
        }
        // SAFETY: the memory was mapped with this length, and its users hold a reference to `self`.
        if let Err(error) = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) } {
            rdma_mummy_sys::log!(error, "cannot unmap shared memory: {error}");
        }
    }
}

/// Whether the kernel promises more memory than it has, which is its default (`vm.overcommit_memory`, proc(5)).
fn overcommits() -> bool {
    fs::read("/proc/sys/vm/overcommit_memory").map_or(true, |mode| mode.first() != Some(&b'2'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "maps files")]
    fn created_memory_is_accepted() {
        let (made, file) = Shared::create(8192).unwrap();
        let accepted = Shared::accept(&file, 8192).unwrap();
        made.store(4096, 7, Ordering::Release);
        assert_eq!(accepted.load(4096, Ordering::Acquire), 7);
        assert_eq!(accepted.take(4096), 7);
        assert_eq!(made.load(4096, Ordering::Acquire), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps files")]
    fn invalid_memory_is_refused() {
        let (_, file) = Shared::create(8192).unwrap();
        assert_eq!(Shared::accept(&file, 4096).unwrap_err(), Malformed("memory of another size"));
        let file = rustix::fs::memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        assert_eq!(Shared::accept(&file, 8192).unwrap_err(), Malformed("memory without seals"));
        let file = OwnedFd::from(fs::File::open("/proc/self/exe").unwrap());
        assert_eq!(Shared::accept(&file, 8192).unwrap_err(), Malformed("not a memory file"));
        let seals = SEALS.union(SealFlags::WRITE);
        let file = rustix::fs::memfd_create("fixed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        assert_eq!(Shared::accept(&file, 8192).unwrap_err(), Malformed("memory cannot be mapped"));
    }
}
