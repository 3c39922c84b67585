//! The port of this machine that a program sends from.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::address::{AddressHandleAttribute, Gid, GidEntry};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{DeviceContext, LinkLayer, Mtu, PortAttr};
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairAttribute, QueuePairState};

use crate::exchange::Address;
use crate::{active_port, gid, open_device};

/// How far a packet may travel, in routers.
const HOP_LIMIT: u8 = 64;

/// A port of an open device, with the GID that packets come from.
#[derive(Debug)]
pub struct LocalPort {
    context: Arc<DeviceContext>,
    port_num: u8,
    attr: PortAttr,
    gid: Option<GidEntry>,
    is_gid_chosen: bool,
    service_level: u8,
}

impl LocalPort {
    /// Opens the device of this name, or the first, and sees to it that the port is active. Where no GID is asked for, the
    /// [best](gid::choose) is taken.
    ///
    /// # Errors
    ///
    /// A sentence for the user: what is not there, and what there is.
    pub fn open(device: Option<&str>, port_num: u8, gid_index: Option<u32>, service_level: u8) -> Result<Self> {
        let context = open_device(device)?;
        let attr = active_port(&context, port_num)?;
        let gid = gid::choose(&context, port_num, gid_index)?;
        Ok(Self { context, port_num, attr, gid, is_gid_chosen: gid_index.is_none(), service_level })
    }

    /// The device.
    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// What the port says of itself.
    pub fn attr(&self) -> &PortAttr {
        &self.attr
    }

    /// What was chosen for the user, if anything.
    pub fn note(&self) -> Option<String> {
        let entry = self.gid.filter(|_| self.is_gid_chosen)?;
        let device = self.context.name();
        Some(format!("  using {device}, GID index {} ({}); -d and -g choose", entry.gid_index(), gid::describe(&entry)))
    }

    /// Where a queue pair of this side is. The number of its first packet is chosen here, at random.
    pub fn address(&self, qp_num: u32) -> Address {
        let gid = self.gid.map_or_else(Gid::default, |entry| entry.gid());
        Address { lid: self.attr.lid(), qp_num, psn: random_psn(), gid }
    }

    /// The way to a queue pair of the peer.
    ///
    /// # Errors
    ///
    /// The peer has not told all that is needed.
    pub fn way(&self, remote: &Address) -> Result<AddressHandleAttribute> {
        let mut way = AddressHandleAttribute::new();
        way.setup_port(self.port_num).setup_service_level(self.service_level).setup_dest_lid(remote.lid);
        match self.gid {
            Some(entry) if !remote.gid.is_zero() => {
                let index = u8::try_from(entry.gid_index()).context("the GID index has 8 bits")?;
                way.setup_grh(&remote.gid, 0, index, HOP_LIMIT, 0);
            }
            _ if self.attr.link_layer() == LinkLayer::Ethernet => bail!(
                "the peer told no GID, which Ethernet needs: start it with -g INDEX (the C programs do not choose one)"
            ),
            _ => {}
        }
        Ok(way)
    }

    /// RESET to INIT, as far as all services have it in common: the queue pair belongs to a port.
    pub fn to_init(&self) -> QueuePairAttribute {
        let mut attributes = QueuePairAttribute::new();
        attributes.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(self.port_num);
        attributes
    }

    /// Brings a queue pair of a reliable connection from INIT to RTR, which knows the peer, and on to RTS, in which sends are
    /// processed. One read or atomic operation can be under way in either direction.
    ///
    /// # Errors
    ///
    /// The peer has not told all that is needed, or is not reached.
    pub fn connect(&self, qp: &impl QueuePair, mtu: Mtu, local: &Address, remote: &Address) -> Result<()> {
        let mut ready_to_receive = QueuePairAttribute::new();
        ready_to_receive
            .setup_state(QueuePairState::ReadyToReceive)
            .setup_path_mtu(mtu)
            .setup_dest_qp_num(remote.qp_num)
            .setup_rq_psn(remote.psn)
            .setup_max_dest_read_atomic(1)
            .setup_min_rnr_timer(12)
            .setup_address_vector(&self.way(remote)?);
        qp.modify(&ready_to_receive)?;

        let mut ready_to_send = QueuePairAttribute::new();
        ready_to_send
            .setup_state(QueuePairState::ReadyToSend)
            .setup_timeout(14)
            .setup_retry_cnt(7)
            .setup_rnr_retry(7)
            .setup_sq_psn(local.psn)
            .setup_max_read_atomic(1);
        Ok(qp.modify(&ready_to_send)?)
    }
}

/// A number that a late packet of an earlier connection does not have by chance; the field in the packet has 24 bits.
fn random_psn() -> u32 {
    let random = RandomState::new().build_hasher().finish();
    (random & 0xff_ffff) as u32
}
