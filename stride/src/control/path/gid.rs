//! GIDs, and the ranking of pairs of GIDs.

use std::net::{IpAddr, Ipv6Addr};

use super::Near;
use crate::endpoint::PortInfo;

/// An entry of a GID table.
#[derive(Clone, Debug)]
pub(super) struct Gid {
    pub(super) index: u32,
    gid: Ipv6Addr,
    kind: String,
    prefix: Option<u8>,
}

/// The rank of a pair of GIDs. The most significant criterion comes first.
pub(super) type Rank = (bool, bool, bool, bool, u8);

impl Gid {
    /// Returns the GIDs in the table of a port, except for unreadable and empty entries.
    pub(super) fn all(port_info: &PortInfo) -> Vec<Self> {
        let read = port_info.gids.iter().filter_map(|fact| {
            let gid = fact.gid.parse::<Ipv6Addr>().ok().filter(|gid| !gid.is_unspecified())?;
            Some(Self { index: fact.index, gid, kind: fact.kind.clone(), prefix: fact.prefix })
        });
        read.collect()
    }

    /// Returns the subnet prefix of an InfiniBand GID.
    pub(super) fn subnet(&self) -> u64 {
        (self.gid.to_bits() >> 64) as u64
    }

    /// Returns the IP address of a RoCE GID.
    fn address(&self) -> IpAddr {
        self.gid.to_ipv4_mapped().map_or(IpAddr::V6(self.gid), IpAddr::V4)
    }

    fn is_link_local(&self) -> bool {
        match self.address() {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
    }

    /// Whether both GIDs have the same type and address family.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind && self.address().is_ipv4() == other.address().is_ipv4()
    }

    /// Whether packets from this GID can reach `other`, judging by the addresses.
    pub(super) fn reaches(&self, other: &Self, is_one_host: bool) -> bool {
        let loopback = [self, other].map(|gid| gid.address().is_loopback());
        let local = [self, other].map(Self::is_link_local);
        let is_routed = self.kind != "RoCE v1";
        match (loopback, local) {
            ([true, true], _) => is_one_host,
            ([false, false], [true, true]) => true,
            ([false, false], [false, false]) => is_routed || self.is_in_network_of(other),
            _ => false,
        }
    }

    /// Ranks a pair of GIDs. The criteria are listed here with the most important one first. A pair ranks higher if its
    /// GIDs are not link-local, are in the same network, have the type RoCE v2, are not loopback addresses, and are
    /// used by the TCP connection.
    pub(super) fn rank(&self, other: &Self, near: Near) -> Rank {
        let is_near =
            |gid: &Self, near: Option<IpAddr>| u8::from(near.is_some_and(|near| near.to_canonical() == gid.address()));
        let both = is_near(self, near.client) + is_near(other, near.server);
        let is_global = !self.is_link_local() && !other.is_link_local();
        let is_local = self.address().is_loopback() && other.address().is_loopback();
        // A pair ranks higher if the TCP connection uses the addresses of both GIDs than if it uses only one of them.
        let preference = both * 2 + u8::from(self.address().is_ipv4());
        (
            is_global,
            self.is_in_network_of(other) || both == 2,
            self.kind == "RoCE v2",
            !is_local || both == 2,
            preference,
        )
    }

    fn is_in_network_of(&self, other: &Self) -> bool {
        let prefix = self.prefix.or(other.prefix);
        match (self.address(), other.address()) {
            (IpAddr::V4(one), IpAddr::V4(two)) => {
                let bits = u32::from(prefix.unwrap_or(24)).min(32);
                (one.to_bits() ^ two.to_bits()).leading_zeros() >= bits
            }
            (IpAddr::V6(one), IpAddr::V6(two)) => {
                let bits = u32::from(prefix.unwrap_or(64)).min(128);
                (one.to_bits() ^ two.to_bits()).leading_zeros() >= bits
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// Lists GIDs for an error text.
pub(super) fn list(gids: &[Gid]) -> String {
    if gids.is_empty() {
        return "none".to_owned();
    }
    let most = 8;
    let mut texts: Vec<String> =
        gids.iter().take(most).map(|gid| format!("{} ({} {})", gid.index, gid.kind, gid.address())).collect();
    if gids.len() > most {
        texts.push(format!("{} more", gids.len() - most));
    }
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(address: &str, prefix: u8) -> Gid {
        let gid = match address.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        Gid { index: 0, gid, kind: "RoCE v2".to_owned(), prefix: Some(prefix) }
    }

    #[test]
    fn networks_are_compared_by_prefix_length() {
        assert!(gid("10.0.0.1", 24).is_in_network_of(&gid("10.0.0.200", 24)));
        assert!(!gid("10.0.0.1", 25).is_in_network_of(&gid("10.0.0.200", 25)));
        assert!(gid("fd00::1", 64).is_in_network_of(&gid("fd00::2", 64)));
        assert!(!gid("fd00::1", 64).is_in_network_of(&gid("fd00:0:0:1::2", 64)));
        assert!(!gid("fd00::1", 0).is_in_network_of(&gid("10.0.0.1", 0)));
        assert!(gid("10.0.0.1", 255).is_in_network_of(&gid("10.0.0.1", 255)));
    }
}
