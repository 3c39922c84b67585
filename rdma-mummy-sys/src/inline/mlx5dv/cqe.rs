//! The last byte of a completion entry: owner, solicited event, format and opcode.

use crate::bindings::mlx5dv::mlx5_cqe64;

/// Returns the owner bit, which toggles with every round through the queue.
///
/// # Safety
///
/// `cqe` can be read.
#[inline]
#[must_use]
pub unsafe fn mlx5dv_get_cqe_owner(cqe: *mut mlx5_cqe64) -> u8 {
    // SAFETY: by contract the entry can be read.
    unsafe { (*cqe).op_own & 0x1 }
}

/// Sets the owner bit to the lowest bit of `val`.
///
/// # Safety
///
/// `cqe` can be read and written.
#[inline]
pub unsafe fn mlx5dv_set_cqe_owner(cqe: *mut mlx5_cqe64, val: u8) {
    // SAFETY: by contract the entry can be read and written.
    unsafe { (*cqe).op_own = (val & 0x1) | ((*cqe).op_own & !0x1) };
}

/// Whether the sender requested an event.
///
/// # Safety
///
/// `cqe` can be read.
#[inline]
#[must_use]
pub unsafe fn mlx5dv_get_cqe_se(cqe: *mut mlx5_cqe64) -> u8 {
    // SAFETY: by contract the entry can be read.
    unsafe { ((*cqe).op_own >> 1) & 0x1 }
}

/// Returns the format: whether the entry contains inline data, or is compressed.
///
/// # Safety
///
/// `cqe` can be read.
#[inline]
#[must_use]
pub unsafe fn mlx5dv_get_cqe_format(cqe: *mut mlx5_cqe64) -> u8 {
    // SAFETY: by contract the entry can be read.
    unsafe { ((*cqe).op_own >> 2) & 0x3 }
}

/// Returns the kind of completion or error.
///
/// # Safety
///
/// `cqe` can be read.
#[inline]
#[must_use]
pub unsafe fn mlx5dv_get_cqe_opcode(cqe: *mut mlx5_cqe64) -> u8 {
    // SAFETY: by contract the entry can be read.
    unsafe { (*cqe).op_own >> 4 }
}
