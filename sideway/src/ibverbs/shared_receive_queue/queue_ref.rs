//! A shared receive queue that an event names.

use std::sync::Arc;

use super::{SharedReceiveQueue, SharedReceiveQueueAttribute, SharedReceiveQueueCore};
use crate::error::VerbError;
use crate::ibverbs::device_context::DeviceContext;

/// A hold on a shared receive queue: it can be asked and its limit armed anew, not posted to, which is for its owner. It keeps
/// the queue's C object alive; [`SharedReceiveQueue::close`] tells. Where it is the last to hold the object, dropping it
/// destroys the queue.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueueRef {
    queue: Arc<SharedReceiveQueueCore>,
}

impl SharedReceiveQueueRef {
    pub(crate) fn new(queue: Arc<SharedReceiveQueueCore>) -> Self {
        Self { queue }
    }

    /// Whether this is that queue.
    pub fn is_of(&self, queue: &SharedReceiveQueue) -> bool {
        Arc::ptr_eq(&self.queue, queue.core())
    }

    /// The number given with [`setup_srq_context`](super::SharedReceiveQueueBuilder::setup_srq_context).
    pub fn srq_context(&self) -> usize {
        self.queue.user_context()
    }

    /// `ibv_query_srq(srq, srq_attr)` — see [`SharedReceiveQueue::query`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn query(&self) -> Result<SharedReceiveQueueAttribute, VerbError> {
        self.queue.query()
    }

    /// `ibv_modify_srq(srq, {limit}, IBV_SRQ_LIMIT)` — see [`SharedReceiveQueue::arm_limit`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn arm_limit(&self, limit: u32) -> Result<(), VerbError> {
        self.queue.modify(SharedReceiveQueueAttribute::new().setup_limit(limit))
    }

    /// The device that the queue is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.queue.context()
    }
}
