//! Queue pairs of one vendor: dynamic connections (mlx5), an initiator that sends and a target that takes in, and scalable reliable datagrams (EFA).

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::efa::ScalableReliableDatagram;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{ExtendedQueuePair, ExtendedSendQueue, QueuePair, TargetQueuePair};
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::ibverbs::work_request::ReceiveQueue;
use sideway::mlx5::DynamicallyConnected;

use super::pairs::{INLINE, Queues, equip, set_send_room};
use crate::endpoint;
use crate::plan::{Operation, Plan};
use crate::run::{DatagramSend, Intake, Target};

/// An initiator, and a target for the messages of the other side's, as perftest has them. They go in this order.
pub(super) struct Dynamic {
    /// What sends.
    pub(super) initiator: ExtendedQueuePair<DynamicallyConnected>,
    /// What takes in the other side's messages.
    pub(super) target: TargetQueuePair,
    /// Where those find their receives: a queue for each, so that receives are counted as with other services.
    queue: SharedReceiveQueue,
    /// Who names the target names this too.
    key: u64,
    /// The target of the other side, once it is known.
    pub(super) there: Option<Target>,
}

impl Dynamic {
    pub(super) fn new(
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
        set_send_room(&mut builder, plan);
        builder.setup_max_inline_data(inline).setup_send_cq(sends);
        let initiator = builder.build_dci().context("a DC initiator")?;
        Ok(Self { initiator, target, queue, key, there: None })
    }

    /// Where requests go, and receives.
    pub(super) fn queues(&mut self) -> (&mut ExtendedSendQueue<DynamicallyConnected>, Intake<'_>) {
        (self.initiator.queues().0, Intake::Named(&mut self.queue))
    }

    /// That of the initiator, and what names the target.
    pub(super) fn numbers(&self) -> (u32, Option<endpoint::Intake>) {
        let target = endpoint::Intake::Dc { number: self.target.qp_number(), key: self.key };
        (self.initiator.qp_number(), Some(target))
    }
}

/// A queue pair of scalable reliable datagrams (EFA).
pub(super) struct Scalable {
    pub(super) pair: ExtendedQueuePair<ScalableReliableDatagram>,
    /// Where its requests go, once it is known.
    pub(super) there: Option<DatagramSend>,
}

impl Scalable {
    pub(super) fn new(pd: &Arc<ProtectionDomain>, plan: &Plan, queues: Queues<'_>, inline: u32) -> Result<Self> {
        let mut builder = pd.create_srd_qp_builder();
        equip(&mut builder, plan, queues, inline);
        Ok(Self { pair: builder.build_srd()?, there: None })
    }

    /// Where requests go, and receives.
    pub(super) fn queues(&mut self) -> (&mut ExtendedSendQueue<ScalableReliableDatagram>, &mut ReceiveQueue) {
        self.pair.queues()
    }
}

/// Bytes that messages of a latency hand over in the request where nobody says otherwise, and what is tried where the device refuses that:
/// with a send as many as the device says, and with others none.
pub(super) fn scalable_inline(pd: &ProtectionDomain, plan: &Plan) -> Result<Vec<u32>> {
    if !matches!(plan.workload.operation, Operation::Send | Operation::SendWithImmediate) {
        return Ok(vec![0]);
    }
    let most = u32::from(pd.device_context().query_efa_device()?.inline_buf_size());
    Ok(vec![most.min(INLINE), 0])
}
