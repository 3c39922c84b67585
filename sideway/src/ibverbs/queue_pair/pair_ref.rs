//! A queue pair that an event names.

use std::sync::Arc;

use super::common::AsQueuePairCore;
use super::{QueuePairCore, QueuePairType};
use crate::ibverbs::device_context::DeviceContext;

/// A hold on a queue pair: it can be named, asked and modified, not posted to, which is for the owners of its queues.
///
/// It keeps the queue pair's C object alive: while it is there, dropping the [`Pair`](super::Pair) or its queues does not destroy the
/// queue pair, and requests that were posted stay outstanding. [`Pair::close`](super::Pair::close) tells. Where it is the last to hold
/// the object, dropping it destroys the queue pair.
#[derive(Clone, Debug)]
pub struct QueuePairRef {
    queue_pair: Arc<QueuePairCore>,
}

impl QueuePairRef {
    pub(crate) fn new(queue_pair: Arc<QueuePairCore>) -> Self {
        Self { queue_pair }
    }

    /// Whether this is that queue pair, or the one that the send queue is of.
    pub fn is_of(&self, qp: &impl AsQueuePairCore) -> bool {
        Arc::ptr_eq(&self.queue_pair, qp.core())
    }

    /// The transport service.
    pub fn qp_type(&self) -> QueuePairType {
        self.queue_pair.qp_type()
    }

    /// The device that the queue pair is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.queue_pair.context()
    }

    pub(crate) fn core(&self) -> &Arc<QueuePairCore> {
        &self.queue_pair
    }
}
