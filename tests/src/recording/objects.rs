//! Protection domains and completion channels.

use std::collections::VecDeque;
use std::time::Duration;

use libc::{c_int, c_uint, c_void};
use rdma_mummy_sys as ffi;

use super::async_events;
use super::calls::Kind;
use super::device::state_of;
use super::domain;
use super::failure::set_errno;
use super::semaphore;
use super::state::Channel;

/// A C struct of integers and nullable pointers, all zero, for the rest of the process. The memory comes from C's
/// allocator, so leak checks of Rust's memory ignore it.
pub(super) fn forever<T>() -> *mut T {
    // SAFETY: malloc returns memory that is aligned for every C struct.
    let object = unsafe { libc::calloc(1, size_of::<T>()) };
    assert!(!object.is_null(), "out of memory");
    object.cast()
}

/// Destroys an object like a verb that returns zero or an errno value.
///
/// # Safety
///
/// `context` was opened by this provider.
pub(super) unsafe fn destroy_object(
    context: *mut ffi::ibv_context,
    verb: &'static str,
    kind: Kind,
    object: usize,
) -> c_int {
    // SAFETY: the context is one of this provider's.
    let (mut inner, failure) = unsafe { state_of(context) }.enter(verb, &[("object", object as u64)]);
    if let Some(failure) = failure {
        return failure.code();
    }
    match inner.destroy(kind, object) {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            errno
        }
    }
}

pub(super) unsafe extern "C" fn alloc_pd(context: *mut ffi::ibv_context) -> *mut ffi::ibv_pd {
    // SAFETY: the context is one of this provider's, and the domain is new.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("alloc_pd", &[]);
        if let Some(failure) = failure {
            return failure.null();
        }
        let pd = forever::<ffi::ibv_pd>();
        (*pd).context = context;
        (*pd).handle = inner.handle();
        inner.output("alloc_pd: handle", &raw mut (*pd).handle);
        inner.made(Kind::ProtectionDomain, pd, &[context.addr()]);
        pd
    }
}

pub(super) unsafe extern "C" fn dealloc_pd(pd: *mut ffi::ibv_pd) -> c_int {
    // SAFETY: objects are never freed.
    unsafe {
        let code = destroy_object((*pd).context, "dealloc_pd", Kind::ProtectionDomain, pd.addr());
        if code == 0 {
            state_of((*pd).context).lock().allocators.remove(&pd.addr());
        }
        code
    }
}

pub(super) unsafe extern "C" fn create_comp_channel(context: *mut ffi::ibv_context) -> *mut ffi::ibv_comp_channel {
    // SAFETY: the context is one of this provider's, and the channel is new.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("create_comp_channel", &[]);
        if let Some(failure) = failure {
            return failure.null();
        }
        let without = inner.script.without.contains("descriptor");
        let fd = if without { -1 } else { semaphore::new() };
        let channel = forever::<ffi::ibv_comp_channel>();
        (*channel).context = context;
        (*channel).fd = fd;
        inner.made(Kind::CompletionChannel, channel, &[context.addr()]);
        inner.channels.insert(channel.addr(), Channel { fd, events: VecDeque::new() });
        channel
    }
}

pub(super) unsafe extern "C" fn destroy_comp_channel(channel: *mut ffi::ibv_comp_channel) -> c_int {
    // SAFETY: objects are never freed; the descriptor is the channel's own.
    unsafe {
        let context = (*channel).context;
        let code = destroy_object(context, "destroy_comp_channel", Kind::CompletionChannel, channel.addr());
        if code == 0 {
            state_of(context).lock().channels.remove(&channel.addr());
            if (*channel).fd >= 0 {
                libc::close((*channel).fd);
            }
        }
        code
    }
}

pub(super) unsafe extern "C" fn get_cq_event(
    channel: *mut ffi::ibv_comp_channel,
    cq: *mut *mut ffi::ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the channel is one of this provider's, and both places can be written.
    unsafe {
        let state = state_of((*channel).context);
        let (inner, failure) = state.enter("get_cq_event", &[("channel", channel.addr() as u64)]);
        if let Some(failure) = failure {
            return failure.minus();
        }
        if !inner.facts.fills {
            return 0;
        }
        drop(inner);
        // This read holds no lock, because a descriptor in blocking mode waits here.
        if !semaphore::take((*channel).fd) {
            return -1;
        }
        let mut inner = state.lock();
        let event = inner.channels.get_mut(&channel.addr()).and_then(|channel| channel.events.pop_front());
        let Some(queue) = event else {
            // The queue was destroyed after the token was read and before the lock was taken.
            set_errno(libc::EAGAIN);
            return -1;
        };
        if let Some(queue) = inner.queues.get_mut(&queue) {
            queue.unacknowledged += 1;
        }
        let queue = std::ptr::with_exposed_provenance_mut::<ffi::ibv_cq>(queue);
        *cq = queue;
        *cq_context = (*queue).cq_context;
    }
    0
}

pub(super) unsafe extern "C" fn ack_cq_events(cq: *mut ffi::ibv_cq, count: c_uint) {
    // SAFETY: objects are never freed.
    let state = unsafe { state_of((*cq).context) };
    let mut inner = state.note("ack_cq_events", &[("cq", cq.addr() as u64), ("count", count.into())]);
    match inner.queues.get_mut(&cq.addr()) {
        Some(queue) if queue.unacknowledged >= count => queue.unacknowledged -= count,
        _ => inner.violation("an event that was not read was acknowledged"),
    }
    drop(inner);
    state.acknowledged.notify_all();
}

pub(super) unsafe extern "C" fn destroy_cq(cq: *mut ffi::ibv_cq) -> c_int {
    // SAFETY: objects are never freed.
    unsafe {
        let state = state_of((*cq).context);
        let code = destroy_object((*cq).context, "destroy_cq", Kind::CompletionQueue, cq.addr());
        if code != 0 {
            return code;
        }
        let mut inner = state.lock();
        let channel = inner.queues.get(&cq.addr()).map_or(0, |queue| queue.channel);
        if let Some(channel) = inner.channels.get_mut(&channel) {
            let before = channel.events.len();
            channel.events.retain(|&queue| queue != cq.addr());
            for _ in channel.events.len()..before {
                semaphore::take(channel.fd);
            }
        }
        // As in the library, waits until every event that was read is acknowledged.
        let pending = |inner: &mut super::state::Inner| {
            inner.queues.get(&cq.addr()).is_some_and(|queue| queue.unacknowledged > 0)
        };
        let patience = Duration::from_secs(60);
        let waited = state.acknowledged.wait_timeout_while(inner, patience, pending);
        let (mut inner, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        if timeout.timed_out() {
            inner.violation("an event was never acknowledged");
        }
        if inner.queues.remove(&cq.addr()).is_some_and(|queue| queue.polling) {
            inner.violation("a queue was destroyed while it was polled");
        }
        let memory = inner.memory.remove(&cq.addr());
        drop(inner);
        async_events::destroyed(state, cq.addr());
        if let Some((allocator, memory)) = memory {
            domain::give_back(allocator, memory);
        }
    }
    0
}
