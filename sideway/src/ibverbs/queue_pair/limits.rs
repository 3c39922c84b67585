//! Checking requests against the queue pair's limits, for drivers that do not check the limits themselves, or that
//! compare only 32 bits.
//!
//! This module replaces the driver's setters for data of any length by functions that check the length first. Drivers
//! that are known to check the limits keep their functions, so this costs nothing.

use libc::c_void;
use rdma_mummy_sys::{ibv_data_buf, ibv_qp_cap, ibv_qp_ex, ibv_sge};

use super::missing_operation::refuse;
use super::send_context::{SendContext, SendLimits};
use crate::ibverbs::work_request::RefusalReason;

/// Installs functions that check the data of each request against the requested capacities `cap` before they call the
/// driver.
///
/// # Safety
///
/// The contract of [`fill_in`](super::missing_operation::fill_in) applies, and that function was called before.
pub(super) unsafe fn enforce(qp: *mut ibv_qp_ex, cap: &ibv_qp_cap) {
    // SAFETY: by the contract of this function, no code posts to the queue pair. So its functions may be read and
    // replaced.
    unsafe {
        let setters = ((*qp).wr_set_inline_data, (*qp).wr_set_inline_data_list, (*qp).wr_set_sge_list);
        let (Some(set_inline), Some(set_inline_list), Some(set_sge_list)) = setters else { return };
        let (max_inline, max_sge) = (cap.max_inline_data as usize, cap.max_send_sge as usize);
        SendContext::keep_limits(qp, SendLimits { max_inline, max_sge, set_inline, set_inline_list, set_sge_list });
        (*qp).wr_set_inline_data = Some(set_inline_data);
        (*qp).wr_set_inline_data_list = Some(set_inline_data_list);
        (*qp).wr_set_sge_list = Some(set_list);
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: `enforce` installed this function on the queue pair, which has an open batch.
    unsafe {
        let Some(limits) = SendContext::limits(qp) else { return };
        match limits.too_long(length) {
            None => (limits.set_inline)(qp, addr, length),
            Some(reason) => refuse(qp, reason),
        }
    }
}

unsafe extern "C" fn set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    // SAFETY: as above; the caller of `ibv_wr_set_inline_data_list` passes `num_buf` pieces.
    unsafe {
        let Some(limits) = SendContext::limits(qp) else { return };
        let length = (0..count).map(|index| (*list.add(index)).length).fold(0, usize::saturating_add);
        match limits.too_long(length) {
            None => (limits.set_inline_list)(qp, count, list),
            Some(reason) => refuse(qp, reason),
        }
    }
}

unsafe extern "C" fn set_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // hns reads the first entry of an atomic's list even if the list is empty.
    static NOTHING: ibv_sge = ibv_sge { addr: 0, length: 0, lkey: 0 };
    // SAFETY: as above; the driver only reads the entries.
    unsafe {
        let Some(limits) = SendContext::limits(qp) else { return };
        if count > limits.max_sge {
            return refuse(qp, RefusalReason::TooManyEntries { given: count, limit: limits.max_sge });
        }
        (limits.set_sge_list)(qp, count, if count == 0 { &raw const NOTHING } else { list });
    }
}

impl SendLimits {
    fn too_long(&self, given: usize) -> Option<RefusalReason> {
        let limit = self.max_inline;
        (given > limit).then_some(RefusalReason::InlineTooLong { given, limit })
    }
}
