//! GIDs, and the paths between them.

use std::net::Ipv6Addr;

/// A GID in network byte order: an IPv6 address, or an IPv4 address mapped to `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Gid(pub(crate) [u8; 16]);

/// The path to a peer (`struct ibv_ah_attr` on RoCE). An address handle contains a path, and so does a connected QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) destination: Gid,
    /// The local GID at the index `source_index`.
    pub(crate) source: Gid,
    pub(crate) source_index: u8,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) service_level: u8,
    pub(crate) port: u8,
    pub(crate) static_rate: u8,
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl Gid {
    /// The unspecified GID.
    pub(crate) const ZERO: Self = Self([0; 16]);

    /// The prefix of an IPv4 address that is mapped to IPv6.
    const IPV4: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

    pub(crate) fn from_ipv4(address: [u8; 4]) -> Self {
        let mut gid = [0; 16];
        gid[..12].copy_from_slice(&Self::IPV4);
        gid[12..].copy_from_slice(&address);
        Self(gid)
    }

    /// Returns the IPv4 address, if this GID is a mapped one.
    pub(crate) fn ipv4(self) -> Option<[u8; 4]> {
        let [.., a, b, c, d] = self.0;
        self.0.starts_with(&Self::IPV4).then_some([a, b, c, d])
    }

    /// Whether this GID is a multicast group: `ff00::/8`, or `224.0.0.0/4` for IPv4.
    pub(crate) fn is_multicast(self) -> bool {
        match self.ipv4() {
            Some([first, ..]) => first & 0xf0 == 0xe0,
            None => self.0[0] == 0xff,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn gid(address: &str) -> Gid {
        Gid(address.parse::<Ipv6Addr>().unwrap().octets())
    }

    #[test]
    fn multicast_addresses_are_recognized() {
        for group in ["ff02::1", "ff0e::7:7", "ff00::", "::ffff:224.0.0.1", "::ffff:239.255.255.255"] {
            assert!(gid(group).is_multicast(), "{group}");
        }
        for host in ["fe80::1", "::1", "::", "::ffff:127.0.0.1", "::ffff:223.1.1.1", "::ffff:240.0.0.1", "::224.0.0.1"]
        {
            assert!(!gid(host).is_multicast(), "{host}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

        #[test]
        fn classification_matches_the_standard_library(bytes: [u8; 16], address: [u8; 4]) {
            let ip = Ipv6Addr::from(bytes);
            prop_assert_eq!(Gid(bytes).ipv4().map(Ipv4Addr::from), ip.to_ipv4_mapped());
            let ip = Ipv4Addr::from(address);
            let mapped = Gid::from_ipv4(address);
            prop_assert_eq!(mapped.0, ip.to_ipv6_mapped().octets());
            prop_assert_eq!(mapped.is_multicast(), ip.is_multicast());
            prop_assert_eq!(mapped.ipv4(), Some(address));
        }
    }
}
