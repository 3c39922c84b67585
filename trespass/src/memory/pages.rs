//! Allocates whole pages: huge pages if the system has them.

use std::io;
use std::ptr::{self, NonNull};

/// The size of the requested huge pages.
pub(super) const HUGE: usize = 2 << 20;

/// Anonymous memory, which is initially zero. Dropping this value calls munmap(2).
#[derive(Debug)]
pub(crate) struct Pages {
    first: NonNull<u8>,
    len: usize,
}

/// How much memory new objects leave for those that exist. A small allocation that fails aborts the process, so what
/// is new must be refused before.
const SPARE: usize = 2 << 20;

// SAFETY: the mapping does not depend on the thread; using the address is unsafe.
unsafe impl Send for Pages {}
// SAFETY: as for Send.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps at least `len` bytes. If they fill a huge page: reserved huge pages if enough are free, otherwise ordinary
    /// pages for which it requests transparent huge pages.
    ///
    /// # Errors
    ///
    /// The error of mmap(2).
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let rounded = |to: usize| len.max(1).checked_next_multiple_of(to).ok_or(io::ErrorKind::OutOfMemory);
        let is_huge = len >= HUGE && !cfg!(miri);
        let huge = if is_huge { Self::map(rounded(HUGE)?, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB).ok() } else { None };
        let pages = match huge {
            Some(pages) => pages,
            None => {
                let pages = Self::map(rounded(4096)?, 0)?;
                if is_huge {
                    pages.advise(libc::MADV_HUGEPAGE);
                }
                pages
            }
        };
        // If a child of fork(2) shared the pages, the parent's writes would go to copies that the device does not
        // access.
        pages.advise(libc::MADV_DONTFORK);
        Self::check_spare()?;
        Ok(pages)
    }

    /// Checks whether the existing objects have memory left.
    ///
    /// # Errors
    ///
    /// The error of mmap(2).
    pub(crate) fn check_spare() -> io::Result<()> {
        if cfg!(miri) { Ok(()) } else { Self::map(SPARE, 0).map(drop) }
    }

    /// Checks whether an existing object may take `len` bytes of what is left, and leave a part of it.
    ///
    /// # Errors
    ///
    /// The error of mmap(2).
    pub(crate) fn check_last(len: usize) -> io::Result<()> {
        if cfg!(miri) { Ok(()) } else { Self::map(SPARE / 4 + len, 0).map(drop) }
    }

    fn map(len: usize, flags: libc::c_int) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping, at an address of the kernel's choice, touches no memory that is in use.
        let first = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(first.cast()).map(|first| Self { first, len }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Returns the address of the first byte.
    #[inline]
    pub(crate) fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Gives the kernel advice, which it may ignore.
    fn advise(&self, advice: libc::c_int) {
        if cfg!(miri) {
            return;
        }
        // SAFETY: this value owns the mapping, and neither advice changes its bytes.
        if unsafe { libc::madvise(self.first.as_ptr().cast(), self.len, advice) } != 0 {
            rdma_mummy_sys::log!(debug, "madvise({advice}): {}", io::Error::last_os_error());
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, which has this length, and nothing uses it any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a mapping at this address is not copied to children: it has the flag `dc` of proc_pid_smaps(5).
    fn stays_with_its_process(address: usize) -> Option<bool> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut is_it = false;
        maps.lines().find_map(|line| {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let ends = range.map(|(from, to)| [from, to].map(|end| usize::from_str_radix(end, 16)));
            if let Some([Ok(from), Ok(to)]) = ends {
                is_it = (from..to).contains(&address);
            }
            line.strip_prefix("VmFlags:").filter(|_| is_it).map(|flags| flags.split(' ').any(|flag| flag == "dc"))
        })
    }

    /// The second is in huge pages, if the system has reserved some.
    #[test]
    #[cfg_attr(miri, ignore = "reads /proc")]
    fn pages_are_not_shared_with_children() {
        for length in [4096, HUGE] {
            let pages = Pages::new(length).unwrap();
            assert_eq!(stays_with_its_process(pages.first().as_ptr() as usize), Some(true), "{length}");
        }
    }
}
