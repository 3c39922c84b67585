//! Memory regions: registration, advice, and the null region.

use core::ffi::{c_int, c_uint, c_void};

use libc::EOPNOTSUPP;

use super::{library, unsupported};
use crate::bindings::verbs::*;

/// Access flags that a device may ignore: only the library's newer function accepts them.
const OPTIONAL: c_uint = ib_uverbs_access_flags::IB_UVERBS_ACCESS_OPTIONAL_RANGE.0;

/// The expansion of `ibv_reg_mr` in C. `is_access_const` states that `access` is a compile-time constant; if it has no
/// optional flag, the library's older function is then called. See `ibv_reg_mr(3)`.
///
/// # Safety
///
/// As for [`ibv_reg_mr`].
#[inline(always)]
pub unsafe fn __ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
    is_access_const: c_int,
) -> *mut ibv_mr {
    // SAFETY: by contract the domain is live; the caller upholds the rest while the region lives.
    unsafe {
        if is_access_const != 0 && access & OPTIONAL == 0 {
            library::ibv_reg_mr(pd, addr, length, access as c_int)
        } else {
            library::ibv_reg_mr_iova2(pd, addr, length, addr.addr() as u64, access)
        }
    }
}

/// Registers memory for the device's use according to `access`. Returns null and sets errno on failure. Optional flags
/// that the device does not support are ignored. See `ibv_reg_mr(3)`.
///
/// # Safety
///
/// `pd` is live. While the region lives, `addr` stays mapped for `length` bytes, and no code assumes that memory
/// unchanged if `access` lets the device write.
#[inline]
pub unsafe fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
    // SAFETY: the caller upholds the same contract.
    unsafe { __ibv_reg_mr(pd, addr, length, access as c_uint, 0) }
}

/// The expansion of `ibv_reg_mr_iova` in C. `is_access_const` states that `access` is a compile-time constant; if it
/// has no optional flag, the library's older function is then called. See `ibv_reg_mr(3)`.
///
/// # Safety
///
/// As for [`ibv_reg_mr`].
#[inline(always)]
pub unsafe fn __ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
    is_access_const: c_int,
) -> *mut ibv_mr {
    // SAFETY: by contract the domain is live; the caller upholds the rest while the region lives.
    unsafe {
        if is_access_const != 0 && access & OPTIONAL == 0 {
            library::ibv_reg_mr_iova(pd, addr, length, iova, access as c_int)
        } else {
            library::ibv_reg_mr_iova2(pd, addr, length, iova, access)
        }
    }
}

/// Registers memory that work requests and the peer address from `iova` on. Returns null and sets errno on failure. See
/// `ibv_reg_mr(3)`.
///
/// # Safety
///
/// As for [`ibv_reg_mr`].
#[inline]
pub unsafe fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller upholds the same contract.
    unsafe { __ibv_reg_mr_iova(pd, addr, length, iova, access as c_uint, 0) }
}

/// Advises the device how ranges of registered memory will be used. Returns zero or an errno value. See
/// `ibv_advise_mr(3)`.
///
/// # Safety
///
/// `pd` is live and `sg_list` holds `num_sge` entries.
#[inline]
pub unsafe fn ibv_advise_mr(
    pd: *mut ibv_pd,
    advice: ib_uverbs_advise_mr_advice,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    // SAFETY: by contract the domain is live, and with it its context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*pd).context, advise_mr) {
            Some(advise) => advise(pd, advice, flags, sg_list, num_sge),
            None => EOPNOTSUPP,
        }
    }
}

/// Creates a region that discards writes and reads as zeros. Returns null and sets errno on failure. See
/// `ibv_alloc_null_mr(3)`.
///
/// # Safety
///
/// `pd` is live.
#[inline]
pub unsafe fn ibv_alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    // SAFETY: by contract the domain is live, and with it its context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*pd).context, alloc_null_mr) {
            Some(alloc) => alloc(pd),
            None => unsupported(),
        }
    }
}
