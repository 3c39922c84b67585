//! `struct ibv_ah_attr`: the path to a peer.

use std::fmt;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_ah_attr, ibv_gid, ibv_global_route};

use super::{Gid, StaticRate};

/// `struct ibv_ah_attr` — the path to a peer: the address vector of a queue pair, or the attributes of an address
/// handle.
///
/// On Ethernet (RoCE) a path consists of a local port, the index of one of its GIDs, and the peer's GID. Within an
/// InfiniBand subnet, a path consists of a local port and the peer's LID. A path beyond the subnet needs all four: the
/// port, the GID index, the peer's GID and a LID.
///
/// ```
/// use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
///
/// let peer: Gid = "::ffff:192.0.2.2".parse()?;
/// let mut way = AddressHandleAttribute::new();
/// way.setup_port(1).setup_grh(&peer, 0, 1, 64, 0);
/// assert!(way.is_global());
/// # Ok::<(), sideway::ibverbs::address::ParseGidError>(())
/// ```
#[doc(alias = "ibv_ah_attr")]
#[doc(alias = "ibv_global_route")]
#[derive(Clone, Copy)]
pub struct AddressHandleAttribute {
    attr: ibv_ah_attr,
}

impl AddressHandleAttribute {
    /// Creates a path with all fields zero. It has no global route and no port.
    pub const fn new() -> Self {
        let grh = ibv_global_route {
            dgid: ibv_gid { raw: [0; 16] },
            flow_label: 0,
            sgid_index: 0,
            hop_limit: 0,
            traffic_class: 0,
        };
        Self { attr: ibv_ah_attr { grh, dlid: 0, sl: 0, src_path_bits: 0, static_rate: 0, is_global: 0, port_num: 0 } }
    }

    /// Wraps the C struct.
    pub(crate) const fn from_raw(attr: ibv_ah_attr) -> Self {
        Self { attr }
    }

    /// Returns the C struct.
    pub(crate) const fn as_raw(&self) -> &ibv_ah_attr {
        &self.attr
    }

    /// `dlid`: sets the peer's LID, in host order. It is 0 on Ethernet.
    pub fn setup_dest_lid(&mut self, dest_lid: u16) -> &mut Self {
        self.attr.dlid = dest_lid;
        self
    }

    /// `sl`: sets the service level, 0 to 15. On Ethernet its lower three bits are the priority of the VLAN tag.
    pub fn setup_service_level(&mut self, service_level: u8) -> &mut Self {
        self.attr.sl = service_level;
        self
    }

    /// `port_num`: sets the local port, from 1.
    pub fn setup_port(&mut self, port_num: u8) -> &mut Self {
        self.attr.port_num = port_num;
        self
    }

    /// `src_path_bits`: sets the offset added to the port's LID, if it has several (see
    /// [`PortAttr::lmc`](crate::ibverbs::device_context::PortAttr::lmc)).
    pub fn setup_src_path_bits(&mut self, src_path_bits: u8) -> &mut Self {
        self.attr.src_path_bits = src_path_bits;
        self
    }

    /// `static_rate`: sets the highest rate on the path.
    pub fn setup_static_rate(&mut self, static_rate: StaticRate) -> &mut Self {
        // A value that does not fit in the field becomes 255. All named values are below 128, so 255 is also a value
        // without a name.
        self.attr.static_rate = u8::try_from(static_rate.raw()).unwrap_or(u8::MAX);
        self
    }

    /// `grh`: sets the whole global route: the peer's GID, the flow label, the index of the local GID, the hop limit
    /// and the traffic class. The flow label has 20 bits. Packets with hop limit 0 or 1 stay on the subnet. With RoCE
    /// v2 the traffic class is the TOS byte of the IP header.
    ///
    /// A path with a global route [is global](Self::is_global). Ethernet always needs one.
    pub fn setup_grh(
        &mut self,
        dest_gid: &Gid,
        flow_label: u32,
        src_gid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    ) -> &mut Self {
        self.setup_grh_dest_gid(dest_gid)
            .setup_grh_flow_label(flow_label)
            .setup_grh_src_gid_index(src_gid_index)
            .setup_grh_hop_limit(hop_limit)
            .setup_grh_traffic_class(traffic_class)
    }

