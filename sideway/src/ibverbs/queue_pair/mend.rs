//! Workarounds for faults of drivers in extended queue pairs. `manual::quirks` describes each of them.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{mem, ptr, slice};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_data_buf, ibv_qp_ex, ibv_sge};

use super::refuse;
use crate::ibverbs::quirks::Driver;
use crate::ibverbs::work_request::RefusalReason;

/// Works around faults of rdma-core's soft-RoCE driver in extended queue pairs. The driver computes the length of a
/// gather list as the length of the first entry times the number of entries. The driver copies a list of inline data
/// without a limit, but sends an empty message. This crate joins the pieces of inline data before it calls the driver,
/// and rejects gather lists that the driver would send incorrectly. Returns whether the faults apply.
///
/// # Safety
///
/// `qp` is a live extended queue pair of `driver` without concurrent posts, and its `qp_context` is a `SendContext`.
pub(super) unsafe fn mend(driver: Driver, qp: *mut ibv_qp_ex) -> bool {
    if driver != Driver::SoftRoce {
        return false;
    }
    // SAFETY: the queue pair is live and no code posts to it, so its functions may be read and replaced.
    unsafe {
        let Some(function) = (*qp).wr_set_sge_list else { return false };
        SOFT_ROCE_SET_SGE_LIST.store(function as *mut c_void, Ordering::Release);
        (*qp).wr_set_sge_list = Some(set_sge_list_of_equal_lengths);
        (*qp).wr_set_inline_data_list = Some(set_joined_inline_data);
        true
    }
}

/// The soft-RoCE driver's `wr_set_sge_list`. It is the same function for all its queue pairs.
static SOFT_ROCE_SET_SGE_LIST: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" fn set_sge_list_of_equal_lengths(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge) {
    // SAFETY: `mend` stored the driver's function, of this signature, before installing this one.
    let driver: unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge) =
        unsafe { mem::transmute(SOFT_ROCE_SET_SGE_LIST.load(Ordering::Acquire)) };
    let list = if num_sge == 0 {
        &[]
    } else {
        // SAFETY: the caller of `ibv_wr_set_sge_list` passes `num_sge` entries.
        unsafe { slice::from_raw_parts(sg_list, num_sge) }
    };
    let length = |sge: &ibv_sge| u64::from(sge.length);
    let total: u64 = list.iter().map(length).sum();
    let computed = list.first().map_or(0, length) * num_sge as u64;
    // SAFETY: the caller upholds the contract of the driver's function. `refuse` is called while a batch is built.
    unsafe {
        match list {
            [] => {}
            [single] => sys::ibv_wr_set_sge(qp, single.lkey, single.addr, single.length),
            _ if total == computed => driver(qp, num_sge, sg_list),
            _ => refuse(
                qp,
                RefusalReason::DriverFault(
                    "rdma-core's soft-RoCE driver sends gather lists with entries of different lengths wrongly from \
                    an extended queue pair; use build or build_generic",
                ),
            ),
        }
    }
}

unsafe extern "C" fn set_joined_inline_data(qp: *mut ibv_qp_ex, num_buf: usize, buf_list: *const ibv_data_buf) {
    let pieces = if num_buf == 0 {
        &[]
    } else {
        // SAFETY: the caller of `ibv_wr_set_inline_data_list` passes `num_buf` pieces.
        unsafe { slice::from_raw_parts(buf_list, num_buf) }
    };
    let length = pieces.iter().map(|piece| piece.length).fold(0, usize::saturating_add);
    // The length is at most the queue pair's limit, because the request was checked before.
    let mut joined = Vec::with_capacity(length);
    for piece in pieces.iter().filter(|piece| piece.length > 0) {
        // SAFETY: each piece has the length that it states.
        joined.extend_from_slice(unsafe { slice::from_raw_parts(piece.addr.cast::<u8>(), piece.length) });
    }
    // SAFETY: the caller owns the queue pair, and the driver reads the bytes before it returns.
    unsafe { sys::ibv_wr_set_inline_data(qp, joined.as_mut_ptr().cast(), joined.len()) }
}
