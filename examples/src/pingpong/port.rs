//! The port of this side, and what brings a queue pair up on it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid, GidEntry};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{DeviceContext, LinkLayer, Mtu, PortAttr};
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairAttribute, QueuePairState};

use crate::exchange::Address;
use crate::{active_port, gid};

/// How far a packet may travel, in routers.
const HOP_LIMIT: u8 = 64;

/// What the user says of the port.
#[derive(Clone, Copy, Debug)]
pub struct PortChoice {
    /// Its number, from 1.
    pub ib_port: u8,
    /// Index of the GID to send from; the best where none is said.
    pub gid_idx: Option<u32>,
    /// Service level.
    pub sl: u8,
    /// Bytes of payload in a packet.
    pub mtu: Mtu,
    /// Bytes in a message.
    pub size: u32,
}

/// The port that the queue pairs of this side belong to.
#[derive(Debug)]
pub struct LocalPort {
    context: Arc<DeviceContext>,
    choice: PortChoice,
    port: PortAttr,
    gid: Option<GidEntry>,
}

impl LocalPort {
    /// Sees to it that the port is active, that it sends messages so long, and that it has a GID where one is needed.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    pub fn new(context: &Arc<DeviceContext>, choice: PortChoice) -> Result<Self> {
        let port = active_port(context, choice.ib_port)?;
        if choice.size > port.max_msg_sz() {
            bail!("a message of {} bytes is asked for and the port sends {} at most", choice.size, port.max_msg_sz());
        }
        let gid = gid::choose(context, choice.ib_port, choice.gid_idx)?;
        Ok(Self { context: Arc::clone(context), choice, port, gid })
    }

    /// What the peer must know of a queue pair.
    pub fn address(&self, qp_num: u32, psn: u32) -> Address {
        let gid = self.gid.map_or_else(Gid::default, |entry| entry.gid());
        Address { lid: self.port.lid(), qp_num, psn, gid }
    }

    /// What was chosen for the user, if anything.
    pub fn note(&self) -> Option<String> {
        let entry = self.gid.filter(|_| self.choice.gid_idx.is_none())?;
        let device = self.context.name();
        Some(format!("  using {device}, GID index {} ({}); -d and -g choose", entry.gid_index(), gid::describe(&entry)))
    }

    /// RESET to INIT: the queue pair belongs to the port, and receives can be posted.
    ///
    /// # Errors
    ///
    /// As the library's.
    pub fn initialise(&self, qp: &impl QueuePair) -> Result<()> {
        let mut attributes = QueuePairAttribute::new();
        attributes
            .setup_state(QueuePairState::Init)
            .setup_pkey_index(0)
            .setup_port(self.choice.ib_port)
            // The peer only sends; it writes and reads nothing by itself.
            .setup_access_flags(AccessFlags::empty());
        Ok(qp.modify(&attributes)?)
    }

    /// INIT to RTR, which knows the peer, and on to RTS, in which sends are processed, the first with the number `psn`.
    ///
    /// # Errors
    ///
    /// The peer is not reached in this way, in a sentence for the user.
    pub fn connect(&self, qp: &impl QueuePair, psn: u32, remote: &Address) -> Result<()> {
        let PortChoice { ib_port, sl, mtu, .. } = self.choice;
        let mut way = AddressHandleAttribute::new();
        way.setup_port(ib_port).setup_service_level(sl).setup_dest_lid(remote.lid);
        match self.gid {
            Some(entry) if !remote.gid.is_zero() => {
                let index = u8::try_from(entry.gid_index()).context("the GID index has 8 bits")?;
                way.setup_grh(&remote.gid, 0, index, HOP_LIMIT, 0);
            }
            _ if self.port.link_layer() == LinkLayer::Ethernet => {
                bail!(
                    "the peer told no GID, which Ethernet needs: start it with -g INDEX (rdma-core's programs choose none)"
                )
            }
            _ => {}
        }

        let mut ready_to_receive = QueuePairAttribute::new();
        ready_to_receive
            .setup_state(QueuePairState::ReadyToReceive)
            .setup_path_mtu(mtu)
            .setup_dest_qp_num(remote.qp_num)
            .setup_rq_psn(remote.psn)
            .setup_max_dest_read_atomic(1)
            .setup_min_rnr_timer(12)
            .setup_address_vector(&way);
        qp.modify(&ready_to_receive)?;

        let mut ready_to_send = QueuePairAttribute::new();
        ready_to_send
            .setup_state(QueuePairState::ReadyToSend)
            .setup_timeout(14)
            .setup_retry_cnt(7)
            .setup_rnr_retry(7)
            .setup_sq_psn(psn)
            .setup_max_read_atomic(1);
        Ok(qp.modify(&ready_to_send)?)
    }
}

/// A number that a late packet of an earlier connection does not have by chance.
pub fn random_psn() -> u32 {
    let random = RandomState::new().build_hasher().finish();
    (random & 0xff_ffff) as u32
}
