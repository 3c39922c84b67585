//! The objects of a run other than the queue pairs: memory and completion queue.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    CompletionChannel, CreateCompletionQueueWorkCompletionFlags as Fields, GenericCompletionQueue,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{BasicService, QueuePairBuilder};

use super::{Kind, RunOptions, Service};
use crate::Slots;

/// Memory and completion queue of a run.
#[derive(Debug)]
pub struct Resources {
    pub(super) cq: GenericCompletionQueue,
    pub(super) channel: Option<Arc<CompletionChannel>>,
    pub(super) outgoing: Slots,
    pub(super) incoming: Slots,
    pub(super) options: RunOptions,
    /// Bytes of a message.
    pub(super) size: u32,
    pub(super) service: Service,
    pd: Arc<ProtectionDomain>,
}

impl Resources {
    /// Creates the objects for `count` queue pairs of a service and messages of `size` bytes.
    ///
    /// # Errors
    ///
    /// Two options conflict, or the device has too few resources.
    pub fn new(
        context: &Arc<DeviceContext>,
        options: &RunOptions,
        service: Service,
        size: u32,
        count: u32,
    ) -> Result<Self> {
        let pd = context.alloc_pd()?;
        // One slot is sufficient for one queue pair, which has one message at a time. It is also sufficient without
        // --chk, because messages that are not checked may overwrite each other.
        let (outgoing, incoming) = if count == 1 || !options.chk { (1, 1) } else { (count, options.rx_depth) };
        let padded = size.checked_add(service.headroom).context("--size is too large")?;
        let channel = if options.events { Some(context.create_comp_channel()?) } else { None };
        let mut builder = context.create_cq_builder();
        // Each queue pair has at most one outstanding send.
        builder.setup_cqe(options.rx_depth.checked_add(count).context("--rx-depth is too large")?);
        if let Some(channel) = &channel {
            builder.setup_comp_channel(channel, 0);
        }
        if options.ts {
            builder.setup_wc_flags(Fields::CompletionTimestamp);
        }
        let cq = match options.cq_kind()? {
            Kind::Basic => builder.build()?.into(),
            Kind::Extended => builder.build_ex()?.into(),
            Kind::Generic => builder.build_generic()?,
        };
        Ok(Self {
            cq,
            channel,
            // The device only reads what it sends.
            outgoing: Slots::new(&pd, size, outgoing, AccessFlags::empty())?,
            incoming: Slots::new(&pd, padded, incoming, AccessFlags::LocalWrite)?,
            options: options.clone(),
            size,
            service,
            pd,
        })
    }

    /// The domain of the queue pairs.
    pub fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Sets the completion queue of a queue pair, and its depths: one send, and all receives.
    pub fn equip<T: BasicService>(&self, builder: &mut QueuePairBuilder<T>) {
        builder.setup_max_send_wr(1).setup_max_recv_wr(self.options.rx_depth);
        builder.setup_send_cq(&self.cq).setup_recv_cq(&self.cq);
    }
}
