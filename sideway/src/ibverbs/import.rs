//! Importing objects created by another context of the same open device, in this process or in one that sent its
//! descriptor.
//!
//! An import is a second C object for the same kernel object. The creator destroys the kernel object (`ibv_dealloc_pd`,
//! `ibv_dereg_mr`, `ibv_free_dm`); dropping or closing an import only releases the import (`ibv_unimport_*`). After the
//! object is destroyed, its imports are unusable: the kernel and the device reject them. The kernel rejects handles of
//! missing objects, or of objects of another kind.

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

/// Wraps the unimport verbs, which cannot fail.
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
    /// Objects created in it work together with those of the other context.
    ///
    /// Safe: a domain only permits creating objects, and registering memory, which has its own contract. Dropping an
    /// import calls `ibv_unimport_pd`; the domain itself stays.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the driver does not support importing; `ENOENT` or `EINVAL` if the handle is not a domain of
    /// this device's descriptor.
    ///
    /// # References
    ///
    /// [ibv_import_pd(3)](https://man7.org/linux/man-pages/man3/ibv_import_pd.3.html)
    #[doc(alias = "ibv_import_pd")]
    #[doc(alias = "ibv_unimport_pd")]
    pub fn import_pd(self: &Arc<Self>, handle: u32) -> Result<Arc<ProtectionDomain>, VerbError> {
        // SAFETY: the context is open as long as `self`; the kernel checks the handle.
        let pd = check_pointer("ibv_import_pd", unsafe { sys::ibv_import_pd(self.raw(), handle) })?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(pd, unimport_pd, "ibv_unimport_pd") };
        // SAFETY: the domain belongs to this context.
        Ok(Arc::new(unsafe { ProtectionDomain::from_handle(handle, self) }))
    }

    /// `ibv_import_dm(context, dm_handle)` — imports device memory by its [`handle`](DeviceMemory::handle). Dropping an
    /// import calls `ibv_unimport_dm`; the memory itself stays.
    ///
    /// # Errors
    ///
    /// As for [`import_pd`](Self::import_pd); also `EINVAL` if `len` is 0.
    ///
    /// # Safety
    ///
    /// The memory has at least `len` bytes, and is not freed while the import lives: C does not provide the length, by
    /// which copies are checked.
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
        // SAFETY: the context is open as long as `self`; the kernel checks the handle.
        let dm = check_pointer(VERB, unsafe { sys::ibv_import_dm(self.raw(), handle) })?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(dm, unimport_dm, "ibv_unimport_dm") };
        // SAFETY: the memory belongs to this context, and has this length by contract.
        Ok(Arc::new(unsafe { DeviceMemory::from_handle(handle, len, self) }))
    }
}

impl ProtectionDomain {
    /// `ibv_import_mr(pd, mr_handle)` — imports a memory region by its [`handle`](MemoryRegion::handle), with its keys.
    /// The region's address in this process ([`get_ptr`](MemoryRegion::get_ptr) returns zero),
    /// [`iova`](MemoryRegion::iova) and access flags are unknown, so windows cannot be bound to the region. Dropping an
    /// import calls `ibv_unimport_mr`; the registration remains.
    ///
    /// # Errors
    ///
    /// The same errors as [`import_pd`](DeviceContext::import_pd).
    ///
    /// # Safety
    ///
    /// The code that registered the memory trusts this process with its keys, as the contract of
    /// [`reg_mr`](Self::reg_mr) requires: it provided the handle, which is not a guess.
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
        // SAFETY: the region belongs to this domain; the code that registered its memory keeps it.
        Ok(Arc::new(unsafe { MemoryRegion::from_handle(handle, self, Registration::UNKNOWN, None) }))
    }
}

/// Explains that a file is not a device's descriptor.
#[cold]
pub(super) fn explain_device(error: VerbError) -> VerbError {
    let hint = match error.errno().raw() {
        libc::EINVAL | libc::ENODEV => "the descriptor does not belong to an RDMA device of this machine",
        libc::EOPNOTSUPP => "the library or the device's driver does not support importing",
        _ => return error,
    };
    error.with_hint(hint)
}