    /// `grh.dgid`: sets the peer's GID. This makes the path [global](Self::is_global).
    pub fn setup_grh_dest_gid(&mut self, dest_gid: &Gid) -> &mut Self {
        self.attr.grh.dgid = (*dest_gid).into();
        self.global()
    }

    /// `grh.flow_label`: sets a label of 20 bits. RoCE v2 derives the UDP source port from the label; if it is 0, the
    /// driver chooses the port. This makes the path [global](Self::is_global).
    pub fn setup_grh_flow_label(&mut self, flow_label: u32) -> &mut Self {
        self.attr.grh.flow_label = flow_label;
        self.global()
    }

    /// `grh.sgid_index`: sets the index of the source GID in the port's table. The index determines the RoCE version
    /// and the VLAN. This makes the path [global](Self::is_global).
    pub fn setup_grh_src_gid_index(&mut self, src_gid_index: u8) -> &mut Self {
        self.attr.grh.sgid_index = src_gid_index;
        self.global()
    }

    /// `grh.hop_limit`: sets the maximum number of routers on the path. With RoCE v2 it is the TTL of the IP header.
    /// This makes the path [global](Self::is_global).
    pub fn setup_grh_hop_limit(&mut self, hop_limit: u8) -> &mut Self {
        self.attr.grh.hop_limit = hop_limit;
        self.global()
    }

    /// `grh.traffic_class`: sets the traffic class. With RoCE v2 it is the TOS byte of the IP header, with DSCP in its
    /// upper six bits. This makes the path [global](Self::is_global).
    pub fn setup_grh_traffic_class(&mut self, traffic_class: u8) -> &mut Self {
        self.attr.grh.traffic_class = traffic_class;
        self.global()
    }

    /// Removes the global route: packets stay on the InfiniBand subnet and carry no GIDs.
    pub fn clear_grh(&mut self) -> &mut Self {
        self.attr.grh = Self::new().attr.grh;
        self.attr.is_global = 0;
        self
    }

    fn global(&mut self) -> &mut Self {
        self.attr.is_global = 1;
        self
    }

    /// `dlid`: returns the peer's LID, in host order.
    pub fn dest_lid(&self) -> u16 {
        self.attr.dlid
    }

    /// `sl`: returns the service level.
    pub fn service_level(&self) -> u8 {
        self.attr.sl
    }

    /// `port_num`: returns the local port, from 1.
    pub fn port(&self) -> u8 {
        self.attr.port_num
    }

    /// `src_path_bits`: returns the offset added to the port's LID.
    pub fn src_path_bits(&self) -> u8 {
        self.attr.src_path_bits
    }

    /// `static_rate`: returns the highest rate on the path.
    pub fn static_rate(&self) -> StaticRate {
        StaticRate::from_raw(self.attr.static_rate.into())
    }

    /// `is_global`: whether packets carry GIDs. If they do not, the fields of the global route are unused.
    pub fn is_global(&self) -> bool {
        self.attr.is_global != 0
    }

    /// `grh.dgid`: returns the peer's GID.
    pub fn grh_dest_gid(&self) -> Gid {
        self.attr.grh.dgid.into()
    }

    /// `grh.flow_label`: returns the flow label.
    pub fn grh_flow_label(&self) -> u32 {
        self.attr.grh.flow_label
    }

    /// Returns the UDP source port of RoCE v2 packets on this path, if the flow label is not 0: see
    /// [`flow_label_to_udp_sport`].
    pub fn udp_source_port(&self) -> Option<u16> {
        let label = self.grh_flow_label();
        (self.is_global() && label != 0).then(|| flow_label_to_udp_sport(label))
    }

    /// `grh.sgid_index`: returns the index of the local GID.
    pub fn grh_src_gid_index(&self) -> u8 {
        self.attr.grh.sgid_index
    }

    /// `grh.hop_limit`: returns the maximum number of routers.
    pub fn grh_hop_limit(&self) -> u8 {
        self.attr.grh.hop_limit
    }

    /// `grh.traffic_class`: returns the traffic class.
    pub fn grh_traffic_class(&self) -> u8 {
        self.attr.grh.traffic_class
    }
}

