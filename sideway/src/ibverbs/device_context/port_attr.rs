//! `struct ibv_port_attr`: the attributes of a port.

use std::fmt;

use rdma_mummy_sys::{ibv_port_attr, ibv_port_attr_since_v44};

use super::{
    LinkLayer, Mtu, PhysicalState, PortCapabilityFlags, PortCapabilityFlags2, PortFlags, PortSpeed, PortState,
    PortWidth,
};

/// `struct ibv_port_attr` — the attributes of a port, as returned by [`query_port`](super::DeviceContext::query_port).
#[doc(alias = "ibv_port_attr")]
#[derive(Clone, Copy)]
pub struct PortAttr {
    raw: ibv_port_attr_since_v44,
}

impl PortAttr {
    pub(super) fn from_raw(raw: ibv_port_attr_since_v44) -> Self {
        Self { raw }
    }

    /// Returns the C structure.
    pub fn attr(&self) -> &ibv_port_attr {
        &self.raw.attr
    }

    /// `state`: the logical state. Only an [active](PortState::Active) port transfers messages.
    pub fn port_state(&self) -> PortState {
        PortState::from_raw(self.attr().state.0)
    }

    /// `max_mtu`: the highest MTU that the port supports.
    pub fn max_mtu(&self) -> Mtu {
        Mtu::from_raw(self.attr().max_mtu.0)
    }

    /// `active_mtu`: the highest MTU that is currently usable. On Ethernet it is the MTU of the network interface,
    /// rounded down.
    pub fn active_mtu(&self) -> Mtu {
        Mtu::from_raw(self.attr().active_mtu.0)
    }

    /// `gid_tbl_len`: the number of entries of the GID table, whether they are in use or not.
    pub fn gid_tbl_len(&self) -> u32 {
        u32::try_from(self.attr().gid_tbl_len).unwrap_or(0)
    }

    /// `port_cap_flags`: the port's capabilities.
    pub fn port_cap_flags(&self) -> PortCapabilityFlags {
        PortCapabilityFlags::from_bits_retain(self.attr().port_cap_flags)
    }

    /// `port_cap_flags2`: further capabilities, which are valid only if [`PortCapabilityFlags::CapabilityMask2`] is
    /// set.
    pub fn port_cap_flags2(&self) -> PortCapabilityFlags2 {
        PortCapabilityFlags2::from_bits_retain(self.attr().port_cap_flags2)
    }

    /// `max_msg_sz`: the longest message, in bytes.
    pub fn max_msg_sz(&self) -> u32 {
        self.attr().max_msg_sz
    }

    /// `bad_pkey_cntr`: the number of packets received with an invalid P_Key.
    pub fn bad_pkey_cntr(&self) -> u32 {
        self.attr().bad_pkey_cntr
    }

    /// `qkey_viol_cntr`: the number of datagrams received with a wrong Q_Key.
    pub fn qkey_viol_cntr(&self) -> u32 {
        self.attr().qkey_viol_cntr
    }

    /// `pkey_tbl_len`: the number of entries of the P_Key table.
    pub fn pkey_tbl_len(&self) -> u16 {
        self.attr().pkey_tbl_len
    }

    /// `lid`: the local identifier on an InfiniBand subnet, in host order. It is 0 on Ethernet.
    pub fn lid(&self) -> u16 {
        self.attr().lid
    }

    /// `sm_lid`: the local identifier of the subnet manager, in host order.
    pub fn sm_lid(&self) -> u16 {
        self.attr().sm_lid
    }

    /// `lmc`: the port has 2^`lmc` local identifiers, starting at [`lid`](Self::lid).
    pub fn lmc(&self) -> u8 {
        self.attr().lmc
    }

    /// `max_vl_num`: the number of virtual lanes, as a code: 1 means VL0, 2 means VL0-1, 3 means VL0-3, 4 means VL0-7,
    /// and 5 means VL0-14.
    pub fn max_vl_num(&self) -> u8 {
        self.attr().max_vl_num
    }

    /// `sm_sl`: the service level of the subnet manager.
    pub fn sm_sl(&self) -> u8 {
        self.attr().sm_sl
    }

    /// `subnet_timeout`: the maximum transit time across the subnet, as an exponent: 4.096 µs × 2^n.
    pub fn subnet_timeout(&self) -> u8 {
        self.attr().subnet_timeout
    }

