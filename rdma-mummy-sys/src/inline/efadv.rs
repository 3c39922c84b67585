//! The completion extensions of efadv.h.

use core::ffi::c_int;

use crate::bindings::efadv::efadv_cq;
use crate::bindings::verbs::ibv_gid;

/// Stores the GID of the message's sender. Returns zero, or a negative errno value if there is none. See
/// `efadv_create_cq(3)`.
///
/// # Safety
///
/// `efadv_cq` comes from `efadv_cq_from_ibv_cq_ex`, its cursor is on a completion, it was created with
/// `EFADV_WC_EX_WITH_SGID`, and `sgid` can be written.
#[inline]
pub unsafe fn efadv_wc_read_sgid(efadv_cq: *mut efadv_cq, sgid: *mut ibv_gid) -> c_int {
    // SAFETY: by contract the queue is live, and its provider set the readers that it was created with.
    unsafe { ((*efadv_cq).wc_read_sgid.unwrap_unchecked())(efadv_cq, sgid) }
}
