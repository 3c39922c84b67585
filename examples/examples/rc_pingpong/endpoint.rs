//! This side of the connection: device, memory, completion queue and queue pair.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    CompletionChannel, CreateCompletionQueueWorkCompletionFlags as Fields, GenericCompletionQueue,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePair};
use sideway_examples::exchange::Address;
use sideway_examples::open_device;
use sideway_examples::pingpong::{LocalPort, random_psn};

use super::arguments::{Arguments, Kind};

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
    port: LocalPort,
    psn: u32,
}

impl Endpoint {
    /// Makes everything that needs no peer, and brings the queue pair to the state in which receives can be posted.
    pub(crate) fn new(arguments: &Arguments) -> Result<Self> {
        let (cq_kind, qp_kind) = (arguments.cq_kind()?, arguments.qp_kind()?);
        let context = open_device(arguments.ib_dev.as_deref())?;
        let port = LocalPort::new(&context, arguments.port_choice())?;

        let pd = context.alloc_pd()?;
        let size = arguments.size as usize;
        // The device only reads what it sends, and writes what it receives.
        let outgoing = pd.reg_owned_mr(size, AccessFlags::empty())?;
        let incoming = pd.reg_owned_mr(size, AccessFlags::LocalWrite)?;

        let channel = if arguments.events { Some(context.create_comp_channel()?) } else { None };
        let cq = completion_queue(&context, channel.as_ref(), arguments, cq_kind)?;
        let qp = queue_pair(&pd, &cq, arguments.rx_depth, qp_kind)?;
        let psn = random_psn();
        port.initialise(&qp)?;
        Ok(Self { qp, cq, channel, outgoing, incoming, context, port, psn })
    }

    /// What the peer must know.
    pub(crate) fn address(&self) -> Address {
        self.port.address(self.qp.qp_number(), self.psn)
    }

    /// What was chosen for the user, if anything.
    pub(crate) fn note(&self) -> Option<String> {
        self.port.note()
    }

    /// Brings the queue pair up, towards the peer's.
    pub(crate) fn connect(&self, remote: &Address) -> Result<()> {
        self.port.connect(&self.qp, self.psn, remote)
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
