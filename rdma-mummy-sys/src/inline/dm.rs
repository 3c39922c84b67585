//! Device memory.

use core::ffi::{c_int, c_uint, c_void};

use libc::EOPNOTSUPP;

use super::unsupported;
use crate::bindings::verbs::*;

/// Allocates device memory. Returns null and sets errno on failure. See `ibv_alloc_dm(3)`.
///
/// # Safety
///
/// `context` is live and `attr` can be read.
#[inline]
pub unsafe fn ibv_alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm {
    // SAFETY: by contract the context is live; its operation receives this function's arguments.
    unsafe {
        match extended_op!(context, alloc_dm) {
            Some(alloc) => alloc(context, attr),
            None => unsupported(),
        }
    }
}

/// Frees device memory. Returns zero or an errno value. See `ibv_free_dm(3)`.
///
/// # Safety
///
/// `dm` is live, and is not used afterwards if this succeeds.
#[inline]
pub unsafe fn ibv_free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: by contract the memory is live, and with it its context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*dm).context, free_dm) {
            Some(free) => free(dm),
            None => EOPNOTSUPP,
        }
    }
}

/// Copies to the device. Returns zero or an errno value. See `ibv_memcpy_to_dm(3)`.
///
/// # Safety
///
/// `dm` is live and `host_addr` can be read for `length` bytes.
#[inline]
pub unsafe fn ibv_memcpy_to_dm(dm: *mut ibv_dm, dm_offset: u64, host_addr: *const c_void, length: usize) -> c_int {
    // SAFETY: by contract the memory is live, and its provider set both copy operations.
    unsafe { ((*dm).memcpy_to_dm.unwrap_unchecked())(dm, dm_offset, host_addr, length) }
}

/// Copies from the device. Returns zero or an errno value. See `ibv_memcpy_from_dm(3)`.
///
/// # Safety
///
/// `dm` is live and `host_addr` can be written for `length` bytes.
#[inline]
pub unsafe fn ibv_memcpy_from_dm(host_addr: *mut c_void, dm: *mut ibv_dm, dm_offset: u64, length: usize) -> c_int {
    // SAFETY: by contract the memory is live, and its provider set both copy operations.
    unsafe { ((*dm).memcpy_from_dm.unwrap_unchecked())(host_addr, dm, dm_offset, length) }
}

/// Registers device memory, addressed from zero or as `access` states. Returns null and sets errno on failure. See
/// `ibv_reg_dm_mr(3)`.
///
/// # Safety
///
/// `pd` and `dm` are live, and `dm` outlives the region.
#[inline]
pub unsafe fn ibv_reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: by contract the domain is live, and with it its context; the operation receives this function's
    // arguments.
    unsafe {
        match extended_op!((*pd).context, reg_dm_mr) {
            Some(register) => register(pd, dm, dm_offset, length, access),
            None => unsupported(),
        }
    }
}
