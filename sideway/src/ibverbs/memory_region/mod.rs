//! `struct ibv_mr`: memory that the device may touch, and the keys that name it.

mod key;

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_mr;

pub use self::key::{LocalKey, RemoteKey};
use super::protection_domain::ProtectionDomain;
use crate::error::VerbError;
use crate::ffi::Handle;

/// A registered range of memory. It does not own the memory: see the contract of [`ProtectionDomain::reg_mr`].
#[doc(alias = "ibv_mr")]
#[derive(Debug)]
pub struct MemoryRegion {
    // Dropped first: the domain must outlive it.
    handle: Handle<ibv_mr>,
    pd: Arc<ProtectionDomain>,
}

impl MemoryRegion {
    /// Takes a fresh registration over.
    ///
    /// # Safety
    ///
    /// `mr` is live, was made in `pd`, and is nobody else's.
    pub(crate) unsafe fn from_raw(mr: NonNull<ibv_mr>, pd: &Arc<ProtectionDomain>) -> Self {
        // SAFETY: the caller's promise; ibv_dereg_mr is the verb for it.
        let handle = unsafe { Handle::new(mr, sys::ibv_dereg_mr, "ibv_dereg_mr") };
        Self { handle, pd: Arc::clone(pd) }
    }

    /// The key that local requests name the region by.
    #[inline]
    pub fn lkey(&self) -> LocalKey {
        // SAFETY: the MR is live as long as the handle, and libibverbs writes this field only when it makes the MR.
        LocalKey::from_raw(unsafe { (*self.handle.as_ptr()).lkey })
    }

    /// The key that peers name the region by.
    #[inline]
    pub fn rkey(&self) -> RemoteKey {
        // SAFETY: as for `lkey`.
        RemoteKey::from_raw(unsafe { (*self.handle.as_ptr()).rkey })
    }

    /// Bytes.
    #[inline]
    pub fn region_len(&self) -> usize {
        // SAFETY: as for `lkey`.
        unsafe { (*self.handle.as_ptr()).length }
    }

    /// The address of the first byte in this process.
    #[inline]
    pub fn get_ptr(&self) -> usize {
        // SAFETY: as for `lkey`.
        unsafe { (*self.handle.as_ptr()).addr as usize }
    }

    /// The domain that the region is in.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and not deregistered.
    pub unsafe fn mr(&self) -> NonNull<ibv_mr> {
        self.handle.as_non_null()
    }

    /// `ibv_dereg_mr(mr)` — ends the registration and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// `EBUSY` where a memory window is bound to the region; the registration is leaked then.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }
}
