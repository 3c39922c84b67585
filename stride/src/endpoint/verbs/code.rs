//! The program's own code, as part of what is measured.

use std::fs;
use std::ops::Range;
use std::sync::Once;

use rustix::io;
use rustix::mm::{Advice, madvise};

/// Has all of the program's code mapped, once in a process: the system else maps it as it runs for the first time, a few pages at a time, which
/// would be a part of the first window.
pub(super) fn map() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let here = map as fn() as usize;
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        match around(here, &maps).map(populate) {
            Some(Ok(())) => {}
            Some(Err(error)) => log::debug!("the program's code is not mapped as a whole: {error}"),
            None => log::debug!("/proc/self/maps does not say where the program's code is"),
        }
    });
}

/// The mapping of a list as the kernel writes it, `start-end permissions …` on each line, that an address is in.
fn around(address: usize, maps: &str) -> Option<Range<usize>> {
    let ranges = maps.lines().filter_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    });
    ranges.into_iter().find(|range| range.contains(&address))
}

/// Maps the pages of a mapping that are not mapped yet, as if each was read (Linux 5.14).
fn populate(range: Range<usize>) -> io::Result<()> {
    let start = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: a program sees nothing of this advice: no byte changes, nothing is unmapped. What is no mapping any more is an error.
    unsafe { madvise(start, range.len(), Advice::LinuxPopulateRead) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_found_by_an_address_in_it() {
        let maps = "7f00-8000 r--p 00000000 fe:00 17 /usr/bin/stride-perf\n\
                    8000-9000 r-xp 00008000 fe:00 17 /usr/bin/stride-perf\n\
                    garbage\n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]";
        assert_eq!(around(0x8000, maps), Some(0x8000..0x9000));
        assert_eq!(around(0x7fff, maps), Some(0x7f00..0x8000));
        assert_eq!(around(0x9000, maps), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn this_program_has_its_code_mapped() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let range = around(map as fn() as usize, &maps).unwrap();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
        let is_known = (numbers.next(), numbers.next()) >= (Some(5), Some(14));
        let due = if is_known { Ok(()) } else { Err(io::Errno::INVAL) };
        assert_eq!(populate(range), due, "Linux {release}");
        map();
    }
}
