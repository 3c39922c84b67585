//! Connects queue pairs with the addresses that the sides exchange over the control channel.

use std::net::Ipv6Addr;
use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::efa::EfaDeviceCapabilityFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::QueuePair;
use stride_run::DatagramSend;

use super::{Address, Addresses, Direction, Route, Shared, Unconnected, intake};
use crate::endpoint::{PeerInfo, PortInfo, QpAddress};
use crate::plan::Plan;

/// Hop limit of the packets.
const HOP_LIMIT: u8 = 64;
/// The Q_Key of all datagrams.
const QKEY: u32 = 0x1111_1111;

/// The path to the peer.
pub(in super::super) struct Manual {
    pub(super) port: u8,
    pub(super) pkey_index: u16,
    pub(super) way: AddressHandleAttribute,
}

impl Manual {
    /// Creates the path from this side's port to the peer. `gid` is the index of this side's GID.
    pub(in super::super) fn new(plan: &Plan, own: &PortInfo, gid: Option<u32>, theirs: &PeerInfo) -> Result<Self> {
        let port = own.port;
        let mut way = AddressHandleAttribute::new();
        way.setup_port(port)
            .setup_service_level(plan.attributes.service_level)
            .setup_dest_lid(own.dlid.unwrap_or(theirs.lid));
        if let (Some(index), Some(gid)) = (gid, &theirs.gid) {
            let gid: Ipv6Addr = gid.parse().with_context(|| format!("the peer's GID is `{gid}`"))?;
            let index = u8::try_from(index).context("the index of a GID has 8 bits")?;
            way.setup_grh(&Gid::from(gid), plan.attributes.flow_label, index, HOP_LIMIT, plan.attributes.traffic_class);
        }
        Ok(Self { port, pkey_index: own.partition.map_or(0, |partition| partition.index), way })
    }

    /// Connects a queue pair.
    pub(in super::super) fn connect(
        &self,
        shared: &Shared<'_>,
        pd: &Arc<ProtectionDomain>,
        pair: Unconnected<'_>,
        addresses: Addresses<'_>,
    ) -> Result<()> {
        let Addresses { own, their } = addresses;
        match pair {
            Unconnected::Connected(pair) => {
                shared.connect(|to| pair.modify(to), &self.route(own, their, their.number), Direction::Both)
            }
            Unconnected::Xrc(pair) => {
                let (number, _) = intake(their)?;
                shared.connect(|to| pair.receiver.modify(to), &self.route(own, their, their.number), Direction::In)?;
                shared.connect(|to| pair.sender.modify(to), &self.route(own, their, number), Direction::Out)
            }
            Unconnected::Dynamic(pair) => self.initiate(shared, pd, pair, addresses),
            Unconnected::Datagram(pair, target) => {
                Shared::make_ready(pair, &self.address(own, None))?;
                *target = Some(self.target(pd, their, QKEY)?);
                Ok(())
            }
            Unconnected::Scalable(pair) => {
                let has = pd.device_context().query_efa_device()?.device_caps();
                // The value 7 means that the number of retries is unlimited, as for connected queue pairs.
                let retries = has.contains(EfaDeviceCapabilityFlags::ResponderNotReadyRetry).then_some(7);
                Shared::make_ready(&pair.pair, &self.address(own, retries))?;
                pair.there = Some(self.target(pd, their, QKEY)?);
                Ok(())
            }
        }
    }

    fn address(&self, own: &QpAddress, retries: Option<u8>) -> Address {
        Address { port: self.port, pkey_index: self.pkey_index, qkey: QKEY, psn: own.psn, retries }
    }

    fn route(&self, own: &QpAddress, their: &QpAddress, their_number: u32) -> Route {
        let (own_psn, their_psn) = (own.psn, their.psn);
        Route { port: self.port, pkey_index: self.pkey_index, way: self.way, own_psn, their_psn, their_number }
    }

    /// Returns the destination of datagrams to a queue pair of the peer.
    pub(super) fn target(&self, pd: &Arc<ProtectionDomain>, their: &QpAddress, qkey: u32) -> Result<DatagramSend> {
        Ok(DatagramSend { way: pd.create_ah(&self.way)?, number: their.number, qkey })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::fake::Fake;
    use crate::endpoint::{EndpointFactory, Role};
    use crate::plan::{QpAttributes, SideConfig};

    fn way(plan: &Plan, config: &SideConfig, gid: Option<u32>) -> Manual {
        let fake = Fake { is_infiniband: true, ..Fake::default() };
        let side = fake.open(plan, config, Role::Client).unwrap();
        let theirs = PeerInfo {
            lid: 2,
            gid: Some("fe80::2".to_owned()),
            reads: 16,
            queue_pairs: Vec::new(),
            listening: None,
            others: Vec::new(),
            inline: 0,
        };
        Manual::new(plan, side.port_info(), gid, &theirs).unwrap()
    }

    #[test]
    fn given_dlid_overrides_the_peers_lid() {
        let plan = Plan::default();
        let found = way(&plan, &SideConfig::default(), None);
        assert_eq!((found.way.dest_lid(), found.way.is_global(), found.pkey_index), (2, false, 0));
        let config = SideConfig { dlid: Some(0x13), pkey_index: Some(1), ..SideConfig::default() };
        let found = way(&plan, &config, None);
        assert_eq!((found.way.dest_lid(), found.way.is_global(), found.pkey_index), (0x13, false, 1));
    }

    #[test]
    fn flow_label_and_traffic_class_are_set_in_the_grh() {
        let plan = Plan {
            attributes: QpAttributes { flow_label: 0xabcde, traffic_class: 104, ..QpAttributes::default() },
            ..Plan::default()
        };
        let way = way(&plan, &SideConfig::default(), Some(0)).way;
        assert_eq!((way.grh_flow_label(), way.grh_traffic_class(), way.grh_hop_limit()), (0xabcde, 104, HOP_LIMIT));
    }
}
