//! A rule as C reads it: each specification has the C struct's layout, size and byte order, and no gaps lie between
//! them.

use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr};

use rdma_mummy_sys as ffi;
use rdma_mummy_sys::ibv_flow_spec_type as spec;
use sideway::ibverbs::flow::{
    EspFilter, EthernetFilter, FlowFlags, FlowRule, FlowSpec, FlowType, GreFilter, Ipv4ExtFilter, Ipv4Filter,
    Ipv6Filter, MplsFilter, TcpUdpFilter, TunnelFilter,
};
use sideway::ibverbs::queue_pair::QueuePair;
use sideway_tests::recording::World;

use crate::offload::queue_pair;

/// The arguments that C receives for this rule: the attributes, followed by the specifications.
fn arrived(rule: &FlowRule) -> (ffi::ibv_flow_attr, Vec<u8>) {
    let world = World::new();
    let qp = queue_pair(&world);
    drop(qp.create_flow(rule).unwrap());
    let mut all = world.recording.bytes();
    let bytes = all.pop().unwrap();
    assert!(all.is_empty());
    // SAFETY: the bytes begin with the struct, which has integers alone.
    let attr = unsafe { bytes.as_ptr().cast::<ffi::ibv_flow_attr>().read_unaligned() };
    assert_eq!(usize::from(attr.size), bytes.len());
    (attr, bytes[size_of::<ffi::ibv_flow_attr>()..].to_vec())
}

/// The C struct of this specification, and its bytes.
fn only<S: Copy>(filter: FlowSpec, inner: bool) -> (S, Vec<u8>) {
    let mut rule = FlowRule::new(FlowType::Normal, 1);
    if inner {
        rule.setup_inner_match(filter);
    } else {
        rule.setup_match(filter);
    }
    let (attr, bytes) = arrived(&rule);
    assert_eq!(attr.num_of_specs, 1);
    assert_eq!(bytes.len(), size_of::<S>());
    // SAFETY: the bytes are those of the struct, which has integers alone.
    (unsafe { bytes.as_ptr().cast::<S>().read_unaligned() }, bytes)
}

/// The type and size at the start of every specification.
fn head(bytes: &[u8]) -> (u32, usize) {
    let spec_type = u32::from_ne_bytes(bytes[..4].try_into().unwrap());
    (spec_type, u16::from_ne_bytes(bytes[4..6].try_into().unwrap()).into())
}

#[test]
fn rule_attributes_arrive_unchanged() {
    let mut rule = FlowRule::new(FlowType::MulticastDefault, 3);
    rule.setup_priority(0x1234).setup_flags(FlowFlags::Egress | FlowFlags::DontTrap);
    let (attr, specs) = arrived(&rule);
    assert_eq!((attr.comp_mask, attr.type_), (0, ffi::ibv_flow_attr_type::IBV_FLOW_ATTR_MC_DEFAULT));
    assert_eq!((attr.size, attr.priority), (size_of::<ffi::ibv_flow_attr>() as u16, 0x1234));
    assert_eq!((attr.num_of_specs, attr.port, attr.flags), (0, 3, 6));
    assert!(specs.is_empty());
    for (flow_type, raw) in
        [(FlowType::Normal, 0), (FlowType::AllDefault, 1), (FlowType::MulticastDefault, 2), (FlowType::Sniffer, 3)]
    {
        assert_eq!(arrived(&FlowRule::new(flow_type, 1)).0.type_.0, raw);
    }
}

#[test]
fn ethernet() {
    let value = EthernetFilter {
        dst_mac: [1, 2, 3, 4, 5, 6],
        src_mac: [7, 8, 9, 10, 11, 12],
        ether_type: 0x0800,
        vlan_tag: 0x2abc,
    };
    let mask = EthernetFilter { dst_mac: [0xff; 6], ..Default::default() };
    let (c, bytes) = only::<ffi::ibv_flow_spec_eth>(FlowSpec::Ethernet { value, mask }, false);
    assert_eq!(head(&bytes), (spec::IBV_FLOW_SPEC_ETH.0, 40));
    assert_eq!((c.val.dst_mac, c.val.src_mac), ([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]));
    assert_eq!((c.val.ether_type, c.val.vlan_tag), (0x0800_u16.to_be(), 0x2abc_u16.to_be()));
    assert_eq!((c.mask.dst_mac, c.mask.src_mac, c.mask.ether_type), ([0xff; 6], [0; 6], 0));
    // In memory order, from the first byte to the last.
    let wire = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x08, 0x00, 0x2a, 0xbc];
    assert_eq!(bytes[6..22], wire);
    assert_eq!(bytes[22..], [[0xff; 6].as_slice(), &[0; 12]].concat());
}

