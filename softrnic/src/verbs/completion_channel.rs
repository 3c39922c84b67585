//! `struct ibv_comp_channel`.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_comp_channel, ibv_context, ibv_cq, ibv_event_type};

use super::async_event::Source;
use super::completion_queue::Queue;
use super::context::Context;
use super::device::Device;
use super::event_fd_queue::EventFdQueue;
use super::failure;
use super::object::Object;
use crate::cq::CompletionEvents;
use crate::qp::registry::QpRegistry;
use crate::sys::errno::Errno;
use crate::sys::usage::{Usage, Use};
use crate::wire::transport::Sockets;

/// A completion event, with the address of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completed(pub(crate) *mut ibv_cq);

// SAFETY: the pointer is dereferenced only while the queue exists: a destroyed queue removes its events.
unsafe impl Send for Completed {}

/// A completion channel.
#[repr(C)]
pub(crate) struct CompletionChannel {
    pub(crate) c: ibv_comp_channel,
    pub(crate) events: Arc<EventFdQueue<Completed>>,
    /// Completion queues that use the channel.
    pub(crate) usage: Usage,
    pub(crate) uses: Vec<Use>,
    is_iwarp: bool,
}

// SAFETY: a `CompletionChannel` starts with an `ibv_comp_channel`.
unsafe impl Object for CompletionChannel {
    type C = ibv_comp_channel;
}

/// The events of a completion queue: completions go to its channel, if any, and overruns to its context.
#[derive(Debug)]
pub(crate) struct ChannelEvents {
    pub(crate) channel: Option<Arc<EventFdQueue<Completed>>>,
    pub(crate) source: Arc<Source<ibv_cq>>,
}

impl CompletionEvents for ChannelEvents {
    fn completed(&self) {
        let queue = self.source.object();
        if let Some(channel) = &self.channel
            && !queue.is_null()
        {
            channel.put(Completed(queue));
        }
    }

    fn overrun(&self) {
        self.source.put(ibv_event_type::IBV_EVENT_CQ_ERR);
    }
}

/// `ibv_create_comp_channel(context)`: null and errno if no descriptor is available.
pub(crate) unsafe extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: required by the C API: the context is open.
    let owner = unsafe { Context::of(context) };
    // SAFETY: as above.
    let is_iwarp = unsafe { Device::iwarp_of(context) }.is_some();
    let events = match EventFdQueue::new() {
        Ok(events) => Arc::new(events),
        Err(errno) => return failure::null(errno),
    };
    let c = ibv_comp_channel { context, fd: events.as_raw_fd(), refcnt: 0 };
    let (usage, uses) = (Usage::default(), vec![owner.usage.begin()]);
    CompletionChannel { c, events, usage, uses, is_iwarp }.into_c()
}

impl CompletionChannel {
    fn take(&self) -> Result<*mut ibv_cq, Errno> {
        if let Some(queue) = self.try_take() {
            return Ok(queue);
        }
        if self.events.is_nonblocking()? {
            return Err(Errno::AGAIN);
        }
        let sockets = QpRegistry::of_process().sockets().filter(|_| self.is_iwarp);
        let attending = sockets.and_then(Attending::begin);
        loop {
            if let Some(queue) = self.try_take() {
                return Ok(queue);
            }
            let descriptor = match &attending {
                Some(Attending { sockets, .. }) if sockets.serve() => continue,
                Some(Attending { descriptor, .. }) => Some(*descriptor),
                None => None,
            };
            // Another thread may take the event, so the loop checks again.
            self.events.wait(descriptor)?;
        }
    }

    fn try_take(&self) -> Option<*mut ibv_cq> {
        self.events.try_take(|Completed(queue)| {
            // SAFETY: the queue exists: its destruction first removes its events, for which it needs the lock held
            // here, and then waits until each counted event is acknowledged.
            unsafe { Queue::of(queue) }.count_event();
            queue
        })
    }
}

/// A thread that serves the sockets of the transport while it waits for an event. This ends with the drop.
struct Attending {
    sockets: &'static dyn Sockets,
    descriptor: BorrowedFd<'static>,
}

impl Attending {
    fn begin(sockets: &'static dyn Sockets) -> Option<Self> {
        sockets.attend().map(|descriptor| Self { sockets, descriptor })
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.sockets.leave();
    }
}

/// `ibv_destroy_comp_channel(channel)`: `EBUSY` while completion queues use it.
pub(crate) unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: required by the C API: the channel is alive.
    if unsafe { CompletionChannel::of(channel) }.usage.is_used() {
        return failure::code(Errno::BUSY);
    }
    // SAFETY: required by the C API: the channel is no longer used.
    drop(unsafe { CompletionChannel::from_c(channel) });
    0
}

/// `ibv_get_cq_event(channel, cq, cq_context)`: zero, or -1 and errno.
pub(crate) unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: required by the C API: the channel is alive.
    let channel = unsafe { CompletionChannel::of(channel) };
    match channel.take() {
        // SAFETY: the queue exists until this event is acknowledged, and its context never changes; the C API requires
        // that the other two are writable.
        Ok(queue) => unsafe {
            cq.write(queue);
            cq_context.write((*queue).cq_context);
            0
        },
        Err(errno) => failure::minus_one(errno),
    }
}

/// `ibv_ack_cq_events(cq, nevents)`.
pub(crate) unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    // SAFETY: required by the C API: the queue is alive. The queue's destruction waits for these acknowledgements.
    unsafe { Queue::acknowledgements(cq).add(nevents) };
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::verbs::context::{close_device, open_device};

    /// The descriptor was once an epoll that also contained the sockets of the iWARP device. A program that it woke
    /// found no event, and libfabric then failed.
    #[test]
    #[cfg_attr(miri, ignore = "reads /proc")]
    fn descriptor_is_readable_only_for_events() {
        let device = Device::new("softiw0", 1);
        // SAFETY: the device outlives the context, and the context the channel. Each object is destroyed once.
        unsafe {
            let context = open_device(device.as_c());
            let channel = create_comp_channel(context);
            let descriptor = fs::read_link(format!("/proc/self/fd/{}", (*channel).fd)).expect("an open descriptor");
            assert_eq!(descriptor.to_string_lossy(), "anon_inode:[eventfd]");
            assert_eq!((destroy_comp_channel(channel), close_device(context)), (0, 0));
        }
    }
}
