//! Memory that consists of whole pages.

use std::ptr::{self, NonNull};

use super::register::page_size;
use super::{HugePageSize, HugePages};
use crate::error::VerbError;
use crate::ffi::last_errno;

/// Zeroed anonymous memory that contains no other object of the program. Dropping it calls munmap(2).
#[derive(Debug)]
pub(crate) struct Pages {
    first: NonNull<u8>,
    mapped: usize,
}

// SAFETY: the mapping belongs to its owner and not to a thread, and using its address is unsafe.
unsafe impl Send for Pages {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates at least `len` bytes.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the length is zero or exceeds the address space, otherwise the errno of mmap(2).
    pub(super) fn new(len: usize, huge: HugePages) -> Result<Self, VerbError> {
        const VERB: &str = "mmap";
        let (page, flags, slack) = match huge {
            HugePages::System => (page_size(), 0, 0),
            HugePages::Transparent => (HugePageSize::MIB_2.bytes(), 0, HugePageSize::MIB_2.bytes()),
            HugePages::Reserved(size) => (size.bytes(), libc::MAP_HUGETLB | size.map_flag(), 0),
        };
        if len == 0 {
            return Err(VerbError::invalid(VERB, "the length is 0; set a length"));
        }
        let whole = len.checked_next_multiple_of(page).and_then(|whole| Some((whole, whole.checked_add(slack)?)));
        let Some((whole, wanted)) = whole.filter(|(_, wanted)| isize::try_from(*wanted).is_ok()) else {
            return Err(VerbError::invalid(VERB, format!("{len} bytes exceed the address space")));
        };
        // SAFETY: the kernel chooses the address of the new anonymous mapping, so the call does not affect memory that
        // is in use.
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
        // On a kernel before 5.12, a child of fork(2) that shared the pages would make the parent write to a copy that
        // the device does not use. A child has no use for the pages, because it must not touch the device.
        pages.advise(libc::MADV_DONTFORK);
        Ok(pages)
    }

    /// Returns a pointer to the first byte of the pages.
    pub(super) fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// Unmaps the pages before the first multiple of `align`, and those after the `len` bytes that start there.
    fn trim(self, align: usize, len: usize) -> Self {
        let before = self.first.as_ptr().align_offset(align);
        // If the mapping already starts at an aligned address, no pages come before it. Otherwise, `new` has allocated
        // enough memory for these pages too.
        let Some(behind) = self.mapped.checked_sub(len).and_then(|slack| slack.checked_sub(before)) else {
            return self;
        };
        let pages = std::mem::ManuallyDrop::new(self);
        // SAFETY: `before + len + behind` bytes are mapped, so all three parts are within the mapping, and each part
        // consists of whole pages.
        unsafe {
            let first = pages.first.add(before);
            unmap(pages.first, before);
            unmap(first.add(len), behind);
            Self { first, mapped: len }
        }
    }

    /// Gives advice that the kernel may ignore.
    fn advise(&self, advice: libc::c_int) {
        // Miri does not support this call.
        if cfg!(miri) {
            return;
        }
        // SAFETY: this object owns the mapping, and the advice does not change its bytes.
        if unsafe { libc::madvise(self.first.as_ptr().cast(), self.mapped, advice) } != 0 {
            rdma_mummy_sys::log!(debug, "madvise({advice}): {}", last_errno());
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this object owns the mapping, which is no longer used.
        unsafe { unmap(self.first, self.mapped) };
    }
}

/// # Safety
///
/// The range consists of whole pages of a mapping that is no longer used.
unsafe fn unmap(first: NonNull<u8>, len: usize) {
    // SAFETY: the caller upholds the contract of this function.
    if len > 0 && unsafe { libc::munmap(first.as_ptr().cast(), len) } != 0 {
        rdma_mummy_sys::log!(warn, "munmap: {}; {len} bytes are leaked", last_errno());
    }
}

#[cold]
fn explain(error: VerbError, len: usize, huge: HugePages) -> VerbError {
    match (huge, error.errno().raw()) {
        (HugePages::Reserved(size), libc::ENOMEM) => error.with_hint(format!(
            "{len} bytes need {} free huge pages of {size}; reserve them as root in \
            /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages, or use HugePages::Transparent",
            len.div_ceil(size.bytes()),
            size.bytes() >> 10
        )),
        (HugePages::Reserved(size), libc::EINVAL | libc::ENODEV | libc::ENOSYS | libc::EOPNOTSUPP) => error.with_hint(
            format!("this machine has no huge pages of {size}; choose a size listed in /sys/kernel/mm/hugepages"),
        ),
        (_, libc::ENOMEM) => error.with_hint(format!(
            "cannot allocate {len} bytes; free memory, or raise the limit of the address space (ulimit -v)"
        )),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn pages_beyond_the_memory_name_the_limit() {
        let error = Pages::new(isize::MAX as usize / 2, HugePages::System).unwrap_err();
        assert!(error.errno().raw() == libc::ENOMEM && error.to_string().contains("ulimit -v"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn pages_are_aligned_and_zeroed() {
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
            // SAFETY: the whole mapping can be read and written.
            unsafe {
                assert_eq!((first.read(), first.add(pages.mapped - 1).read()), (0, 0));
                first.add(pages.mapped - 1).write(1);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn impossible_sizes_are_rejected() {
        assert!(Pages::new(0, HugePages::System).unwrap_err().to_string().contains("the length is 0"));
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
