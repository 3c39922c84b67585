//! Queue pairs: creation, rate limits, and posting lists of work requests.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use super::{library, unsupported};
use crate::bindings::verbs::*;

/// Makes a queue pair from extended attributes. Null, and errno, if that fails. If the mask names the protection domain
/// and nothing else, the library makes it. See `ibv_create_qp_ex(3)`.
///
/// # Safety
///
/// `context` is live, `qp_init_attr_ex` can be read and written, and the objects that it names are live.
#[inline]
pub unsafe fn ibv_create_qp_ex(context: *mut ibv_context, qp_init_attr_ex: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    // SAFETY: by contract the context and what the attributes name are live. The plain attributes are the first part of
    // the extended ones.
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

/// Opens the XRC queue pair that another process made. Null, and errno, if that fails. See `ibv_open_qp(3)`.
///
/// # Safety
///
/// `context` is live, `qp_open_attr` can be read, and its domain is live.
#[inline]
pub unsafe fn ibv_open_qp(context: *mut ibv_context, qp_open_attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
    // SAFETY: by contract the context is live; its operation gets what this function got.
    unsafe {
        match extended_op!(context, open_qp) {
            Some(open) => open(context, qp_open_attr),
            None => unsupported(),
        }
    }
}

/// Limits the rate at which `qp` sends, now or from its ready-to-send state on: zero or an errno. See
/// `ibv_modify_qp_rate_limit(3)`.
///
/// # Safety
///
/// `qp` is live and `attr` can be read.
#[inline]
pub unsafe fn ibv_modify_qp_rate_limit(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int {
    // SAFETY: by contract the queue pair is live, and with it its context; the operation gets what this function got.
    unsafe {
        match extended_op!((*qp).context, modify_qp_rate_limit) {
            Some(modify) => modify(qp, attr),
            None => EOPNOTSUPP,
        }
    }
}

/// Posts a list of send requests: zero, or an errno with the first request that was not posted in `bad_wr`. See
/// `ibv_post_send(3)`.
///
/// # Safety
///
/// `qp` is live, `wr` begins a list that can be read with its entries, and `bad_wr` can be written. Unless they are sent
/// inline, the device uses the buffers until their completions: they must stay registered, and unaliased.
#[inline]
pub unsafe fn ibv_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: by contract the queue pair is live; every provider fills this operation in.
    unsafe { ((*(*qp).context).ops.post_send.unwrap_unchecked())(qp, wr, bad_wr) }
}

/// Posts a list of receive requests: zero, or an errno with the first request that was not posted in `bad_wr`. See
/// `ibv_post_recv(3)`.
///
/// # Safety
///
/// `qp` is live, `wr` begins a list that can be read with its entries, and `bad_wr` can be written. The device uses the
/// buffers until their completions: they must stay registered, and unaliased.
#[inline]
pub unsafe fn ibv_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: by contract the queue pair is live; every provider fills this operation in.
    unsafe { ((*(*qp).context).ops.post_recv.unwrap_unchecked())(qp, wr, bad_wr) }
}

/// Whether `caps`, a word of the device's attributes with one bit for each type of queue pair, has the bit of `qpt`.
/// A type beyond the word counts from its beginning again, as the shift of x86 has it (C leaves it undefined).
#[inline]
#[must_use]
pub const fn ibv_is_qpt_supported(caps: u32, qpt: ibv_qp_type) -> c_int {
    (caps & 1u32.wrapping_shl(qpt.0) != 0) as c_int
}
