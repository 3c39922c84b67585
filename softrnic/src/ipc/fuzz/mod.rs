//! What another process of the host sends: a greeting, the memory that it shares, and packets.

pub(crate) mod greeting;
pub(crate) mod messages;
#[cfg(test)]
pub(crate) mod seeds;
pub(crate) mod session;
mod world;

use super::group::listed;
use crate::wire::address::Gid;

/// The group of which members are looked for in a list: `ff0e::1`.
const GROUP: Gid = Gid([0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// Whether a list of the kernel's sockets has members of the group.
pub(crate) fn has_members(list: &str) -> bool {
    !listed(list, GROUP).is_empty()
}
