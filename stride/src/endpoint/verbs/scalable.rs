//! Queue pairs of scalable reliable datagrams.

use std::sync::Arc;

use anyhow::Result;
use sideway::efa::ScalableReliableDatagram;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{ExtendedQueuePair, ExtendedSendQueue};
use sideway::ibverbs::work_request::ReceiveQueue;

use super::pairs::{INLINE, Queues, equip};
use crate::plan::{Operation, Plan};
use crate::run::DatagramSend;

/// A queue pair.
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
pub(super) fn inline(pd: &ProtectionDomain, plan: &Plan) -> Result<Vec<u32>> {
    if !matches!(plan.workload.operation, Operation::Send | Operation::SendWithImmediate) {
        return Ok(vec![0]);
    }
    let most = u32::from(pd.device_context().query_efa_device()?.inline_buf_size());
    Ok(vec![most.min(INLINE), 0])
}
