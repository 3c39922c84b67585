//! `struct ibv_mr`: memory that the device may access, and its keys.
//!
//! | whose memory | registered by | kept valid by |
//! |---|---|---|
//! | the region's own | [`create_mr_builder`](ProtectionDomain::create_mr_builder), [`reg_owned_mr`](ProtectionDomain::reg_owned_mr) | [`OwnedMemoryRegion`]; safe |
//! | the caller's | [`reg_mr`](ProtectionDomain::reg_mr), [`reg_mr_iova`](ProtectionDomain::reg_mr_iova), [`reg_mr_ex`](ProtectionDomain::reg_mr_ex) | the caller; unsafe |
//! | the whole process | [`reg_implicit_odp_mr`](ProtectionDomain::reg_implicit_odp_mr) | the caller; unsafe |
//! | a dma-buf, such as a GPU's | [`reg_dmabuf_mr`](ProtectionDomain::reg_dmabuf_mr) | the caller; unsafe |
//! | the device's | [`reg_dm_mr`](ProtectionDomain::reg_dm_mr) | the region; safe |
//! | the driver's | [`reg_buf_mr`](ProtectionDomain::reg_buf_mr) | the region; safe |
//! | none | [`alloc_null_mr`](ProtectionDomain::alloc_null_mr) | safe |

mod advise;
mod copy;
pub(super) mod entry;
mod huge_pages;
mod key;
mod null;
mod owned;
mod owned_builder;
mod pages;
mod register;
mod register_ex;
mod register_owned;
mod registration;
mod reregister;

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_mr;

pub use self::advise::{AdviseFlags, MemoryAdvice};
use self::entry::ScatterGatherEntry;
pub use self::huge_pages::{HugePageSize, HugePages};
pub use self::key::{LocalKey, RemoteKey};
pub use self::owned::{OwnedMemoryRegion, RegionAccessError};
pub use self::owned_builder::MemoryRegionBuilder;
pub use self::register_ex::RegistrationAttributes;
pub(crate) use self::registration::{Backing, Registration};
pub use self::reregister::{ReregisterError, SurvivingRegion};
use super::AccessFlags;
use super::protection_domain::ProtectionDomain;
use crate::error::VerbError;
use crate::ffi::Handle;

/// A registered range of memory. It may also own the memory: see the [module](self).
#[doc(alias = "ibv_mr")]
#[derive(Debug)]
pub struct MemoryRegion {
    mr: NonNull<ibv_mr>,
    // The order of the fields is the order in which they are dropped: the registration ends, then the memory is freed,
    // then the domain is released.
    /// `None` once the registration is being ended.
    handle: Option<Handle<ibv_mr>>,
    /// The memory that the device accesses through the region, if this crate keeps it.
    backing: Option<Backing>,
    registration: Registration,
    pd: Arc<ProtectionDomain>,
}

// SAFETY: the handle is `Send` and `Sync` (see `Handle`). The C object is read through `&self` and written only through
// `&mut self` (`rereg_mr`). The types of the backing are `Send` and `Sync` (asserted below).
unsafe impl Send for MemoryRegion {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for MemoryRegion {}

const _: () = {
    const fn is_shareable<T: Send + Sync>() {}
    is_shareable::<Option<Backing>>();
    is_shareable::<Arc<ProtectionDomain>>();
};

impl MemoryRegion {
    /// Takes ownership of a new registration.
    ///
    /// # Safety
    ///
    /// `mr` is live, was created in `pd`, and has no other owner. It covers no memory of this crate except `backing`.
    /// `registration` contains the attributes of `mr`.
    pub(crate) unsafe fn from_raw(
        mr: NonNull<ibv_mr>,
        pd: &Arc<ProtectionDomain>,
        registration: Registration,
        backing: Option<Backing>,
    ) -> Self {
        // SAFETY: by the contract of this function, `mr` is live and has no other owner. ibv_dereg_mr destroys it.
        let handle = unsafe { Handle::new(mr, sys::ibv_dereg_mr, "ibv_dereg_mr") };
        // SAFETY: the caller upholds the contract of this function.
        unsafe { Self::from_handle(handle, pd, registration, backing) }
    }

