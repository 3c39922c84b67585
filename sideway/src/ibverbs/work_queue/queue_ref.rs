//! A work queue that an event names.

use std::sync::Arc;

use super::WorkQueue;
use super::queue::WorkQueueCore;
use crate::ibverbs::device_context::DeviceContext;

/// A hold on a work queue: it can be named, not posted to, which is for its owner. It keeps the queue's C object alive;
/// [`WorkQueue::close`] tells. Where it is the last to hold the object, dropping it destroys the queue.
#[derive(Clone, Debug)]
pub struct WorkQueueRef {
    queue: Arc<WorkQueueCore>,
}

impl WorkQueueRef {
    pub(crate) fn new(queue: Arc<WorkQueueCore>) -> Self {
        Self { queue }
    }

    /// Whether this is that work queue.
    pub fn is_of(&self, queue: &WorkQueue) -> bool {
        Arc::ptr_eq(&self.queue, queue.core())
    }

    /// The number of the queue.
    pub fn wq_number(&self) -> u32 {
        self.queue.wq_number()
    }

    /// The device that the queue is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.queue.context()
    }
}
