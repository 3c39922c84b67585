//! What an EFA device calls an address handle.

use std::mem;

use rdma_mummy_sys::efadv::{self as sys, efadv_ah_attr};

use super::device::explain;
use crate::error::VerbError;
use crate::ffi::check_errno;
use crate::ibverbs::address::AddressHandle;

impl AddressHandle {
    /// `efadv_query_ah(ibvah, attr, inlen)` — the number by which the device knows the way (AHN): completions of receives have
    /// that of their sender in place of a LID ([`slid`](crate::ibverbs::completion::ExtendedWorkCompletion::slid)).
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the device is not one of EFA, or libefa is not installed: the hint tells which.
    ///
    /// # References
    ///
    /// [efadv_query_ah(3)](https://man7.org/linux/man-pages/man3/efadv_query_ah.3.html)
    #[doc(alias = "efadv_query_ah")]
    pub fn efa_ahn(&self) -> Result<u16, VerbError> {
        // SAFETY: all-zero is legal: the struct has integers alone.
        let mut attr: efadv_ah_attr = unsafe { mem::zeroed() };
        let size = size_of::<efadv_ah_attr>() as u32;
        // SAFETY: the handle is live as long as `self`; the library is told the size of the struct.
        let ret = unsafe { sys::efadv_query_ah(self.raw(), &mut attr, size) };
        check_errno("efadv_query_ah", ret)
            .map_err(|error| explain(error, self.protection_domain().device_context()))?;
        Ok(attr.ahn)
    }
}
