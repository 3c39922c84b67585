//! Memory that the device owns: device memory and mappings of dma-bufs.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_int;
use std::ptr::NonNull;

use super::{Access, LOCAL_WRITE, MW_BIND, page_size};
use crate::sys::errno::Errno;

/// Device memory (`ibv_alloc_dm`).
#[derive(Debug)]
pub(crate) struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: any thread may use heap memory, and only raw pointers to this memory are created.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates zeroed memory. `alignment` is a power of two.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the length is zero or the alignment is invalid; `ENOMEM` if there is not enough memory.
    pub(crate) fn new(length: usize, alignment: usize) -> Result<Self, Errno> {
        let layout = Layout::from_size_align(length, alignment).map_err(|_| Errno::INVALID)?;
        if length == 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::NO_MEMORY)?;
        Ok(Self { start, layout })
    }

    pub(crate) fn len(&self) -> usize {
        self.layout.size()
    }

    /// Returns the address of the byte at `offset`, which must be within the buffer.
    /// [`Backing::Own`](super::Backing::Own) stores this address.
    pub(crate) fn address(&self, offset: usize) -> usize {
        self.start.as_ptr().wrapping_add(offset).expose_provenance()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and has no user left: users hold a reference to the
        // buffer.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A mapped part of a file.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// The address of the first mapped page.
    start: usize,
    length: usize,
    /// The address of the first byte that the caller requested, which may follow the start of the page.
    address: usize,
}

impl Mapping {
    /// Maps the `length` bytes of a file that start at `offset`, with the access rights `access`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the file is too short, or an error of `mmap`.
    pub(crate) fn new(descriptor: c_int, offset: u64, length: usize, access: Access) -> Result<Self, Errno> {
        // SAFETY: `lseek` changes the position of the file, which is meaningless for a dma-buf; the kernel checks the
        // descriptor.
        let size = unsafe { libc::lseek(descriptor, 0, libc::SEEK_END) };
        if size < 0 {
            return Err(last());
        }
        let end = offset.checked_add(length as u64).ok_or(Errno::INVALID)?;
        if length == 0 || end > size as u64 {
            return Err(Errno::INVALID);
        }
        let before = (offset % page_size() as u64) as usize;
        let first = libc::off_t::try_from(offset - before as u64).map_err(|_| Errno::INVALID)?;
        let length = length.checked_add(before).ok_or(Errno::INVALID)?;
        let write = if access & (LOCAL_WRITE | MW_BIND) != 0 { libc::PROT_WRITE } else { 0 };
        // SAFETY: the mapping is new, at an address that the kernel selects.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | write, libc::MAP_SHARED, descriptor, first)
        };
        if start == libc::MAP_FAILED {
            return Err(last());
        }
        let start = start.expose_provenance();
        Ok(Self { start, length, address: start + before })
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the memory, which has no user left: users hold a reference to the mapping.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.start), self.length) };
    }
}

fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::wire::bytes::{Segment, read_bytes, write_bytes};

    #[test]
    fn buffer_is_aligned_and_zeroed() {
        let buffer = Buffer::new(100, 4096).unwrap();
        assert_eq!((buffer.len(), buffer.address(0) % 4096, buffer.address(9)), (100, 0, buffer.address(0) + 9));
        // SAFETY: the bytes belong to the buffer, which is dropped afterwards.
        let all = unsafe { Segment::of_raw(std::ptr::with_exposed_provenance_mut(buffer.address(0)), 100) };
        let mut bytes = [1; 100];
        read_bytes(&[all], &mut bytes).unwrap();
        assert_eq!(bytes, [0; 100]);
        for (length, alignment) in [(0, 64), (1, 3), (1, 0), (usize::MAX, 64)] {
            assert_eq!(Buffer::new(length, alignment).err(), Some(Errno::INVALID), "{length} {alignment}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn mapping_covers_the_part_of_the_file() {
        // SAFETY: the name ends with a nul byte.
        let descriptor = unsafe { libc::memfd_create(c"softrnic".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(descriptor >= 0);
        // SAFETY: the descriptor was just opened, and only this function owns it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        let size = 3 * page_size() as u64;
        file.set_len(size).unwrap();
        let offset = page_size() as u64 + 5;
        file.write_all_at(b"mapped", offset).unwrap();

        let mapping = Mapping::new(file.as_raw_fd(), offset, 6, LOCAL_WRITE).unwrap();
        let segment = || {
            // SAFETY: the bytes stay mapped until the end of the test.
            unsafe { Segment::of_raw(std::ptr::with_exposed_provenance_mut(mapping.address()), 6) }
        };
        let mut bytes = [0; 6];
        read_bytes(&[segment()], &mut bytes).unwrap();
        assert_eq!(&bytes, b"mapped");
        write_bytes(b"MAPPED", &[segment()]).unwrap();
        file.read_exact_at(&mut bytes, offset).unwrap();
        assert_eq!(&bytes, b"MAPPED");

        for (offset, length) in [(size, 1), (size - 1, 2), (0, 0), (u64::MAX, 1), (0, usize::MAX)] {
            let mapping = Mapping::new(file.as_raw_fd(), offset, length, 0);
            assert_eq!(mapping.err(), Some(Errno::INVALID), "{offset} {length}");
        }
        assert_eq!(Mapping::new(-1, 0, 1, 0).err(), Some(Errno(libc::EBADF)));
    }
}
