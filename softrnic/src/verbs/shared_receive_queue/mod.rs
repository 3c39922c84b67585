//! `struct ibv_srq`.

mod post;
#[cfg(test)]
mod tests;

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use rdma_mummy_sys::{
    ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_attr_mask, ibv_srq_init_attr, ibv_srq_init_attr_ex,
    ibv_srq_init_attr_mask, ibv_srq_type,
};

use super::async_event::Source;
use super::completion_queue::Queue;
use super::context::Context;
use super::failure::{code, null, result};
use super::object::Object;
use super::protection_domain::ProtectionDomain;
use super::xrc_domain::XrcDomain;
use crate::qp::registry::{QpRegistry, SharedEntry};
use crate::srq::ReceiveQueue;
use crate::sys::errno::Errno;
use crate::sys::fork::PerProcess;
use crate::sys::usage::{Quota, Share, Usage, Use};
use crate::verbs::kind::Kind;
use crate::wire::limits::MAX_SRQ;

pub(crate) use self::post::{post_receives, post_srq_recv};

/// A shared receive queue, which may be one of XRC.
#[repr(C)]
pub(crate) struct SharedReceiveQueue {
    /// The C struct, which contains the counter of acknowledged events.
    pub(crate) c: UnsafeCell<ibv_srq>,
    pub(crate) queue: Arc<ReceiveQueue>,
    /// The number of the queue, if it is one of XRC.
    pub(crate) xrc: Option<u32>,
    events: Arc<Source<ibv_srq>>,
    /// The QPs that use this queue.
    pub(crate) usage: Usage,
    uses: Vec<Use>,
    _share: Share,
}

static QUOTA: PerProcess<Quota> = PerProcess::new(Quota::new(MAX_SRQ), || Box::new(Quota::new(MAX_SRQ)));

// SAFETY: a `SharedReceiveQueue` starts with an `ibv_srq`.
unsafe impl Object for SharedReceiveQueue {
    type C = ibv_srq;
}

/// `ibv_create_srq(pd, srq_init_attr)`: ignores the limit of the attributes.
///
/// # Safety
///
/// As in C: the domain is alive, and the attributes are readable and writable.
pub(crate) unsafe extern "C" fn create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: guaranteed by the caller; without XRC, only the domain is used.
    unsafe {
        let init = &mut *init;
        create(pd, init.srq_context, &mut init.attr, None)
    }
}

/// `ibv_create_srq_ex(context, srq_init_attr_ex)`: creates a queue of the basic type or of XRC.
///
/// # Safety
///
/// As in C: the context and the objects of the mask are alive, and the attributes are readable and writable.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: guaranteed by the caller: the objects of the mask are alive.
    unsafe {
        let init = &mut *init;
        match kind(context, init) {
            Ok(xrc) => create(init.pd, init.srq_context, &mut init.attr, xrc),
            Err(errno) => null(errno),
        }
    }
}

/// Returns the XRC domain and the completion queue of the attributes, if they request XRC.
///
/// # Safety
///
/// The objects of the mask are alive.
unsafe fn kind<'o>(
    context: *mut ibv_context,
    init: &ibv_srq_init_attr_ex,
) -> Result<Option<(&'o XrcDomain, &'o Queue)>, Errno> {
    let has = |bit: ibv_srq_init_attr_mask| init.comp_mask & bit.0 != 0;
    if init.comp_mask >= ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_RESERVED.0 {
        return Err(Errno::INVALID);
    }
    let kind =
        if has(ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_TYPE) { init.srq_type } else { ibv_srq_type::IBV_SRQT_BASIC };
    let is_xrc = match kind {
        ibv_srq_type::IBV_SRQT_BASIC => false,
        ibv_srq_type::IBV_SRQT_XRC => true,
        _ => return Err(Errno::NOT_SUPPORTED),
    };
    // SAFETY: guaranteed by the caller, for each object whose bit is set.
    unsafe {
        if !has(ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_PD) || (*init.pd).context != context {
            return Err(Errno::INVALID);
        }
        if !is_xrc {
            return Ok(None);
        }
        if !has(ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_XRCD)
            || !has(ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_CQ)
            || (*init.xrcd).context != context
            || (*init.cq).context != context
        {
            return Err(Errno::INVALID);
        }
        Ok(Some((XrcDomain::of(init.xrcd), Queue::of(init.cq))))
    }
}

