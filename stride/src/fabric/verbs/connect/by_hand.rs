//! As the sides tell each other.

use std::net::Ipv6Addr;
use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::QueuePair;

use super::{Address, Direction, Joint, Loose, Route};
use crate::fabric::{End, Ends};
use crate::plan::Plan;
use crate::run::DatagramSend;

/// How far a packet may travel, in routers.
const HOP_LIMIT: u8 = 64;
/// The key of all datagrams of the tool.
const QKEY: u32 = 0x1111_1111;

/// The way to the other side.
pub(in super::super) struct ByHand {
    port: u8,
    way: AddressHandleAttribute,
}

impl ByHand {
    /// From this port, by the GID of this index.
    pub(in super::super) fn new(plan: &Plan, port: u8, gid: Option<u32>, theirs: &Ends) -> Result<Self> {
        let mut way = AddressHandleAttribute::new();
        way.setup_port(port).setup_service_level(plan.service_level).setup_dest_lid(theirs.lid);
        if let (Some(index), Some(gid)) = (gid, &theirs.gid) {
            let gid: Ipv6Addr = gid.parse().with_context(|| format!("the other side's GID is `{gid}`"))?;
            let index = u8::try_from(index).context("the index of a GID has 8 bits")?;
            way.setup_grh(&Gid::from(gid), 0, index, HOP_LIMIT, plan.traffic_class);
        }
        Ok(Self { port, way })
    }

    /// Connects a queue pair with another.
    pub(in super::super) fn connect(
        &self,
        joint: &Joint<'_>,
        pd: &Arc<ProtectionDomain>,
        pair: Loose<'_>,
        (own, their): (&End, &End),
    ) -> Result<()> {
        match pair {
            Loose::Connected(pair) => {
                joint.connect(|to| pair.modify(to), &self.route(own, their, their.number), Direction::Both)
            }
            Loose::Xrc(pair) => {
                let intake = their.intake.context("the other side has no queue that takes messages of XRC in")?;
                joint.connect(|to| pair.receiver.modify(to), &self.route(own, their, their.number), Direction::In)?;
                joint.connect(|to| pair.sender.modify(to), &self.route(own, their, intake.number), Direction::Out)
            }
            Loose::Datagram(pair, target) => {
                Joint::make_ready(pair, &Address { port: self.port, pkey_index: 0, qkey: QKEY, psn: own.psn })?;
                *target = Some(self.target(pd, their, QKEY)?);
                Ok(())
            }
        }
    }

    fn route(&self, own: &End, their: &End, their_number: u32) -> Route {
        let (own_psn, their_psn) = (own.psn, their.psn);
        Route { port: self.port, pkey_index: 0, way: self.way, own_psn, their_psn, their_number }
    }

    /// Where datagrams to a queue pair go.
    pub(super) fn target(&self, pd: &Arc<ProtectionDomain>, their: &End, qkey: u32) -> Result<DatagramSend> {
        Ok(DatagramSend { way: pd.create_ah(&self.way)?, number: their.number, qkey })
    }
}
