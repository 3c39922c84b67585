//! Memory windows: remote access to part of a region, granted and revoked.

use core::ffi::c_int;

use libc::{EINVAL, EPERM};

use super::unsupported;
use crate::bindings::verbs::*;

/// Creates a window of type 1 or 2. Returns null and sets errno on failure. See `ibv_alloc_mw(3)`.
///
/// # Safety
///
/// `pd` is live.
#[inline]
pub unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, type_: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: by contract the domain is live, and with it its context; the operation receives this function's
    // arguments.
    unsafe {
        match (*(*pd).context).ops.alloc_mw {
            Some(alloc) => alloc(pd, type_),
            None => unsupported(),
        }
    }
}

/// Destroys a window. Returns zero or an errno value. See `ibv_dealloc_mw(3)`.
///
/// # Safety
///
/// `mw` is live (so its provider has the operation), and is not used afterwards if this succeeds.
#[inline]
pub unsafe fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: by contract the window is live: the operations of its context created it and can destroy it.
    unsafe { ((*(*mw).context).ops.dealloc_mw.unwrap_unchecked())(mw) }
}

/// Returns the key after `rkey`: the same index, with the tag (the low eight bits) incremented. See `ibv_inc_rkey(3)`.
#[inline]
#[must_use]
pub const fn ibv_inc_rkey(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

/// Posts the binding of a type 1 window to `qp`. Returns zero or an errno value. Returns `EINVAL` for a window of
/// another type, or for a range without a region; `EPERM` for a region of another protection domain. See
/// `ibv_bind_mw(3)`.
///
/// # Safety
///
/// `qp` and `mw` are live, `mw_bind` can be read and written, and its region is null or live.
#[inline]
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: by contract the objects are live, so the window's provider has the window operations.
    unsafe {
        let info = (*mw_bind).bind_info;
        if (*mw).type_ != ibv_mw_type::IBV_MW_TYPE_1 {
            return EINVAL;
        }
        if info.mr.is_null() {
            if info.addr != 0 || info.length != 0 {
                return EINVAL;
            }
        } else if (*mw).pd != (*info.mr).pd {
            return EPERM;
        }
        ((*(*mw).context).ops.bind_mw.unwrap_unchecked())(qp, mw, mw_bind)
    }
}
