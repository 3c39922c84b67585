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

/// A completion queue, which is basic or extended. Both kinds have space for the extended struct.
#[repr(C)]
pub(crate) struct Queue {
    /// The C struct. It is written through a C pointer while references to the other fields exist.
    c: UnsafeCell<ibv_cq_ex>,
    pub(crate) queue: Arc<CompletionQueue>,
    cursor: Cursor,
    /// The channel of the queue's completion events.
    channel: Option<Arc<EventFdQueue<Completed>>>,
    /// The number of events taken from the channel.
    taken: AtomicU32,
    source: Arc<Source<ibv_cq>>,
    /// The QPs that use this queue.
    pub(crate) usage: Usage,
    uses: Vec<Use>,
    _share: Share,
}

static QUOTA: PerProcess<Quota> = PerProcess::new(Quota::new(limits::MAX_CQ), || Box::new(Quota::new(limits::MAX_CQ)));

// SAFETY: a `Queue` starts with an `ibv_cq_ex`, which starts like an `ibv_cq`.
unsafe impl Object for Queue {
    type C = ibv_cq;
}

/// The options of a new queue.
struct Options {
    entries: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
    /// The requested fields, as bits of `ibv_create_cq_wc_flags`.
    fields: u64,
    ignores_overrun: bool,
    /// The parent domain, or null.
    domain: *mut ibv_pd,
}

impl Queue {
    /// Creates a queue, whose functions `fill` sets.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the vector or the number of entries exceeds the limits of the device. `ENOMEM` if the maximum number
    /// of queues exists.
    ///
    /// # Safety
    ///
    /// The context is open, and the channel and the domain are alive unless null.
    unsafe fn create(
        context: *mut ibv_context,
        options: &Options,
        fill: impl FnOnce(&mut ibv_cq_ex),
    ) -> Result<*mut ibv_cq, Errno> {
        let entries = entries(i64::from(options.entries))?;
        if options.vector >= limits::COMP_VECTORS {
            return Err(Errno::INVALID);
        }
        let share = QUOTA.get().take()?;
        // SAFETY: guaranteed by the caller.
        let (owner, channel, domain) = unsafe {
            let channel = (!options.channel.is_null()).then(|| CompletionChannel::of(options.channel));
            let domain = (!options.domain.is_null()).then(|| ProtectionDomain::of(options.domain));
            (Context::of(context), channel, domain)
        };
        let mut uses = vec![owner.usage.begin()];
        uses.extend(channel.map(|channel| channel.usage.begin()));
        uses.extend(domain.map(|domain| domain.usage.begin()));

        let channel = channel.map(|channel| Arc::clone(&channel.events));
        let source = Source::new(&owner.events);
        let events = ChannelEvents { channel: channel.clone(), source: Arc::clone(&source) };
        let asked = |field: Field| options.fields & u64::from(field.0) != 0;
        let clocks = Clocks {
            device: asked(Field::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP),
            wall: asked(Field::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK),
        };
        let queue = CompletionQueue::new(entries, options.ignores_overrun, Box::new(events)).with_clocks(clocks);

        // SAFETY: zero is valid for numbers and for nullable pointers and functions; the other fields are initialized
        // below.
        let mut c: ibv_cq_ex = unsafe { std::mem::zeroed() };
        c.context = context;
        c.channel = options.channel;
        c.cq_context = options.cq_context;
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
        // SAFETY: `cq` was just created; `destroy_cq` finishes its events.
        unsafe { source.begin(cq) };
        Ok(cq)
    }

    /// Counts an event that the program has taken and will acknowledge.
    pub(crate) fn count_event(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counter of acknowledged completion events.
    ///
    /// # Safety
    ///
    /// The queue is alive.
    pub(crate) unsafe fn acknowledgements(cq: *mut ibv_cq) -> Acknowledgements {
        // SAFETY: guaranteed by the caller: the fields exist.
        unsafe {
            Acknowledgements {
                mutex: &raw mut (*cq).mutex,
                condition: &raw mut (*cq).cond,
                count: &raw mut (*cq).comp_events_completed,
            }
        }
    }
}

/// Checks the number of entries against the device's limit.
fn entries(asked: i64) -> Result<u32, Errno> {
    u32::try_from(asked).ok().filter(|entries| (1..=limits::MAX_CQE).contains(entries)).ok_or(Errno::INVALID)
}

/// `ibv_resize_cq(cq, cqe)`: `EINVAL` if more completions are queued, or if the size exceeds the device's limit.
pub(crate) unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: required by the C API: the queue is alive.
    let queue = unsafe { Queue::of(cq) };
    let resized = entries(cqe.into()).and_then(|entries| queue.queue.resize(entries));
    if resized.is_ok() {
        // SAFETY: the queue is alive, and no reference to the field exists. Atomic, since another thread may resize
        // too.
        unsafe { AtomicI32::from_ptr(&raw mut (*cq).cqe) }.store(cqe, Ordering::Relaxed);
    }
    failure::result(resized)
}

/// `ibv_modify_cq(cq, attr)`: accepts any values for moderation, which have no effect because events are never delayed.
pub(crate) unsafe extern "C" fn modify_cq(_cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: required by the C API: the attributes are readable.
    let mask = unsafe { (*attr).attr_mask };
    if mask & !ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0 != 0 {
        return failure::code(Errno::INVALID);
    }
    0
}

/// `ibv_destroy_cq(cq)`: `EBUSY` while QPs use it. Waits until all events that were taken are acknowledged.
pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: required by the C API: the queue is alive.
    let queue = unsafe { Queue::of(cq) };
    if queue.usage.is_used() {
        return failure::code(Errno::BUSY);
    }
    if let Some(channel) = &queue.channel {
        channel.remove(|completed| completed.0 == cq);
        // SAFETY: the queue is alive. Taken events are counted under the lock of the channel, which `remove` has held,
        // so the count is complete.
        unsafe { Queue::acknowledgements(cq).wait_for(queue.taken.load(Ordering::Relaxed)) };
    }
    // SAFETY: no QP uses the queue, so it raises no events; the C API requires that the program no longer uses the
    // queue.
    unsafe { queue.source.finish() };
    // SAFETY: as above.
    drop(unsafe { Queue::from_c(cq) });
    0
}
