//! `struct ibv_comp_channel`: sleeping until something completes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_comp_channel;

use super::queue::EventTarget;
use super::queue::{AsCore, CompletionQueue, CompletionQueueCore};
use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_alive, check_pointer, set_nonblocking, take_event, wait_for};
use crate::ibverbs::device_context::DeviceContext;

const GET_EVENT: &str = "ibv_get_cq_event";

/// A completion channel: a file descriptor that becomes readable when a queue that asked for it
/// ([`CompletionQueue::req_notify`]) has a completion. Many queues can share one.
///
/// The descriptor is in non-blocking mode (a wait of this type ends in time in either mode), so that it fits `poll(2)`, `epoll(7)` and async runtimes through [`AsFd`];
/// [`get_cq_event`](Self::get_cq_event) waits by itself. A runtime should also watch for errors (`POLLERR`, which `poll(2)`
/// reports in any case): that is how the kernel tells that the device is gone.
///
/// Read from the descriptor only through this type: the library waits for the acknowledgement of each event, also of one that was read
/// elsewhere, when a queue is destroyed.
///
/// Each event is acknowledged when it is taken. Acknowledging several at once would save nothing: a queue raises one event for
/// each time that it was asked, so that those which wait are mostly of different queues.
///
/// Several threads may take events from one channel: each event goes to one of them.
#[doc(alias = "ibv_comp_channel")]
#[derive(Debug)]
pub struct CompletionChannel {
    // Dropped first: the context must outlive it.
    handle: Handle<ibv_comp_channel>,
    /// Held while an event is taken.
    taking: Mutex<()>,
    context: Arc<DeviceContext>,
}

/// One event: this queue has something to poll. It keeps the queue's C object alive, and is acknowledged already.
#[derive(Debug)]
pub struct CompletionEvent {
    queue: Arc<CompletionQueueCore>,
}

impl DeviceContext {
    /// `ibv_create_comp_channel(context)` — makes a channel for completion events.
    ///
    /// # Errors
    ///
    /// The errno of the driver, `EMFILE` among them.
    ///
    /// # References
    ///
    /// [ibv_create_comp_channel(3)](https://man7.org/linux/man-pages/man3/ibv_create_comp_channel.3.html)
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_comp_channel(self: &Arc<Self>) -> Result<Arc<CompletionChannel>, VerbError> {
        // SAFETY: the context is open as long as `self`.
        let channel = check_pointer("ibv_create_comp_channel", unsafe { sys::ibv_create_comp_channel(self.raw()) })?;
        // SAFETY: just made, ours alone, and this is its verb.
        let handle = unsafe { Handle::new(channel, sys::ibv_destroy_comp_channel, "ibv_destroy_comp_channel") };
        let channel = CompletionChannel { handle, taking: Mutex::new(()), context: Arc::clone(self) };
        set_nonblocking(channel.as_raw_fd())?;
        Ok(Arc::new(channel))
    }
}

impl CompletionChannel {
    /// `ibv_get_cq_event(channel, &cq, &context)` — waits for the next event, without limit where `timeout` is `None`.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT`: `timeout` has passed.
    /// - `EIO`, `ENODEV`: the device is gone, and no event will come any more.
    /// - else the errno of the verb or of `poll(2)`.
    ///
    /// # References
    ///
    /// [ibv_get_cq_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn get_cq_event(&self, timeout: Option<Duration>) -> Result<CompletionEvent, VerbError> {
        wait_for(GET_EVENT, "completion event", self.as_raw_fd(), timeout, || self.next_event())
    }

    /// The next event if there is one now.
    ///
    /// # Errors
    ///
    /// As [`get_cq_event`](Self::get_cq_event); `EAGAIN` is `Ok(None)`.
    pub fn try_get_cq_event(&self) -> Result<Option<CompletionEvent>, VerbError> {
        let event = self.next_event()?;
        if event.is_none() {
            check_alive(GET_EVENT, self.as_raw_fd())?;
        }
        Ok(event)
    }

    /// The next event if there is one now; where the device is gone there is none.
    fn next_event(&self) -> Result<Option<CompletionEvent>, VerbError> {
        let _alone = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut cq = ptr::null_mut();
            let mut cq_context = ptr::null_mut();
            let is_taken = take_event(GET_EVENT, self.as_raw_fd(), || {
                // SAFETY: the channel is live, and both are places for the verb to write.
                unsafe { sys::ibv_get_cq_event(self.handle.as_ptr(), &mut cq, &mut cq_context) }
            })?;
            if !is_taken {
                return Ok(None);
            }
            let queue = NonNull::new(cq_context.cast::<EventTarget>()).and_then(|target| {
                // SAFETY: every queue on a channel of this crate was made with a target as its context; the event is
                // not acknowledged yet, so ibv_destroy_cq has not returned and the target is alive (see EventTarget).
                unsafe { target.as_ref() }.queue()
            });
            if cq.is_null() {
                return Err(nameless());
            }
            // SAFETY: `cq` is the queue of the event just taken, alive until this acknowledgement.
            unsafe { sys::ibv_ack_cq_events(cq, 1) };
            if let Some(queue) = queue {
                return Ok(Some(CompletionEvent { queue }));
            }
            // The queue is being destroyed: its event interests nobody.
        }
    }

    /// `ibv_destroy_comp_channel(channel)` — destroys the channel and reports, where dropping only logs.
    ///
    /// A channel in an `Arc` is taken out of it with [`Arc::into_inner`], which succeeds once its queues have gone.
    ///
    /// # Errors
    ///
    /// The driver's errno; the channel is leaked then.
    #[doc(alias = "ibv_destroy_comp_channel")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// The device that the channel is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// - It is used only while `self` lives, and not destroyed.
    /// - Events are taken from it only through `self`.
    /// - No completion queue is made on it but by a [`CompletionQueueBuilder`](super::CompletionQueueBuilder): the context
    ///   of every queue on it is this crate's.
    pub unsafe fn comp_channel(&self) -> NonNull<ibv_comp_channel> {
        self.handle.as_non_null()
    }

    pub(crate) fn raw(&self) -> *mut ibv_comp_channel {
        self.handle.as_ptr()
    }
}

#[cold]
fn nameless() -> VerbError {
    VerbError::new(GET_EVENT, Errno::EIO).with_hint("the driver gave an event and did not say of which queue")
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel is live, and its descriptor never changes.
        unsafe { (*self.handle.as_ptr()).fd }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl CompletionEvent {
    /// Whether the event is of this queue.
    pub fn is_of(&self, cq: &impl CompletionQueue) -> bool {
        Arc::ptr_eq(&self.queue, cq.core())
    }
}

impl AsCore for CompletionEvent {
    fn core(&self) -> &Arc<CompletionQueueCore> {
        &self.queue
    }
}

/// The queue of the event: its number ([`cq_context`](CompletionQueue::cq_context)), and asking for the next event.
impl CompletionQueue for CompletionEvent {}
