//! The null region, which has no memory.

use std::sync::Arc;

use rdma_mummy_sys as sys;

use super::{Backing, MemoryRegion, Registration};
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::ibverbs::AccessFlags;
use crate::ibverbs::protection_domain::ProtectionDomain;

impl ProtectionDomain {
    /// `ibv_alloc_null_mr(pd)` — creates a region without memory. The device discards what it writes to the region, and
    /// reads zeros from it. To skip part of a received message, use a scatter entry with the region's key.
    ///
    /// This method is safe, because the region covers no memory and peers cannot use it. The region cannot be
    /// re-registered, and no windows can be bound to it.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the driver does not support such regions; otherwise the driver's errno.
    ///
    /// # References
    ///
    /// [ibv_alloc_null_mr(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_null_mr.3.html)
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn alloc_null_mr(self: &Arc<Self>) -> Result<Arc<MemoryRegion>, VerbError> {
        // SAFETY: the PD is live.
        let mr = check_pointer("ibv_alloc_null_mr", unsafe { sys::ibv_alloc_null_mr(self.raw()) })?;
        let registration = Registration::new(0, 0, AccessFlags::empty());
        // SAFETY: the region was just created in this PD and is not shared. It covers no memory.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, Some(Backing::Null)) }))
    }
}
