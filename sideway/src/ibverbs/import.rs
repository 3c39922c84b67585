//! Objects that another context of the same open device made: of another process that passed its descriptor on, or of this
//! one.
//!
//! An import is a second C object for one object of the kernel. Who made that ends it (`ibv_dealloc_pd`, `ibv_dereg_mr`,
//! `ibv_free_dm`); an import only gives itself back (`ibv_unimport_*`), when it is dropped or closed. When the object has
//! ended, an import of it is of no use any more: the kernel and the device refuse what names it. A handle of no object, or
//! of one of another kind, is refused by the kernel.

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

/// The verbs that give imports back cannot fail.
macro_rules! as_destroy {
    ($($name:ident($Object:ty) => $verb:path;)+) => {$(
        unsafe extern "C" fn $name(object: *mut $Object) -> c_int {
            // SAFETY: the caller's promise.
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
    /// What is made in it belongs together with what the other context made in it.
    ///
    /// Safe: what a domain lets be done is to register memory, which is promised for each, and to make objects. Dropping
    /// an import calls `ibv_unimport_pd`; the domain itself stays.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the driver imports nothing; `ENOENT` or `EINVAL` for a handle that is of no domain of this
    /// device's descriptor.
    ///
    /// # References
    ///
    /// [ibv_import_pd(3)](https://man7.org/linux/man-pages/man3/ibv_import_pd.3.html)
    #[doc(alias = "ibv_import_pd")]
    #[doc(alias = "ibv_unimport_pd")]
    pub fn import_pd(self: &Arc<Self>, handle: u32) -> Result<Arc<ProtectionDomain>, VerbError> {
        // SAFETY: the context is open as long as `self`; the kernel checks the handle.
        let pd = check_pointer("ibv_import_pd", unsafe { sys::ibv_import_pd(self.raw(), handle) })?;
        // SAFETY: just made, ours alone, and this is its verb.
        let handle = unsafe { Handle::new(pd, unimport_pd, "ibv_unimport_pd") };
        // SAFETY: the domain is of this context.
        Ok(Arc::new(unsafe { ProtectionDomain::from_handle(handle, self) }))
    }

    /// `ibv_import_dm(context, dm_handle)` — imports device memory by its [`handle`](DeviceMemory::handle). Dropping an
    /// import calls `ibv_unimport_dm`; the memory itself stays.
    ///
    /// # Errors
    ///
    /// As [`import_pd`](Self::import_pd); `EINVAL` also for a length of 0.
    ///
    /// # Safety
    ///
    /// The memory of the handle has at least `len` bytes, and is not freed while the import lives: C does not tell its
    /// length, by which copies are checked.
    ///
    /// # References
    ///
    /// [ibv_import_dm(3)](https://man7.org/linux/man-pages/man3/ibv_import_dm.3.html)
    #[doc(alias = "ibv_import_dm")]
    #[doc(alias = "ibv_unimport_dm")]
    pub unsafe fn import_dm(self: &Arc<Self>, handle: u32, len: usize) -> Result<Arc<DeviceMemory>, VerbError> {
        const VERB: &str = "ibv_import_dm";
        if len == 0 {
            return Err(VerbError::invalid(VERB, "the length is 0"));
        }
        // SAFETY: the context is open as long as `self`; the kernel checks the handle.
        let dm = check_pointer(VERB, unsafe { sys::ibv_import_dm(self.raw(), handle) })?;
        // SAFETY: just made, ours alone, and this is its verb.
        let handle = unsafe { Handle::new(dm, unimport_dm, "ibv_unimport_dm") };
        // SAFETY: the memory is of this context, and of that length by contract.
        Ok(Arc::new(unsafe { DeviceMemory::from_handle(handle, len, self) }))
    }
}

impl ProtectionDomain {
    /// `ibv_import_mr(pd, mr_handle)` — imports a memory region by its [`handle`](MemoryRegion::handle), and so learns its
    /// keys. Its address in this process is not known ([`get_ptr`](MemoryRegion::get_ptr) gives zero), nor is its
    /// [`iova`](MemoryRegion::iova), nor what it allows, so that no window is bound to it. Dropping an import calls
    /// `ibv_unimport_mr`; the registration stands.
    ///
    /// # Errors
    ///
    /// As [`import_pd`](DeviceContext::import_pd).
    ///
    /// # Safety
    ///
    /// Who registered the memory trusts this process with its keys, as who calls
    /// [`reg_mr`](Self::reg_mr) has to: the handle came from him, and is not a guess.
    ///
    /// # References
    ///
    /// [ibv_import_mr(3)](https://man7.org/linux/man-pages/man3/ibv_import_mr.3.html)
    #[doc(alias = "ibv_import_mr")]
    #[doc(alias = "ibv_unimport_mr")]
    pub unsafe fn import_mr(self: &Arc<Self>, handle: u32) -> Result<Arc<MemoryRegion>, VerbError> {
        // SAFETY: the domain is live; the kernel checks the handle.
        let mr = check_pointer("ibv_import_mr", unsafe { sys::ibv_import_mr(self.raw(), handle) })?;
        // SAFETY: just made, ours alone, and this is its verb.
        let handle = unsafe { Handle::new(mr, unimport_mr, "ibv_unimport_mr") };
        // SAFETY: the region is of this domain; its memory is kept by whoever registered it.
        Ok(Arc::new(unsafe { MemoryRegion::from_handle(handle, self, Registration::UNKNOWN, None) }))
    }
}

/// Says that a file is no descriptor of a device.
#[cold]
pub(super) fn explain_device(error: VerbError) -> VerbError {
    let hint = match error.errno().raw() {
        libc::EINVAL | libc::ENODEV => "the descriptor is of no RDMA device of this machine",
        libc::EOPNOTSUPP => "the library or the driver of the device imports nothing",
        _ => return error,
    };
    error.with_hint(hint)
}
