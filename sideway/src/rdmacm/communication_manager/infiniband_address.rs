//! `struct sockaddr_ib`: a native InfiniBand address.

use std::fmt;

use libc::sa_family_t;
use rdma_mummy_sys::{ib_addr, ib_addr__bindgen_ty_1, sockaddr_ib};

use super::PortSpace;
use crate::ibverbs::address::Gid;

/// `struct sockaddr_ib` — a native InfiniBand address. It consists of a GID and a service on that port. Use it for
/// InfiniBand without IP over InfiniBand. With RoCE, resolving such an address may succeed, but resolving a route to it
/// fails.
///
/// All numbers are in host order.
///
/// ```
/// use sideway::rdmacm::communication_manager::{InfiniBandAddress, PortSpace};
///
/// let mut address = InfiniBandAddress::new("fe80::2:c903:33:1045".parse()?);
/// address.setup_port(PortSpace::Tcp, 7471);
/// assert_eq!(address.service_id(), 0x0106_1d2f);
/// assert_eq!(address.port(), 7471);
/// # Ok::<(), sideway::ibverbs::address::ParseGidError>(())
/// ```
#[doc(alias = "sockaddr_ib")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InfiniBandAddress {
    gid: Gid,
    pkey: u16,
    flow_info: u32,
    service_id: u64,
    service_id_mask: u64,
    scope_id: u64,
}

impl InfiniBandAddress {
    /// The default partition, with full membership.
    const DEFAULT_PKEY: u16 = 0xffff;

    /// Creates an address with this GID, in the default partition, without a service.
    pub fn new(gid: Gid) -> Self {
        Self { gid, pkey: Self::DEFAULT_PKEY, flow_info: 0, service_id: 0, service_id_mask: 0, scope_id: 0 }
    }

    /// `sib_sid`: sets the service identifier of a port in a port space, as the library does for the port of an IP
    /// address. Port 0 matches any port.
    pub fn setup_port(&mut self, port_space: PortSpace, port: u16) -> &mut Self {
        self.service_id = u64::from(port_space.raw()) << 16 | u64::from(port);
        self.service_id_mask = if port == 0 { !0xffff } else { !0 };
        self
    }

    /// `sib_sid` and `sib_sid_mask`: sets the service identifier, and which of its bits are compared.
    pub fn setup_service_id(&mut self, service_id: u64, mask: u64) -> &mut Self {
        (self.service_id, self.service_id_mask) = (service_id, mask);
        self
    }

    /// `sib_pkey`: sets the partition key; the default is 0xffff.
    pub fn setup_pkey(&mut self, pkey: u16) -> &mut Self {
        self.pkey = pkey;
        self
    }

    /// `sib_flowinfo`: sets the flow label in the lower 20 bits, and the traffic class in the bits above.
    pub fn setup_flow_info(&mut self, flow_info: u32) -> &mut Self {
        self.flow_info = flow_info;
        self
    }

    /// `sib_scope_id`: sets the link of a link-local address.
    pub fn setup_scope_id(&mut self, scope_id: u64) -> &mut Self {
        self.scope_id = scope_id;
        self
    }

    /// Returns the GID.
    pub fn gid(&self) -> Gid {
        self.gid
    }

    /// Returns the partition key.
    pub fn pkey(&self) -> u16 {
        self.pkey
    }

    /// Returns the flow label in the lower 20 bits, and the traffic class in the bits above.
    pub fn flow_info(&self) -> u32 {
        self.flow_info
    }

    /// Returns the service identifier.
    pub fn service_id(&self) -> u64 {
        self.service_id
    }

    /// Returns which bits of the service identifier are compared.
    pub fn service_id_mask(&self) -> u64 {
        self.service_id_mask
    }

    /// Returns the lowest 16 bits of the service identifier. They are the port, if the service identifier was set for a
    /// port.
    pub fn port(&self) -> u16 {
        self.service_id as u16
    }

    /// Returns the link of a link-local address.
    pub fn scope_id(&self) -> u64 {
        self.scope_id
    }
}

impl From<InfiniBandAddress> for sockaddr_ib {
    fn from(address: InfiniBandAddress) -> Self {
        Self {
            sib_family: libc::AF_IB as sa_family_t,
            sib_pkey: address.pkey.to_be(),
            sib_flowinfo: address.flow_info.to_be(),
            sib_addr: ib_addr { ib_u: ib_addr__bindgen_ty_1 { uib_addr8: address.gid.raw } },
            sib_sid: address.service_id.to_be(),
            sib_sid_mask: address.service_id_mask.to_be(),
            sib_scope_id: address.scope_id,
        }
    }
}

/// Converts the C struct. Does not check the family.
impl From<sockaddr_ib> for InfiniBandAddress {
    fn from(raw: sockaddr_ib) -> Self {
        Self {
            // SAFETY: each member of the union is sixteen bytes of integers, for which all bits are valid.
            gid: Gid { raw: unsafe { raw.sib_addr.ib_u.uib_addr8 } },
            pkey: u16::from_be(raw.sib_pkey),
            flow_info: u32::from_be(raw.sib_flowinfo),
            service_id: u64::from_be(raw.sib_sid),
            service_id_mask: u64::from_be(raw.sib_sid_mask),
            scope_id: raw.sib_scope_id,
        }
    }
}

/// Formats the address, such as `fe80:0000:0000:0000:0002:c903:0033:1045 service 0x01061d2f`.
impl fmt::Display for InfiniBandAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} service {:#010x}", self.gid, self.service_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> InfiniBandAddress {
        let mut address = InfiniBandAddress::new("fe80::2:c903:33:1045".parse().unwrap());
        address.setup_pkey(0x8001).setup_flow_info(0x12345).setup_scope_id(7);
        address.setup_port(PortSpace::InfiniBand, 0x102);
        address
    }

    #[test]
    fn infiniband_address_survives_round_trip() {
        assert_eq!(InfiniBandAddress::from(sockaddr_ib::from(address())), address());
        assert_eq!(address().to_string(), "fe80:0000:0000:0000:0002:c903:0033:1045 service 0x013f0102");
    }

    #[test]
    fn only_scope_is_in_host_order_in_c_struct() {
        let raw = sockaddr_ib::from(address());
        assert_eq!(i32::from(raw.sib_family), libc::AF_IB);
        assert_eq!(raw.sib_pkey.to_ne_bytes(), [0x80, 1]);
        assert_eq!(raw.sib_flowinfo.to_ne_bytes(), [0, 1, 0x23, 0x45]);
        assert_eq!(raw.sib_sid.to_ne_bytes(), [0, 0, 0, 0, 1, 0x3f, 1, 2]);
        assert_eq!(raw.sib_sid_mask, !0);
        assert_eq!(raw.sib_scope_id, 7);
    }

    #[test]
    fn port_zero_masks_port_bits() {
        let mut address = address();
        assert_eq!(address.setup_port(PortSpace::Udp, 0).service_id_mask(), 0xffff_ffff_ffff_0000);
        assert_eq!((address.service_id(), address.port()), (0x0111_0000, 0));
    }
}
