//! Registering memory for an identifier.

use core::ffi::{c_int, c_void};

use super::rdma_seterrno;
use crate::bindings::{rdma_cma::*, verbs::*};
use crate::inline::library;

const LOCAL_WRITE: c_int = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as c_int;
const REMOTE_READ: c_int = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 as c_int;
const REMOTE_WRITE: c_int = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 as c_int;

/// Registers memory for sends and receives. Returns null and sets errno on failure. See `rdma_reg_msgs(3)`.
///
/// # Safety
///
/// `id` is live and has a protection domain. While the region lives, `addr` stays mapped for `length` bytes.
#[inline]
pub unsafe fn rdma_reg_msgs(id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: by contract the identifier and its protection domain are live.
    unsafe { library::ibv_reg_mr((*id).pd, addr, length, LOCAL_WRITE) }
}

/// Registers memory that the peer may read. Returns null and sets errno on failure. See `rdma_reg_read(3)`.
///
/// # Safety
///
/// As for [`rdma_reg_msgs`].
#[inline]
pub unsafe fn rdma_reg_read(id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: by contract the identifier and its protection domain are live.
    unsafe { library::ibv_reg_mr((*id).pd, addr, length, LOCAL_WRITE | REMOTE_READ) }
}

/// Registers memory that the peer may write. Returns null and sets errno on failure. See `rdma_reg_write(3)`.
///
/// # Safety
///
/// As for [`rdma_reg_msgs`], and no code assumes that memory unchanged.
#[inline]
pub unsafe fn rdma_reg_write(id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: by contract the identifier and its protection domain are live.
    unsafe { library::ibv_reg_mr((*id).pd, addr, length, LOCAL_WRITE | REMOTE_WRITE) }
}

/// Deregisters memory. Returns zero, or -1 and sets errno. See `rdma_dereg_mr(3)`.
///
/// # Safety
///
/// `mr` is live, and is not used afterwards if this succeeds.
#[inline]
pub unsafe fn rdma_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: by contract the region is live.
    rdma_seterrno(unsafe { library::ibv_dereg_mr(mr) })
}
