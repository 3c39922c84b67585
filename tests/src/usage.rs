//! What a process takes up of the system, from `/proc`.

use std::fs;

/// The descriptors, mappings and threads of a process, and its resident memory.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Open descriptors.
    pub descriptors: usize,
    /// Mappings in `/proc/PID/maps`.
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
            mappings: read("maps").lines().count(),
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
