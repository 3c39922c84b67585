//! `struct ibv_cq` and `struct ibv_cq_ex`.

mod basic;
mod extended;
#[cfg(test)]
mod tests;

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use rdma_mummy_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_attr_mask, ibv_cq_ex, ibv_create_cq_wc_flags as Field,
    ibv_modify_cq_attr, ibv_pd,
};

pub(crate) use basic::{create_cq, poll_cq, req_notify_cq};
pub(crate) use extended::create_cq_ex;

use super::async_event::{Acknowledgements, Source};
use super::completion_channel::{ChannelEvents, Completed, CompletionChannel};
use super::context::Context;
use super::event_fd_queue::EventFdQueue;
use super::failure;
use super::object::Object;
use super::protection_domain::ProtectionDomain;
use crate::cq::{Clocks, CompletionQueue};
use crate::sys::errno::Errno;
use crate::sys::fork::PerProcess;
use crate::sys::usage::{Quota, Share, Usage, Use};
use crate::wire::limits;
use extended::Cursor;

/// A completion queue, basic or extended: all have room for the extended one.
#[repr(C)]
pub(crate) struct Queue {
    /// Written through C's pointer, while others have references to the rest.
    c: UnsafeCell<ibv_cq_ex>,
    pub(crate) queue: Arc<CompletionQueue>,
    cursor: Cursor,
    /// Where its completions are told of.
    channel: Option<Arc<EventFdQueue<Completed>>>,
    /// Events that were taken off the channel.
    taken: AtomicU32,
    source: Arc<Source<ibv_cq>>,
    /// Queue pairs that complete on it.
    pub(crate) usage: Usage,
    uses: Vec<Use>,
    _share: Share,
}

static QUOTA: PerProcess<Quota> = PerProcess::new(Quota::new(limits::MAX_CQ), || Box::new(Quota::new(limits::MAX_CQ)));

// SAFETY: it begins with an `ibv_cq_ex`, which begins as an `ibv_cq` does.
unsafe impl Object for Queue {
    type C = ibv_cq;
}

/// What a queue is to be.
struct Wanted {
    entries: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
    /// `ibv_create_cq_wc_flags`
    fields: u64,
    ignores_overrun: bool,
    /// The parent domain, or null.
    domain: *mut ibv_pd,
}

impl Queue {
    /// Makes one of `wanted`, whose functions `fill` puts in.
    ///
    /// # Errors
    ///
    /// `EINVAL` where the device has no such vector or not so many entries; `ENOMEM` where it has no more queues.
    ///
    /// # Safety
    ///
    /// The context is open, and the channel and the domain are there where they are not null.
    unsafe fn create(
        context: *mut ibv_context,
        wanted: &Wanted,
        fill: impl FnOnce(&mut ibv_cq_ex),
    ) -> Result<*mut ibv_cq, Errno> {
        let entries = entries(i64::from(wanted.entries))?;
        if wanted.vector >= limits::COMP_VECTORS {
            return Err(Errno::INVALID);
        }
        let share = QUOTA.get().take()?;
        // SAFETY: the caller's promises.
        let (owner, channel, domain) = unsafe {
            let channel = (!wanted.channel.is_null()).then(|| CompletionChannel::of(wanted.channel));
            let domain = (!wanted.domain.is_null()).then(|| ProtectionDomain::of(wanted.domain));
            (Context::of(context), channel, domain)
        };
        let mut uses = vec![owner.usage.begin()];
        uses.extend(channel.map(|channel| channel.usage.begin()));
        uses.extend(domain.map(|domain| domain.usage.begin()));

        let channel = channel.map(|channel| Arc::clone(&channel.events));
        let source = Source::new(&owner.events);
        let events = ChannelEvents { channel: channel.clone(), source: Arc::clone(&source) };
        let asked = |field: Field| wanted.fields & u64::from(field.0) != 0;
        let clocks = Clocks {
            device: asked(Field::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP),
            wall: asked(Field::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK),
        };
        let queue = CompletionQueue::new(entries, wanted.ignores_overrun, Box::new(events)).with_clocks(clocks);

        // SAFETY: numbers, pointers that may be null, functions that need not be there, and what is made ready below.
        let mut c: ibv_cq_ex = unsafe { std::mem::zeroed() };
        c.context = context;
        c.channel = wanted.channel;
        c.cq_context = wanted.cq_context;
        c.handle = owner.handle();
        c.cqe = queue.capacity().cast_signed();
        fill(&mut c);
        let cq = Self {
            c: UnsafeCell::new(c),
            queue: Arc::new(queue),
            cursor: Cursor::default(),
            channel,
            taken: AtomicU32::new(0),
            source: Arc::clone(&source),
            usage: Usage::default(),
            uses,
            _share: share,
        }
        .into_c();
        // SAFETY: just made; `destroy_cq` finishes it.
        unsafe { source.begin(cq) };
        Ok(cq)
    }

    /// An event of it was taken off its channel, and will be acknowledged.
    pub(crate) fn count_event(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// The count of acknowledged completion events.
    ///
    /// # Safety
    ///
    /// The queue is there.
    pub(crate) unsafe fn acknowledgements(cq: *mut ibv_cq) -> Acknowledgements {
        // SAFETY: the caller's promise: the fields are there.
        unsafe {
            Acknowledgements {
                mutex: &raw mut (*cq).mutex,
                condition: &raw mut (*cq).cond,
                count: &raw mut (*cq).comp_events_completed,
            }
        }
    }
}

/// A number of entries that the device can have.
fn entries(asked: i64) -> Result<u32, Errno> {
    u32::try_from(asked).ok().filter(|entries| (1..=limits::MAX_CQE).contains(entries)).ok_or(Errno::INVALID)
}

/// `ibv_resize_cq(cq, cqe)`: `EINVAL` where more waits in it, or where the device has not so many.
pub(crate) unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: C's promise: the queue is there.
    let queue = unsafe { Queue::of(cq) };
    let resized = entries(cqe.into()).and_then(|entries| queue.queue.resize(entries));
    if resized.is_ok() {
        // SAFETY: the queue is there, and its field is in no reference. Atomic, as another thread may do the same.
        unsafe { AtomicI32::from_ptr(&raw mut (*cq).cqe) }.store(cqe, Ordering::Relaxed);
    }
    failure::result(resized)
}

/// `ibv_modify_cq(cq, attr)`: any moderation is taken, as events are never held back: each comes at the first completion that it was
/// asked for, which is as moderated events may.
pub(crate) unsafe extern "C" fn modify_cq(_cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: C's promise: the attributes can be read.
    let mask = unsafe { (*attr).attr_mask };
    if mask & !ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0 != 0 {
        return failure::code(Errno::INVALID);
    }
    0
}

/// `ibv_destroy_cq(cq)`: `EBUSY` while queue pairs complete on it. Waits until all events of it that were taken are acknowledged.
pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: C's promise: the queue is there.
    let queue = unsafe { Queue::of(cq) };
    if queue.usage.is_used() {
        return failure::code(Errno::BUSY);
    }
    if let Some(channel) = &queue.channel {
        channel.remove(|completed| completed.0 == cq);
        // SAFETY: the queue is there. The events were counted under the lock that `remove` has had: none is missing.
        unsafe { Queue::acknowledgements(cq).wait_for(queue.taken.load(Ordering::Relaxed)) };
    }
    // SAFETY: no queue pair completes on it, so that no event comes; C's promise: nobody else uses it.
    unsafe { queue.source.finish() };
    // SAFETY: as above.
    drop(unsafe { Queue::from_c(cq) });
    0
}
