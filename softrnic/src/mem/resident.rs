//! Whether memory is there: what pinning it finds out with a NIC in hardware.

use std::fs;

use crate::sys::errno::Errno;

/// Whether the host has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is brought in.
    There,
    NotThere,
    /// The kernel does not say so of this memory: see [`is_there_by_map`].
    Unclear,
}

/// Brings the memory in, to be read, and to be written where `is_written`.
///
/// # Errors
///
/// `EINVAL` where it goes beyond the end of addresses.
pub(super) fn bring_in(address: usize, length: usize, is_written: bool) -> Result<Presence, Errno> {
    let (start, end) = pages(address, length)?;
    if cfg!(miri) {
        return Ok(Presence::Unclear);
    }
    let advice = if is_written { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: it faults pages in as an access would, and changes nothing that the program sees; the kernel checks the range.
    let result = unsafe { libc::madvise(std::ptr::without_provenance_mut(start), end - start, advice) };
    Ok(match result {
        0 => Presence::There,
        // Kernels before 5.14 do not know it; others say so of memory of devices, and of what cannot be written.
        _ if Errno::last() == Errno::INVALID => Presence::Unclear,
        _ => Presence::NotThere,
    })
}

/// The pages that it is in.
fn pages(address: usize, length: usize) -> Result<(usize, usize), Errno> {
    let page = page_size();
    let end = address.checked_add(length).and_then(|end| end.checked_next_multiple_of(page)).ok_or(Errno::INVALID)?;
    Ok((address / page * page, end))
}

/// The size of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: it has no conditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

/// Whether memory is there and allows it, by the list of mappings; where there is none to see, the program is believed.
pub(super) fn is_there_by_map(address: usize, length: usize, is_written: bool) -> bool {
    match (pages(address, length), fs::read_to_string("/proc/self/maps")) {
        _ if cfg!(miri) => true,
        (Ok((start, end)), Ok(map)) => is_mapped(&map, start, end, is_written),
        (Ok(_), Err(_)) => true,
        (Err(_), _) => false,
    }
}

/// Whether the mappings, which come in order, have all from `start` to `end`.
fn is_mapped(map: &str, start: usize, end: usize, is_written: bool) -> bool {
    let mut known = start;
    for line in map.lines() {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        let Some((from, to)) = range.split_once('-') else { continue };
        let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)) else { continue };
        if to <= known {
            continue;
        }
        if from > known || !rest.starts_with('r') || is_written && rest.as_bytes().get(1) != Some(&b'w') {
            return false;
        }
        known = to;
        if known >= end {
            return true;
        }
    }
    known >= end
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str =
        "1000-3000 r--p 00000000 00:00 0\n3000-5000 rw-p 00000000 00:00 0\n7000-8000 rw-s 00000000 00:00 0";

    #[test]
    fn a_range_over_mappings_that_follow_each_other_is_there() {
        assert!(is_mapped(MAP, 0x1000, 0x5000, false));
        assert!(is_mapped(MAP, 0x3000, 0x5000, true));
        assert!(is_mapped(MAP, 0x7000, 0x8000, true));
    }

    #[test]
    fn a_hole_or_a_missing_right_is_found() {
        assert!(!is_mapped(MAP, 0x2000, 0x4000, true));
        assert!(!is_mapped(MAP, 0x4000, 0x8000, false));
        assert!(!is_mapped(MAP, 0x7000, 0x9000, false));
        assert!(!is_mapped(MAP, 0, 0x2000, false));
        assert!(!is_mapped("", 0x1000, 0x2000, false));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn the_kernel_agrees() {
        let page = page_size();
        let map = |protection| {
            // SAFETY: a new mapping of no file.
            let start = unsafe {
                libc::mmap(std::ptr::null_mut(), 2 * page, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
            };
            assert_ne!(start, libc::MAP_FAILED);
            start.addr()
        };
        let unmap = |start: usize, length| {
            // SAFETY: a mapping that was made here and is used by nobody.
            assert_eq!(unsafe { libc::munmap(std::ptr::without_provenance_mut(start), length) }, 0);
        };

        let check = |address, length, is_written| {
            let presence = bring_in(address, length, is_written)?;
            let is_there = presence == Presence::There
                || presence == Presence::Unclear && is_there_by_map(address, length, is_written);
            if is_there { Ok(()) } else { Err(Errno::FAULT) }
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
