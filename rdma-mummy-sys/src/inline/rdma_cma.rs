//! The two addresses of a connection identifier.

use libc::sockaddr;

use crate::bindings::rdma_cma::*;

/// Returns a pointer to the local address of `id`. See `rdma_get_local_addr(3)`.
///
/// # Safety
///
/// `id` is live; the result is valid as long as `id`.
#[inline]
#[must_use]
pub unsafe fn rdma_get_local_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: by contract the identifier is live; the field's address is taken, and nothing is read.
    unsafe { &raw mut (*id).route.addr.__bindgen_anon_1.src_addr }
}

/// Returns a pointer to the peer's address of `id`. See `rdma_get_peer_addr(3)`.
///
/// # Safety
///
/// `id` is live; the result is valid as long as `id`.
#[inline]
#[must_use]
pub unsafe fn rdma_get_peer_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: by contract the identifier is live; the field's address is taken, and nothing is read.
    unsafe { &raw mut (*id).route.addr.__bindgen_anon_2.dst_addr }
}
