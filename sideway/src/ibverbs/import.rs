//! Importing objects that another context of the same open device created. The other context may be in this process, or
//! in another process that sent its descriptor to this one.
//!
//! An import is a second C object for the same kernel object. The creator destroys the kernel object (`ibv_dealloc_pd`,
//! `ibv_dereg_mr`, `ibv_free_dm`); dropping or closing an import only releases the import (`ibv_unimport_*`). After the
//! object is destroyed, its imports are unusable, because the kernel and the device reject them. The kernel also
//! rejects a handle that names no object, or an object of another kind.

use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_dm, ibv_mr, ibv_pd};

use super::device_context::DeviceContext;
use super::device_memory::DeviceMemory;
use super::memory_region::{MemoryRegion, Registration};
use super::protection_domain::ProtectionDomain;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer};

/// Wraps the unimport verbs, which cannot fail, as functions that return 0.
macro_rules! as_destroy {
    ($($name:ident($Object:ty) => $verb:path;)+) => {$(
        unsafe extern "C" fn $name(object: *mut $Object) -> c_int {
            // SAFETY: the caller upholds the contract of this function.
            unsafe { $verb(object) };
            0
        }
    )+};
}

as_destroy! {
    unimport_pd(ibv_pd) => sys::ibv_unimport_pd;
    unimport_mr(ibv_mr) => sys::ibv_unimport_mr;
    unimport_dm(ibv_dm) => sys::ibv_unimport_dm;
}

impl DeviceContext {
    /// `ibv_import_pd(context, pd_handle)` — imports a protection domain by its [`handle`](ProtectionDomain::handle).
    /// Objects created in the imported domain can be used together with objects that the other context created in it.
    ///
    /// This method is safe, because a domain only permits creating objects and registering memory, and registering
    /// memory has its own contract. Dropping an import calls `ibv_unimport_pd`; the domain itself continues to exist.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the driver does not support importing. Returns `ENOENT` or `EINVAL` if the handle does
    /// not name a domain of this device's descriptor.
    ///
    /// # References
    ///
    /// [ibv_import_pd(3)](https://man7.org/linux/man-pages/man3/ibv_import_pd.3.html)
    #[doc(alias = "ibv_import_pd")]
    #[doc(alias = "ibv_unimport_pd")]
    pub fn import_pd(self: &Arc<Self>, handle: u32) -> Result<Arc<ProtectionDomain>, VerbError> {
        // SAFETY: the context is open as long as `self` lives, and the kernel checks the handle.
        let pd = check_pointer("ibv_import_pd", unsafe { sys::ibv_import_pd(self.raw(), handle) })?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(pd, unimport_pd, "ibv_unimport_pd") };
        // SAFETY: the domain belongs to this context.
        Ok(Arc::new(unsafe { ProtectionDomain::from_handle(handle, self) }))
    }

    /// `ibv_import_dm(context, dm_handle)` — imports device memory by its [`handle`](DeviceMemory::handle). Dropping an
    /// import calls `ibv_unimport_dm`; the memory itself continues to exist.
    ///
    /// # Errors
    ///
    /// The errors are those of [`import_pd`](Self::import_pd). In addition, returns `EINVAL` if `len` is 0.
    ///
    /// # Safety
    ///
    /// The memory has at least `len` bytes and is not freed while the import lives. This crate checks copies against
    /// `len`, because C does not provide the length.
    ///
    /// # References
    ///
    /// [ibv_import_dm(3)](https://man7.org/linux/man-pages/man3/ibv_import_dm.3.html)
    #[doc(alias = "ibv_import_dm")]
    #[doc(alias = "ibv_unimport_dm")]
    pub unsafe fn import_dm(self: &Arc<Self>, handle: u32, len: usize) -> Result<Arc<DeviceMemory>, VerbError> {
        const VERB: &str = "ibv_import_dm";
        if len == 0 {
            return Err(VerbError::invalid(VERB, "the length is 0; pass the length of the memory"));
        }
        // SAFETY: the context is open as long as `self` lives, and the kernel checks the handle.
        let dm = check_pointer(VERB, unsafe { sys::ibv_import_dm(self.raw(), handle) })?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(dm, unimport_dm, "ibv_unimport_dm") };
        // SAFETY: the memory belongs to this context, and has this length by contract.
        Ok(Arc::new(unsafe { DeviceMemory::from_handle(handle, len, self) }))
    }
}

impl ProtectionDomain {
    /// `ibv_import_mr(pd, mr_handle)` — imports a memory region by its [`handle`](MemoryRegion::handle), with its keys.
    /// The [`iova`](MemoryRegion::iova) and the access flags of the region are unknown, so windows cannot be bound to
    /// it. Its address in this process is also unknown, so [`get_ptr`](MemoryRegion::get_ptr) returns zero. Dropping an
    /// import calls `ibv_unimport_mr`; the registration continues to exist.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`import_pd`](DeviceContext::import_pd).
    ///
    /// # Safety
    ///
    /// The code that registered the memory trusts this process with the keys, as the contract of
    /// [`reg_mr`](Self::reg_mr) requires. So `handle` must be a handle which that code provided, and not a guess.
    ///
    /// # References
    ///
    /// [ibv_import_mr(3)](https://man7.org/linux/man-pages/man3/ibv_import_mr.3.html)
    #[doc(alias = "ibv_import_mr")]
    #[doc(alias = "ibv_unimport_mr")]
    pub unsafe fn import_mr(self: &Arc<Self>, handle: u32) -> Result<Arc<MemoryRegion>, VerbError> {
        // SAFETY: the domain is live; the kernel checks the handle.
        let mr = check_pointer("ibv_import_mr", unsafe { sys::ibv_import_mr(self.raw(), handle) })?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(mr, unimport_mr, "ibv_unimport_mr") };
        // SAFETY: the region belongs to this domain. The code that registered the memory keeps it valid.
        Ok(Arc::new(unsafe { MemoryRegion::from_handle(handle, self, Registration::UNKNOWN, None) }))
    }
}
