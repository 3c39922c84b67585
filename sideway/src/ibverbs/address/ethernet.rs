//! The Ethernet address of a GID.

use std::fmt;

use rdma_mummy_sys as sys;

use super::AddressHandleAttribute;
use super::address_handle::explain_way;
use crate::error::VerbError;
use crate::ffi::check_errno;
use crate::ibverbs::device_context::DeviceContext;

/// The destination of Ethernet frames to a peer, returned by
/// [`resolve_eth_l2_from_gid`](DeviceContext::resolve_eth_l2_from_gid).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EthernetAddress {
    /// The hardware address, in network order.
    pub mac: [u8; 6],
    /// The VLAN number, 0 to 4095, or `None` if frames have no tag.
    pub vlan_id: Option<u16>,
}

impl fmt::Display for EthernetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.mac;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")?;
        self.vlan_id.map_or(Ok(()), |vlan_id| write!(f, " vlan {vlan_id}"))
    }
}

impl DeviceContext {
    /// `ibv_resolve_eth_l2_from_gid(context, attr, eth_mac, vid)` — resolves the hardware address and VLAN of the peer
    /// at the end of a path. If the system has not cached these, it queries the network (ARP, neighbour discovery),
    /// which may take seconds.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the device has no such port or GID index, or the path has no global route.
    /// - `ETIMEDOUT`: no reply.
    /// - `ENETUNREACH`, `EHOSTUNREACH`: there is no route.
    #[doc(alias = "ibv_resolve_eth_l2_from_gid")]
    pub fn resolve_eth_l2_from_gid(&self, way: &AddressHandleAttribute) -> Result<EthernetAddress, VerbError> {
        /// This value exceeds all VLAN numbers, so it means that there is no VLAN.
        const NO_VLAN: u16 = 0xffff;
        let mut attr = *way.as_raw();
        let (mut mac, mut vlan_id) = ([0; 6], NO_VLAN);
        // SAFETY: the context is open, the attributes are initialised, and the call may write the six bytes and the
        // number.
        let ret = unsafe { sys::ibv_resolve_eth_l2_from_gid(self.raw(), &mut attr, mac.as_mut_ptr(), &mut vlan_id) };
        check_errno("ibv_resolve_eth_l2_from_gid", ret).map_err(|error| explain_way(error, self, way))?;
        Ok(EthernetAddress { mac, vlan_id: (vlan_id <= 0xfff).then_some(vlan_id) })
    }
}