/// `ibv_flow_label_to_udp_sport(fl)` — returns the UDP source port that RoCE v2 derives from a flow label of 20 bits:
/// 0xc000 to 0xffff, in host order. Routers use it to choose among paths.
///
/// # References
///
/// [ibv_flow_label_to_udp_sport(3)](https://man7.org/linux/man-pages/man3/ibv_flow_label_to_udp_sport.3.html)
#[doc(alias = "ibv_flow_label_to_udp_sport")]
pub const fn flow_label_to_udp_sport(flow_label: u32) -> u16 {
    sys::ibv_flow_label_to_udp_sport(flow_label)
}

impl Default for AddressHandleAttribute {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for AddressHandleAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("AddressHandleAttribute");
        out.field("port", &self.port())
            .field("dest_lid", &self.dest_lid())
            .field("service_level", &self.service_level())
            .field("src_path_bits", &self.src_path_bits())
            .field("static_rate", &self.static_rate());
        if self.is_global() {
            out.field("grh_dest_gid", &self.grh_dest_gid())
                .field("grh_flow_label", &self.grh_flow_label())
                .field("grh_src_gid_index", &self.grh_src_gid_index())
                .field("grh_hop_limit", &self.grh_hop_limit())
                .field("grh_traffic_class", &self.grh_traffic_class());
        }
        out.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setters_fill_the_c_struct() {
        let gid = Gid { raw: [9; 16] };
        let mut way = AddressHandleAttribute::new();
        way.setup_dest_lid(0x1234).setup_service_level(3).setup_port(2).setup_src_path_bits(1);
        way.setup_static_rate(StaticRate::Gbps100);
        assert!(!way.is_global());
        way.setup_grh(&gid, 0xabcde, 7, 64, 0xb8);
        let raw = way.as_raw();
        assert_eq!((raw.dlid, raw.sl, raw.port_num, raw.src_path_bits, raw.static_rate), (0x1234, 3, 2, 1, 16));
        assert_eq!((raw.is_global, raw.grh.flow_label, raw.grh.sgid_index), (1, 0xabcde, 7));
        assert_eq!((raw.grh.hop_limit, raw.grh.traffic_class), (64, 0xb8));
        let back = AddressHandleAttribute::from_raw(*raw);
        assert_eq!((back.grh_dest_gid(), back.static_rate()), (gid, StaticRate::Gbps100));
        assert!(!way.clear_grh().is_global());
        assert!(way.grh_dest_gid().is_zero());
        // 256 does not fit into C's field, and must not become 0 (`Max`).
        assert_eq!(way.setup_static_rate(StaticRate::from_raw(256)).static_rate(), StaticRate::from_raw(255));
    }

    #[test]
    fn each_global_route_setter_makes_path_global() {
        let part = |setup: fn(&mut AddressHandleAttribute) -> &mut AddressHandleAttribute| {
            setup(&mut AddressHandleAttribute::new()).is_global()
        };
        assert!(part(|way| way.setup_grh_dest_gid(&Gid::default())));
        assert!(part(|way| way.setup_grh_flow_label(0)));
        assert!(part(|way| way.setup_grh_src_gid_index(0)));
        assert!(part(|way| way.setup_grh_hop_limit(0)));
        assert!(part(|way| way.setup_grh_traffic_class(0)));
    }

    #[test]
    fn flow_label_determines_source_port() {
        let mut way = AddressHandleAttribute::new();
        assert_eq!(way.udp_source_port(), None);
        way.setup_grh_flow_label(0);
        assert_eq!(way.udp_source_port(), None, "the driver chooses");
        way.setup_grh_flow_label(0x4_0001);
        // Bit 18 is folded onto bit 4.
        assert_eq!(way.udp_source_port(), Some(0xc011));
        assert_eq!(flow_label_to_udp_sport(u32::MAX), 0xffc0);
    }

    #[test]
    fn debug_prints_global_route_only_if_set() {
        let mut way = AddressHandleAttribute::new();
        assert!(!format!("{way:?}").contains("gid"));
        way.setup_grh_src_gid_index(3);
        assert!(format!("{way:?}").contains("grh_src_gid_index: 3"));
    }
}