    /// `init_type_reply`: the type of initialization that the subnet manager performed.
    pub fn init_type_reply(&self) -> u8 {
        self.attr().init_type_reply
    }

    /// `active_width`: the number of lanes in use.
    pub fn active_width(&self) -> PortWidth {
        PortWidth::from_raw(self.attr().active_width.into())
    }

    /// The speed of each lane, from `active_speed_ex` if the library sets it, otherwise from `active_speed`.
    ///
    /// `active_speed` has only eight bits, which are too few for XDR.
    #[doc(alias = "active_speed_ex")]
    pub fn active_speed(&self) -> PortSpeed {
        PortSpeed::from_raw(match self.raw.active_speed_ex {
            0 => self.attr().active_speed.into(),
            speed => speed,
        })
    }

    /// Returns the data rate of all lanes of the link together, in Gbit/s. Returns `None` if the speed or the width is
    /// unknown to this version of the crate.
    pub fn throughput(&self) -> Option<f64> {
        Some(self.active_speed().to_throughput()? * f64::from(self.active_width().lanes()?))
    }

    /// `phys_state`: the physical state.
    pub fn phys_state(&self) -> PhysicalState {
        PhysicalState::from_raw(self.attr().phys_state.into())
    }

    /// `link_layer`: InfiniBand or Ethernet.
    pub fn link_layer(&self) -> LinkLayer {
        LinkLayer::from_raw(self.attr().link_layer.into())
    }

    /// `flags`: addressing requirements of the port.
    pub fn flags(&self) -> PortFlags {
        PortFlags::from_bits_retain(self.attr().flags)
    }
}

impl fmt::Debug for PortAttr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortAttr")
            .field("port_state", &self.port_state())
            .field("max_mtu", &self.max_mtu())
            .field("active_mtu", &self.active_mtu())
            .field("gid_tbl_len", &self.gid_tbl_len())
            .field("port_cap_flags", &self.port_cap_flags())
            .field("port_cap_flags2", &self.port_cap_flags2())
            .field("max_msg_sz", &self.max_msg_sz())
            .field("bad_pkey_cntr", &self.bad_pkey_cntr())
            .field("qkey_viol_cntr", &self.qkey_viol_cntr())
            .field("pkey_tbl_len", &self.pkey_tbl_len())
            .field("lid", &self.lid())
            .field("sm_lid", &self.sm_lid())
            .field("lmc", &self.lmc())
            .field("max_vl_num", &self.max_vl_num())
            .field("sm_sl", &self.sm_sl())
            .field("subnet_timeout", &self.subnet_timeout())
            .field("init_type_reply", &self.init_type_reply())
            .field("active_width", &self.active_width())
            .field("active_speed", &self.active_speed())
            .field("phys_state", &self.phys_state())
            .field("link_layer", &self.link_layer())
            .field("flags", &self.flags())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = size_of::<ibv_port_attr_since_v44>();

    fn raw(bytes: [u8; SIZE]) -> ibv_port_attr_since_v44 {
        // SAFETY: the structure consists of integers and newtypes of integers, for which all bytes are valid.
        unsafe { std::mem::transmute::<[u8; SIZE], ibv_port_attr_since_v44>(bytes) }
    }

    #[test]
    fn any_bytes_read_and_print() {
        for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let text = format!("{:?}", PortAttr::from_raw(raw([byte; SIZE])));
            assert!(text.contains("active_speed"), "{text}");
        }
    }

    #[test]
    fn extended_speed_takes_precedence() {
        let mut raw = raw([0; SIZE]);
        (raw.attr.active_speed, raw.attr.active_width) = (128, 2);
        assert_eq!(PortAttr::from_raw(raw).active_speed(), PortSpeed::Ndr);
        assert_eq!(PortAttr::from_raw(raw).throughput(), Some(400.0));
        raw.active_speed_ex = 256;
        assert_eq!(PortAttr::from_raw(raw).active_speed(), PortSpeed::Xdr);
        assert_eq!(PortAttr::from_raw(raw).throughput(), Some(800.0));
        raw.attr.gid_tbl_len = -1;
        assert_eq!(PortAttr::from_raw(raw).gid_tbl_len(), 0);
    }
}
