//! Protection domains and completion channels.

use std::collections::VecDeque;
use std::time::Duration;

use libc::{c_int, c_uint, c_void};
use rdma_mummy_sys as ffi;

use super::device::state_of;
use super::failure::set_errno;
use super::state::Channel;
use super::stub::{endings, stubs};
use super::{async_events, domain, semaphore};

stubs! {
    fn ibv_alloc_pd(context: *mut ffi::ibv_context) -> *mut ffi::ibv_pd [] |inner| {
        let pd = inner.create::<ffi::ibv_pd>(context, &[context.addr()]);
        (*pd).handle = inner.handle();
        inner.output("alloc_pd: handle", &raw mut (*pd).handle);
        pd
    }

    fn ibv_create_comp_channel(context: *mut ffi::ibv_context) -> *mut ffi::ibv_comp_channel [] |inner| {
        let without = inner.script.without.contains("descriptor");
        let channel = inner.create::<ffi::ibv_comp_channel>(context, &[context.addr()]);
        (*channel).fd = if without { -1 } else { semaphore::new() };
        inner.channels.insert(channel.addr(), Channel { fd: (*channel).fd, events: VecDeque::new() });
        channel
    }

    fn ibv_get_cq_event(channel: *mut ffi::ibv_comp_channel, cq: *mut *mut ffi::ibv_cq, cq_context: *mut *mut c_void)
        -> c_int [channel] |inner|
    {
        if !inner.facts.fills {
            return 0;
        }
        drop(inner);
        // This read holds no lock, because a descriptor in blocking mode waits here.
        if !semaphore::take((*channel).fd) {
            return -1;
        }
        let mut inner = state_of((*channel).context).lock();
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
        0
    }

    fn ibv_ack_cq_events(cq: *mut ffi::ibv_cq, count: c_uint) -> () [cq, count] |inner| {
        match inner.queues.get_mut(&cq.addr()) {
            Some(queue) if queue.unacknowledged >= count => queue.unacknowledged -= count,
            _ => inner.violation("an event that was not read was acknowledged"),
        }
        drop(inner);
        state_of((*cq).context).acknowledged.notify_all();
    }
}

endings! {
    ibv_dealloc_pd(ffi::ibv_pd), |context, pd| { state_of(context).lock().allocators.remove(&pd.addr()); };
    ibv_destroy_comp_channel(ffi::ibv_comp_channel), |context, channel| {
        state_of(context).lock().channels.remove(&channel.addr());
        if (*channel).fd >= 0 {
            libc::close((*channel).fd);
        }
    };
    ibv_destroy_cq(ffi::ibv_cq), |context, cq| { destroyed(context, cq.addr()) };
}

/// What a destroyed completion queue leaves: its events, and the program's memory.
///
/// # Safety
///
/// `context` is one of this provider's.
unsafe fn destroyed(context: *mut ffi::ibv_context, cq: usize) {
    // SAFETY: guaranteed by the caller; the descriptor of a channel that exists is open.
    unsafe {
        let state = state_of(context);
        let mut inner = state.lock();
        let channel = inner.queues.get(&cq).map_or(0, |queue| queue.channel);
        if let Some(channel) = inner.channels.get_mut(&channel) {
            let before = channel.events.len();
            channel.events.retain(|&queue| queue != cq);
            for _ in channel.events.len()..before {
                semaphore::take(channel.fd);
            }
        }
        // As in the library, waits until every event that was read is acknowledged.
        let pending =
            |inner: &mut super::state::Inner| inner.queues.get(&cq).is_some_and(|queue| queue.unacknowledged > 0);
        let waited = state.acknowledged.wait_timeout_while(inner, Duration::from_secs(60), pending);
        let (mut inner, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        if timeout.timed_out() {
            inner.violation("an event was never acknowledged");
        }
        if inner.queues.remove(&cq).is_some_and(|queue| queue.polling) {
            inner.violation("a queue was destroyed while it was polled");
        }
        let memory = inner.memory.remove(&cq);
        drop(inner);
        async_events::destroyed(state, cq);
        if let Some((allocator, memory)) = memory {
            domain::give_back(allocator, memory);
        }
    }
}
