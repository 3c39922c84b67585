//! What a queue pair is made from, and keeps alive.

use std::any::Any;
use std::sync::Arc;

use rdma_mummy_sys::ibv_qp;

use crate::ffi::Attachment;
use crate::ibverbs::completion::{CompletionQueueCore, Threads};
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::shared_receive_queue::SharedReceiveQueueCore;
use crate::ibverbs::work_queue::RwqIndirectionTable;
use crate::ibverbs::xrc_domain::XrcDomain;

/// What a queue pair is made from.
#[derive(Debug, Default)]
pub(crate) struct Parents {
    pub(crate) send_cq: Option<Arc<CompletionQueueCore>>,
    pub(crate) recv_cq: Option<Arc<CompletionQueueCore>>,
    pub(crate) srq: Option<Arc<SharedReceiveQueueCore>>,
    #[expect(dead_code, reason = "kept for its life alone")]
    pub(crate) xrcd: Option<Arc<XrcDomain>>,
    pub(crate) pd: Option<Arc<ProtectionDomain>>,
    #[expect(dead_code, reason = "kept for its life alone")]
    pub(crate) rwq_ind_table: Option<Arc<RwqIndirectionTable>>,
    /// What has the queue pair's address.
    pub(crate) attachment: Option<Arc<dyn Attachment<ibv_qp>>>,
    /// What a vendor's function made it from as well.
    pub(crate) kept: Vec<Kept>,
}

impl Parents {
    /// From which threads a queue pair made from them is used: ending it touches its completion queues, and in a thread domain
    /// it shares a doorbell.
    pub(super) fn threads(&self) -> Threads {
        let single = [&self.send_cq, &self.recv_cq].into_iter().flatten().any(|cq| cq.threads() == Threads::Single)
            || self.pd.as_ref().is_some_and(|pd| pd.has_thread_domain());
        if single { Threads::Single } else { Threads::Any }
    }
}

/// Something that must outlive a queue pair.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;
