//! What a thread of a side has: queue pairs, their completion queues, and memory.

use anyhow::{Context, Result};
use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::BasicService;
use sideway::ibverbs::queue_pair::{Datagram, GenericQueuePair, QueuePair, QueuePairBuilder, QueuePairType};
use std::sync::Arc;

use super::memory::{Areas, Source};
use crate::fabric::End;
use crate::plan::{Measure, Plan, Transport};
use crate::run::{Bell, DatagramSend};

/// Bytes in front of a datagram that has come.
pub(super) const HEADROOM: u64 = 40;
/// Bytes that messages of latency tests hand over in the request where nobody says otherwise.
const INLINE: u32 = 220;
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
}

/// The queue pairs.
pub(super) enum Pairs {
    Connected(Vec<GenericQueuePair>),
    /// With where the datagrams of each go, once it is known.
    Datagram(Vec<(GenericQueuePair<Datagram>, Option<DatagramSend>)>),
}

impl Corner {
    /// With so many queue pairs.
    pub(super) fn new(pd: &Arc<ProtectionDomain>, plan: &Plan, source: &Source, count: u32) -> Result<Self> {
        let context = pd.device_context();
        let largest = plan.sizes.iter().copied().max().unwrap_or(1);
        let room = (largest.max(PAGE) + HEADROOM).next_multiple_of(PAGE);
        let memory = Areas::new(pd, plan, source, room, count)?;
        let bell = plan.has_events.then(|| Bell::new(context)).transpose()?;
        let queue = |number: usize, depth: u32| {
            let mut builder = context.create_cq_builder();
            builder.setup_cqe(depth.saturating_mul(count).max(1)).setup_cq_context(number);
            if let Some(bell) = &bell {
                builder.setup_comp_channel(bell.channel(), 0);
            }
            builder.build_generic()
        };
        let (sends, receives) = (queue(0, plan.tx_depth + 1)?, queue(1, plan.rx_depth)?);
        let (pairs, inline) = pairs(pd, plan, (&sends, &receives), count, source.is_host())?;
        Ok(Self {
            pairs,
            sends,
            receives,
            bell,
            memory,
            theirs: Vec::new(),
            inline,
            unposted: vec![plan.rx_depth; count as usize],
        })
    }

    /// Bytes that a receive has room for: the largest message, as those of a size before may still wait.
    pub(super) fn room(&self) -> u32 {
        // Of 2 GiB at most, as messages are.
        u32::try_from(self.memory.room).unwrap_or(u32::MAX)
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        match &self.pairs {
            Pairs::Connected(pairs) => pairs.iter().map(QueuePair::qp_number).collect(),
            Pairs::Datagram(pairs) => pairs.iter().map(|(pair, _)| pair.qp_number()).collect(),
        }
    }
}

type Queues<'q> = (&'q GenericCompletionQueue, &'q GenericCompletionQueue);

fn pairs(
    pd: &Arc<ProtectionDomain>,
    plan: &Plan,
    queues: Queues<'_>,
    count: u32,
    can_inline: bool,
) -> Result<(Pairs, u32)> {
    // What the device does not take is tried with less where nobody has asked for it.
    let asked = match (plan.inline, plan.measure) {
        // The processor would read the data.
        _ if plan.operation.fetches() || !can_inline => vec![0],
        (Some(inline), _) => vec![inline],
        (None, Measure::Latency(_)) => vec![INLINE, 64, 0],
        (None, Measure::Bandwidth) => vec![0],
    };
    let mut last = None;
    for inline in asked {
        let made = match plan.transport {
            Transport::Rc | Transport::Uc => {
                let kind = if plan.transport == Transport::Rc {
                    QueuePairType::ReliableConnection
                } else {
                    QueuePairType::UnreliableConnection
                };
                let make = |_| {
                    let mut builder = pd.create_qp_builder();
                    builder.setup_qp_type(kind);
                    equip(&mut builder, plan, queues, inline);
                    builder.build_generic()
                };
                (0..count).map(make).collect::<Result<_, _>>().map(Pairs::Connected)
            }
            Transport::Ud => {
                let make = |_| {
                    let mut builder = pd.create_ud_qp_builder();
                    equip(&mut builder, plan, queues, inline);
                    builder.build_generic().map(|pair| (pair, None))
                };
                (0..count).map(make).collect::<Result<_, _>>().map(Pairs::Datagram)
            }
        };
        match made {
            Ok(pairs) => return Ok((pairs, inline)),
            Err(error) => last = Some(error),
        }
    }
    let error = last.context("there is a first attempt")?;
    Err(error).with_context(|| {
        format!("queue pairs with {} sends and {} receives (-t, -r, -I)", plan.tx_depth, plan.rx_depth)
    })
}

fn equip<T: BasicService>(builder: &mut QueuePairBuilder<T>, plan: &Plan, (sends, receives): Queues<'_>, inline: u32) {
    // One more for the last request of a timed test, which is signaled.
    builder.setup_max_send_wr(plan.tx_depth + 1).setup_max_recv_wr(plan.rx_depth.max(1));
    builder.setup_max_inline_data(inline).setup_send_cq(sends).setup_recv_cq(receives);
}
