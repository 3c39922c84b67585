//! Making regions with memory of their own.

use std::sync::Arc;

use rdma_mummy_sys as sys;

use super::pages::Pages;
use super::register::{explain_registration, flags};
use super::{Backing, HugePages, MemoryRegion, OwnedMemoryRegion, Registration};
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::ibverbs::AccessFlags;
use crate::ibverbs::protection_domain::ProtectionDomain;

/// Makes regions with memory of their own. A length has to be set; access is [`LocalWrite`](AccessFlags::LocalWrite)
/// unless set, and the pages are the system's.
#[derive(Debug)]
pub struct MemoryRegionBuilder {
    pd: Arc<ProtectionDomain>,
    len: usize,
    access: AccessFlags,
    huge_pages: HugePages,
}

impl ProtectionDomain {
    /// A builder of regions with memory of their own in this domain.
    pub fn create_mr_builder(self: &Arc<Self>) -> MemoryRegionBuilder {
        MemoryRegionBuilder {
            pd: Arc::clone(self),
            len: 0,
            access: AccessFlags::LocalWrite,
            huge_pages: HugePages::System,
        }
    }

    /// Allocates `len` bytes, all zero, and registers them: [`create_mr_builder`](Self::create_mr_builder) without further
    /// wishes.
    ///
    /// # Errors
    ///
    /// As [`MemoryRegionBuilder::build`].
    pub fn reg_owned_mr(self: &Arc<Self>, len: usize, access: AccessFlags) -> Result<OwnedMemoryRegion, VerbError> {
        self.create_mr_builder().setup_length(len).setup_access(access).build()
    }
}

impl MemoryRegionBuilder {
    /// Bytes; at least one.
    pub fn setup_length(&mut self, len: usize) -> &mut Self {
        self.len = len;
        self
    }

    /// What the device and peers may do. [`AccessFlags::ZeroBased`] is refused: drivers differ in what requests name then.
    pub fn setup_access(&mut self, access: AccessFlags) -> &mut Self {
        self.access = access;
        self
    }

    /// The pages that the memory is made of.
    pub fn setup_huge_pages(&mut self, huge_pages: HugePages) -> &mut Self {
        self.huge_pages = huge_pages;
        self
    }

    /// `mmap(2)`, `ibv_reg_mr(pd, addr, length, access)` — allocates the memory, all zero, and registers it.
    ///
    /// # Errors
    ///
    /// - `mmap`: `EINVAL` for a length of zero, `ENOMEM` where there is not so much memory or so many huge pages.
    /// - `ibv_reg_mr`: as [`reg_mr`](ProtectionDomain::reg_mr). The memory is given back.
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html),
    /// [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html)
    pub fn build(&self) -> Result<OwnedMemoryRegion, VerbError> {
        const VERB: &str = "ibv_reg_mr";
        if self.access.contains(AccessFlags::ZeroBased) {
            return Err(VerbError::invalid(VERB, "ZeroBased: use reg_mr_iova with an I/O address of 0"));
        }
        let pages = Pages::new(self.len, self.huge_pages)?;
        let first = pages.first();
        // SAFETY: the domain is live. The bytes stay mapped as long as `pages`, which the region drops only once its
        // registration has ended. References to them are given by OwnedMemoryRegion, where nobody may write or read them
        // against it; what a peer does else is to change or to see bytes, of which every value is legal.
        let mr = unsafe { sys::ibv_reg_mr(self.pd.raw(), first.as_ptr().cast(), self.len, flags(self.access)) };
        let mr = check_pointer(VERB, mr).map_err(|error| explain_registration(error, self.len, self.access))?;
        let registration = Registration::new(first.as_ptr() as u64, self.len, self.access);
        // SAFETY: just registered so in this domain, ours alone, and of these pages.
        let region = unsafe { MemoryRegion::from_raw(mr, &self.pd, registration, Some(Backing::Pages(pages))) };
        // SAFETY: the region holds at least so many bytes there, all zero, reached by nothing else, and nobody else has it.
        Ok(unsafe { OwnedMemoryRegion::new(region, first, self.len, self.access) })
    }
}
