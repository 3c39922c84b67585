//! Queue pairs of one vendor's transport. With DC (mlx5), an initiator sends and a target receives. SRD (EFA) has
//! normal queue pairs.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::efa::ScalableReliableDatagram;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{ExtendedQueuePair, ExtendedSendQueue, QueuePair, TargetQueuePair};
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::mlx5::DynamicallyConnected;
use stride_run::{DatagramSend, Intake, Pair, Target};

use super::{INLINE, Queues, equip, set_send_queue};
use crate::endpoint;
use crate::plan::{Operation, Plan};

/// A DC initiator, and a target for the peer's messages. perftest uses the same pair. The fields are dropped in this
/// order.
pub(in crate::endpoint::verbs) struct Dynamic {
    /// The initiator, which sends messages to the peer's target.
    pub(in crate::endpoint::verbs) initiator: ExtendedQueuePair<DynamicallyConnected>,
    /// The target that receives the peer's messages.
    pub(in crate::endpoint::verbs) target: TargetQueuePair,
    /// The receives for the peer's messages. Each target has a queue of its own, so that receives are counted in the
    /// same way as with other transports.
    queue: SharedReceiveQueue,
    /// The DC access key, which requests to the target must contain.
    key: u64,
    /// The peer's target, once it is known.
    pub(in crate::endpoint::verbs) there: Option<Target>,
}

impl Dynamic {
    pub(in crate::endpoint::verbs) fn new(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        (sends, receives): Queues<'_>,
        inline: u32,
    ) -> Result<Self> {
        let queue = pd.create_srq_builder().setup_max_wr(plan.receives().max(1)).build();
        let queue = queue.context("shared receive queues for DC, one per queue pair")?;
        let mut builder = pd.create_dct_builder()?;
        let key = RandomState::new().hash_one("key");
        let target = builder.setup_recv_cq(receives).setup_srq(&queue).build_dct(key).context("a DC target")?;
        let mut builder = pd.create_dci_builder()?;
        set_send_queue(&mut builder, plan);
        builder.setup_max_inline_data(inline).setup_send_cq(sends);
        let initiator = builder.build_dci().context("a DC initiator")?;
        Ok(Self { initiator, target, queue, key, there: None })
    }

    /// Returns the queues to which requests and receives are posted, and the peer's target.
    pub(in crate::endpoint::verbs) fn queues(
        &mut self,
    ) -> Pair<'_, ExtendedSendQueue<DynamicallyConnected>, Option<Target>> {
        Pair { send: self.initiator.queues().0, intake: Intake::Named(&mut self.queue), to: self.there.clone() }
    }

    /// Returns the number of the initiator, and the description of the target.
    pub(in crate::endpoint::verbs) fn numbers(&self) -> (u32, Option<endpoint::Intake>) {
        let target = endpoint::Intake::Dc { number: self.target.qp_number(), key: self.key };
        (self.initiator.qp_number(), Some(target))
    }
}

/// An SRD queue pair (EFA).
pub(in crate::endpoint::verbs) struct Scalable {
    pub(in crate::endpoint::verbs) pair: ExtendedQueuePair<ScalableReliableDatagram>,
    /// The destination of the requests, once it is known.
    pub(in crate::endpoint::verbs) there: Option<DatagramSend>,
}

impl Scalable {
    pub(in crate::endpoint::verbs) fn new(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        queues: Queues<'_>,
        inline: u32,
    ) -> Result<Self> {
        let mut builder = pd.create_srd_qp_builder();
        equip(&mut builder, plan, queues, inline);
        Ok(Self { pair: builder.build_srd()?, there: None })
    }
}

/// Returns the default inline limits of latency tests, which are tried in this order. Sends use the limit of the
/// device, but at most 220 bytes; other operations send nothing inline.
pub(in crate::endpoint::verbs) fn scalable_inline(pd: &ProtectionDomain, plan: &Plan) -> Result<Vec<u32>> {
    if !matches!(plan.workload.operation, Operation::Send | Operation::SendWithImmediate) {
        return Ok(vec![0]);
    }
    let most = u32::from(pd.device_context().query_efa_device()?.inline_buf_size());
    Ok(vec![most.min(INLINE), 0])
}
