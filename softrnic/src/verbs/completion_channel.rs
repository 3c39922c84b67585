//! `struct ibv_comp_channel`.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Maximum number of times that a call serves the sockets before it waits, or returns without an event.
const MAX_ROUNDS: u32 = 16;

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
    /// Whether the descriptor is also readable while the sockets of the transport are readable.
    has_sockets: AtomicBool,
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
    let events = EventFdQueue::new().and_then(|mut events| {
        if is_iwarp {
            events.extend()?;
        }
        Ok(Arc::new(events))
    });
    let events = match events {
        Ok(events) => events,
        Err(errno) => return failure::null(errno),
    };
    let c = ibv_comp_channel { context, fd: events.as_raw_fd(), refcnt: 0 };
    let (usage, uses) = (Usage::default(), vec![owner.usage.begin()]);
    CompletionChannel { c, events, usage, uses, is_iwarp, has_sockets: AtomicBool::new(false) }.into_c()
}

impl CompletionChannel {
    /// Returns the number that identifies the channel in a call of [`Sockets::claim`].
    fn number(&self) -> usize {
        ptr::from_ref(&self.c).addr()
    }

    fn take(&self) -> Result<*mut ibv_cq, Errno> {
        let is_nonblocking = self.events.is_nonblocking()?;
        let sockets = QpRegistry::of_process().sockets().filter(|_| self.is_iwarp);
        let claimed = sockets.and_then(|sockets| Some((sockets, sockets.claim(self.number())?)));
        let mut rounds = 0;
        loop {
            let taken = self.events.try_take(|Completed(queue)| {
                // SAFETY: the queue exists: its destruction first removes its events, for which it needs the lock held
                // here, and then waits until each counted event is acknowledged.
                unsafe { Queue::of(queue) }.count_event();
                queue
            });
            if let Some((sockets, _)) = claimed
                && taken.is_none()
                && rounds < MAX_ROUNDS
                && sockets.serve()
            {
                rounds += 1;
                continue;
            }
            if let Some(queue) = taken {
                if let Some((sockets, _)) = claimed {
                    sockets.attend(false);
                }
                return Ok(queue);
            }
            if let Some((sockets, descriptor)) = claimed {
                self.show(descriptor, is_nonblocking);
                sockets.attend(true);
            }
            if is_nonblocking {
                return Err(Errno::AGAIN);
            }
            // Another thread may take the event, so the loop checks again.
            self.events.wait(claimed.map(|(_, descriptor)| descriptor))?;
            rounds = 0;
        }
    }

    /// Makes the program's descriptor readable also while the sockets are readable, if `has_sockets` is set. It is set
    /// only if the descriptor is in nonblocking mode. In blocking mode, a program that found the descriptor readable
    /// without a completion event would block in `ibv_get_cq_event`.
    fn show(&self, sockets: BorrowedFd<'_>, has_sockets: bool) {
        if self.has_sockets.swap(has_sockets, Ordering::Relaxed) == has_sockets {
            return;
        }
        if !has_sockets {
            self.events.part(sockets);
        } else if let Err(errno) = self.events.join(sockets) {
            log::debug!("completion events need a switch of threads: epoll failed: {errno:?}");
        }
    }
}

/// `ibv_destroy_comp_channel(channel)`: `EBUSY` while completion queues use it.
pub(crate) unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: required by the C API: the channel is alive.
    if unsafe { CompletionChannel::of(channel) }.usage.is_used() {
        return failure::code(Errno::BUSY);
    }
    if let Some(sockets) = QpRegistry::of_process().sockets() {
        // SAFETY: required by the C API: the channel is alive.
        sockets.release(unsafe { CompletionChannel::of(channel) }.number());
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
