//! Waiting for asynchronous events with `ibv_get_async_event`.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_async_event;

use super::event_type::Subject;
use super::{AsyncEvent, AsyncEventElement, AsyncEventType};
use crate::error::{Errno, VerbError};
use crate::ffi::{check_alive, set_nonblocking, take_event, wait_for};
use crate::ibverbs::device_context::DeviceContext;

const GET_EVENT: &str = "ibv_get_async_event";

/// The asynchronous events of an open device.
///
/// A device context has one event queue. All channels of the context, and their clones, read from that queue on any
/// thread, and each event goes to one of them. Events that are not read stay in the kernel until the context is closed.
///
/// The descriptor ([`AsFd`]) is non-blocking, for `poll(2)`, `epoll(7)` and async runtimes, and becomes readable when
/// an event arrives; a program that calls [`get_async_event`](Self::get_async_event) needs none of these. A runtime
/// should also watch for `POLLERR`, with which the kernel reports device removal. `poll(2)` always reports it.
#[derive(Clone, Debug)]
pub struct AsyncEventChannel {
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// Returns a channel for the device's asynchronous events, and sets the context's `async_fd` to non-blocking mode.
    /// From then on, `ibv_get_async_event` returns `EAGAIN` instead of waiting to other code that calls it on this
    /// context.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the device has no event descriptor; otherwise the errno of `fcntl(2)`.
    pub fn async_events(self: &Arc<Self>) -> Result<AsyncEventChannel, VerbError> {
        let channel = AsyncEventChannel { context: Arc::clone(self) };
        if channel.as_raw_fd() < 0 {
            return Err(VerbError::new(GET_EVENT, Errno::EOPNOTSUPP)
                .with_hint("the device's provider has no descriptor for asynchronous events"));
        }
        set_nonblocking(channel.as_raw_fd())?;
        Ok(channel)
    }
}

impl AsyncEventChannel {
    /// `ibv_get_async_event(context, event)` — waits for the next event, and acknowledges it (`ibv_ack_async_event`).
    /// There is no time limit if `timeout` is `None`.
    ///
    /// Events of objects being destroyed are skipped.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT`: `timeout` expired.
    /// - `EIO`, `ENODEV`: the device was removed, and no more events will arrive.
    /// - Otherwise the errno of the verb or of `poll(2)`.
    ///
    /// # References
    ///
    /// [ibv_get_async_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html)
    #[doc(alias = "ibv_get_async_event")]
    #[doc(alias = "ibv_ack_async_event")]
    pub fn get_async_event(&self, timeout: Option<Duration>) -> Result<AsyncEvent, VerbError> {
        let channel = (ptr::null_mut(), self.as_raw_fd());
        // SAFETY: there is no completion channel.
        unsafe { wait_for(GET_EVENT, "asynchronous event", channel, timeout, || self.next_event()) }
    }

    /// Returns the next event if one is pending.
    ///
    /// # Errors
    ///
    /// The errors are those of [`get_async_event`](Self::get_async_event), but `EAGAIN` becomes `Ok(None)`.
    pub fn try_get_async_event(&self) -> Result<Option<AsyncEvent>, VerbError> {
        let event = self.next_event()?;
        if event.is_none() {
            check_alive(GET_EVENT, self.as_raw_fd())?;
        }
        Ok(event)
    }

    /// Returns the next event, or `None` if no event is pending or the device was removed.
    fn next_event(&self) -> Result<Option<AsyncEvent>, VerbError> {
        let _alone = self.context.objects().taking.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // SAFETY: the struct has only integers and pointers, for which zero is valid.
            let mut event: ibv_async_event = unsafe { mem::zeroed() };
            let is_taken = take_event(GET_EVENT, self.as_raw_fd(), || {
                // SAFETY: the context is open as long as `self` lives, and the call may write to the event.
                unsafe { sys::ibv_get_async_event(self.context.raw(), &mut event) }
            })?;
            if !is_taken {
                return Ok(None);
            }
            if names_no_object(&event) {
                // The event is not acknowledged, because that would dereference the null pointer.
                return Err(VerbError::new(GET_EVENT, Errno::EIO)
                    .with_hint("the driver reported an event of an object without naming the object"));
            }
            // SAFETY: the event was zeroed, the library has just filled it in, and it is acknowledged only below.
            let element = unsafe { AsyncEventElement::find(self.context.objects(), &event) };
            // No code of the calling program has run since this thread took the event. So this thread cannot be waiting
            // for anything that itself waits for this acknowledgement, such as the destruction of the object on another
            // thread. SAFETY: the event was just taken, and is acknowledged once. Its object is live until then.
            unsafe { sys::ibv_ack_async_event(&mut event) };
            if let Some(element) = element {
                return Ok(Some(AsyncEvent::new(AsyncEventType::from_raw(event.event_type.0), element)));
            }
            // The object is being destroyed: skip its event.
        }
    }

    /// Returns the device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }
}

impl AsRawFd for AsyncEventChannel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the context is open as long as `self` lives, and its descriptor never changes.
        unsafe { (*self.context.raw()).async_fd }
    }
}

impl AsFd for AsyncEventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the context; `async_events` rejects negative ones.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

/// Whether the type of the event requires an object, but the pointer to the object is null.
fn names_no_object(event: &ibv_async_event) -> bool {
    match AsyncEventType::from_raw(event.event_type.0).subject() {
        Subject::CompletionQueue | Subject::QueuePair | Subject::SharedReceiveQueue | Subject::WorkQueue => {
            // SAFETY: all members of the union that name an object are pointers of the same size at the same offset.
            // They were zeroed before the call.
            unsafe { event.element.cq }.is_null()
        }
        Subject::Port | Subject::Device | Subject::Unknown => false,
    }
}
