//! `struct ibv_sa_path_rec`: a way through the fabric.

use std::{fmt, mem};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_path_data, ibv_path_record, ibv_sa_path_rec};

use crate::ibverbs::address::{Gid, StaticRate};
use crate::ibverbs::device_context::Mtu;

/// "Exactly so", of the three numbers that can also be bounds.
const EXACTLY: u8 = 2;

/// `struct ibv_sa_path_rec` — a way to a peer, as InfiniBand's subnet manager knows it, or as the kernel writes one for RoCE. All
/// numbers are in host order.
///
/// ```
/// use sideway::ibverbs::address::StaticRate;
/// use sideway::ibverbs::device_context::Mtu;
/// use sideway::rdmacm::communication_manager::PathRecord;
///
/// let mut path = PathRecord::new("fe80::1".parse()?, "fe80::2".parse()?);
/// path.setup_source_lid(3).setup_dest_lid(4).setup_mtu(Mtu::Mtu2048).setup_rate(StaticRate::Gbps100);
/// assert_eq!((path.dest_lid(), path.mtu(), path.pkey()), (4, Mtu::Mtu2048, 0xffff));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
///
/// InfiniBand specification, volume 1, section 15.2.5.16 (PathRecord)
#[doc(alias = "ibv_sa_path_rec")]
#[doc(alias = "ibv_path_record")]
#[derive(Clone, Copy)]
pub struct PathRecord(ibv_sa_path_rec);

impl PathRecord {
    /// A way between two ports that works in both directions, in the default partition; the MTU is 256 bytes and the LIDs, the
    /// service level, the rate and the life time of packets are 0.
    pub fn new(source_gid: Gid, dest_gid: Gid) -> Self {
        // SAFETY: all-zero is legal: the struct has integers alone.
        let mut raw: ibv_sa_path_rec = unsafe { mem::zeroed() };
        (raw.sgid, raw.dgid) = (source_gid.into(), dest_gid.into());
        (raw.reversible, raw.numb_path, raw.pkey) = (1, 1, u16::MAX);
        raw.mtu = Mtu::Mtu256.raw() as u8;
        (raw.mtu_selector, raw.rate_selector, raw.packet_life_time_selector) = (EXACTLY, EXACTLY, EXACTLY);
        Self(raw)
    }

    pub(super) fn from_raw(raw: ibv_sa_path_rec) -> Self {
        Self(raw)
    }

    /// `sgid`: the GID of this side's port.
    pub fn source_gid(&self) -> Gid {
        self.0.sgid.into()
    }

    /// `dgid`: the GID of the peer's port.
    pub fn dest_gid(&self) -> Gid {
        self.0.dgid.into()
    }

    /// `slid`: the LID of this side's port. Means nothing for RoCE: kernels have been seen to leave what they had there.
    pub fn source_lid(&self) -> u16 {
        u16::from_be(self.0.slid)
    }

    /// `slid`: the LID of this side's port.
    pub fn setup_source_lid(&mut self, lid: u16) -> &mut Self {
        self.0.slid = lid.to_be();
        self
    }

    /// `dlid`: the LID of the peer's port, or of the router there. Means nothing for RoCE.
    pub fn dest_lid(&self) -> u16 {
        u16::from_be(self.0.dlid)
    }

    /// `dlid`: the LID of the peer's port, or of the router there.
    pub fn setup_dest_lid(&mut self, lid: u16) -> &mut Self {
        self.0.dlid = lid.to_be();
        self
    }

