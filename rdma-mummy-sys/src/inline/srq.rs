//! Shared receive queues.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use super::{library, unsupported};
use crate::bindings::verbs::*;

/// Creates a shared receive queue: basic, XRC, or with tag matching. Returns null and sets errno on failure. The
/// library creates a basic queue with only a protection domain. See `ibv_create_srq_ex(3)`.
///
/// # Safety
///
/// `context` is live, `srq_init_attr_ex` can be read and written, and the objects that its mask names are live.
#[inline]
pub unsafe fn ibv_create_srq_ex(
    context: *mut ibv_context,
    srq_init_attr_ex: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    const PD: u32 = ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_PD.0;
    const TYPE: u32 = ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_TYPE.0;
    // SAFETY: by contract the context and the objects that the attributes name are live. The plain attributes are the
    // first part of the extended ones.
    unsafe {
        let mask = (*srq_init_attr_ex).comp_mask;
        let basic = mask & TYPE == 0 || (*srq_init_attr_ex).srq_type == ibv_srq_type::IBV_SRQT_BASIC;
        if mask & !(PD | TYPE) == 0 && mask & PD != 0 && basic {
            return library::ibv_create_srq((*srq_init_attr_ex).pd, srq_init_attr_ex.cast());
        }
        match extended_op!(context, create_srq_ex) {
            Some(create) => create(context, srq_init_attr_ex),
            None => unsupported(),
        }
    }
}

/// Stores the queue's number, by which XRC senders address it. Returns zero or an errno value. See
/// `ibv_get_srq_num(3)`.
///
/// # Safety
///
/// `srq` is live and `srq_num` can be written.
#[inline]
pub unsafe fn ibv_get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int {
    // SAFETY: by contract the queue is live, and with it its context; the operation receives this function's arguments.
    unsafe {
        match extended_op!((*srq).context, get_srq_num) {
            Some(get) => get(srq, srq_num),
            None => EOPNOTSUPP,
        }
    }
}

/// Posts a list of receive requests. Returns zero, or an errno value after storing the first request not posted in
/// `bad_recv_wr`. See `ibv_post_srq_recv(3)`.
///
/// # Safety
///
/// `srq` is live, `recv_wr` begins a list that can be read with its entries, and `bad_recv_wr` can be written. The
/// buffers must stay registered and unaliased until their completions, because the device uses them.
#[inline]
pub unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    recv_wr: *mut ibv_recv_wr,
    bad_recv_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by contract the queue is live: its provider sets this operation.
    unsafe { ((*(*srq).context).ops.post_srq_recv.unwrap_unchecked())(srq, recv_wr, bad_recv_wr) }
}

/// Posts a list of tag matching operations. Returns zero, or an errno value after storing the first one not posted in
/// `bad_op`. See `ibv_post_srq_ops(3)`.
///
/// # Safety
///
/// `srq` is live, `op` begins a list that can be read, and `bad_op` can be written. The buffers must stay registered
/// and unaliased until their completions, because the device uses them.
#[inline]
pub unsafe fn ibv_post_srq_ops(srq: *mut ibv_srq, op: *mut ibv_ops_wr, bad_op: *mut *mut ibv_ops_wr) -> c_int {
    // SAFETY: by contract the queue is live, and with it its context, and `bad_op` is writable; the operation receives
    // this function's arguments.
    unsafe {
        match extended_op!((*srq).context, post_srq_ops) {
            Some(post) => post(srq, op, bad_op),
            None => {
                *bad_op = op;
                EOPNOTSUPP
            }
        }
    }
}
