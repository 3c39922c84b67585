//! The GIDs of IP multicast groups.

use std::net::IpAddr;

use super::{Gid, GidType};

impl Gid {
    /// Returns the GID of an IP multicast group on Ethernet. Returns `None` if `group` is not a multicast address or
    /// the protocol is not RoCE. (On InfiniBand the GID also contains the partition key; use librdmacm's
    /// `rdma_join_multicast` there.)
    ///
    /// The GID of an IPv6 group is its address. The GID of the IPv4 group 239.1.2.3 is the mapped address
    /// `::ffff:239.1.2.3` with RoCE v2. With RoCE v1 it is `ff0e::ffff:239.1.2.3`, because RoCE v1 packets have no IP
    /// header that identifies IPv4.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    ///
    /// use sideway::ibverbs::address::{Gid, GidType};
    ///
    /// let group = Ipv4Addr::new(239, 1, 2, 3);
    /// assert_eq!(Gid::of_multicast_group(group.into(), GidType::RoceV2), Some(group.into()));
    /// ```
    pub fn of_multicast_group(group: IpAddr, gid_type: GidType) -> Option<Self> {
        if !group.is_multicast() {
            return None;
        }
        match (gid_type, group) {
            (GidType::RoceV1 | GidType::RoceV2, IpAddr::V6(group)) => Some(group.into()),
            (GidType::RoceV2, IpAddr::V4(group)) => Some(group.into()),
            (GidType::RoceV1, IpAddr::V4(group)) => {
                let Self { mut raw } = group.into();
                [raw[0], raw[1]] = [0xff, 0x0e];
                Some(Self { raw })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_mapped_as_in_the_kernel() {
        let gid = |group: &str, gid_type| Gid::of_multicast_group(group.parse().unwrap(), gid_type);
        let text = |text: &str| Some(text.parse::<Gid>().unwrap());
        assert_eq!(gid("224.0.0.1", GidType::RoceV2), text("::ffff:224.0.0.1"));
        assert_eq!(gid("224.0.0.1", GidType::RoceV1), text("ff0e::ffff:224.0.0.1"));
        assert_eq!(gid("ff02::1", GidType::RoceV2), text("ff02::1"));
        assert_eq!(gid("ff02::1", GidType::RoceV1), text("ff02::1"));
        for (group, gid_type) in [
            ("10.0.0.1", GidType::RoceV2),
            ("fe80::1", GidType::RoceV2),
            ("224.0.0.1", GidType::InfiniBand),
            ("ff02::1", GidType::from_raw(77)),
        ] {
            assert_eq!(gid(group, gid_type), None);
        }
    }

    #[test]
    fn both_mapped_forms_are_multicast() {
        for text in ["ff02::1", "ff0e::ffff:224.0.0.1", "::ffff:224.0.0.1", "::ffff:239.255.255.255"] {
            assert!(text.parse::<Gid>().unwrap().is_multicast(), "{text}");
        }
        for text in ["::", "fe80::1", "::ffff:223.255.255.255", "::ffff:240.0.0.1", "::224.0.0.1"] {
            assert!(!text.parse::<Gid>().unwrap().is_multicast(), "{text}");
        }
    }
}
