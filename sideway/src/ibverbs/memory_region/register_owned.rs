//! Registration of memory that another object owns: device memory, and buffers of the driver.

use std::sync::Arc;

use rdma_mummy_sys as sys;

use super::register::explain_registration;
use super::registration::{Backing, Registration};
use super::{AccessFlags, MemoryRegion};
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::ibverbs::device_memory::DeviceMemory;
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::provider_buffer::ProviderBuffer;

impl ProtectionDomain {
    /// `ibv_reg_dm_mr(pd, dm, dm_offset, length, access)` — registers `len` bytes of device memory, starting at
    /// `offset`. Local and remote requests address these bytes by offsets from 0, because this method sets
    /// [`AccessFlags::ZeroBased`]. The region keeps the memory alive.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range exceeds the memory, or if the memory belongs to another device. The other errors
    /// are those of [`reg_mr`](Self::reg_mr).
    ///
    /// # References
    ///
    /// [ibv_alloc_dm(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_dm.3.html)
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn reg_dm_mr(
        self: &Arc<Self>,
        dm: &Arc<DeviceMemory>,
        offset: u64,
        len: usize,
        access: AccessFlags,
    ) -> Result<Arc<MemoryRegion>, VerbError> {
        const VERB: &str = "ibv_reg_dm_mr";
        dm.check(VERB, offset, len)?;
        if dm.device_context().raw() != self.device_context().raw() {
            return Err(VerbError::invalid(
                VERB,
                "the device memory belongs to another device context than the domain; allocate both from one",
            ));
        }
        let access = access | AccessFlags::ZeroBased;
        // SAFETY: the domain and the memory are live and belong to one device, and the range is within the memory.
        let mr = unsafe { sys::ibv_reg_dm_mr(self.raw(), dm.raw(), offset, len, access.bits()) };
        let mr = check_pointer(VERB, mr).map_err(|error| explain_registration(error, len, access))?;
        let backing = Some(Backing::DeviceMemory(Arc::clone(dm)));
        let registration = Registration { iova: Some(0), len, access: Some(access) };
        // SAFETY: the region was just registered in this domain with these attributes. It is not shared, and it covers
        // this memory.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, backing) }))
    }

    /// `ibv_reg_buf_mr(pd, buf, addr, length, access)` — registers `len` bytes of a buffer, starting at `offset`.
    /// Requests name the bytes by their addresses in this process. The region keeps the buffer alive.
    ///
    /// This method is safe: a buffer that the driver allocated contains no other object of the program, and only unsafe
    /// code accesses its bytes. If the buffer is the caller's memory, the contract of
    /// [`alloc_user_buf`](Self::alloc_user_buf) covers the registration.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range exceeds the buffer, or if the buffer belongs to another device. The other errors
    /// are those of [`reg_mr`](Self::reg_mr).
    #[doc(alias = "ibv_reg_buf_mr")]
    pub fn reg_buf_mr(
        self: &Arc<Self>,
        buffer: &Arc<ProviderBuffer>,
        offset: usize,
        len: usize,
        access: AccessFlags,
    ) -> Result<Arc<MemoryRegion>, VerbError> {
        const VERB: &str = "ibv_reg_buf_mr";
        if offset.checked_add(len).is_none_or(|end| end > buffer.len()) {
            let hint = format!("{len} bytes at offset {offset} exceed the {} bytes of the buffer", buffer.len());
            return Err(VerbError::invalid(VERB, hint));
        }
        if buffer.protection_domain().device_context().raw() != self.device_context().raw() {
            return Err(VerbError::invalid(
                VERB,
                "the buffer belongs to another device context than the domain; \
                allocate it from the domain",
            ));
        }
        let first = buffer.as_ptr().wrapping_add(offset);
        let flags = access.bits().cast_signed();
        // SAFETY: the domain and the buffer are live and belong to one device. The range is within the buffer, which
        // the region keeps alive until its registration has ended.
        let mr = unsafe { sys::ibv_reg_buf_mr(self.raw(), buffer.raw(), first.cast(), len, flags) };
        let mr = check_pointer(VERB, mr).map_err(|error| explain_registration(error, len, access))?;
        let backing = Some(Backing::Buffer(Arc::clone(buffer)));
        let registration = Registration::new(first as u64, len, access);
        // SAFETY: the region was just registered in this domain with these attributes. It is not shared, and it covers
        // this buffer.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, backing) }))
    }
}
