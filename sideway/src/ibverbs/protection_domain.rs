//! `struct ibv_pd`: what may be used together.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_pd;

use super::device_context::DeviceContext;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer};

/// A protection domain: memory regions, queue pairs and address handles work together only within one.
#[doc(alias = "ibv_pd")]
#[derive(Debug)]
pub struct ProtectionDomain {
    // Dropped first: the context must outlive it.
    handle: Handle<ibv_pd>,
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_alloc_pd(context)` — allocates a protection domain.
    ///
    /// # Errors
    ///
    /// The errno of the driver, `ENOMEM` mostly.
    ///
    /// # References
    ///
    /// [ibv_alloc_pd(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_pd.3.html)
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(self: &Arc<Self>) -> Result<Arc<ProtectionDomain>, VerbError> {
        // SAFETY: the context is open as long as `self`.
        let pd = check_pointer("ibv_alloc_pd", unsafe { sys::ibv_alloc_pd(self.raw()) })?;
        // SAFETY: just allocated, ours alone, and ibv_dealloc_pd is its verb.
        let handle = unsafe { Handle::new(pd, sys::ibv_dealloc_pd, "ibv_dealloc_pd") };
        Ok(Arc::new(ProtectionDomain { handle, context: Arc::clone(self) }))
    }
}

impl ProtectionDomain {
    /// A domain, and how it ends.
    ///
    /// # Safety
    ///
    /// The object was made in `context`.
    pub(crate) unsafe fn from_handle(handle: Handle<ibv_pd>, context: &Arc<DeviceContext>) -> Self {
        Self { handle, context: Arc::clone(context) }
    }

    /// `ibv_dealloc_pd(pd)` — frees the domain and reports, where dropping only logs. An imported domain
    /// is given back (`ibv_unimport_pd`) and stays.
    ///
    /// A domain in an `Arc` is taken out of it with [`Arc::into_inner`], which succeeds once everything that was made in it
    /// has gone.
    ///
    /// # Errors
    ///
    /// The driver's errno; the domain is leaked then.
    #[doc(alias = "ibv_dealloc_pd")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// The kernel's number for the domain, by which whoever shares the device's descriptor
    /// [imports](DeviceContext::import_pd) it.
    pub fn handle(&self) -> u32 {
        // SAFETY: the domain is live, and the field does not change.
        unsafe { (*self.raw()).handle }
    }

    /// The device that the domain is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and not deallocated.
    pub unsafe fn pd(&self) -> NonNull<ibv_pd> {
        self.handle.as_non_null()
    }

    /// The C object, for this crate.
    pub(crate) fn raw(&self) -> *mut ibv_pd {
        self.handle.as_ptr()
    }
}
