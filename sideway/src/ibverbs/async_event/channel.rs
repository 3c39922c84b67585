//! `ibv_get_async_event`: waiting for something to happen.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
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
/// A device context has one queue of events; all channels made of it, and their clones, take from that queue, from any thread, and
/// each event goes to one of them. What nobody takes stays in the kernel until the context is closed.
///
/// The descriptor becomes readable when an event comes and is in non-blocking mode, so that it fits `poll(2)`, `epoll(7)` and async
/// runtimes through [`AsFd`]; [`get_async_event`](Self::get_async_event) waits by itself. A runtime should also watch for errors
/// (`POLLERR`, which `poll(2)` reports in any case): that is how the kernel tells that the device is gone.
#[derive(Clone, Debug)]
pub struct AsyncEventChannel {
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// Begins to listen to the asynchronous events of the device, by putting `async_fd` of the context into non-blocking mode. It
    /// stays so: other code that waits in `ibv_get_async_event` on the same context finds `EAGAIN` there.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the device has no descriptor for events; else the errno of `fcntl(2)`.
    pub fn async_events(self: &Arc<Self>) -> Result<AsyncEventChannel, VerbError> {
        let channel = AsyncEventChannel { context: Arc::clone(self) };
        if channel.as_raw_fd() < 0 {
            return Err(VerbError::new(GET_EVENT, Errno::EOPNOTSUPP)
                .with_hint("the provider of the device has no descriptor for asynchronous events"));
        }
        set_nonblocking(channel.as_raw_fd())?;
        Ok(channel)
    }
}

impl AsyncEventChannel {
    /// `ibv_get_async_event(context, event)` — waits for the next event, without limit where `timeout` is `None`, and
    /// acknowledges it (`ibv_ack_async_event`).
    ///
    /// Events of objects that are being destroyed are left out.
    ///
    /// # Errors
    ///
    /// - `ETIMEDOUT`: `timeout` has passed.
    /// - `EIO`, `ENODEV`: the device is gone, and no event will come any more.
    /// - else the errno of the verb or of `poll(2)`.
    ///
    /// # References
    ///
    /// [ibv_get_async_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html)
    #[doc(alias = "ibv_get_async_event")]
    #[doc(alias = "ibv_ack_async_event")]
    pub fn get_async_event(&self, timeout: Option<Duration>) -> Result<AsyncEvent, VerbError> {
        wait_for(GET_EVENT, "asynchronous event", self.as_raw_fd(), timeout, || self.next_event())
    }

    /// The next event if there is one now.
    ///
    /// # Errors
    ///
    /// As [`get_async_event`](Self::get_async_event); `EAGAIN` is `Ok(None)`.
    pub fn try_get_async_event(&self) -> Result<Option<AsyncEvent>, VerbError> {
        let event = self.next_event()?;
        if event.is_none() {
            check_alive(GET_EVENT, self.as_raw_fd())?;
        }
        Ok(event)
    }

    /// The next event if there is one now; where the device is gone there is none.
    fn next_event(&self) -> Result<Option<AsyncEvent>, VerbError> {
        let _alone = self.context.objects().taking.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // SAFETY: integers and pointers, of which zero is a value.
            let mut event: ibv_async_event = unsafe { mem::zeroed() };
            let is_taken = take_event(GET_EVENT, self.as_raw_fd(), || {
                // SAFETY: the context is open as long as `self`, and the event is there to be filled.
                unsafe { sys::ibv_get_async_event(self.context.raw(), &mut event) }
            })?;
            if !is_taken {
                return Ok(None);
            }
            if is_of_nothing(&event) {
                // Acknowledging it would follow the pointer.
                return Err(VerbError::new(GET_EVENT, Errno::EIO)
                    .with_hint("the driver reported an event of an object and named none"));
            }
            // SAFETY: zeroed, filled just now, and acknowledged only below.
            let element = unsafe { AsyncEventElement::find(self.context.objects(), &event) };
            // No code of the program ran since the event was taken, so that nothing which waits for this acknowledgement (the
            // destruction of the object on another thread) can be something that this thread waits for.
            // SAFETY: taken just now, and acknowledged once. The object is alive until then.
            unsafe { sys::ibv_ack_async_event(&mut event) };
            if let Some(element) = element {
                return Ok(Some(AsyncEvent::new(AsyncEventType::from_raw(event.event_type.0), element)));
            }
            // The object is being destroyed: its event interests nobody.
        }
    }

    /// The device that the events are of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }
}

impl AsRawFd for AsyncEventChannel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the context is open as long as `self`, and its descriptor never changes.
        unsafe { (*self.context.raw()).async_fd }
    }
}

impl AsFd for AsyncEventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the context; one below zero was refused by `async_events`.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

/// Whether an event that is about an object names none.
fn is_of_nothing(event: &ibv_async_event) -> bool {
    match AsyncEventType::from_raw(event.event_type.0).subject() {
        Subject::CompletionQueue | Subject::QueuePair | Subject::SharedReceiveQueue | Subject::WorkQueue => {
            // SAFETY: the members are pointers of one place and size, which was zeroed before it was filled.
            unsafe { event.element.cq }.is_null()
        }
        Subject::Port | Subject::Device | Subject::Unknown => false,
    }
}
