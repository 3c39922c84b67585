//! The events of a completion channel.

use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rdma_mummy_sys as sys;

use super::channel::CompletionChannel;
use super::queue::{AsCore, CompletionQueue, CompletionQueueCore, EventTarget};
use crate::error::{Errno, VerbError};
use crate::ffi::{check_alive, take_event, wait_for};

const GET_EVENT: &str = "ibv_get_cq_event";

/// An event, which reports that a queue has a completion to poll. The event is already acknowledged, and it keeps the
/// queue's C object alive.
#[derive(Debug)]
pub struct CompletionEvent {
    queue: Arc<CompletionQueueCore>,
}

impl CompletionChannel {
    /// `ibv_get_cq_event(channel, &cq, &context)` — waits for the next event, without a time limit if `timeout` is
    /// `None`.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT`: `timeout` expired.
    /// - `EIO`, `ENODEV`: the device was removed, and no more events will arrive.
    /// - Otherwise the errno of the verb or of `poll(2)`.
    ///
    /// # References
    ///
    /// [ibv_get_cq_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn get_cq_event(&self, timeout: Option<Duration>) -> Result<CompletionEvent, VerbError> {
        // SAFETY: the channel is live.
        unsafe {
            wait_for(GET_EVENT, "completion event", (self.raw(), self.as_raw_fd()), timeout, || self.next_event())
        }
    }

    /// Returns the next event if one is pending.
    ///
    /// # Errors
    ///
    /// The errors are those of [`get_cq_event`](Self::get_cq_event), but `EAGAIN` becomes `Ok(None)`.
    pub fn try_get_cq_event(&self) -> Result<Option<CompletionEvent>, VerbError> {
        let event = self.next_event()?;
        if event.is_none() {
            check_alive(GET_EVENT, self.as_raw_fd())?;
        }
        Ok(event)
    }

    /// Returns the next event, or `None` if no event is pending or the device was removed.
    fn next_event(&self) -> Result<Option<CompletionEvent>, VerbError> {
        let _alone = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut cq = ptr::null_mut();
            let mut cq_context = ptr::null_mut();
            let is_taken = take_event(GET_EVENT, self.as_raw_fd(), || {
                // SAFETY: the channel is live, and the verb may write to both arguments.
                unsafe { sys::ibv_get_cq_event(self.raw(), &mut cq, &mut cq_context) }
            })?;
            if !is_taken {
                return Ok(None);
            }
            let queue = NonNull::new(cq_context.cast::<EventTarget>()).and_then(|target| {
                // SAFETY: every queue on a channel of this crate was created with a target as its context. The event is
                // not acknowledged yet, so ibv_destroy_cq has not returned, and the target is still live (see
                // EventTarget).
                unsafe { target.as_ref() }.queue()
            });
            if cq.is_null() {
                return Err(nameless());
            }
            // SAFETY: `cq` is the queue of the event that was just taken. The queue is live until this acknowledgement.
            unsafe { sys::ibv_ack_cq_events(cq, 1) };
            if let Some(queue) = queue {
                return Ok(Some(CompletionEvent { queue }));
            }
            // The queue is being destroyed: skip its event.
        }
    }
}

#[cold]
fn nameless() -> VerbError {
    VerbError::new(GET_EVENT, Errno::EIO).with_hint("the driver returned an event without its queue")
}

impl CompletionEvent {
    /// Whether the event belongs to this queue.
    pub fn is_of(&self, cq: &impl CompletionQueue) -> bool {
        Arc::ptr_eq(&self.queue, cq.core())
    }
}

impl AsCore for CompletionEvent {
    fn core(&self) -> &Arc<CompletionQueueCore> {
        &self.queue
    }
}

/// Gives access to the queue of the event, to read its [`cq_context`](CompletionQueue::cq_context) and to arm it again.
impl CompletionQueue for CompletionEvent {}