    /// `flow_label`: what packets of one flow have in common, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32::from_be(self.0.flow_label)
    }

    /// `flow_label`: what packets of one flow have in common, 20 bits; bits above are left out.
    pub fn setup_flow_label(&mut self, flow_label: u32) -> &mut Self {
        self.0.flow_label = (flow_label & 0xf_ffff).to_be();
        self
    }

    /// `hop_limit`: how many routers packets pass at most.
    pub fn hop_limit(&self) -> u8 {
        self.0.hop_limit
    }

    /// `hop_limit`: how many routers packets pass at most.
    pub fn setup_hop_limit(&mut self, hop_limit: u8) -> &mut Self {
        self.0.hop_limit = hop_limit;
        self
    }

    /// `traffic_class`: the traffic class in the global routing header.
    pub fn traffic_class(&self) -> u8 {
        self.0.traffic_class
    }

    /// `traffic_class`: the traffic class in the global routing header.
    pub fn setup_traffic_class(&mut self, traffic_class: u8) -> &mut Self {
        self.0.traffic_class = traffic_class;
        self
    }

    /// `reversible`: whether it works in both directions.
    pub fn is_reversible(&self) -> bool {
        self.0.reversible != 0
    }

    /// `pkey`: the P_Key of the partition.
    pub fn pkey(&self) -> u16 {
        u16::from_be(self.0.pkey)
    }

    /// `pkey`: the P_Key of the partition.
    pub fn setup_pkey(&mut self, pkey: u16) -> &mut Self {
        self.0.pkey = pkey.to_be();
        self
    }

    /// `sl`: the service level, 4 bits.
    pub fn service_level(&self) -> u8 {
        self.0.sl
    }

    /// `sl`: the service level, 4 bits; bits above are left out.
    pub fn setup_service_level(&mut self, service_level: u8) -> &mut Self {
        self.0.sl = service_level & 0xf;
        self
    }

    /// `mtu`: how many bytes packets carry at most.
    pub fn mtu(&self) -> Mtu {
        Mtu::from_raw(self.0.mtu.into())
    }

    /// `mtu`: how many bytes packets carry at most; the value has 6 bits, and bits above are left out.
    pub fn setup_mtu(&mut self, mtu: Mtu) -> &mut Self {
        (self.0.mtu_selector, self.0.mtu) = (EXACTLY, six_bits(mtu.raw()));
        self
    }

    /// `rate`: the rate of the slowest link.
    pub fn rate(&self) -> StaticRate {
        StaticRate::from_raw(self.0.rate.into())
    }

    /// `rate`: the rate of the slowest link; the value has 6 bits, and bits above are left out.
    pub fn setup_rate(&mut self, rate: StaticRate) -> &mut Self {
        (self.0.rate_selector, self.0.rate) = (EXACTLY, six_bits(rate.raw()));
        self
    }

    /// `packet_life_time`: how long a packet is on its way at most: 4.096 µs × 2^n.
    pub fn packet_life_time(&self) -> u8 {
        self.0.packet_life_time
    }

    /// `packet_life_time`: how long a packet is on its way at most: 4.096 µs × 2^n, 6 bits; bits above are left out.
    pub fn setup_packet_life_time(&mut self, packet_life_time: u8) -> &mut Self {
        let packet_life_time = six_bits(packet_life_time.into());
        (self.0.packet_life_time_selector, self.0.packet_life_time) = (EXACTLY, packet_life_time);
        self
    }

    /// `preference`: of several ways, the one with the lowest is the best.
    pub fn preference(&self) -> u8 {
        self.0.preference
    }

    /// What the kernel is to be told: the record as it is on the wire, as the way for connections and their making, there and
    /// back.
    pub(super) fn to_data(self) -> ibv_path_data {
        let raw = &self.0;
        let with_selector = |selector: u8, value: u8| selector << 6 | value & 0x3f;
        ibv_path_data {
            flags: sys::IBV_PATH_FLAG_GMP | sys::IBV_PATH_FLAG_PRIMARY | sys::IBV_PATH_FLAG_BIDIRECTIONAL,
            reserved: 0,
            path: ibv_path_record {
                service_id: 0,
                dgid: raw.dgid,
                sgid: raw.sgid,
                dlid: raw.dlid,
                slid: raw.slid,
                flowlabel_hoplimit: (self.flow_label() << 8 | u32::from(raw.hop_limit)).to_be(),
                tclass: raw.traffic_class,
                reversible_numpath: u8::from(self.is_reversible()) << 7 | raw.numb_path & 0x7f,
                pkey: raw.pkey,
                qosclass_sl: u16::from(raw.sl & 0xf).to_be(),
                mtu: with_selector(raw.mtu_selector, raw.mtu),
                rate: with_selector(raw.rate_selector, raw.rate),
                packetlifetime: with_selector(raw.packet_life_time_selector, raw.packet_life_time),
                preference: raw.preference,
                reserved: [0; 6],
            },
        }
    }
}

