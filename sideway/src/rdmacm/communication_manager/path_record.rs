//! `struct ibv_sa_path_rec`: a path through the fabric.

use std::{fmt, mem};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_path_data, ibv_path_record, ibv_sa_path_rec};

use crate::ibverbs::address::{Gid, StaticRate};
use crate::ibverbs::device_context::Mtu;

/// The selector "exactly" for the MTU, the rate and the packet life time. With other selectors, these three numbers are
/// bounds.
const EXACTLY: u8 = 2;

/// `struct ibv_sa_path_rec` — a path to a peer, as InfiniBand's subnet manager returns it, or as the kernel creates one
/// for RoCE. All numbers are in host order.
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
    /// Creates a path between two ports that works in both directions, in the default partition. The MTU is 256 bytes;
    /// the LIDs, the service level, the rate and the packet life time are 0.
    pub fn new(source_gid: Gid, dest_gid: Gid) -> Self {
        // SAFETY: all zeros are a valid value, because the struct has only integers.
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

    /// `sgid`: returns the GID of this side's port.
    pub fn source_gid(&self) -> Gid {
        self.0.sgid.into()
    }

    /// `dgid`: returns the GID of the peer's port.
    pub fn dest_gid(&self) -> Gid {
        self.0.dgid.into()
    }

    /// `slid`: returns the LID of this side's port. For RoCE it is undefined, because some kernels leave it
    /// uninitialised.
    pub fn source_lid(&self) -> u16 {
        u16::from_be(self.0.slid)
    }

    /// `slid`: sets the LID of this side's port.
    pub fn setup_source_lid(&mut self, lid: u16) -> &mut Self {
        self.0.slid = lid.to_be();
        self
    }

    /// `dlid`: returns the LID of the peer's port, or of the router to it. For RoCE it is undefined.
    pub fn dest_lid(&self) -> u16 {
        u16::from_be(self.0.dlid)
    }

    /// `dlid`: sets the LID of the peer's port, or of the router to it.
    pub fn setup_dest_lid(&mut self, lid: u16) -> &mut Self {
        self.0.dlid = lid.to_be();
        self
    }

    /// `flow_label`: returns the flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32::from_be(self.0.flow_label)
    }

    /// `flow_label`: sets the flow label, 20 bits; higher bits are ignored.
    pub fn setup_flow_label(&mut self, flow_label: u32) -> &mut Self {
        self.0.flow_label = (flow_label & 0xf_ffff).to_be();
        self
    }

    /// `hop_limit`: returns the maximum number of routers on the path.
    pub fn hop_limit(&self) -> u8 {
        self.0.hop_limit
    }

    /// `hop_limit`: sets the maximum number of routers on the path.
    pub fn setup_hop_limit(&mut self, hop_limit: u8) -> &mut Self {
        self.0.hop_limit = hop_limit;
        self
    }

    /// `traffic_class`: returns the traffic class of the global routing header.
    pub fn traffic_class(&self) -> u8 {
        self.0.traffic_class
    }

    /// `traffic_class`: sets the traffic class of the global routing header.
    pub fn setup_traffic_class(&mut self, traffic_class: u8) -> &mut Self {
        self.0.traffic_class = traffic_class;
        self
    }

    /// `reversible`: whether the path works in both directions.
    pub fn is_reversible(&self) -> bool {
        self.0.reversible != 0
    }

    /// `pkey`: returns the P_Key of the partition.
    pub fn pkey(&self) -> u16 {
        u16::from_be(self.0.pkey)
    }

    /// `pkey`: sets the P_Key of the partition.
    pub fn setup_pkey(&mut self, pkey: u16) -> &mut Self {
        self.0.pkey = pkey.to_be();
        self
    }

    /// `sl`: returns the service level, 4 bits.
    pub fn service_level(&self) -> u8 {
        self.0.sl
    }

    /// `sl`: sets the service level, 4 bits; higher bits are ignored.
    pub fn setup_service_level(&mut self, service_level: u8) -> &mut Self {
        self.0.sl = service_level & 0xf;
        self
    }

    /// `mtu`: returns the maximum payload of a packet.
    pub fn mtu(&self) -> Mtu {
        Mtu::from_raw(self.0.mtu.into())
    }

    /// `mtu`: sets the maximum payload of a packet; the value has 6 bits, and higher bits are ignored.
    pub fn setup_mtu(&mut self, mtu: Mtu) -> &mut Self {
        (self.0.mtu_selector, self.0.mtu) = (EXACTLY, six_bits(mtu.raw()));
        self
    }

    /// `rate`: returns the rate of the slowest link.
    pub fn rate(&self) -> StaticRate {
        StaticRate::from_raw(self.0.rate.into())
    }

    /// `rate`: sets the rate of the slowest link; the value has 6 bits, and higher bits are ignored.
    pub fn setup_rate(&mut self, rate: StaticRate) -> &mut Self {
        (self.0.rate_selector, self.0.rate) = (EXACTLY, six_bits(rate.raw()));
        self
    }

    /// `packet_life_time`: returns how long a packet may be in the fabric. The value n means 4.096 µs × 2^n.
    pub fn packet_life_time(&self) -> u8 {
        self.0.packet_life_time
    }

    /// `packet_life_time`: sets how long a packet may be in the fabric. The value n means 4.096 µs × 2^n. It has 6
    /// bits; higher bits are ignored.
    pub fn setup_packet_life_time(&mut self, packet_life_time: u8) -> &mut Self {
        let packet_life_time = six_bits(packet_life_time.into());
        (self.0.packet_life_time_selector, self.0.packet_life_time) = (EXACTLY, packet_life_time);
        self
    }

    /// `preference`: returns the preference. The path with the lowest preference is the best one.
    pub fn preference(&self) -> u8 {
        self.0.preference
    }

    /// Returns the record in wire format. The flags state that the path is for the connection and its setup, in both
    /// directions.
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
    fn record_returns_set_values() {
        let path = path();
        assert_eq!(path.source_gid(), "fe80::1".parse().unwrap());
        assert_eq!(path.dest_gid(), "fe80::2".parse().unwrap());
        assert_eq!((path.source_lid(), path.dest_lid(), path.pkey()), (0x102, 0x304, 0x8001));
        assert_eq!((path.flow_label(), path.hop_limit(), path.traffic_class()), (0xabcde, 9, 0x20));
        assert_eq!((path.service_level(), path.packet_life_time(), path.preference()), (5, 18, 0));
        assert_eq!((path.mtu(), path.rate(), path.is_reversible()), (Mtu::Mtu4096, StaticRate::Gbps100, true));
    }

    #[test]
    fn wire_numbers_are_big_endian_and_packed() {
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
    fn excess_bits_do_not_change_neighbours() {
        let mut path = path();
        path.setup_mtu(Mtu::from_raw(0x145)).setup_service_level(0xf5).setup_flow_label(u32::MAX);
        assert_eq!((path.mtu(), path.service_level(), path.flow_label()), (Mtu::Mtu4096, 5, 0xf_ffff));
        assert_ne!(path, self::path());
        path.setup_flow_label(0xabcde);
        path.setup_mtu(Mtu::Mtu4096);
        assert_eq!(path, self::path());
    }
}
