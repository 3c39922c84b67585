//! The Ethernet address of a path. softrnic sends no Ethernet frames, but programs can query the address.

use std::ffi::c_int;

use rdma_mummy_sys::{ibv_ah_attr, ibv_context};

use super::path;
use crate::verbs::failure::code;
use crate::wire::address::Gid;

/// The VLAN number that stands for a frame without a VLAN tag.
const NO_VLAN: u16 = 0xffff;

/// `ibv_resolve_eth_l2_from_gid(context, attr, eth_mac, vid)`: returns zeros, which are the address of the loopback
/// interface. For a multicast group, returns its standard Ethernet address.
///
/// # Safety
///
/// As in C: the attributes are readable, and six bytes and (unless null) a number are writable.
pub(crate) unsafe extern "C" fn resolve_eth_l2_from_gid(
    _context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    mac: *mut u8,
    vlan: *mut u16,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let path = match path(unsafe { &*attr }) {
        Ok(path) => path,
        Err(errno) => return code(errno),
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        mac.cast::<[u8; 6]>().write(address(path.destination));
        if !vlan.is_null() {
            vlan.write(NO_VLAN);
        }
    }
    0
}

/// Returns the hardware address of a multicast group (RFC 1112, RFC 2464), and zeros for any other GID.
pub(super) fn address(gid: Gid) -> [u8; 6] {
    let [.., a, b, c, d] = gid.0;
    match (gid.is_multicast(), gid.ipv4()) {
        (false, _) => [0; 6],
        (true, Some(_)) => [0x01, 0x00, 0x5e, b & 0x7f, c, d],
        (true, None) => [0x33, 0x33, a, b, c, d],
    }
}