    /// Takes ownership of a new registration, like [`from_raw`](Self::from_raw), but with another verb that ends the
    /// registration.
    ///
    /// # Safety
    ///
    /// The contract of [`from_raw`](Self::from_raw) applies.
    pub(crate) unsafe fn from_handle(
        handle: Handle<ibv_mr>,
        pd: &Arc<ProtectionDomain>,
        registration: Registration,
        backing: Option<Backing>,
    ) -> Self {
        Self { mr: handle.as_non_null(), handle: Some(handle), backing, registration, pd: Arc::clone(pd) }
    }

    /// Returns the key for local requests.
    #[inline]
    pub fn lkey(&self) -> LocalKey {
        // SAFETY: the MR is live as long as `self` lives. libibverbs writes this field only when it creates the MR, and
        // in ibv_rereg_mr, for which this crate requires `&mut self`.
        LocalKey::from_raw(unsafe { (*self.raw()).lkey })
    }

    /// Returns the key for the peer's requests.
    #[inline]
    pub fn rkey(&self) -> RemoteKey {
        // SAFETY: see `lkey`.
        RemoteKey::from_raw(unsafe { (*self.raw()).rkey })
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn region_len(&self) -> usize {
        // SAFETY: see `lkey`.
        unsafe { (*self.raw()).length }
    }

    /// Returns the address of the first byte in this process, or zero if the memory is not mapped in this process.
    #[inline]
    pub fn get_ptr(&self) -> usize {
        // SAFETY: see `lkey`.
        unsafe { (*self.raw()).addr as usize }
    }

    /// Returns the address of the first byte in local and remote requests. Returns `None` if C does not provide it,
    /// which is the case for an imported region and with [`ZeroBased`](super::AccessFlags::ZeroBased).
    #[inline]
    pub fn iova(&self) -> Option<u64> {
        self.registration.iova
    }

    /// Returns the kernel's number of the region. A process that shares the device's descriptor uses this number to
    /// [import](ProtectionDomain::import_mr) the region.
    pub fn handle(&self) -> u32 {
        // SAFETY: see `lkey`.
        unsafe { (*self.raw()).handle }
    }

    /// Returns the protection domain.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives. Do not deregister or re-register it.
    pub unsafe fn mr(&self) -> NonNull<ibv_mr> {
        self.mr
    }

    /// Returns the reason why no window with this access can be bound to `length` bytes at `addr`, if there is one.
    #[inline]
    pub(crate) fn refuses_window(&self, addr: u64, length: u64, access: AccessFlags) -> Option<&'static str> {
        if self.is_null_region() {
            return Some("windows cannot be bound to the null region");
        }
        self.registration.refuses_window(addr, length, access)
    }

    /// Whether this is the null region, which some verbs must not receive.
    pub(crate) fn is_null_region(&self) -> bool {
        matches!(self.backing, Some(Backing::Null))
    }

    /// Returns the C object for this crate.
    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_mr {
        self.mr.as_ptr()
    }

    /// `ibv_dereg_mr(mr)` — ends the registration. This method returns an error of the verb, whereas drop only logs it.
    /// For an imported region, this only releases the import (`ibv_unimport_mr`).
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` or, on soft-RoCE, `EINVAL` if a memory window is bound to the region. The registration is then
    /// leaked, because the device may still use it. The memory that the region owns is leaked too.
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    #[doc(alias = "ibv_dereg_mr")]
    pub fn close(mut self) -> Result<(), VerbError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        // If the verb fails, the device may continue to access the memory, so the memory is leaked.
        handle.close().inspect_err(|_| mem::forget(self.backing.take()))
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            rdma_mummy_sys::log!(warn, "{error}; the object is leaked");
        }
    }
}
