//! The null region, which has no memory.

use std::sync::Arc;

use rdma_mummy_sys as sys;

use super::{Backing, MemoryRegion, Registration};
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::ibverbs::AccessFlags;
use crate::ibverbs::protection_domain::ProtectionDomain;

impl ProtectionDomain {
    /// `ibv_alloc_null_mr(pd)` — creates a region without memory: writes to its local key are discarded, and reads
    /// return zeros. To skip part of a message, use a list entry with its key.
    ///
    /// Safe: the region names no memory, and peers cannot use it. The region cannot be re-registered or have windows.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the driver does not support such regions; otherwise the driver's errno.
    ///
    /// # References
    ///
    /// [ibv_alloc_null_mr(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_null_mr.3.html)
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn alloc_null_mr(self: &Arc<Self>) -> Result<Arc<MemoryRegion>, VerbError> {
        // SAFETY: the PD is live.
        let mr = check_pointer("ibv_alloc_null_mr", unsafe { sys::ibv_alloc_null_mr(self.raw()) })?;
        let registration = Registration::new(0, 0, AccessFlags::empty());
        // SAFETY: just created in this PD, and not shared; it covers no memory.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, Some(Backing::Null)) }))
    }
}
