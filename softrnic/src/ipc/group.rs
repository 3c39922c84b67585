//! Multicast groups. A process that has members of a group binds a socket name for this group, and the kernel lists all
//! names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::socket;
use crate::sys::descriptor::Descriptor;
use crate::sys::unpoisoned;
use crate::wire::address::Gid;

/// How long a snapshot of the list is used.
const FRESH: Duration = Duration::from_millis(50);
/// The file that contains the kernel's list of socket names.
const NAMES: &str = "/proc/net/unix";

/// The groups that this process has joined, and the members that it has found in them.
#[derive(Debug)]
pub(super) struct Groups {
    joined: Mutex<BTreeMap<Gid, Descriptor>>,
    /// The blocks of all processes that have members of each group, including this process, and when the list was read.
    seen: Mutex<BTreeMap<Gid, (Instant, BTreeSet<u32>)>>,
}

impl Groups {
    pub(super) const fn new() -> Self {
        Self { joined: Mutex::new(BTreeMap::new()), seen: Mutex::new(BTreeMap::new()) }
    }

    /// Announces that the process that owns this block has members of a group.
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

    /// Returns the blocks of the processes that have members of a group.
    pub(super) fn members(&self, group: Gid) -> BTreeSet<u32> {
        let now = Instant::now();
        let mut seen = unpoisoned(self.seen.lock());
        seen.retain(|_, (when, _)| now.saturating_duration_since(*when) < FRESH);
        if let Some((_, blocks)) = seen.get(&group) {
            return blocks.clone();
        }
        let names = std::fs::read_to_string(NAMES).unwrap_or_else(|error| {
            rdma_mummy_sys::log!(
                warn,
                "cannot read {NAMES}, so datagrams reach no group members in other processes: {error}"
            );
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

/// Returns the block numbers that the list of names contains for a group. The processes of any user may have bound
/// these names.
pub(super) fn listed(names: &str, group: Gid) -> BTreeSet<u32> {
    let prefix = format!("@{}", prefix(group));
    let block = |line: &str| {
        let digits = line.rsplit(' ').next()?.strip_prefix(&prefix)?;
        let block = u32::from_str_radix(digits, 16).ok()?;
        // Only the spelling that `format!` produces is accepted.
        (digits == format!("{block:x}")).then_some(block)
    };
    names.lines().filter_map(block).collect()
}
