use proptest::prelude::*;
use rdma_mummy_sys::{ibv_gid, ibv_global_route, ibv_wc, ibv_wc_opcode, ibv_wc_status};

use super::header::{Header, LENGTH};
use super::link::address;
use super::reply_address::reply_attributes;
use super::*;
use crate::qp::check_sum;

const HERE: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]);
const LOCAL: Gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
const TABLE: [Gid; 2] = [HERE, LOCAL];

fn gid_at(index: u32) -> Option<Gid> {
    TABLE.get(index as usize).copied()
}

fn index_of(is_it: &dyn Fn(Gid) -> bool) -> Option<u8> {
    TABLE.iter().position(|&gid| is_it(gid)).map(|index| index as u8)
}

fn attributes() -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: LOCAL.0 },
            flow_label: 0xff_1234,
            sgid_index: 1,
            hop_limit: 3,
            traffic_class: 4,
        },
        dlid: 0,
        sl: 5,
        src_path_bits: 0,
        static_rate: 6,
        is_global: 1,
        port_num: 1,
    }
}

fn completion(sl: u8) -> ibv_wc {
    // SAFETY: a completion consists of numbers, for which zeros are valid.
    let zeros: ibv_wc = unsafe { std::mem::zeroed() };
    ibv_wc { sl, status: ibv_wc_status::IBV_WC_SUCCESS, opcode: ibv_wc_opcode::IBV_WC_RECV, ..zeros }
}

#[test]
fn path_has_the_attributes() {
    let path = path_from(&attributes(), gid_at).unwrap();
    let expected = Path {
        destination: LOCAL,
        source: LOCAL,
        source_index: 1,
        flow_label: 0xf_1234,
        hop_limit: 3,
        traffic_class: 4,
        service_level: 5,
        port: 1,
        static_rate: 6,
    };
    assert_eq!(path, expected);
}

#[test]
fn invalid_paths_are_refused() {
    let refused = |change: fn(&mut ibv_ah_attr)| {
        let mut attr = attributes();
        change(&mut attr);
        path_from(&attr, gid_at).err()
    };
    assert_eq!(refused(|_| {}), None);
    assert_eq!(refused(|attr| attr.port_num = 0), Some(Errno::INVALID));
    assert_eq!(refused(|attr| attr.port_num = 2), Some(Errno::INVALID));
    assert_eq!(refused(|attr| attr.is_global = 0), Some(Errno::INVALID));
    assert_eq!(refused(|attr| attr.grh.sgid_index = 2), Some(Errno::INVALID));
    assert_eq!(refused(|attr| attr.grh.sgid_index = 0), Some(Errno::INVALID), "IPv6 from an IPv4 address");
    assert_eq!(refused(|attr| attr.grh.dgid = ibv_gid { raw: [0; 16] }), Some(Errno::INVALID));
    let to_group = |attr: &mut ibv_ah_attr| {
        attr.grh.sgid_index = 0;
        attr.grh.dgid = ibv_gid { raw: [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1, 1] };
    };
    assert_eq!(refused(to_group), None, "an IPv6 group from an IPv4 address");
}

#[test]
fn bytes_without_header_are_refused() {
    assert_eq!(Header::parse(&[0; LENGTH]), None);
    assert_eq!(Header::parse(&[0xff; LENGTH]), None);
    let mut options = [0; LENGTH];
    options[20] = 0x46;
    assert_eq!(Header::parse(&options), None);
}

#[test]
fn ipv4_header_after_bytes_like_ipv6_is_recognized_by_its_checksum() {
    let mut bytes = ipv4([127, 0, 0, 2], [127, 0, 0, 1], 1, 2);
    bytes[0] = 0x60;
    assert_eq!(Header::parse(&bytes).map(|header| header.destination), Some(HERE));
    bytes[39] ^= 1;
    assert_eq!(Header::parse(&bytes).map(|header| header.traffic_class), Some(0), "it is parsed as IPv6");
    bytes[0] = 0;
    let foreign = Header::parse(&bytes).unwrap();
    assert_eq!(foreign.destination, Gid::from_ipv4([127, 0, 0, 0]));
    assert_eq!(reply_attributes(&completion(0), Some(foreign), index_of).err(), Some(Errno::INVALID));
}

