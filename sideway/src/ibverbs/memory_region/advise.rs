//! Advising the device which memory it will need.

use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ib_uverbs_advise_mr_advice as raw_advice, ib_uverbs_advise_mr_flag as raw_flag, ibv_sge};

use super::ScatterGatherEntry;
use crate::error::VerbError;
use crate::ffi::{check_errno, open_enum};
use crate::ibverbs::protection_domain::ProtectionDomain;

open_enum! {
    /// `enum ibv_advise_mr_advice`: advice for memory with on-demand paging.
    #[doc(alias = "ibv_advise_mr_advice")]
    pub enum MemoryAdvice {
        /// Pages in the range for reading.
        Prefetch = raw_advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH.0,
        /// Pages in the range for writing.
        PrefetchWrite = raw_advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE.0,
        /// Reports to the device which pages are already present, without paging in others.
        PrefetchNoFault = raw_advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT.0,
    }
}

bitflags::bitflags! {
    /// Flags of the advice.
    #[doc(alias = "ib_uverbs_advise_mr_flag")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AdviseFlags: u32 {
        /// The call returns when the operation is complete. Without this flag, the call may return before the operation
        /// has started.
        const Flush = raw_flag::IB_UVERBS_ADVISE_MR_FLAG_FLUSH.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

impl ProtectionDomain {
    /// `ibv_advise_mr(pd, advice, flags, sg_list, num_sge)` — advises the kernel how ranges of regions with
    /// [`OnDemand`](crate::ibverbs::AccessFlags::OnDemand) will be used, so that requests find their pages present. The
    /// kernel may ignore the advice.
    ///
    /// This method is safe, because it does not change the bytes, and the kernel checks the keys and the ranges.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the library, driver or device does not support this advice.
    /// - `EFAULT`: a range is outside its region, is not mapped, or is not writable although the advice is for writing.
    ///   Or a key belongs to a region without on-demand paging.
    /// - `EINVAL`: unknown flags.
    ///
    /// # References
    ///
    /// [ibv_advise_mr(3)](https://man7.org/linux/man-pages/man3/ibv_advise_mr.3.html)
    #[doc(alias = "ibv_advise_mr")]
    pub fn advise_mr(
        self: &Arc<Self>,
        advice: MemoryAdvice,
        flags: AdviseFlags,
        ranges: &[ScatterGatherEntry],
    ) -> Result<(), VerbError> {
        const VERB: &str = "ibv_advise_mr";
        let count = u32::try_from(ranges.len()).map_err(|_| {
            VerbError::invalid(
                VERB,
                "more than 2^32 - 1 ranges; \
            split the list",
            )
        })?;
        // The verb takes a mutable list.
        let mut list: Vec<ibv_sge> = ranges.iter().map(|range| range.raw()).collect();
        let advice = sys::ib_uverbs_advise_mr_advice(advice.raw());
        // SAFETY: the domain is live, and the list has `count` entries.
        let ret = unsafe { sys::ibv_advise_mr(self.raw(), advice, flags.bits(), list.as_mut_ptr(), count) };
        check_errno(VERB, ret).map_err(|error| match error.errno().raw() {
            libc::EFAULT => error.with_hint(
                "a range is outside its region, not mapped or not writable, or its region was registered without \
                OnDemand",
            ),
            _ => error,
        })
    }
}
