//! `struct ibv_pd`: a group of objects that can be used together.

mod handle;

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_pd;

pub(super) use self::handle::{DomainHandle, Parent};
use super::device_context::DeviceContext;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer};

/// A protection domain: memory regions, queue pairs and address handles can be used together only if they belong to the
/// same domain.
#[doc(alias = "ibv_pd")]
#[derive(Debug)]
pub struct ProtectionDomain {
    // This is the first field, so it is dropped first, because the context must outlive it.
    pub(super) handle: DomainHandle,
    pub(super) context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_alloc_pd(context)` — allocates a protection domain.
    ///
    /// # Errors
    ///
    /// Returns the errno of the driver, usually `ENOMEM`.
    ///
    /// # References
    ///
    /// [ibv_alloc_pd(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_pd.3.html)
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(self: &Arc<Self>) -> Result<Arc<ProtectionDomain>, VerbError> {
        // SAFETY: the context is open as long as `self` lives.
        let pd = check_pointer("ibv_alloc_pd", unsafe { sys::ibv_alloc_pd(self.raw()) })?;
        // SAFETY: the domain was just allocated and is not shared, and ibv_dealloc_pd frees it.
        let handle = unsafe { Handle::new(pd, sys::ibv_dealloc_pd, "ibv_dealloc_pd") };
        Ok(Arc::new(ProtectionDomain { handle: handle.into(), context: Arc::clone(self) }))
    }
}

impl ProtectionDomain {
    /// Wraps a domain with the verb that releases it.
    ///
    /// # Safety
    ///
    /// The object was created in `context`.
    pub(crate) unsafe fn from_handle(handle: Handle<ibv_pd>, context: &Arc<DeviceContext>) -> Self {
        Self { handle: handle.into(), context: Arc::clone(context) }
    }

    /// `ibv_dealloc_pd(pd)` — frees the domain. This method returns an error of the verb, whereas drop only logs it.
    /// For an imported domain, this only releases the import (`ibv_unimport_pd`).
    ///
    /// Take a domain out of its `Arc` with [`Arc::into_inner`], which succeeds once all its objects are dropped.
    ///
    /// # Errors
    ///
    /// The driver's errno; the domain is then leaked.
    #[doc(alias = "ibv_dealloc_pd")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the kernel's number of the domain. A process that shares the device's descriptor uses this number to
    /// [import](DeviceContext::import_pd) the domain.
    pub fn handle(&self) -> u32 {
        // SAFETY: the domain is live, and the field does not change.
        unsafe { (*self.raw()).handle }
    }

    /// Returns the domain's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use it only while `self` lives, and do not deallocate it.
    pub unsafe fn pd(&self) -> NonNull<ibv_pd> {
        self.handle.as_non_null()
    }

    /// Returns the C object for this crate.
    pub(crate) fn raw(&self) -> *mut ibv_pd {
        self.handle.as_ptr()
    }
}