fn six_bits(value: u32) -> u8 {
    (value & 0x3f) as u8
}

impl PartialEq for PathRecord {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.to_data().path, other.to_data().path);
        (self.source_gid(), self.dest_gid()) == (other.source_gid(), other.dest_gid())
            && (a.slid, a.dlid, a.pkey, a.flowlabel_hoplimit, a.tclass, a.reversible_numpath)
                == (b.slid, b.dlid, b.pkey, b.flowlabel_hoplimit, b.tclass, b.reversible_numpath)
            && (a.qosclass_sl, a.mtu, a.rate, a.packetlifetime, a.preference)
                == (b.qosclass_sl, b.mtu, b.rate, b.packetlifetime, b.preference)
    }
}

impl Eq for PathRecord {}

impl fmt::Debug for PathRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathRecord")
            .field("source_gid", &self.source_gid())
            .field("dest_gid", &self.dest_gid())
            .field("source_lid", &self.source_lid())
            .field("dest_lid", &self.dest_lid())
            .field("flow_label", &self.flow_label())
            .field("hop_limit", &self.hop_limit())
            .field("traffic_class", &self.traffic_class())
            .field("pkey", &format_args!("{:#06x}", self.pkey()))
            .field("service_level", &self.service_level())
            .field("mtu", &self.mtu())
            .field("rate", &self.rate())
            .field("packet_life_time", &self.packet_life_time())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> PathRecord {
        let mut path = PathRecord::new("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        path.setup_source_lid(0x102).setup_dest_lid(0x304).setup_pkey(0x8001).setup_flow_label(0xabcde);
        path.setup_hop_limit(9).setup_traffic_class(0x20).setup_service_level(5).setup_packet_life_time(18);
        path.setup_mtu(Mtu::Mtu4096).setup_rate(StaticRate::Gbps100);
        path
    }

    #[test]
    fn a_record_gives_back_what_was_set() {
        let path = path();
        assert_eq!(path.source_gid(), "fe80::1".parse().unwrap());
        assert_eq!(path.dest_gid(), "fe80::2".parse().unwrap());
        assert_eq!((path.source_lid(), path.dest_lid(), path.pkey()), (0x102, 0x304, 0x8001));
        assert_eq!((path.flow_label(), path.hop_limit(), path.traffic_class()), (0xabcde, 9, 0x20));
        assert_eq!((path.service_level(), path.packet_life_time(), path.preference()), (5, 18, 0));
        assert_eq!((path.mtu(), path.rate(), path.is_reversible()), (Mtu::Mtu4096, StaticRate::Gbps100, true));
    }

    #[test]
    fn on_the_wire_numbers_are_big_endian_and_share_their_bytes() {
        let data = path().to_data();
        assert_eq!(data.flags, 1 | 2 | 40);
        let path = data.path;
        assert_eq!((path.slid.to_ne_bytes(), path.dlid.to_ne_bytes()), ([1, 2], [3, 4]));
        assert_eq!(path.pkey.to_ne_bytes(), [0x80, 1]);
        assert_eq!(path.flowlabel_hoplimit.to_ne_bytes(), [0x0a, 0xbc, 0xde, 9]);
        assert_eq!((path.tclass, path.reversible_numpath, path.qosclass_sl.to_ne_bytes()), (0x20, 0x81, [0, 5]));
        assert_eq!((path.mtu, path.rate, path.packetlifetime), (0x85, 0x80 | 16, 0x80 | 18));
    }

    #[test]
    fn what_does_not_fit_changes_nothing_beside_it() {
        let mut path = path();
        path.setup_mtu(Mtu::from_raw(0x145)).setup_service_level(0xf5).setup_flow_label(u32::MAX);
        assert_eq!((path.mtu(), path.service_level(), path.flow_label()), (Mtu::Mtu4096, 5, 0xf_ffff));
        assert_ne!(path, self::path());
        path.setup_flow_label(0xabcde);
        path.setup_mtu(Mtu::Mtu4096);
        assert_eq!(path, self::path());
    }
}
