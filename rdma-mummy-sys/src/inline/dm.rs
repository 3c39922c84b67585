//! Memory on the device.

use core::ffi::{c_int, c_uint, c_void};

use libc::EOPNOTSUPP;

use super::unsupported;
use crate::bindings::verbs::*;

/// Allocates memory on the device. Null, and errno, if that fails. See `ibv_alloc_dm(3)`.
///
/// # Safety
///
/// `context` is live and `attr` can be read.
#[inline]
pub unsafe fn ibv_alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm {
    // SAFETY: by contract the context is live; its operation gets what this function got.
    unsafe {
        match extended_op!(context, alloc_dm) {
            Some(alloc) => alloc(context, attr),
            None => unsupported(),
        }
    }
}

/// Frees memory on the device: zero or an errno. See `ibv_free_dm(3)`.
///
/// # Safety
///
/// `dm` is live, and is not used again if this succeeds.
#[inline]
pub unsafe fn ibv_free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: by contract the memory is live, and with it its context; the operation gets what this function got.
    unsafe {
        match extended_op!((*dm).context, free_dm) {
            Some(free) => free(dm),
            None => EOPNOTSUPP,
        }
    }
}

/// Copies to the device: zero or an errno. See `ibv_memcpy_to_dm(3)`.
///
/// # Safety
///
/// `dm` is live and `host_addr` can be read for `length` bytes.
#[inline]
pub unsafe fn ibv_memcpy_to_dm(dm: *mut ibv_dm, dm_offset: u64, host_addr: *const c_void, length: usize) -> c_int {
    // SAFETY: by contract the memory is live: its provider filled in both directions.
    unsafe { ((*dm).memcpy_to_dm.unwrap_unchecked())(dm, dm_offset, host_addr, length) }
}

/// Copies from the device: zero or an errno. See `ibv_memcpy_from_dm(3)`.
///
/// # Safety
///
/// `dm` is live and `host_addr` can be written for `length` bytes.
#[inline]
pub unsafe fn ibv_memcpy_from_dm(host_addr: *mut c_void, dm: *mut ibv_dm, dm_offset: u64, length: usize) -> c_int {
    // SAFETY: by contract the memory is live: its provider filled in both directions.
    unsafe { ((*dm).memcpy_from_dm.unwrap_unchecked())(host_addr, dm, dm_offset, length) }
}

/// Registers memory on the device, addressed from zero or as `access` says. Null, and errno, if that fails. See
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
    // SAFETY: by contract the domain is live, and with it its context; the operation gets what this function got.
    unsafe {
        match extended_op!((*pd).context, reg_dm_mr) {
            Some(register) => register(pd, dm, dm_offset, length, access),
            None => unsupported(),
        }
    }
}
