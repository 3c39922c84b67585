//! `struct ibv_buf`: memory that the driver allocated, or was given, in a way of its own.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::since_v44::ibv_buf;

use super::AccessFlags;
use super::memory_region::{Backing, MemoryRegion, Registration, explain_registration};
use super::protection_domain::ProtectionDomain;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer};

/// Memory that the driver allocated so that the device can reach it, where ordinary memory will not do: in a confidential
/// guest, whose memory is encrypted, it is memory that is not. Registered by
/// [`reg_buf_mr`](ProtectionDomain::reg_buf_mr).
///
/// Its bytes are reached by [`as_ptr`](Self::as_ptr) in unsafe code; there is never a reference to them in safe code.
#[doc(alias = "ibv_buf")]
#[doc(alias = "ibv_free_buf")]
#[doc(alias = "ibv_free_user_buf")]
#[derive(Debug)]
pub struct ProviderBuffer {
    // Dropped first: the domain must outlive it.
    handle: Handle<ibv_buf>,
    first: *mut u8,
    len: usize,
    pd: Arc<ProtectionDomain>,
}

// SAFETY: the handle may move and be shared (see there); the memory belongs to no thread, and using its address is unsafe.
unsafe impl Send for ProviderBuffer {}
// SAFETY: as for Send.
unsafe impl Sync for ProviderBuffer {}

/// `ibv_free_user_buf`, which cannot fail, as a verb that can.
unsafe extern "C" fn free_user(buf: *mut ibv_buf) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { sys::ibv_free_user_buf(buf) };
    0
}

/// `ibv_free_buf`, which cannot fail, as a verb that can.
unsafe extern "C" fn free(buf: *mut ibv_buf) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { sys::ibv_free_buf(buf) };
    0
}

impl ProtectionDomain {
    /// `ibv_alloc_buf(pd, size, &buf)` — has the driver allocate `len` bytes. IBVERBS_1.17.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where library or driver cannot; `EINVAL` for a length of zero; `ENOMEM`.
    #[doc(alias = "ibv_alloc_buf")]
    pub fn alloc_buf(self: &Arc<Self>, len: usize) -> Result<Arc<ProviderBuffer>, VerbError> {
        const VERB: &str = "ibv_alloc_buf";
        if len == 0 {
            return Err(VerbError::invalid(VERB, "the length is 0"));
        }
        let mut buf = ptr::null_mut();
        // SAFETY: the domain is live, and there is a place for the handle.
        let first = check_pointer(VERB, unsafe { sys::ibv_alloc_buf(self.raw(), len, &mut buf) })?.as_ptr().cast();
        let buf = check_pointer(VERB, buf)?;
        // SAFETY: just made, ours alone, and this is its verb.
        let handle = unsafe { Handle::new(buf, free, "ibv_free_buf") };
        Ok(Arc::new(ProviderBuffer { handle, first, len, pd: Arc::clone(self) }))
    }

    /// `ibv_alloc_user_buf(pd, addr, size, dmabuf_fd)` — makes a buffer of the caller's `len` bytes at `ptr`, and of the dma-buf
    /// that they are of where that is given. IBVERBS_1.17.
    ///
    /// # Errors
    ///
    /// As [`alloc_buf`](Self::alloc_buf).
    ///
    /// # Safety
    ///
    /// As for [`reg_mr`](Self::reg_mr), for the memory and the dma-buf, as long as the buffer lives, and for whatever access
    /// regions of it are registered with.
    #[doc(alias = "ibv_alloc_user_buf")]
    pub unsafe fn alloc_user_buf(
        self: &Arc<Self>,
        ptr: usize,
        len: usize,
        dmabuf: Option<BorrowedFd<'_>>,
    ) -> Result<Arc<ProviderBuffer>, VerbError> {
        const VERB: &str = "ibv_alloc_user_buf";
        if len == 0 {
            return Err(VerbError::invalid(VERB, "the length is 0"));
        }
        let first = ptr::with_exposed_provenance_mut::<u8>(ptr);
        let fd = dmabuf.map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: the domain and the descriptor are live; the memory is the caller's promise.
        let buf = check_pointer(VERB, unsafe { sys::ibv_alloc_user_buf(self.raw(), first.cast(), len, fd) })?;
        // SAFETY: just made, ours alone, and this is its verb.
        let handle = unsafe { Handle::new(buf, free_user, "ibv_free_user_buf") };
        Ok(Arc::new(ProviderBuffer { handle, first, len, pd: Arc::clone(self) }))
    }

    /// `ibv_reg_buf_mr(pd, buf, addr, length, access)` — registers `len` bytes of a buffer from `offset` on. Requests name
    /// them by their address. The region keeps the buffer alive.
    ///
    /// Safe: nothing else of the program is in a buffer of the driver, and its bytes are reached by unsafe code alone; for
    /// memory of the caller, [`alloc_user_buf`](Self::alloc_user_buf) has promised what this needs.
    ///
    /// # Errors
    ///
    /// `EINVAL` where the range is not within the buffer or the buffer is of another device; else as
    /// [`reg_mr`](Self::reg_mr).
    #[doc(alias = "ibv_reg_buf_mr")]
    pub fn reg_buf_mr(
        self: &Arc<Self>,
        buffer: &Arc<ProviderBuffer>,
        offset: usize,
        len: usize,
        access: AccessFlags,
    ) -> Result<Arc<MemoryRegion>, VerbError> {
        const VERB: &str = "ibv_reg_buf_mr";
        if offset.checked_add(len).is_none_or(|end| end > buffer.len) {
            let hint = format!("{len} bytes at offset {offset} are not within the {} bytes of the buffer", buffer.len);
            return Err(VerbError::invalid(VERB, hint));
        }
        if buffer.pd.device_context().raw() != self.device_context().raw() {
            return Err(VerbError::invalid(VERB, "the buffer belongs to another device context than the domain"));
        }
        let first = buffer.first.wrapping_add(offset);
        let flags = access.bits().cast_signed();
        // SAFETY: the domain and the buffer are live and of one device, and the range is within the buffer, which the
        // region keeps until its registration has ended.
        let mr = unsafe { sys::ibv_reg_buf_mr(self.raw(), buffer.handle.as_ptr(), first.cast(), len, flags) };
        let mr = check_pointer(VERB, mr).map_err(|error| explain_registration(error, len, access))?;
        let backing = Some(Backing::Buffer(Arc::clone(buffer)));
        let registration = Registration::new(first as u64, len, access);
        // SAFETY: just registered so in this domain, ours alone, and of this buffer.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, backing) }))
    }
}

impl ProviderBuffer {
    /// The first byte. Unsafe code that follows it keeps to what [`ProtectionDomain::reg_mr`] says of references; the
    /// bytes are mapped as long as `self`.
    pub fn as_ptr(&self) -> *mut u8 {
        self.first
    }

    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "there is at least a byte")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The domain that the buffer was allocated in.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }
}
