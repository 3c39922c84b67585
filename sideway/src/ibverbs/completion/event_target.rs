//! What `cq_context` of every queue points to: how an event finds its queue.

use std::ptr::NonNull;
use std::sync::{OnceLock, Weak};

use super::queue::CompletionQueueCore;

/// Lives on the heap from before `ibv_create_cq` until after `ibv_destroy_cq` has returned, which waits for every event
/// that was taken from a channel to be acknowledged: whoever holds an unacknowledged event may read it.
#[derive(Debug)]
pub(crate) struct EventTarget {
    /// The number that the program gave the queue.
    pub(crate) user_context: usize,
    queue: OnceLock<Weak<CompletionQueueCore>>,
}

impl EventTarget {
    /// A target on the heap; [`free`](Self::free) takes it back.
    pub(crate) fn allocate(user_context: usize) -> NonNull<Self> {
        NonNull::from(Box::leak(Box::new(Self { user_context, queue: OnceLock::new() })))
    }

    /// Names the queue, once.
    pub(crate) fn bind(&self, queue: Weak<CompletionQueueCore>) {
        let first = self.queue.set(queue).is_ok();
        debug_assert!(first, "a target belongs to one queue");
    }

    /// The queue, or `None` while it is being destroyed.
    pub(crate) fn queue(&self) -> Option<std::sync::Arc<CompletionQueueCore>> {
        self.queue.get()?.upgrade()
    }

    /// Gives the memory back.
    ///
    /// # Safety
    ///
    /// `target` came from [`allocate`](Self::allocate), is not used again, and no C object points to it any more.
    pub(crate) unsafe fn free(target: NonNull<Self>) {
        // SAFETY: the caller's promise; `allocate` leaked a box.
        drop(unsafe { Box::from_raw(target.as_ptr()) });
    }
}
