//! Registering memory with all attributes that the verbs offer.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::since_v44::{
    IBV_REG_MR_MASK_ADDR, IBV_REG_MR_MASK_DMAH, IBV_REG_MR_MASK_FD, IBV_REG_MR_MASK_FD_OFFSET, IBV_REG_MR_MASK_IOVA,
    ibv_mr_init_attr,
};

use super::register::{explain_registration, flags, memory};
use super::{Backing, MemoryRegion, Registration};
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::ibverbs::AccessFlags;
use crate::ibverbs::dma_handle::DmaHandle;
use crate::ibverbs::protection_domain::ProtectionDomain;

const VERB: &str = "ibv_reg_mr_ex";

/// `struct ibv_mr_init_attr`: the attributes of a registration. Set either memory of this process or a dma-buf.
#[doc(alias = "ibv_mr_init_attr")]
#[derive(Clone, Debug, Default)]
pub struct RegistrationAttributes<'a> {
    length: usize,
    access: AccessFlags,
    ptr: Option<usize>,
    dmabuf: Option<(BorrowedFd<'a>, u64)>,
    iova: Option<u64>,
    dma_handle: Option<Arc<DmaHandle>>,
}

impl<'a> RegistrationAttributes<'a> {
    /// Creates the attributes for `length` bytes with this access.
    pub fn new(length: usize, access: AccessFlags) -> Self {
        Self { length, access, ..Self::default() }
    }

    /// Sets memory of this process, at this address.
    pub fn setup_ptr(&mut self, ptr: usize) -> &mut Self {
        self.ptr = Some(ptr);
        self
    }

    /// Sets memory of a dma-buf, starting at byte `offset`. Such memory also requires an I/O address
    /// ([`setup_iova`](Self::setup_iova)).
    pub fn setup_dmabuf(&mut self, fd: BorrowedFd<'a>, offset: u64) -> &mut Self {
        self.dmabuf = Some((fd, offset));
        self
    }

    /// Sets the address of the first byte in local and remote requests. By default it is the memory's address.
    pub fn setup_iova(&mut self, iova: u64) -> &mut Self {
        self.iova = Some(iova);
        self
    }

    /// Sets how the device accesses the memory. The region keeps the handle alive.
    pub fn setup_dma_handle(&mut self, dma_handle: &Arc<DmaHandle>) -> &mut Self {
        self.dma_handle = Some(Arc::clone(dma_handle));
        self
    }
}

impl ProtectionDomain {
    /// `ibv_reg_mr_ex(pd, mr_init_attr)` — registers memory of the caller or of a dma-buf, optionally with a
    /// [`DmaHandle`]. Requires IBVERBS_1.15.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the library or driver does not have this verb.
    /// - `EINVAL`: neither or both kinds of memory are set, a dma-buf has no I/O address, or the DMA handle belongs to
    ///   another device.
    /// - Otherwise the errors of [`reg_mr`](Self::reg_mr).
    ///
    /// # Safety
    ///
    /// The contract of [`reg_mr`](Self::reg_mr) applies, also to the memory of a dma-buf.
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    #[doc(alias = "ibv_reg_mr_ex")]
    pub unsafe fn reg_mr_ex(
        self: &Arc<Self>,
        attributes: &RegistrationAttributes<'_>,
    ) -> Result<Arc<MemoryRegion>, VerbError> {
        let RegistrationAttributes { length, access, ptr, dmabuf, iova, dma_handle } = attributes;
        let mut attr = ibv_mr_init_attr {
            length: *length,
            access: flags(*access),
            comp_mask: 0,
            iova: 0,
            addr: ptr::null_mut(),
            fd: -1,
            fd_offset: 0,
            dmah: ptr::null_mut(),
            buf: ptr::null_mut(),
        };
        match (ptr, dmabuf) {
            (Some(ptr), None) => {
                attr.addr = memory(*ptr);
                attr.comp_mask |= IBV_REG_MR_MASK_ADDR;
            }
            (None, Some(_)) if iova.is_none() => {
                return Err(VerbError::invalid(VERB, "a dma-buf needs an I/O address; call setup_iova"));
            }
            (None, Some((fd, offset))) => {
                (attr.fd, attr.fd_offset) = (fd.as_raw_fd(), *offset);
                attr.comp_mask |= IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;
            }
            _ => {
                return Err(VerbError::invalid(
                    VERB,
                    "both kinds of memory, or none, are set; call either setup_ptr \
                or setup_dmabuf",
                ));
            }
        }
        if let Some(iova) = iova {
            attr.iova = *iova;
            attr.comp_mask |= IBV_REG_MR_MASK_IOVA;
        }
        if let Some(dma_handle) = dma_handle {
            if dma_handle.device_context().raw() != self.device_context().raw() {
                return Err(VerbError::invalid(
                    VERB,
                    "the DMA handle belongs to another device context than the \
                    domain; allocate it from the domain's",
                ));
            }
            attr.dmah = dma_handle.raw();
            attr.comp_mask |= IBV_REG_MR_MASK_DMAH;
        }
        // SAFETY: the domain, the descriptor and the handle are live. The domain and the handle belong to one device.
        // The attributes are initialised according to their mask. The caller upholds the contract for the memory.
        let mr = unsafe { sys::ibv_reg_mr_ex(self.raw(), &mut attr) };
        let mr = check_pointer(VERB, mr).map_err(|error| explain_registration(error, *length, *access))?;
        let iova = iova.or(ptr.map(|ptr| ptr as u64));
        let registration = iova.map_or(Registration::UNKNOWN, |iova| Registration::new(iova, *length, *access));
        let backing = dma_handle.clone().map(Backing::DmaHandle);
        // SAFETY: the region was just registered in this domain with these attributes, and is not shared. The caller
        // keeps the memory valid, and the region keeps the handle alive.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, backing) }))
    }
}
