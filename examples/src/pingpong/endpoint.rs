//! This side, apart from its queue pairs: device, port, memory and completion queue.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    CompletionChannel, CreateCompletionQueueWorkCompletionFlags as Fields, GenericCompletionQueue,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{BasicService, GenericQueuePair, QueuePair, QueuePairBuilder};

use super::buffers::Buffers;
use super::{Kind, Link, Place, Play};
use crate::LocalPort;
use crate::exchange::Address;

/// This side, apart from its queue pairs.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) cq: GenericCompletionQueue,
    pub(super) channel: Option<Arc<CompletionChannel>>,
    pub(super) buffers: Buffers,
    pub(super) place: Place,
    pub(super) play: Play,
    /// Bytes of a message.
    pub(super) size: u32,
    pd: Arc<ProtectionDomain>,
    port: LocalPort,
}

impl Endpoint {
    /// Makes everything that a link with `lanes` queue pairs needs, for messages of `size` bytes.
    ///
    /// # Errors
    ///
    /// A sentence for the user: options that contradict each other, a device that is not there or has not so much.
    pub fn new<L: Link>(place: &Place, play: &Play, size: u32, lanes: u32) -> Result<Self> {
        let cq_kind = play.cq_kind()?;
        play.qp_kind()?;
        let port = LocalPort::open(place.ib_dev.as_deref(), place.ib_port, play.gid_idx, play.sl)?;
        L::check_size(port.attr(), size)?;

        let context = port.context();
        let pd = context.alloc_pd()?;
        // With one queue pair there is one message at a time, and what nobody looks at may be overwritten: all can share a
        // place then.
        let (outgoing, incoming) = if lanes == 1 || !play.chk { (1, 1) } else { (lanes, play.rx_depth) };
        let buffers = Buffers::new(&pd, size, L::HEADROOM, outgoing, incoming)?;
        let channel = if play.events { Some(context.create_comp_channel()?) } else { None };
        let cq = completion_queue(context, channel.as_ref(), play, lanes, cq_kind)?;
        Ok(Self { cq, channel, buffers, place: place.clone(), play: play.clone(), size, pd, port })
    }

    /// Where queue pairs and address handles are made.
    pub fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// The port that they send from.
    pub fn port(&self) -> &LocalPort {
        &self.port
    }

    /// Makes a queue pair of what the builder already says: with room for one send, and for all receives, on the completion
    /// queue of this side. With a shared receive queue, the room for receives is that one's affair.
    ///
    /// # Errors
    ///
    /// The device has not so much.
    pub fn queue_pair<T: BasicService>(&self, mut builder: QueuePairBuilder<T>) -> Result<GenericQueuePair<T>> {
        builder.setup_max_send_wr(1).setup_max_recv_wr(self.play.rx_depth);
        builder.setup_send_cq(&self.cq).setup_recv_cq(&self.cq);
        Ok(match self.play.qp_kind()? {
            Kind::Basic => builder.build()?.into(),
            Kind::Extended => builder.build_ex()?.into(),
            Kind::Generic => builder.build_generic()?,
        })
    }

    /// The same for a connection: in INIT, in which receives can be posted, and with the address that the peer is to know.
    ///
    /// # Errors
    ///
    /// As [`queue_pair`](Self::queue_pair).
    pub fn connection(&self, builder: QueuePairBuilder) -> Result<(GenericQueuePair, Address)> {
        let qp = self.queue_pair(builder)?;
        // The peer only sends; it writes and reads nothing by itself.
        qp.modify(self.port.to_init().setup_access_flags(AccessFlags::empty()))?;
        let local = self.port.address(qp.qp_number());
        Ok((qp, local))
    }
}

/// One queue for sends and receives: there is at most one send at a time on each queue pair.
fn completion_queue(
    context: &Arc<DeviceContext>,
    channel: Option<&Arc<CompletionChannel>>,
    play: &Play,
    lanes: u32,
    kind: Kind,
) -> Result<GenericCompletionQueue> {
    let mut builder = context.create_cq_builder();
    let cqe = play.rx_depth.checked_add(lanes).context("--rx-depth is too large")?;
    builder.setup_cqe(cqe);
    if let Some(channel) = channel {
        builder.setup_comp_channel(channel, 0);
    }
    if play.ts {
        builder.setup_wc_flags(Fields::CompletionTimestamp);
    }
    Ok(match kind {
        Kind::Basic => builder.build()?.into(),
        Kind::Extended => builder.build_ex()?.into(),
        Kind::Generic => builder.build_generic()?,
    })
}
