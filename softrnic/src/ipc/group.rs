//! Multicast groups: a process with members of one has a name that says so, and the kernel lists all names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::socket;
use crate::sys::descriptor::Descriptor;
use crate::sys::unpoisoned;
use crate::wire::address::Gid;

/// How long a look at the list holds.
const FRESH: Duration = Duration::from_millis(50);
/// Where the kernel lists the names of sockets.
const NAMES: &str = "/proc/net/unix";

/// The groups of this process, and who else is known to be in one.
#[derive(Debug)]
pub(super) struct Groups {
    joined: Mutex<BTreeMap<Gid, Descriptor>>,
    /// The blocks of all members, of this process too.
    seen: Mutex<BTreeMap<Gid, (Instant, BTreeSet<u32>)>>,
}

impl Groups {
    pub(super) const fn new() -> Self {
        Self { joined: Mutex::new(BTreeMap::new()), seen: Mutex::new(BTreeMap::new()) }
    }

    /// Tells other processes that the one with this block is in a group.
    pub(super) fn join(&self, group: Gid, block: u32) -> Result<(), Errno> {
        let socket = socket::new()?;
        let name = format!("{}{block:x}", prefix(group));
        rustix::net::bind(&socket, &socket::address(&name)?)?;
        unpoisoned(self.joined.lock()).insert(group, socket);
        Ok(())
    }

    pub(super) fn leave(&self, group: Gid) {
        unpoisoned(self.joined.lock()).remove(&group);
    }

    /// The blocks of the processes that are in a group.
    pub(super) fn members(&self, group: Gid) -> BTreeSet<u32> {
        let now = Instant::now();
        let mut seen = unpoisoned(self.seen.lock());
        seen.retain(|_, (when, _)| now.saturating_duration_since(*when) < FRESH);
        if let Some((_, blocks)) = seen.get(&group) {
            return blocks.clone();
        }
        let names = std::fs::read_to_string(NAMES).unwrap_or_else(|error| {
            log::warn!("{NAMES} cannot be read, and so no member of a group is found in other processes: {error}");
            String::new()
        });
        let blocks = listed(&names, group);
        seen.insert(group, (now, blocks.clone()));
        blocks
    }
}

fn prefix(group: Gid) -> String {
    let mut name = String::from("softrnic/1/group/");
    for byte in group.0 {
        let _ = write!(name, "{byte:02x}");
    }
    name.push('/');
    name
}

/// The blocks that such a list has for a group, each once: any user may have put a name there.
pub(super) fn listed(names: &str, group: Gid) -> BTreeSet<u32> {
    let prefix = format!("@{}", prefix(group));
    let block = |line: &str| {
        let digits = line.rsplit(' ').next()?.strip_prefix(&prefix)?;
        let block = u32::from_str_radix(digits, 16).ok()?;
        // As it is spelled by who is one.
        (digits == format!("{block:x}")).then_some(block)
    };
    names.lines().filter_map(block).collect()
}
