//! Enhanced connection establishment: the device has no options to agree on.

use std::ffi::c_int;

use rdma_mummy_sys::{ibv_ece, ibv_qp};

use crate::sys::errno::Errno;
use crate::verbs::failure;

/// `ibv_set_ece(qp, ece)`: takes any options, and accepts none of them.
///
/// # Safety
///
/// As for C: the options can be read and written.
pub(crate) unsafe extern "C" fn set_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if (*ece).comp_mask != 0 {
            return failure::code(Errno::INVALID);
        }
        (*ece).options = 0;
    }
    0
}

/// `ibv_query_ece(qp, ece)`.
///
/// # Safety
///
/// As for C: the options can be written.
pub(crate) unsafe extern "C" fn query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ece.write(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 }) };
    0
}
