//! Whole pages of one's own.

use std::ptr::{self, NonNull};

use super::register::page_size;
use super::{HugePageSize, HugePages};
use crate::error::VerbError;
use crate::ffi::last_errno;

/// Anonymous memory, all zero, that nothing else of the program is in: given back with munmap(2) when dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    first: NonNull<u8>,
    mapped: usize,
}

// SAFETY: the mapping belongs to its owner and to no thread; using the address is unsafe.
unsafe impl Send for Pages {}
// SAFETY: as for Send.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `len` bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a length of zero or beyond the address space, else that of mmap(2).
    pub(super) fn new(len: usize, huge: HugePages) -> Result<Self, VerbError> {
        const VERB: &str = "mmap";
        let (page, flags, slack) = match huge {
            HugePages::System => (page_size(), 0, 0),
            HugePages::Transparent => (HugePageSize::MIB_2.bytes(), 0, HugePageSize::MIB_2.bytes()),
            HugePages::Reserved(size) => (size.bytes(), libc::MAP_HUGETLB | size.map_flag(), 0),
        };
        if len == 0 {
            return Err(VerbError::invalid(VERB, "memory of no bytes cannot be registered: set a length"));
        }
        let whole = len.checked_next_multiple_of(page).and_then(|whole| Some((whole, whole.checked_add(slack)?)));
        let Some((whole, wanted)) = whole.filter(|(_, wanted)| isize::try_from(*wanted).is_ok()) else {
            return Err(VerbError::invalid(VERB, format!("{len} bytes are more than an address space has")));
        };
        // SAFETY: a new anonymous mapping, at an address of the kernel's choice, touches no memory that is in use.
        let first = unsafe {
            libc::mmap(
                ptr::null_mut(),
                wanted,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        let failure = || explain(VerbError::new(VERB, last_errno()), len, huge);
        if first == libc::MAP_FAILED {
            return Err(failure());
        }
        let first = NonNull::new(first.cast()).ok_or_else(failure)?;
        let pages = Self { first, mapped: wanted }.trim(page, whole);
        if huge == HugePages::Transparent {
            pages.advise(libc::MADV_HUGEPAGE);
        }
        // A child of fork(2) that shared the pages would, on a kernel before 5.12, make the parent write to a copy which the
        // device does not know. The child has no use for them: it must not touch the device.
        pages.advise(libc::MADV_DONTFORK);
        Ok(pages)
    }

    /// The first byte; whole pages follow.
    pub(super) fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// Gives back what stands before the first multiple of `align` and behind the `len` bytes that begin there.
    fn trim(self, align: usize, len: usize) -> Self {
        let before = self.first.as_ptr().align_offset(align);
        // An address that is aligned has nothing before it; `new` asked for as much more as can be before it else.
        let Some(behind) = self.mapped.checked_sub(len).and_then(|slack| slack.checked_sub(before)) else {
            return self;
        };
        let pages = std::mem::ManuallyDrop::new(self);
        // SAFETY: `before + len + behind` bytes are mapped, so that all three parts are within, and they are whole pages.
        unsafe {
            let first = pages.first.add(before);
            unmap(pages.first, before);
            unmap(first.add(len), behind);
            Self { first, mapped: len }
        }
    }

    /// Advice that may be ignored.
    fn advise(&self, advice: libc::c_int) {
        // Miri takes none.
        if cfg!(miri) {
            return;
        }
        // SAFETY: the mapping is ours, and neither advice changes its bytes.
        if unsafe { libc::madvise(self.first.as_ptr().cast(), self.mapped, advice) } != 0 {
            log::debug!("madvise({advice}): {}", last_errno());
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and its owner has let go of it.
        unsafe { unmap(self.first, self.mapped) };
    }
}

/// # Safety
///
/// The range is whole pages of a mapping of ours that nobody uses any more.
unsafe fn unmap(first: NonNull<u8>, len: usize) {
    // SAFETY: the caller's promise.
    if len > 0 && unsafe { libc::munmap(first.as_ptr().cast(), len) } != 0 {
        log::warn!("munmap: {}; {len} bytes are leaked", last_errno());
    }
}

#[cold]
fn explain(error: VerbError, len: usize, huge: HugePages) -> VerbError {
    match (huge, error.errno().raw()) {
        (HugePages::Reserved(size), libc::ENOMEM) => error.with_hint(format!(
            "{len} bytes need {} free huge pages of {size}: reserve them, as root, in \
             /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages, or ask for HugePages::Transparent",
            len.div_ceil(size.bytes()),
            size.bytes() >> 10
        )),
        (HugePages::Reserved(size), libc::EINVAL | libc::ENODEV | libc::ENOSYS | libc::EOPNOTSUPP) => error.with_hint(
            format!("this machine has no huge pages of {size}: /sys/kernel/mm/hugepages lists the sizes it has"),
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn pages_begin_where_they_should_and_are_zero() {
        let page = page_size();
        for (len, huge, align) in [
            (1, HugePages::System, page),
            (page + 1, HugePages::System, page),
            (5, HugePages::Transparent, 2 << 20),
            ((2 << 20) + 1, HugePages::Transparent, 2 << 20),
        ] {
            let pages = Pages::new(len, huge).unwrap();
            let first = pages.first().as_ptr();
            assert_eq!(first.addr() % align, 0);
            assert_eq!(pages.mapped, len.next_multiple_of(align));
            // SAFETY: all of the mapping can be read and written.
            unsafe {
                assert_eq!((first.read(), first.add(pages.mapped - 1).read()), (0, 0));
                first.add(pages.mapped - 1).write(1);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn what_cannot_be_is_refused() {
        assert!(Pages::new(0, HugePages::System).unwrap_err().to_string().contains("no bytes"));
        for len in [usize::MAX, isize::MAX as usize] {
            for huge in [HugePages::System, HugePages::Transparent, HugePages::Reserved(HugePageSize::GIB_1)] {
                assert!(Pages::new(len, huge).unwrap_err().to_string().contains("mmap: E"));
            }
        }
        // No machine has huge pages of this size.
        let odd = HugePages::Reserved(HugePageSize::from_bytes(1 << 13).unwrap());
        let error = Pages::new(1, odd).unwrap_err().to_string();
        assert!(error.contains("no huge pages of 8 KiB"), "{error}");
    }
}
