//! Completion queues: the extended kind is made here, the plain kind is polled here.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use super::unsupported;
use crate::bindings::verbs::*;

/// Makes an extended completion queue. Null, and errno, if that fails. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `context` is live and `cq_attr` can be read and written; its channel and parent domain are live where named.
#[inline]
pub unsafe fn ibv_create_cq_ex(context: *mut ibv_context, cq_attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    // SAFETY: by contract the context is live; its operation gets what this function got.
    unsafe {
        match extended_op!(context, create_cq_ex) {
            Some(create) => create(context, cq_attr),
            None => unsupported(),
        }
    }
}

/// Takes up to `num_entries` completions: how many there were, or a negative value on failure. See `ibv_poll_cq(3)`.
///
/// # Safety
///
/// `cq` is live and `wc` can be written for `num_entries` completions.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: by contract the queue is live; every provider fills this operation in.
    unsafe { ((*(*cq).context).ops.poll_cq.unwrap_unchecked())(cq, num_entries, wc) }
}

/// Asks for an event on the channel of `cq` at the next completion, or only at a solicited one: zero or an errno. See
/// `ibv_req_notify_cq(3)`.
///
/// # Safety
///
/// `cq` is live.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: by contract the queue is live; every provider fills this operation in.
    unsafe { ((*(*cq).context).ops.req_notify_cq.unwrap_unchecked())(cq, solicited_only) }
}

/// Changes how the queue moderates its events: zero or an errno. See `ibv_modify_cq(3)`.
///
/// # Safety
///
/// `cq` is live and `attr` can be read.
#[inline]
pub unsafe fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: by contract the queue is live, and with it its context; the operation gets what this function got.
    unsafe {
        match extended_op!((*cq).context, modify_cq) {
            Some(modify) => modify(cq, attr),
            None => EOPNOTSUPP,
        }
    }
}
