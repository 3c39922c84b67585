//! `struct ibv_comp_channel`: a channel on which a thread can sleep until a request completes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_comp_channel;

use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer, set_nonblocking, wait_readable};
use crate::ibverbs::device_context::DeviceContext;

/// A completion channel: a file descriptor that becomes readable when an armed queue ([`CompletionQueue::req_notify`](super::CompletionQueue::req_notify))
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
    pub(super) taking: Mutex<()>,
    context: Arc<DeviceContext>,
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
