//! What a game is played with, apart from the queue pairs: memory and completion queue.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::completion::{
    CompletionChannel, CreateCompletionQueueWorkCompletionFlags as Fields, GenericCompletionQueue,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{BasicService, QueuePairBuilder};

use super::buffers::Buffers;
use super::{Carrier, Kind, Play};

/// What a game is played with, apart from the queue pairs.
#[derive(Debug)]
pub struct Resources {
    pub(super) cq: GenericCompletionQueue,
    pub(super) channel: Option<Arc<CompletionChannel>>,
    pub(super) buffers: Buffers,
    pub(super) play: Play,
    /// Bytes of a message.
    pub(super) size: u32,
    pd: Arc<ProtectionDomain>,
}

impl Resources {
    /// Makes everything that a carrier with `lanes` queue pairs needs, for messages of `size` bytes.
    ///
    /// # Errors
    ///
    /// A sentence for the user: options that contradict each other, a device that has not so much.
    pub fn new<C: Carrier>(context: &Arc<DeviceContext>, play: &Play, size: u32, lanes: u32) -> Result<Self> {
        let cq_kind = play.cq_kind()?;
        let pd = context.alloc_pd()?;
        // With one queue pair there is one message at a time, and what nobody looks at may be overwritten: all can share a
        // place then.
        let (outgoing, incoming) = if lanes == 1 || !play.chk { (1, 1) } else { (lanes, play.rx_depth) };
        let buffers = Buffers::new(&pd, size, C::HEADROOM, outgoing, incoming)?;
        let channel = if play.events { Some(context.create_comp_channel()?) } else { None };
        let cq = completion_queue(context, channel.as_ref(), play, lanes, cq_kind)?;
        Ok(Self { cq, channel, buffers, play: play.clone(), size, pd })
    }

    /// Where queue pairs and address handles are made.
    pub fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Gives a queue pair room for one send, and for all receives, and the completion queue. With a shared receive queue, the
    /// room for receives is that one's affair.
    pub fn equip<T: BasicService>(&self, builder: &mut QueuePairBuilder<T>) {
        builder.setup_max_send_wr(1).setup_max_recv_wr(self.play.rx_depth);
        builder.setup_send_cq(&self.cq).setup_recv_cq(&self.cq);
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
