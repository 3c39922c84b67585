//! Control of a completion queue besides polling: resizing and moderation.

use std::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::completion::queue_of;
use super::device::state_of;
use super::driver::Fault;
use super::stub::stubs;

stubs! {
    fn modify_cq(cq: *mut ffi::ibv_cq, attr: *mut ffi::ibv_modify_cq_attr) -> c_int
        [
            cq; mask = (*attr).attr_mask, count = (*attr).moderate.cq_count, period = (*attr).moderate.cq_period
        ] |inner|
    {
        if queue_of(&mut inner, cq.addr(), "modify_cq").is_none() {
            return libc::EINVAL;
        }
        let (caps, moderate) = (inner.facts.device.cq_mod_caps, (*attr).moderate);
        if moderate.cq_count > caps.max_cq_count || moderate.cq_period > caps.max_cq_period {
            return inner.refuse("modify_cq", libc::EINVAL);
        }
        0
    }
}

pub(super) unsafe extern "C" fn ibv_resize_cq(cq: *mut ffi::ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: objects are never freed.
    unsafe {
        let arguments = [("cq", cq.addr() as u64), ("cqe", cqe as u64)];
        let (mut inner, failure) = state_of((*cq).context).enter("resize_cq", &arguments);
        if let Some(failure) = failure {
            let is_lost = inner.script.has(Fault::ResizeLosesQueue) && failure.errno() != libc::EINVAL;
            if let Some(queue) = queue_of(&mut inner, cq.addr(), "resize_cq") {
                queue.is_lost |= is_lost;
            }
            return failure.code();
        }
        let most = inner.facts.device.orig_attr.max_cqe;
        let Some(queue) = queue_of(&mut inner, cq.addr(), "resize_cq") else { return libc::EINVAL };
        let (polling, left) = (queue.polling, queue.completions.len());
        if polling {
            inner.violation("a queue was resized while it was polled");
        }
        if cqe > most || (cqe as usize) < left {
            return inner.refuse("resize_cq", libc::EINVAL);
        }
        // Drivers round up. The store is atomic, because another thread may read the field.
        AtomicI32::from_ptr(&raw mut (*cq).cqe).store((cqe as u32).next_power_of_two() as c_int, Ordering::Relaxed);
    }
    0
}
