//! Queue pairs: creation, rate limits, and posting lists of work requests.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use super::{library, unsupported};
use crate::bindings::verbs::*;

/// Creates a queue pair from extended attributes. Returns null and sets errno on failure. If the mask names only the
/// protection domain, the library creates it. See `ibv_create_qp_ex(3)`.
///
/// # Safety
///
/// `context` is live, `qp_init_attr_ex` can be read and written, and the objects that it names are live.
#[inline]
pub unsafe fn ibv_create_qp_ex(context: *mut ibv_context, qp_init_attr_ex: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    // SAFETY: by contract the context and the objects that the attributes name are live. The plain attributes are the
    // first part of the extended ones.
    unsafe {
        if (*qp_init_attr_ex).comp_mask == ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0 {
            return library::ibv_create_qp((*qp_init_attr_ex).pd, qp_init_attr_ex.cast());
        }
        match extended_op!(context, create_qp_ex) {
            Some(create) => create(context, qp_init_attr_ex),
            None => unsupported(),
        }
    }
}

/// Opens an XRC queue pair that another process created. Returns null and sets errno on failure. See `ibv_open_qp(3)`.
///
/// # Safety
///
/// `context` is live, `qp_open_attr` can be read, and its domain is live.
#[inline]
pub unsafe fn ibv_open_qp(context: *mut ibv_context, qp_open_attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
    // SAFETY: by contract the context is live; its operation receives this function's arguments.
    unsafe {
        match extended_op!(context, open_qp) {
            Some(open) => open(context, qp_open_attr),
            None => unsupported(),
        }
    }
}

/// Limits the sending rate of `qp`, now or from the ready-to-send state on. Returns zero or an errno value. See
/// `ibv_modify_qp_rate_limit(3)`.
///
/// # Safety
///
/// `qp` is live and `attr` can be read.
#[inline]
pub unsafe fn ibv_modify_qp_rate_limit(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int {
    // SAFETY: by contract the queue pair is live, and with it its context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*qp).context, modify_qp_rate_limit) {
            Some(modify) => modify(qp, attr),
            None => EOPNOTSUPP,
        }
    }
}

/// Posts a list of send requests. Returns zero, or an errno value after storing the first request not posted in
/// `bad_wr`. See `ibv_post_send(3)`.
///
/// # Safety
///
/// `qp` is live, `wr` begins a list that can be read with its entries, and `bad_wr` can be written. Unless sent inline,
/// buffers must stay registered and unaliased until their completions, because the device uses them.
#[inline]
pub unsafe fn ibv_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: by contract the queue pair is live; every provider sets this operation.
    unsafe { ((*(*qp).context).ops.post_send.unwrap_unchecked())(qp, wr, bad_wr) }
}

/// Posts a list of receive requests. Returns zero, or an errno value after storing the first request not posted in
/// `bad_wr`. See `ibv_post_recv(3)`.
///
/// # Safety
///
/// `qp` is live, `wr` begins a list that can be read with its entries, and `bad_wr` can be written. The buffers must
/// stay registered and unaliased until their completions, because the device uses them.
#[inline]
pub unsafe fn ibv_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: by contract the queue pair is live; every provider sets this operation.
    unsafe { ((*(*qp).context).ops.post_recv.unwrap_unchecked())(qp, wr, bad_wr) }
}

/// Whether `caps`, a word of the device's attributes with one bit per queue pair type, has the bit of `qpt`. The bit
/// number wraps around at the size of the word, like the shift of x86 (undefined in C).
#[inline]
#[must_use]
pub const fn ibv_is_qpt_supported(caps: u32, qpt: ibv_qp_type) -> c_int {
    (caps & 1u32.wrapping_shl(qpt.0) != 0) as c_int
}
