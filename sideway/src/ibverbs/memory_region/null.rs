//! The region without memory.

use std::sync::Arc;

use rdma_mummy_sys as sys;

use super::{Backing, MemoryRegion, Registration};
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::ibverbs::AccessFlags;
use crate::ibverbs::protection_domain::ProtectionDomain;

impl ProtectionDomain {
    /// `ibv_alloc_null_mr(pd)` — makes a region whose bytes nobody has: what the device writes to its local key is
    /// discarded, and what it reads from there is zero. An entry of it in a list skips a part of a message.
    ///
    /// Safe: no memory is named by it, and peers cannot name it. It can neither be registered anew nor have windows.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the driver has none; else its errno.
    ///
    /// # References
    ///
    /// [ibv_alloc_null_mr(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_null_mr.3.html)
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn alloc_null_mr(self: &Arc<Self>) -> Result<Arc<MemoryRegion>, VerbError> {
        // SAFETY: the PD is live.
        let mr = check_pointer("ibv_alloc_null_mr", unsafe { sys::ibv_alloc_null_mr(self.raw()) })?;
        let registration = Registration::new(0, 0, AccessFlags::empty());
        // SAFETY: just made in this PD, ours alone; it reaches no memory.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, Some(Backing::Null)) }))
    }
}
