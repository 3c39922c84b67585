//! Filters of packet headers. Their fields have natural types, in host order.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A filter for one packet header. It consists of a value and of a mask of the bits that are compared. See
/// [`FlowRule::setup_match`](super::FlowRule::setup_match).
#[doc(alias = "ibv_flow_spec")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields of all are a value and the mask of its significant bits")]
pub enum FlowSpec {
    /// `ibv_flow_spec_eth`: the Ethernet header.
    Ethernet { value: EthernetFilter, mask: EthernetFilter },
    /// `ibv_flow_spec_ipv4`: the IPv4 addresses.
    Ipv4 { value: Ipv4Filter, mask: Ipv4Filter },
    /// `ibv_flow_spec_ipv4_ext`: the IPv4 header.
    Ipv4Ext { value: Ipv4ExtFilter, mask: Ipv4ExtFilter },
    /// `ibv_flow_spec_ipv6`: the IPv6 header.
    Ipv6 { value: Ipv6Filter, mask: Ipv6Filter },
    /// `ibv_flow_spec_tcp_udp`: the TCP ports.
    Tcp { value: TcpUdpFilter, mask: TcpUdpFilter },
    /// `ibv_flow_spec_tcp_udp`: the UDP ports.
    Udp { value: TcpUdpFilter, mask: TcpUdpFilter },
    /// `ibv_flow_spec_tunnel`: the VXLAN header.
    VxlanTunnel { value: TunnelFilter, mask: TunnelFilter },
    /// `ibv_flow_spec_gre`: the GRE header.
    Gre { value: GreFilter, mask: GreFilter },
    /// `ibv_flow_spec_mpls`: an MPLS label.
    Mpls { value: MplsFilter, mask: MplsFilter },
    /// `ibv_flow_spec_esp`: the IPsec ESP header.
    Esp { value: EspFilter, mask: EspFilter },
}

/// `struct ibv_flow_eth_filter` — the Ethernet header.
#[doc(alias = "ibv_flow_eth_filter")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EthernetFilter {
    /// The destination.
    pub dst_mac: [u8; 6],
    /// The source.
    pub src_mac: [u8; 6],
    /// The payload's protocol, such as 0x0800 for IPv4.
    pub ether_type: u16,
    /// The VLAN tag: priority (3 bits), drop eligible (1 bit), VLAN (12 bits).
    pub vlan_tag: u16,
}

/// `struct ibv_flow_ipv4_filter` — the IPv4 addresses.
#[doc(alias = "ibv_flow_ipv4_filter")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Filter {
    /// The source.
    pub src_ip: Ipv4Addr,
    /// The destination.
    pub dst_ip: Ipv4Addr,
}

/// `struct ibv_flow_ipv4_ext_filter` — the IPv4 header.
#[doc(alias = "ibv_flow_ipv4_ext_filter")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4ExtFilter {
    /// The source.
    pub src_ip: Ipv4Addr,
    /// The destination.
    pub dst_ip: Ipv4Addr,
    /// The payload's protocol, such as 17 for UDP.
    pub protocol: u8,
    /// The type of service: DSCP (6 bits) and ECN (2 bits).
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Fragmentation: 1 means more fragments, 2 means do not fragment.
    pub flags: u8,
}

/// `struct ibv_flow_ipv6_filter` — the IPv6 header.
#[doc(alias = "ibv_flow_ipv6_filter")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Filter {
    /// The source.
    pub src_ip: Ipv6Addr,
    /// The destination.
    pub dst_ip: Ipv6Addr,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The type of the next header, such as 17 for UDP.
    pub next_header: u8,
    /// The traffic class: DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// The hop limit.
    pub hop_limit: u8,
}

/// `struct ibv_flow_tcp_udp_filter` — the TCP or UDP ports.
#[doc(alias = "ibv_flow_tcp_udp_filter")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpUdpFilter {
    /// The destination.
    pub dst_port: u16,
    /// The source.
    pub src_port: u16,
}

/// `struct ibv_flow_tunnel_filter` — the header of a tunnel.
#[doc(alias = "ibv_flow_tunnel_filter")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TunnelFilter {
    /// The tunnel's number; with VXLAN the network identifier, 24 bits.
    pub tunnel_id: u32,
}

/// `struct ibv_flow_gre_filter` — the GRE header.
#[doc(alias = "ibv_flow_gre_filter")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GreFilter {
    /// The first 16 bits: 0x8000 if the header has a checksum, 0x2000 if it has a key, 0x1000 if it has a sequence
    /// number. The lowest three bits are the version.
    pub flags_and_version: u16,
    /// The protocol of the payload, as an EtherType.
    pub protocol: u16,
    /// The key.
    pub key: u32,
}

/// `struct ibv_flow_mpls_filter` — an MPLS label stack entry.
#[doc(alias = "ibv_flow_mpls_filter")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MplsFilter {
    /// The label, 20 bits.
    pub label: u32,
    /// The traffic class, 3 bits.
    pub traffic_class: u8,
    /// Whether the entry is the last one of the stack. In a mask, whether this bit is compared.
    pub bottom_of_stack: bool,
    /// Time to live.
    pub ttl: u8,
}

/// `struct ibv_flow_esp_filter` — the IPsec ESP header.
#[doc(alias = "ibv_flow_esp_filter")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EspFilter {
    /// The security parameter index.
    pub spi: u32,
    /// The sequence number.
    pub sequence: u32,
}

impl Default for Ipv4Filter {
    fn default() -> Self {
        Self { src_ip: Ipv4Addr::UNSPECIFIED, dst_ip: Ipv4Addr::UNSPECIFIED }
    }
}

impl Default for Ipv4ExtFilter {
    fn default() -> Self {
        let any = Ipv4Addr::UNSPECIFIED;
        Self { src_ip: any, dst_ip: any, protocol: 0, tos: 0, ttl: 0, flags: 0 }
    }
}

impl Default for Ipv6Filter {
    fn default() -> Self {
        let any = Ipv6Addr::UNSPECIFIED;
        Self { src_ip: any, dst_ip: any, flow_label: 0, next_header: 0, traffic_class: 0, hop_limit: 0 }
    }
}
