//! Completion queues: creating extended ones, polling plain ones.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use super::unsupported;
use crate::bindings::verbs::*;

/// Creates an extended completion queue. Returns null and sets errno on failure. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `context` is live and `cq_attr` can be read and written; the channel and parent domain that it names are live.
#[inline]
pub unsafe fn ibv_create_cq_ex(context: *mut ibv_context, cq_attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    // SAFETY: by contract the context is live; its operation receives this function's arguments.
    unsafe {
        match extended_op!(context, create_cq_ex) {
            Some(create) => create(context, cq_attr),
            None => unsupported(),
        }
    }
}

/// Polls up to `num_entries` completions. Returns the number of completions, or a negative value on failure. See
/// `ibv_poll_cq(3)`.
///
/// # Safety
///
/// `cq` is live and `wc` can be written for `num_entries` completions.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: by contract the queue is live; every provider sets this operation.
    unsafe { ((*(*cq).context).ops.poll_cq.unwrap_unchecked())(cq, num_entries, wc) }
}

/// Requests an event on the channel of `cq` at the next completion, or only at a solicited one. Returns zero or an
/// errno value. See `ibv_req_notify_cq(3)`.
///
/// # Safety
///
/// `cq` is live.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: by contract the queue is live; every provider sets this operation.
    unsafe { ((*(*cq).context).ops.req_notify_cq.unwrap_unchecked())(cq, solicited_only) }
}

/// Changes the queue's event moderation. Returns zero or an errno value. See `ibv_modify_cq(3)`.
///
/// # Safety
///
/// `cq` is live and `attr` can be read.
#[inline]
pub unsafe fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: by contract the queue is live, and with it its context; the operation receives this function's arguments.
    unsafe {
        match extended_op!((*cq).context, modify_cq) {
            Some(modify) => modify(cq, attr),
            None => EOPNOTSUPP,
        }
    }
}
