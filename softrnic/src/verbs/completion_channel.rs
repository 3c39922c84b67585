//! `struct ibv_comp_channel`.

use std::ffi::c_int;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_comp_channel, ibv_context, ibv_cq, ibv_event_type};

use super::async_event::Source;
use super::context::Context;
use super::event_fd_queue::EventFdQueue;
use super::failure;
use super::kind::Kind;
use super::object::Object;
use crate::cq::CompletionEvents;
use crate::sys::errno::Errno;
use crate::sys::usage::{Usage, Use};
use crate::wire::transport::Fabric;

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
    pub(super) fabric: Fabric,
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
    let fabric = unsafe { Kind::of(context) }.fabric;
    let events = match EventFdQueue::new() {
        Ok(events) => Arc::new(events),
        Err(errno) => return failure::null(errno),
    };
    let c = ibv_comp_channel { context, fd: events.as_raw_fd(), refcnt: 0 };
    let (usage, uses) = (Usage::default(), vec![owner.usage.begin()]);
    CompletionChannel { c, events, usage, uses, fabric }.into_c()
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
