//! The two addresses of a connection identifier.

use libc::sockaddr;

use crate::bindings::rdma_cma::*;

/// Where the local address of `id` is stored. See `rdma_get_local_addr(3)`.
///
/// # Safety
///
/// `id` is live; the result is valid as long.
#[inline]
#[must_use]
pub unsafe fn rdma_get_local_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: by contract the identifier is live; a field of a union is addressed, not read.
    unsafe { &raw mut (*id).route.addr.__bindgen_anon_1.src_addr }
}

/// Where the address of the other side of `id` is stored. See `rdma_get_peer_addr(3)`.
///
/// # Safety
///
/// `id` is live; the result is valid as long.
#[inline]
#[must_use]
pub unsafe fn rdma_get_peer_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: by contract the identifier is live; a field of a union is addressed, not read.
    unsafe { &raw mut (*id).route.addr.__bindgen_anon_2.dst_addr }
}
