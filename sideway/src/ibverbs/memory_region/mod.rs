//! `struct ibv_mr`: memory that the device may touch, and the keys that name it.
//!
//! | memory | how it is registered | who keeps it |
//! |---|---|---|
//! | the region's own | [`create_mr_builder`](ProtectionDomain::create_mr_builder), [`reg_owned_mr`](ProtectionDomain::reg_owned_mr) | [`OwnedMemoryRegion`]; safe |
//! | the caller's | [`reg_mr`](ProtectionDomain::reg_mr), [`reg_mr_iova`](ProtectionDomain::reg_mr_iova), [`reg_mr_ex`](ProtectionDomain::reg_mr_ex) | the caller, who promises it: unsafe |
//! | the whole process | [`reg_implicit_odp_mr`](ProtectionDomain::reg_implicit_odp_mr) | unsafe |
//! | a dma-buf, such as a GPU's | [`reg_dmabuf_mr`](ProtectionDomain::reg_dmabuf_mr) | the caller: unsafe |
//! | the device's | [`reg_dm_mr`](ProtectionDomain::reg_dm_mr) | the region holds it; safe |
//! | the driver's | [`reg_buf_mr`](ProtectionDomain::reg_buf_mr) | the region holds it; safe |
//! | none | [`alloc_null_mr`](ProtectionDomain::alloc_null_mr) | safe |

mod advise;
mod copy;
mod huge_pages;
mod key;
mod null;
mod owned;
mod owned_builder;
mod pages;
mod register;
mod register_ex;
mod registration;
mod reregister;

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_mr;

pub use self::advise::{AdviseFlags, MemoryAdvice};
pub use self::huge_pages::{HugePageSize, HugePages};
pub use self::key::{LocalKey, RemoteKey};
pub use self::owned::{OwnedMemoryRegion, RegionAccessError};
pub use self::owned_builder::MemoryRegionBuilder;
pub(crate) use self::register::explain_registration;
pub use self::register_ex::RegistrationAttributes;
pub(crate) use self::registration::{Backing, Registration};
pub use self::reregister::{ReregisterError, SurvivingRegion};
use super::AccessFlags;
use super::protection_domain::ProtectionDomain;
use crate::error::VerbError;
use crate::ffi::Handle;

/// A registered range of memory. Whether it keeps the memory too depends on what it was made of: see the
/// [module](self).
#[doc(alias = "ibv_mr")]
#[derive(Debug)]
pub struct MemoryRegion {
    mr: NonNull<ibv_mr>,
    // Dropped in this order: the registration ends, then its memory goes, then the domain.
    /// Taken by who ends the registration.
    handle: Option<Handle<ibv_mr>>,
    /// What the device reaches through the region, where that is this crate's to keep.
    backing: Option<Backing>,
    registration: Registration,
    pd: Arc<ProtectionDomain>,
}

// SAFETY: the handle may move and be shared (see there), the pointer is read through alone (`&self`) or written by who has
// the region to himself (`rereg_mr`), and the backing is of types that are Send and Sync (asserted below).
unsafe impl Send for MemoryRegion {}
// SAFETY: as for Send.
unsafe impl Sync for MemoryRegion {}

const _: () = {
    const fn is_shareable<T: Send + Sync>() {}
    is_shareable::<Option<Backing>>();
    is_shareable::<Arc<ProtectionDomain>>();
};

impl MemoryRegion {
    /// Takes a fresh registration over.
    ///
    /// # Safety
    ///
    /// `mr` is live, was made in `pd`, and is nobody else's; it reaches no other memory of this crate's than `backing`.
    /// `registration` is what it was registered with.
    pub(crate) unsafe fn from_raw(
        mr: NonNull<ibv_mr>,
        pd: &Arc<ProtectionDomain>,
        registration: Registration,
        backing: Option<Backing>,
    ) -> Self {
        // SAFETY: the caller's promise; ibv_dereg_mr is the verb for it.
        let handle = unsafe { Handle::new(mr, sys::ibv_dereg_mr, "ibv_dereg_mr") };
        // SAFETY: the caller's promise.
        unsafe { Self::from_handle(handle, pd, registration, backing) }
    }

    /// As [`from_raw`](Self::from_raw), with another way to end.
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn from_handle(
        handle: Handle<ibv_mr>,
        pd: &Arc<ProtectionDomain>,
        registration: Registration,
        backing: Option<Backing>,
    ) -> Self {
        Self { mr: handle.as_non_null(), handle: Some(handle), backing, registration, pd: Arc::clone(pd) }
    }

    /// The key that local requests name the region by.
    #[inline]
    pub fn lkey(&self) -> LocalKey {
        // SAFETY: the MR is live as long as `self`, and libibverbs writes this field only when it makes the MR and in
        // ibv_rereg_mr, which takes `&mut self`.
        LocalKey::from_raw(unsafe { (*self.raw()).lkey })
    }

    /// The key that peers name the region by.
    #[inline]
    pub fn rkey(&self) -> RemoteKey {
        // SAFETY: as for `lkey`.
        RemoteKey::from_raw(unsafe { (*self.raw()).rkey })
    }

    /// Bytes.
    #[inline]
    pub fn region_len(&self) -> usize {
        // SAFETY: as for `lkey`.
        unsafe { (*self.raw()).length }
    }

    /// The address of the first byte in this process; zero where the memory is not mapped in it.
    #[inline]
    pub fn get_ptr(&self) -> usize {
        // SAFETY: as for `lkey`.
        unsafe { (*self.raw()).addr as usize }
    }

    /// The address by which requests, of this side and of peers, name the first byte; `None` where C does not
    /// tell: for an imported region, and with [`ZeroBased`](super::AccessFlags::ZeroBased).
    #[inline]
    pub fn iova(&self) -> Option<u64> {
        self.registration.iova
    }

    /// The kernel's number for the region, by which whoever shares the device's descriptor
    /// [imports](ProtectionDomain::import_mr) it.
    pub fn handle(&self) -> u32 {
        // SAFETY: as for `lkey`.
        unsafe { (*self.raw()).handle }
    }

    /// The domain that the region is in.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and neither deregistered nor registered anew.
    pub unsafe fn mr(&self) -> NonNull<ibv_mr> {
        self.mr
    }

    /// Why no window with this access can be bound to `length` bytes at `addr`.
    #[inline]
    pub(crate) fn refuses_window(&self, addr: u64, length: u64, access: AccessFlags) -> Option<&'static str> {
        if self.is_null_region() {
            return Some("the null region has no windows");
        }
        self.registration.refuses_window(addr, length, access)
    }

    /// Whether this is the null region, which some verbs must not see.
    pub(crate) fn is_null_region(&self) -> bool {
        matches!(self.backing, Some(Backing::Null))
    }

    /// The C object, for this crate.
    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_mr {
        self.mr.as_ptr()
    }

    /// `ibv_dereg_mr(mr)` — ends the registration and reports, where dropping only logs. An imported region is given back
    /// (`ibv_unimport_mr`), and the registration stands.
    ///
    /// # Errors
    ///
    /// `EBUSY` or, of soft-RoCE, `EINVAL` where a memory window is bound to the region. The registration is leaked then,
    /// and with it memory that the region owns: the device may still use it.
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
        // The device may reach the memory for ever, where it does not say that it will not.
        handle.close().inspect_err(|_| mem::forget(self.backing.take()))
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            log::warn!("{error}; the object is leaked");
        }
    }
}
