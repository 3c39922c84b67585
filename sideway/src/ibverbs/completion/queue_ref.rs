//! A completion queue that an event names.

use std::sync::Arc;

use super::queue::{AsCore, CompletionQueue, CompletionQueueCore};

/// A hold on a completion queue: it can be named and asked for events, not polled, which is its owner's alone.
///
/// It keeps the queue's C object alive. Where it is the last to do so, dropping it destroys the queue.
#[derive(Clone, Debug)]
pub struct CompletionQueueRef {
    queue: Arc<CompletionQueueCore>,
}

impl CompletionQueueRef {
    pub(crate) fn new(queue: Arc<CompletionQueueCore>) -> Self {
        Self { queue }
    }

    /// Whether this is that queue.
    pub fn is_of(&self, cq: &impl CompletionQueue) -> bool {
        Arc::ptr_eq(&self.queue, cq.core())
    }
}

impl AsCore for CompletionQueueRef {
    fn core(&self) -> &Arc<CompletionQueueCore> {
        &self.queue
    }
}

impl CompletionQueue for CompletionQueueRef {}
