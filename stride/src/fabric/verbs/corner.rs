//! What a thread of a side has: queue pairs, their completion queues, and memory.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::protection_domain::ProtectionDomain;

use super::memory::{Areas, Source};
use super::pairs::Pairs;
use crate::fabric::End;
use crate::plan::Plan;
use crate::run::Bell;

/// Bytes in front of a datagram that has come.
pub(super) const HEADROOM: u64 = 40;
const PAGE: u64 = 4096;

/// What a thread has. Queue pairs go before what they use.
pub(super) struct Corner {
    pub(super) pairs: Pairs,
    pub(super) sends: GenericCompletionQueue,
    pub(super) receives: GenericCompletionQueue,
    /// What wakes the thread, where it sleeps.
    pub(super) bell: Option<Bell>,
    pub(super) memory: Areas,
    /// The other side's, in the same order.
    pub(super) theirs: Vec<End>,
    /// Messages of up to so many bytes are inline.
    pub(super) inline: u32,
    /// Receives of each queue pair that are to be posted.
    pub(super) unposted: Vec<u32>,
    /// Requests of each that were posted in the step.
    pub(super) posted: Vec<u64>,
}

impl Corner {
    /// Of the thread of this index, with so many queue pairs.
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        source: &Source,
        thread: u32,
        count: u32,
    ) -> Result<Self> {
        let context = pd.device_context();
        let largest = plan.sizes.iter().copied().max().unwrap_or(1);
        let room = (largest.max(PAGE) + HEADROOM).next_multiple_of(PAGE);
        let memory = Areas::new(pd, plan, source, room, count)?;
        let bell = plan.has_events.then(|| Bell::new(context)).transpose()?;
        let queue = |number: usize, depth: u32| {
            let mut builder = context.create_cq_builder();
            builder.setup_cqe(depth.saturating_mul(count).max(1)).setup_cq_context(number);
            if let Some(bell) = &bell {
                // Threads that sleep are woken by interrupts of their own, as far as the device has so many.
                builder.setup_comp_channel(bell.channel(), thread % context.num_comp_vectors().max(1));
            }
            builder.build_generic()
        };
        let sends =
            queue(0, plan.tx_depth + 1).context("--tx-depth and --qp-count: the completion queue of a thread")?;
        let depth = plan.receives();
        let receives = queue(1, depth).context("--rx-depth and --qp-count: the completion queue of a thread")?;
        let (pairs, inline) = Pairs::new(pd, plan, (&sends, &receives), count, source.is_host())?;
        Ok(Self {
            pairs,
            sends,
            receives,
            bell,
            memory,
            theirs: Vec::new(),
            inline,
            unposted: vec![depth; count as usize],
            posted: vec![0; count as usize],
        })
    }

    /// Bytes that a receive has room for: the largest message, as those of a size before may still wait.
    pub(super) fn room(&self) -> u32 {
        // Of 2 GiB at most, as messages are.
        u32::try_from(self.memory.room).unwrap_or(u32::MAX)
    }
}