#[test]
fn reply_to_a_group_datagram_uses_an_address_of_its_family() {
    let group = Header::parse(&ipv4([10, 0, 0, 1], [239, 1, 1, 1], 0, 1)).unwrap();
    assert_eq!(reply_attributes(&completion(0), Some(group), index_of).unwrap().grh.sgid_index, 0);
    let mut to = LOCAL;
    (to.0[0], to.0[1]) = (0xff, 0x0e);
    let group = Header::parse(&ipv6(LOCAL, to, 0, 0, 1)).unwrap();
    assert_eq!(reply_attributes(&completion(0), Some(group), index_of).unwrap().grh.sgid_index, 1);
}

#[test]
fn completion_without_header_has_no_global_route() {
    let attr = reply_attributes(&completion(3), None, index_of).unwrap();
    assert_eq!((attr.is_global, attr.sl, attr.port_num), (0, 3, 1));
    assert_eq!(path_from(&attr, gid_at).err(), Some(Errno::INVALID));
}

#[test]
fn groups_have_their_standard_ethernet_address() {
    assert_eq!(address(HERE), [0; 6]);
    assert_eq!(address(LOCAL), [0; 6]);
    assert_eq!(address(Gid::from_ipv4([239, 0xff, 2, 3])), [0x01, 0x00, 0x5e, 0x7f, 2, 3]);
    let group = Gid([0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    assert_eq!(address(group), [0x33, 0x33, 0, 0, 0, 7]);
}

fn ipv4(source: [u8; 4], destination: [u8; 4], class: u8, hops: u8) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[20..30].copy_from_slice(&[0x45, class, 0, 60, 0, 0, 0x40, 0, hops, 17]);
    bytes[32..36].copy_from_slice(&source);
    bytes[36..].copy_from_slice(&destination);
    let checksum = check_sum(&bytes[20..]);
    bytes[30..32].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn ipv6(source: Gid, destination: Gid, class: u8, flow: u32, hops: u8) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..4].copy_from_slice(&(6 << 28 | u32::from(class) << 20 | flow).to_be_bytes());
    bytes[4..8].copy_from_slice(&[0, 40, 17, hops]);
    bytes[8..24].copy_from_slice(&source.0);
    bytes[24..].copy_from_slice(&destination.0);
    bytes
}

/// Returns the fields of the reply address: destination, source index, traffic class, flow label and hop limit.
fn reply(bytes: &[u8; LENGTH], sl: u8) -> (Gid, u8, u8, u32, u8) {
    let attr = reply_attributes(&completion(sl), Header::parse(bytes), index_of).unwrap();
    assert_eq!((attr.is_global, attr.sl), (1, sl));
    let path = path_from(&attr, gid_at).unwrap();
    (path.destination, path.source_index, path.traffic_class, path.flow_label, path.hop_limit)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

    #[test]
    fn ipv4_reply_address_is_the_sender(source: [u8; 4], class: u8, hops: u8, sl: u8) {
        let bytes = ipv4(source, [127, 0, 0, 1], class, hops);
        prop_assert_eq!(check_sum(&bytes[20..]), 0);
        prop_assert_eq!(reply(&bytes, sl), (Gid::from_ipv4(source), 0, class, 0, hops));
    }

    #[test]
    fn ipv6_reply_address_is_the_sender(mut source: [u8; 16], class: u8, flow in 0..1_u32 << 20, hops: u8) {
        source[0] |= 1;
        let bytes = ipv6(Gid(source), LOCAL, class, flow, hops);
        prop_assert_eq!(reply(&bytes, 0), (Gid(source), 1, class, flow, hops));
    }

    #[test]
    fn arbitrary_bytes_are_parsed_safely(bytes: [u8; 32], more: [u8; 8]) {
        let mut all = [0; LENGTH];
        all[..32].copy_from_slice(&bytes);
        all[32..].copy_from_slice(&more);
        if let Some(header) = Header::parse(&all) {
            prop_assert!(header.flow_label < 1 << 20);
        }
    }
}