/// Creates a queue, and writes the granted attributes.
///
/// # Safety
///
/// The domain is alive.
unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
    xrc: Option<(&XrcDomain, &Queue)>,
) -> *mut ibv_srq {
    // SAFETY: guaranteed by the caller; the context of a live domain is alive.
    let limits = unsafe { Kind::of((*pd).context) }.limits;
    if !(1..=limits.max_srq_wr).contains(&attr.max_wr) || attr.max_sge > limits.max_srq_sge {
        return null(Errno::INVALID);
    }
    let share = match QUOTA.get().take() {
        Ok(share) => share,
        Err(errno) => return null(errno),
    };
    // A receive with one piece costs no more than a receive without pieces.
    attr.max_sge = attr.max_sge.max(1);
    // SAFETY: guaranteed by the caller; the context of a domain that is alive is open.
    let (domain, context, open) = unsafe { (ProtectionDomain::of(pd), (*pd).context, Context::of((*pd).context)) };
    let source = Source::new(&open.events);
    let events = Box::new(Arc::clone(&source));
    let queue = Arc::new(ReceiveQueue::shared(Arc::clone(&domain.domain), attr.max_wr, attr.max_sge, events));
    let mut uses = vec![domain.usage.begin(), domain.domain.usage.begin()];
    let xrc = match xrc {
        Some((xrc_domain, completions)) => {
            let entry = SharedEntry {
                queue: Arc::clone(&queue),
                completions: Arc::clone(&completions.queue),
                xrc_domain: Arc::clone(&xrc_domain.domain),
            };
            let number = match QpRegistry::of_process().enter_shared(entry) {
                Ok(number) => number,
                Err(errno) => return null(errno),
            };
            uses.extend([xrc_domain.usage.begin(), completions.usage.begin()]);
            Some(number)
        }
        None => None,
    };
    let c = ibv_srq {
        context,
        srq_context,
        pd,
        handle: open.handle(),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let (c, events, usage) = (UnsafeCell::new(c), Arc::clone(&source), Usage::default());
    let srq = SharedReceiveQueue { c, queue, xrc, events, usage, uses, _share: share }.into_c();
    // SAFETY: `srq` was just created; `destroy_srq` finishes its events.
    unsafe { source.begin(srq) };
    srq
}

/// `ibv_modify_srq(srq, srq_attr, srq_attr_mask)`: changes all attributes or none.
///
/// # Safety
///
/// As in C: the queue is alive, and the attributes are readable.
pub(crate) unsafe extern "C" fn modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    const MAX_WR: c_int = ibv_srq_attr_mask::IBV_SRQ_MAX_WR.0 as c_int;
    const LIMIT: c_int = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as c_int;
    if mask & !(MAX_WR | LIMIT) != 0 {
        return code(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller.
    let (shared, attr) = unsafe { (SharedReceiveQueue::of(srq), *attr) };
    // SAFETY: guaranteed by the caller: the context of a live queue is alive.
    if mask & MAX_WR != 0 && !unsafe { Kind::of((*srq).context) }.limits.resizes_srq() {
        return code(Errno::INVALID);
    }
    let max_wr = (mask & MAX_WR != 0).then_some(attr.max_wr);
    let limit = (mask & LIMIT != 0).then_some(attr.srq_limit);
    result(shared.queue.change(max_wr, limit))
}

/// `ibv_query_srq(srq, srq_attr)`.
///
/// # Safety
///
/// As in C: the queue is alive, and the attributes are writable.
pub(crate) unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let queue = &SharedReceiveQueue::of(srq).queue;
        attr.write(ibv_srq_attr { max_wr: queue.max_wr(), max_sge: queue.max_sge(), srq_limit: queue.limit() });
    }
    0
}

/// `ibv_get_srq_num(srq, srq_num)`: only XRC queues have a number.
///
/// # Safety
///
/// As in C: the queue is alive, and the number is writable.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let Some(found) = SharedReceiveQueue::of(srq).xrc else { return code(Errno::NOT_SUPPORTED) };
        number.write(found);
    }
    0
}

/// `ibv_destroy_srq(srq)`: `EBUSY` while QPs use it. Waits until all events that were taken are acknowledged.
///
/// # Safety
///
/// As in C: the queue is alive, and no longer used if this succeeds.
pub(crate) unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: guaranteed by the caller.
    let shared = unsafe { SharedReceiveQueue::of(srq) };
    if shared.usage.is_used() {
        return code(Errno::BUSY);
    }
    if let Some(number) = shared.xrc {
        // Messages that already refer to this queue may still add completions to their completion queue, which is
        // destroyed after this queue.
        QpRegistry::of_process().leave_shared(number, &shared.queue);
    }
    // SAFETY: no QP uses the SRQ, so the SRQ raises no events; the caller guarantees that the program no longer uses
    // the SRQ.
    unsafe { shared.events.finish() };
    // SAFETY: guaranteed by the caller; no message finds the queue any more.
    drop(unsafe { SharedReceiveQueue::from_c(srq) });
    0
}
