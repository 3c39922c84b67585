//! The data that a vendor's module keeps for the requests of a queue pair.

use std::ptr::NonNull;

use rdma_mummy_sys::ibv_qp_ex;

use super::missing_operation::refuse;
use super::send_context::{SendContext, VendorData};
use crate::ibverbs::work_request::RefusalReason;

impl SendContext {
    /// Stores `data` for the requests of a vendor's service.
    ///
    /// # Safety
    ///
    /// The contract of [`take_refusal`](Self::take_refusal) applies, and no batch is open.
    pub(crate) unsafe fn keep_vendor_data<D: Send + 'static>(qp: *mut ibv_qp_ex, data: D, refuse_all: bool) {
        // SAFETY: the caller upholds the contract of this function.
        let Some(context) = (unsafe { Self::of(qp) }) else { return };
        let data = NonNull::from(Box::leak(Box::new(data)));
        context.vendor = Some(VendorData(data));
        if !refuse_all {
            context.later.vendor = data.as_ptr().cast();
        }
    }

    /// Returns the data that [`keep_vendor_data`](Self::keep_vendor_data) stored, for an address that calls a vendor's
    /// function. Returns `None` if the request is rejected. The caller must then do nothing, because the driver has not
    /// begun the request. This call itself rejects the request if the capacity of the queue is zero.
    ///
    /// # Safety
    ///
    /// The contract of [`refuse`] applies. The stored data is a `D`, and the result is used only until the address is
    /// set.
    #[cfg_attr(not(feature = "mlx5"), expect(dead_code, reason = "mlx5 uses it"))]
    #[inline]
    pub(crate) unsafe fn vendor_data<D>(qp: *mut ibv_qp_ex) -> Option<NonNull<D>> {
        // SAFETY: the caller upholds the contract of this function.
        let data = NonNull::new(unsafe { (*(*qp).qp_base.qp_context.cast::<Self>()).later.vendor }.cast());
        if data.is_none() {
            // SAFETY: as above. If the batch is already rejected, its first reason is kept.
            unsafe { refuse(qp, RefusalReason::BatchTooLong { limit: 0 }) };
        }
        data
    }
}
