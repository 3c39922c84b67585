//! Building regions that own their memory.

use std::sync::Arc;

use rdma_mummy_sys as sys;

use super::pages::Pages;
use super::register::{explain_registration, flags};
use super::{Backing, HugePages, MemoryRegion, OwnedMemoryRegion, Registration};
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::ibverbs::AccessFlags;
use crate::ibverbs::protection_domain::ProtectionDomain;

/// Builds regions that own their memory. The length is required. By default the access is
/// [`LocalWrite`](AccessFlags::LocalWrite), and the memory consists of pages of the system's default size.
#[derive(Debug)]
pub struct MemoryRegionBuilder {
    pd: Arc<ProtectionDomain>,
    len: usize,
    access: AccessFlags,
    huge_pages: HugePages,
}

impl ProtectionDomain {
    /// Creates a builder of regions that own their memory, in this domain.
    pub fn create_mr_builder(self: &Arc<Self>) -> MemoryRegionBuilder {
        MemoryRegionBuilder {
            pd: Arc::clone(self),
            len: 0,
            access: AccessFlags::LocalWrite,
            huge_pages: HugePages::System,
        }
    }

    /// Allocates `len` zeroed bytes and registers them, with the defaults of
    /// [`create_mr_builder`](Self::create_mr_builder).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`MemoryRegionBuilder::build`].
    pub fn reg_owned_mr(self: &Arc<Self>, len: usize, access: AccessFlags) -> Result<OwnedMemoryRegion, VerbError> {
        self.create_mr_builder().setup_length(len).setup_access(access).build()
    }
}

impl MemoryRegionBuilder {
    /// Sets the length in bytes, which must be at least one.
    pub fn setup_length(&mut self, len: usize) -> &mut Self {
        self.len = len;
        self
    }

    /// Sets the access rights of the device and of peers. [`AccessFlags::ZeroBased`] is rejected, because drivers do
    /// not agree on the addresses that requests then use.
    pub fn setup_access(&mut self, access: AccessFlags) -> &mut Self {
        self.access = access;
        self
    }

    /// Sets which pages the memory consists of.
    pub fn setup_huge_pages(&mut self, huge_pages: HugePages) -> &mut Self {
        self.huge_pages = huge_pages;
        self
    }

    /// `mmap(2)`, `ibv_reg_mr(pd, addr, length, access)` — allocates zeroed memory and registers it.
    ///
    /// # Errors
    ///
    /// - Errors of `mmap`: `EINVAL` if the length is zero, `ENOMEM` if there is too little memory or there are too few
    ///   huge pages.
    /// - Errors of `ibv_reg_mr`, which are those of [`reg_mr`](ProtectionDomain::reg_mr). The memory is then freed.
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html),
    /// [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html)
    pub fn build(&self) -> Result<OwnedMemoryRegion, VerbError> {
        const VERB: &str = "ibv_reg_mr";
        if self.access.contains(AccessFlags::ZeroBased) {
            return Err(VerbError::invalid(
                VERB,
                "ZeroBased is not supported here; use reg_mr_iova with an I/O \
                address of 0",
            ));
        }
        let pages = Pages::new(self.len, self.huge_pages)?;
        let first = pages.first();
        // SAFETY: the domain is live. The bytes stay mapped as long as `pages` lives, and the region drops `pages` only
        // after its registration has ended. OwnedMemoryRegion returns references only if no peer may access the bytes
        // in conflict with them. In all other cases, a peer can only change or read bytes, for which every value is
        // valid.
        let mr = unsafe { sys::ibv_reg_mr(self.pd.raw(), first.as_ptr().cast(), self.len, flags(self.access)) };
        let mr = check_pointer(VERB, mr).map_err(|error| explain_registration(error, self.len, self.access))?;
        let registration = Registration::new(first.as_ptr() as u64, self.len, self.access);
        // SAFETY: just registered with these attributes in this domain, not shared, and covering these pages.
        let region = unsafe { MemoryRegion::from_raw(mr, &self.pd, registration, Some(Backing::Pages(pages))) };
        // SAFETY: the region owns at least `len` bytes at `first`, which are zeroed and not accessed by other code, and
        // has no other owner.
        Ok(unsafe { OwnedMemoryRegion::new(region, first, self.len, self.access) })
    }
}
