//! Fuzz targets for the input from another process of the host: the handshake, the shared memory, and the packets.

mod carrier;
pub(crate) mod handshake;
pub(crate) mod messages;
#[cfg(test)]
pub(crate) mod seeds;
pub(crate) mod session;
mod world;

use super::group::listed;
use crate::wire::address::Gid;

/// The multicast group that is searched for in a list. Its address is `ff0e::1`.
const GROUP: Gid = Gid([0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// Whether the kernel's list of sockets contains members of the group.
pub(crate) fn has_members(list: &str) -> bool {
    !listed(list, GROUP).is_empty()
}
