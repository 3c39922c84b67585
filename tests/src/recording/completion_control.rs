//! Control of a completion queue besides polling: resizing and moderation.

use std::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::completion::queue_of;
use super::device::state_of;
use super::driver::Fault;

pub(super) unsafe extern "C" fn resize_cq(cq: *mut ffi::ibv_cq, cqe: c_int) -> c_int {
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
            inner.failed(libc::EINVAL);
            return libc::EINVAL;
        }
        // Drivers round up. The store is atomic, because another thread may read the field.
        AtomicI32::from_ptr(&raw mut (*cq).cqe).store((cqe as u32).next_power_of_two() as c_int, Ordering::Relaxed);
    }
    0
}

pub(super) unsafe extern "C" fn modify_cq(cq: *mut ffi::ibv_cq, attr: *mut ffi::ibv_modify_cq_attr) -> c_int {
    // SAFETY: objects are never freed, and the attributes can be read.
    unsafe {
        let attr = &*attr;
        let arguments = [
            ("cq", cq.addr() as u64),
            ("mask", attr.attr_mask.into()),
            ("count", attr.moderate.cq_count.into()),
            ("period", attr.moderate.cq_period.into()),
        ];
        let (mut inner, failure) = state_of((*cq).context).enter("modify_cq", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        if queue_of(&mut inner, cq.addr(), "modify_cq").is_none() {
            return libc::EINVAL;
        }
        let caps = inner.facts.device.cq_mod_caps;
        if attr.moderate.cq_count > caps.max_cq_count || attr.moderate.cq_period > caps.max_cq_period {
            inner.failed(libc::EINVAL);
            return libc::EINVAL;
        }
    }
    0
}