#[test]
fn ipv4() {
    let (src_ip, dst_ip) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2));
    let value = Ipv4Filter { src_ip, dst_ip };
    let mask = Ipv4Filter { dst_ip: Ipv4Addr::BROADCAST, ..Default::default() };
    let (c, bytes) = only::<ffi::ibv_flow_spec_ipv4>(FlowSpec::Ipv4 { value, mask }, false);
    assert_eq!(head(&bytes), (spec::IBV_FLOW_SPEC_IPV4.0, 24));
    assert_eq!(c.val.src_ip.to_ne_bytes(), [192, 0, 2, 1]);
    assert_eq!(c.val.dst_ip.to_ne_bytes(), [198, 51, 100, 2]);
    assert_eq!((c.mask.src_ip, c.mask.dst_ip), (0, u32::MAX));

    let value = Ipv4ExtFilter { src_ip, dst_ip, protocol: 17, tos: 0xb8, ttl: 64, flags: 2 };
    let mask = Ipv4ExtFilter { protocol: 1, tos: 2, ttl: 3, flags: 4, ..Default::default() };
    let (c, bytes) = only::<ffi::ibv_flow_spec_ipv4_ext>(FlowSpec::Ipv4Ext { value, mask }, false);
    assert_eq!(head(&bytes), (spec::IBV_FLOW_SPEC_IPV4_EXT.0, 32));
    assert_eq!(bytes[8..20], [192, 0, 2, 1, 198, 51, 100, 2, 17, 0xb8, 64, 2]);
    assert_eq!(bytes[20..], [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!((c.val.proto, c.val.tos, c.val.ttl, c.val.flags), (17, 0xb8, 64, 2));
}

#[test]
fn ipv6_padding_is_zero() {
    let value = Ipv6Filter {
        src_ip: "2001:db8::1".parse().unwrap(),
        dst_ip: Ipv6Addr::LOCALHOST,
        flow_label: 0xabcde,
        next_header: 6,
        traffic_class: 0x11,
        hop_limit: 0x22,
    };
    let all = Ipv6Addr::from_bits(u128::MAX);
    let mask = Ipv6Filter {
        src_ip: all,
        dst_ip: all,
        flow_label: 0xfffff,
        next_header: 255,
        traffic_class: 255,
        hop_limit: 255,
    };
    let (c, bytes) = only::<ffi::ibv_flow_spec_ipv6>(FlowSpec::Ipv6 { value, mask }, false);
    assert_eq!(head(&bytes), (spec::IBV_FLOW_SPEC_IPV6.0, 88));
    assert_eq!(c.val.src_ip, [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(c.val.dst_ip, Ipv6Addr::LOCALHOST.octets());
    assert_eq!(c.val.flow_label.to_ne_bytes(), [0, 0x0a, 0xbc, 0xde]);
    assert_eq!((c.val.next_hdr, c.val.traffic_class, c.val.hop_limit), (6, 0x11, 0x22));
    assert_eq!((c.mask.flow_label.to_ne_bytes(), c.mask.hop_limit), ([0, 0x0f, 0xff, 0xff], 255));
    // The library refuses a specification whose padding after the mask is not zero.
    let end = offset_of!(ffi::ibv_flow_ipv6_filter, hop_limit) + 1;
    assert_eq!((bytes[8 + end..48].to_vec(), bytes[48 + end..].to_vec()), (vec![0], vec![0]));
}

#[test]
fn tcp_and_udp_port_spaces_are_separate() {
    let value = TcpUdpFilter { dst_port: 0x1234, src_port: 0xabcd };
    let mask = TcpUdpFilter { dst_port: u16::MAX, src_port: 1 };
    for (filter, spec_type) in [
        (FlowSpec::Tcp { value, mask }, spec::IBV_FLOW_SPEC_TCP),
        (FlowSpec::Udp { value, mask }, spec::IBV_FLOW_SPEC_UDP),
    ] {
        let (_, bytes) = only::<ffi::ibv_flow_spec_tcp_udp>(filter, false);
        assert_eq!(head(&bytes), (spec_type.0, 16));
        assert_eq!(bytes[6..], [0x12, 0x34, 0xab, 0xcd, 0xff, 0xff, 0, 1, 0, 0]);
    }
}

#[test]
fn tunnel_specifications_have_inner_ones() {
    let (value, mask) = (TunnelFilter { tunnel_id: 0x0012_3456 }, TunnelFilter { tunnel_id: 0x00ff_ffff });
    let (_, bytes) = only::<ffi::ibv_flow_spec_tunnel>(FlowSpec::VxlanTunnel { value, mask }, false);
    assert_eq!(head(&bytes), (spec::IBV_FLOW_SPEC_VXLAN_TUNNEL.0, 16));
    assert_eq!(bytes[8..], [0, 0x12, 0x34, 0x56, 0, 0xff, 0xff, 0xff]);

    let value = GreFilter { flags_and_version: 0x2000, protocol: 0x6558, key: 0x0102_0304 };
    let mask = GreFilter { flags_and_version: 0xb007, protocol: u16::MAX, key: u32::MAX };
    let (c, bytes) = only::<ffi::ibv_flow_spec_gre>(FlowSpec::Gre { value, mask }, false);
    assert_eq!(head(&bytes), (spec::IBV_FLOW_SPEC_GRE.0, 24));
    assert_eq!(bytes[8..16], [0x20, 0x00, 0x65, 0x58, 1, 2, 3, 4]);
    assert_eq!(c.mask.c_ks_res0_ver.to_ne_bytes(), [0xb0, 0x07]);

    let value = MplsFilter { label: 0xabcde, traffic_class: 5, bottom_of_stack: true, ttl: 0x40 };
    let mask = MplsFilter { label: u32::MAX, traffic_class: 255, bottom_of_stack: true, ttl: 255 };
    let (_, bytes) = only::<ffi::ibv_flow_spec_mpls>(FlowSpec::Mpls { value, mask }, false);
    assert_eq!(head(&bytes), (spec::IBV_FLOW_SPEC_MPLS.0, 16));
    // 20 bits of label, 3 of class, 1 for the bottom, 8 of time to live.
    assert_eq!(bytes[8..], [0xab, 0xcd, 0xeb, 0x40, 0xff, 0xff, 0xff, 0xff]);

    let (value, mask) = (EspFilter { spi: 0x0a0b_0c0d, sequence: 1 }, EspFilter { spi: u32::MAX, sequence: 0 });
    let (_, bytes) = only::<ffi::ibv_flow_spec_esp>(FlowSpec::Esp { value, mask }, false);
    assert_eq!(head(&bytes), (spec::IBV_FLOW_SPEC_ESP.0, 24));
    assert_eq!(bytes[8..], [10, 11, 12, 13, 0, 0, 0, 1, 255, 255, 255, 255, 0, 0, 0, 0]);

    let any = Ipv4Filter::default();
    let (_, bytes) = only::<ffi::ibv_flow_spec_ipv4>(FlowSpec::Ipv4 { value: any, mask: any }, true);
    assert_eq!(head(&bytes).0, spec::IBV_FLOW_SPEC_IPV4.0 | spec::IBV_FLOW_SPEC_INNER.0);
}

#[test]
fn specifications_are_contiguous_in_the_given_order() {
    let world = World::new();
    let qp = queue_pair(&world);
    let counters = world.context.create_counters().unwrap();
    let (ethernet, ports) = (EthernetFilter::default(), TcpUdpFilter { dst_port: 80, src_port: 0 });
    let mut rule = FlowRule::new(FlowType::Normal, 1);
    rule.setup_tag(0x00ab_cdef)
        .setup_match(FlowSpec::Ethernet { value: ethernet, mask: ethernet })
        .setup_drop()
        .setup_match(FlowSpec::Tcp { value: ports, mask: ports })
        .setup_counters(&counters);
    let flow = qp.create_flow(&rule).unwrap();
    let bytes = world.recording.bytes().pop().unwrap();
    let mut rest = &bytes[size_of::<ffi::ibv_flow_attr>()..];
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let (spec_type, size) = head(rest);
        seen.push((spec_type, rest[..size].to_vec()));
        rest = &rest[size..];
    }
    let types: Vec<_> = seen.iter().map(|(spec_type, bytes)| (*spec_type, bytes.len())).collect();
    assert_eq!(types, [(0x20, 40), (0x40, 16), (0x1003, 16), (0x1001, 8), (0x1000, 12)]);
    // SAFETY: the pointer is not dereferenced.
    let raw = unsafe { counters.counters() }.as_ptr().addr();
    assert_eq!(usize::from_ne_bytes(seen[2].1[8..].try_into().unwrap()), raw);
    // The tag is a number for the program, in the byte order of this machine.
    assert_eq!(u32::from_ne_bytes(seen[4].1[8..].try_into().unwrap()), 0x00ab_cdef);
    drop((flow, rule, qp));
    drop(counters);
    world.end();
}

#[test]
fn longest_rule_is_taken_and_one_more_refused() {
    let world = World::new();
    let qp = queue_pair(&world);
    let any = Ipv6Filter::default();
    let mut rule = FlowRule::new(FlowType::Normal, 1);
    for _ in 0..254 {
        rule.setup_match(FlowSpec::Ipv6 { value: any, mask: any });
    }
    rule.setup_tag(1);
    drop(qp.create_flow(&rule).unwrap());
    let expected = size_of::<ffi::ibv_flow_attr>() + 254 * 88 + 12;
    assert_eq!(world.recording.calls()[0].argument("size"), expected as u64);
    rule.setup_drop();
    let error = qp.create_flow(&rule).unwrap_err();
    assert!(error.hint().unwrap().contains("256 specifications; use at most 255"), "{error}");
    assert_eq!(world.recording.verbs(), [""; 0], "C was not asked");
}
