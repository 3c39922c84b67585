//! What a process takes up of the system, from `/proc`.

use std::fs;

/// The descriptors, mappings and threads of a process, and its resident memory.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Open descriptors.
    pub descriptors: usize,
    /// Mappings in `/proc/PID/maps`, without the stacks of threads: glibc keeps up to 40 MiB of those of threads that have
    /// ended, which are 20 stacks with two mappings each.
    pub mappings: usize,
    /// Threads.
    pub threads: usize,
    /// Resident memory, in KiB.
    pub resident: usize,
}

impl Usage {
    /// The usage of a process: its number, or `self`.
    ///
    /// # Panics
    ///
    /// If the process does not exist.
    #[track_caller]
    pub fn of(process: &str) -> Self {
        let read = |name: &str| {
            let path = format!("/proc/{process}/{name}");
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let status = read("status");
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            let number = value.and_then(|value| value.trim().trim_end_matches(" kB").parse::<usize>().ok());
            number.unwrap_or_else(|| panic!("/proc/{process}/status has no {name}"))
        };
        let descriptors = fs::read_dir(format!("/proc/{process}/fd"));
        Self {
            descriptors: descriptors.unwrap_or_else(|error| panic!("/proc/{process}/fd: {error}")).count(),
            mappings: mappings(&read("maps")),
            threads: field("Threads:"),
            resident: field("VmRSS:"),
        }
    }

    /// Whether this is no more than before. The allocator and pools keep some memory that was used once, so mappings and
    /// resident memory may exceed what they were by these numbers.
    pub fn is_back(&self, before: &Self, mappings: usize, resident: usize) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.mappings <= before.mappings + mappings
            && self.resident <= before.resident + resident
    }
}

/// Counts the mappings, except each inaccessible page together with the anonymous memory above it.
fn mappings(maps: &str) -> usize {
    let (mut count, mut guard_end) = (0, None);
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (range, access, path) = (fields.next().unwrap_or_default(), fields.next(), fields.nth(3));
        let (start, end) = range.split_once('-').unwrap_or_default();
        let [from, to] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap_or_default());
        let guard_end_before = guard_end.take();
        if path.is_some() {
            count += 1;
        } else if access == Some("---p") && to - from <= 64 << 10 {
            count += 1;
            guard_end = Some(to);
        } else if access == Some("rw-p") && guard_end_before == Some(from) {
            count -= 1;
        } else {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_threads_are_not_counted() {
        let before = "1000-2000 r-xp 00000000 fe:00 7 /bin/cat\n5000-9000 rw-p 00000000 00:00 0 \n";
        let stack = "10000-11000 ---p 00000000 00:00 0 \n11000-211000 rw-p 00000000 00:00 0 \n";
        assert_eq!(mappings(before), 2);
        assert_eq!(mappings(&format!("{before}{stack}{stack}")), 2);
        assert_ne!(Usage::of("self").mappings, 0);
    }
}
