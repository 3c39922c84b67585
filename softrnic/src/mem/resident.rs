//! Checks that memory is mapped. For a NIC, the kernel checks this when it pins the memory.

use std::fs;

use crate::sys::errno::Errno;

/// Whether memory is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The memory is mapped, and all its pages are now populated.
    Mapped,
    Unmapped,
    /// The kernel cannot populate this memory: see [`is_mapped_by_list`].
    Unknown,
}

/// Populates the pages of memory for reads, and also for writes if `is_written` is set.
///
/// # Errors
///
/// `EINVAL` if the range exceeds the address space.
pub(super) fn populate(address: usize, length: usize, is_written: bool) -> Result<Presence, Errno> {
    let (start, end) = pages(address, length)?;
    if cfg!(miri) {
        return Ok(Presence::Unknown);
    }
    let advice = if is_written { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: `madvise` faults pages in as an access would, with no effect visible to the program; the kernel checks
    // the range.
    let result = unsafe { libc::madvise(std::ptr::without_provenance_mut(start), end - start, advice) };
    Ok(match result {
        0 => Presence::Mapped,
        // The kernel returns `EINVAL` if it is older than Linux 5.14, if the memory belongs to a device, or if the
        // memory is not writable.
        _ if Errno::last() == Errno::INVALID => Presence::Unknown,
        _ => Presence::Unmapped,
    })
}

/// Extends a range to whole pages; returns its start and end.
fn pages(address: usize, length: usize) -> Result<(usize, usize), Errno> {
    let page = page_size();
    let end = address.checked_add(length).and_then(|end| end.checked_next_multiple_of(page)).ok_or(Errno::INVALID)?;
    Ok((address / page * page, end))
}

pub(crate) fn page_size() -> usize {
    // SAFETY: `sysconf` has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

/// Whether `/proc/self/maps` lists the memory as readable, and as writable if `is_written` is set. If the file cannot
/// be read, the result is `true`.
pub(super) fn is_mapped_by_list(address: usize, length: usize, is_written: bool) -> bool {
    match (pages(address, length), fs::read_to_string("/proc/self/maps")) {
        _ if cfg!(miri) => true,
        (Ok((start, end)), Ok(map)) => is_mapped(&map, start, end, is_written),
        (Ok(_), Err(_)) => true,
        (Err(_), _) => false,
    }
}

/// Whether the mappings cover the range from `start` to `end`. The mappings are sorted by address.
fn is_mapped(map: &str, start: usize, end: usize, is_written: bool) -> bool {
    let mut covered = start;
    for line in map.lines() {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        let Some((from, to)) = range.split_once('-') else { continue };
        let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)) else { continue };
        if to <= covered {
            continue;
        }
        if from > covered || !rest.starts_with('r') || is_written && rest.as_bytes().get(1) != Some(&b'w') {
            return false;
        }
        covered = to;
        if covered >= end {
            return true;
        }
    }
    covered >= end
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str =
        "1000-3000 r--p 00000000 00:00 0\n3000-5000 rw-p 00000000 00:00 0\n7000-8000 rw-s 00000000 00:00 0";

    #[test]
    fn range_over_adjacent_mappings_is_mapped() {
        assert!(is_mapped(MAP, 0x1000, 0x5000, false));
        assert!(is_mapped(MAP, 0x3000, 0x5000, true));
        assert!(is_mapped(MAP, 0x7000, 0x8000, true));
    }

    #[test]
    fn hole_or_missing_right_is_detected() {
        assert!(!is_mapped(MAP, 0x2000, 0x4000, true));
        assert!(!is_mapped(MAP, 0x4000, 0x8000, false));
        assert!(!is_mapped(MAP, 0x7000, 0x9000, false));
        assert!(!is_mapped(MAP, 0, 0x2000, false));
        assert!(!is_mapped("", 0x1000, 0x2000, false));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn kernel_reports_the_same() {
        let page = page_size();
        let map = |protection| {
            // SAFETY: the mapping is new and anonymous.
            let start = unsafe {
                libc::mmap(std::ptr::null_mut(), 2 * page, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
            };
            assert_ne!(start, libc::MAP_FAILED);
            start.addr()
        };
        let unmap = |start: usize, length| {
            // SAFETY: this test created the mapping, which has no users.
            assert_eq!(unsafe { libc::munmap(std::ptr::without_provenance_mut(start), length) }, 0);
        };

        let check = |address, length, is_written| {
            let presence = populate(address, length, is_written)?;
            let is_mapped = presence == Presence::Mapped
                || presence == Presence::Unknown && is_mapped_by_list(address, length, is_written);
            if is_mapped { Ok(()) } else { Err(Errno::FAULT) }
        };
        let start = map(libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(check(start + 1, page, true), Ok(()));
        unmap(start + page, page);
        assert_eq!(check(start, page, true), Ok(()));
        assert_eq!(check(start, page + 1, true), Err(Errno::FAULT));
        assert_eq!(check(start, page + 1, false), Err(Errno::FAULT));
        unmap(start, page);

        let start = map(libc::PROT_READ);
        assert_eq!(check(start, 2 * page, false), Ok(()));
        assert_eq!(check(start, 2 * page, true), Err(Errno::FAULT));
        unmap(start, 2 * page);

        assert_eq!(check(usize::MAX - 1, 10, false), Err(Errno::INVALID));
    }
}
