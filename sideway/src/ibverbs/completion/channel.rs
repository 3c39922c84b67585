//! `struct ibv_comp_channel`: a channel on which a thread can sleep until a request completes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_comp_channel;

use super::queue::EventTarget;
use super::queue::{AsCore, CompletionQueue, CompletionQueueCore};
use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_alive, check_pointer, set_nonblocking, take_event, wait_for, wait_readable};
use crate::ibverbs::device_context::DeviceContext;

const GET_EVENT: &str = "ibv_get_cq_event";

/// A completion channel: a file descriptor that becomes readable when an armed queue ([`CompletionQueue::req_notify`])
/// has a completion. Many queues can share a channel.
///
/// The descriptor is non-blocking. If a program sets it to blocking mode, the waits of this type still keep their time
/// limits. `poll(2)`, `epoll(7)` and async runtimes can watch the descriptor through [`AsFd`]; a program that calls
/// [`get_cq_event`](Self::get_cq_event) needs none of these. A runtime should also watch for `POLLERR`, with which the
/// kernel reports device removal. `poll(2)` always reports it.
///
/// Read from the descriptor only through this type. When a queue is destroyed, the library waits until each event of
/// the queue is acknowledged. This includes events that other code has read.
///
/// Each event is acknowledged when it is taken. Acknowledging several events with one call would save nothing, because
/// a queue raises only one event per arming, and so pending events usually belong to different queues.
///
/// Several threads may take events from one channel: each event goes to one of them.
#[doc(alias = "ibv_comp_channel")]
#[derive(Debug)]
pub struct CompletionChannel {
    // This is the first field, so it is dropped first, because the context must outlive it.
    handle: Handle<ibv_comp_channel>,
    /// This lock is held while a thread takes an event.
    taking: Mutex<()>,
    context: Arc<DeviceContext>,
}

/// An event, which reports that a queue has a completion to poll. The event is already acknowledged, and it keeps the
/// queue's C object alive.
#[derive(Debug)]
pub struct CompletionEvent {
    queue: Arc<CompletionQueueCore>,
}

impl DeviceContext {
    /// `ibv_create_comp_channel(context)` — creates a channel for completion events.
    ///
    /// # Errors
    ///
    /// Returns the errno of the driver, such as `EMFILE`.
    ///
    /// # References
    ///
    /// [ibv_create_comp_channel(3)](https://man7.org/linux/man-pages/man3/ibv_create_comp_channel.3.html)
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_comp_channel(self: &Arc<Self>) -> Result<Arc<CompletionChannel>, VerbError> {
        // SAFETY: the context is open as long as `self` lives.
        let channel = check_pointer("ibv_create_comp_channel", unsafe { sys::ibv_create_comp_channel(self.raw()) })?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(channel, sys::ibv_destroy_comp_channel, "ibv_destroy_comp_channel") };
        let channel = CompletionChannel { handle, taking: Mutex::new(()), context: Arc::clone(self) };
        set_nonblocking(channel.as_raw_fd())?;
        Ok(Arc::new(channel))
    }
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

    /// Waits until at least one of the descriptors is readable, hung up or in error, or until `timeout` expires. Returns
    /// for each descriptor whether it is ready. A signal can end the wait early.
    ///
    /// Use this method instead of `poll(2)` to wait for the channel's descriptor together with others, or for an
    /// `epoll(7)` instance that contains it. With a device in software, this method can be faster than `poll(2)`: the
    /// thread does the device's work while it waits, so that no other thread has to wake up for each message.
    ///
    /// # Errors
    ///
    /// The errno of `poll(2)`.
    pub fn wait_readable<const N: usize>(
        &self,
        descriptors: [BorrowedFd<'_>; N],
        timeout: Option<Duration>,
    ) -> Result<[bool; N], VerbError> {
        // SAFETY: the channel is live.
        unsafe { wait_readable(self.raw(), descriptors, timeout) }
    }

    /// Returns the next event, or `None` if no event is pending or the device was removed.
    fn next_event(&self) -> Result<Option<CompletionEvent>, VerbError> {
        let _alone = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut cq = ptr::null_mut();
            let mut cq_context = ptr::null_mut();
            let is_taken = take_event(GET_EVENT, self.as_raw_fd(), || {
                // SAFETY: the channel is live, and the verb may write to both arguments.
                unsafe { sys::ibv_get_cq_event(self.handle.as_ptr(), &mut cq, &mut cq_context) }
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

    /// `ibv_destroy_comp_channel(channel)` — destroys the channel. This method returns an error of the verb, whereas
    /// drop only logs it.
    ///
    /// Take a channel out of its `Arc` with [`Arc::into_inner`], which succeeds once its queues are dropped.
    ///
    /// # Errors
    ///
    /// The driver's errno; the channel is then leaked.
    #[doc(alias = "ibv_destroy_comp_channel")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the channel's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// - Use the object only while `self` lives, and do not destroy it.
    /// - Take events from it only through `self`.
    /// - Create completion queues on it only with a [`CompletionQueueBuilder`](super::CompletionQueueBuilder): the user
    ///   context of every queue on the channel must be one that this crate has set.
    pub unsafe fn comp_channel(&self) -> NonNull<ibv_comp_channel> {
        self.handle.as_non_null()
    }

    pub(crate) fn raw(&self) -> *mut ibv_comp_channel {
        self.handle.as_ptr()
    }
}

#[cold]
fn nameless() -> VerbError {
    VerbError::new(GET_EVENT, Errno::EIO).with_hint("the driver returned an event without its queue")
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
