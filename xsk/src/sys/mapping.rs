//! Memory from `mmap`.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use libc::{c_int, off_t};

use super::{Errno, errno};

/// A mapping, which is removed when it is dropped. Children after `fork` do not inherit it, because a child with a ring
/// would keep the queue bound.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping may be used and removed from any thread; its users are responsible for its contents.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of this process.
    pub(crate) fn anonymous(len: usize, is_huge: bool) -> Result<Self, Errno> {
        let huge = if is_huge { libc::MAP_HUGETLB } else { 0 };
        Self::new(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge, -1, 0)
    }

    /// A ring of a socket.
    pub(crate) fn of_socket(fd: BorrowedFd<'_>, len: usize, offset: u64) -> Result<Self, Errno> {
        Self::new(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset as off_t)
    }

    fn new(len: usize, flags: c_int, fd: c_int, offset: off_t) -> Result<Self, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(errno());
        }
        let base = NonNull::new(base.cast()).ok_or(libc::ENOMEM)?;
        let mapping = Self { base, len };
        #[cfg(not(miri))]
        // SAFETY: the range is the mapping, and the advice changes nothing in this process.
        unsafe {
            libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK);
        }
        Ok(mapping)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the value owns the range, and its users have dropped what points into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
