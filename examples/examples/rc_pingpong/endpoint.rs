//! This side of the connection: device, memory, completion queue and queue pair.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid, GidEntry};
use sideway::ibverbs::completion::{
    CompletionChannel, CreateCompletionQueueWorkCompletionFlags as Fields, GenericCompletionQueue,
};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{DeviceContext, LinkLayer, PortAttr};
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePair, QueuePairAttribute, QueuePairState};
use sideway_examples::exchange::Address;
use sideway_examples::{active_port, gid, open_device};

use super::arguments::{Arguments, Kind};

/// How far a packet may travel, in routers.
const HOP_LIMIT: u8 = 64;

/// This side of the connection.
#[derive(Debug)]
pub(crate) struct Endpoint {
    // What is used is dropped before what it uses, though the library would see to that as well.
    pub(crate) qp: GenericQueuePair,
    pub(crate) cq: GenericCompletionQueue,
    pub(crate) channel: Option<Arc<CompletionChannel>>,
    pub(crate) outgoing: OwnedMemoryRegion,
    pub(crate) incoming: OwnedMemoryRegion,
    pub(crate) context: Arc<DeviceContext>,
    arguments: Arguments,
    port: PortAttr,
    gid: Option<GidEntry>,
    psn: u32,
}

impl Endpoint {
    /// Makes everything that needs no peer, and brings the queue pair to the state in which receives can be posted.
    pub(crate) fn new(arguments: &Arguments) -> Result<Self> {
        let (cq_kind, qp_kind) = (arguments.cq_kind()?, arguments.qp_kind()?);
        let context = open_device(arguments.ib_dev.as_deref())?;
        let port = active_port(&context, arguments.ib_port)?;
        if arguments.size > port.max_msg_sz() {
            bail!(
                "a message of {} bytes is asked for and the port sends {} at most",
                arguments.size,
                port.max_msg_sz()
            );
        }
        let gid = gid::choose(&context, arguments.ib_port, arguments.gid_idx)?;

        let pd = context.alloc_pd()?;
        let size = arguments.size as usize;
        // The device only reads what it sends, and writes what it receives.
        let outgoing = pd.reg_owned_mr(size, AccessFlags::empty())?;
        let incoming = pd.reg_owned_mr(size, AccessFlags::LocalWrite)?;

        let channel = if arguments.events { Some(context.create_comp_channel()?) } else { None };
        let cq = completion_queue(&context, channel.as_ref(), arguments, cq_kind)?;
        let qp = queue_pair(&pd, &cq, arguments.rx_depth, qp_kind)?;
        let psn = random_psn();
        let endpoint =
            Self { qp, cq, channel, outgoing, incoming, context, arguments: arguments.clone(), port, gid, psn };
        endpoint.initialise()?;
        Ok(endpoint)
    }

    /// What the peer must know.
    pub(crate) fn address(&self) -> Address {
        let gid = self.gid.map_or_else(Gid::default, |entry| entry.gid());
        Address { lid: self.port.lid(), qp_num: self.qp.qp_number(), psn: self.psn, gid }
    }

    /// What was chosen for the user, if anything.
    pub(crate) fn note(&self) -> Option<String> {
        let entry = self.gid.filter(|_| self.arguments.gid_idx.is_none())?;
        let device = self.context.name();
        Some(format!("  using {device}, GID index {} ({}); -d and -g choose", entry.gid_index(), gid::describe(&entry)))
    }

    /// RESET to INIT: the queue pair belongs to a port, and receives can be posted.
    fn initialise(&self) -> Result<()> {
        let mut attributes = QueuePairAttribute::new();
        attributes
            .setup_state(QueuePairState::Init)
            .setup_pkey_index(0)
            .setup_port(self.arguments.ib_port)
            // The peer only sends; it writes and reads nothing by itself.
            .setup_access_flags(AccessFlags::empty());
        Ok(self.qp.modify(&attributes)?)
    }

    /// INIT to RTR, which knows the peer, and on to RTS, in which sends are processed.
    pub(crate) fn connect(&self, remote: &Address) -> Result<()> {
        let mut way = AddressHandleAttribute::new();
        way.setup_port(self.arguments.ib_port).setup_service_level(self.arguments.sl).setup_dest_lid(remote.lid);
        match self.gid {
            Some(entry) if !remote.gid.is_zero() => {
                let index = u8::try_from(entry.gid_index()).context("the GID index has 8 bits")?;
                way.setup_grh(&remote.gid, 0, index, HOP_LIMIT, 0);
            }
            _ if self.port.link_layer() == LinkLayer::Ethernet => {
                bail!(
                    "the peer told no GID, which Ethernet needs: start it with -g INDEX (ibv_rc_pingpong does not choose one)"
                )
            }
            _ => {}
        }

        let mut ready_to_receive = QueuePairAttribute::new();
        ready_to_receive
            .setup_state(QueuePairState::ReadyToReceive)
            .setup_path_mtu(self.arguments.mtu)
            .setup_dest_qp_num(remote.qp_num)
            .setup_rq_psn(remote.psn)
            .setup_max_dest_read_atomic(1)
            .setup_min_rnr_timer(12)
            .setup_address_vector(&way);
        self.qp.modify(&ready_to_receive)?;

        let mut ready_to_send = QueuePairAttribute::new();
        ready_to_send
            .setup_state(QueuePairState::ReadyToSend)
            .setup_timeout(14)
            .setup_retry_cnt(7)
            .setup_rnr_retry(7)
            .setup_sq_psn(self.psn)
            .setup_max_read_atomic(1);
        Ok(self.qp.modify(&ready_to_send)?)
    }
}

/// One queue for sends and receives: there is at most one send at a time.
fn completion_queue(
    context: &Arc<DeviceContext>,
    channel: Option<&Arc<CompletionChannel>>,
    arguments: &Arguments,
    kind: Kind,
) -> Result<GenericCompletionQueue> {
    let mut builder = context.create_cq_builder();
    let cqe = arguments.rx_depth.checked_add(1).context("--rx-depth is too large")?;
    builder.setup_cqe(cqe);
    if let Some(channel) = channel {
        builder.setup_comp_channel(channel, 0);
    }
    if arguments.ts {
        builder.setup_wc_flags(Fields::CompletionTimestamp);
    }
    Ok(match kind {
        Kind::Basic => builder.build()?.into(),
        Kind::Extended => builder.build_ex()?.into(),
        Kind::Generic => builder.build_generic()?,
    })
}

fn queue_pair(
    pd: &Arc<ProtectionDomain>,
    cq: &GenericCompletionQueue,
    rx_depth: u32,
    kind: Kind,
) -> Result<GenericQueuePair> {
    let mut builder = pd.create_qp_builder();
    builder.setup_max_send_wr(1).setup_max_recv_wr(rx_depth).setup_send_cq(cq).setup_recv_cq(cq);
    Ok(match kind {
        Kind::Basic => builder.build()?.into(),
        Kind::Extended => builder.build_ex()?.into(),
        Kind::Generic => builder.build_generic()?,
    })
}

/// A number that a late packet of an earlier connection does not have by chance.
fn random_psn() -> u32 {
    let random = RandomState::new().build_hasher().finish();
    (random & 0xff_ffff) as u32
}
