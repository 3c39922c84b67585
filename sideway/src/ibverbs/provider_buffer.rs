//! `struct ibv_buf`: memory allocated or wrapped by the driver.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::since_v44::ibv_buf;

use super::protection_domain::ProtectionDomain;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer};

/// Memory that the driver allocated so that the device can access it. It is meant for cases in which ordinary memory
/// does not work. In a confidential guest, for example, ordinary memory is encrypted, and this memory is not. Register
/// it with [`reg_buf_mr`](ProtectionDomain::reg_buf_mr).
///
/// Unsafe code accesses the bytes through [`as_ptr`](Self::as_ptr). Safe code cannot access them.
#[doc(alias = "ibv_buf")]
#[doc(alias = "ibv_free_buf")]
#[doc(alias = "ibv_free_user_buf")]
#[derive(Debug)]
pub struct ProviderBuffer {
    // This is the first field, so it is dropped first, because the domain must outlive it.
    handle: Handle<ibv_buf>,
    first: *mut u8,
    len: usize,
    pd: Arc<ProtectionDomain>,
}

// SAFETY: the handle is `Send` and `Sync` (see `Handle`). The memory is not bound to a thread, and using its address is
// unsafe.
unsafe impl Send for ProviderBuffer {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for ProviderBuffer {}

/// `ibv_free_user_buf`, which cannot fail, with the signature of a verb that can.
unsafe extern "C" fn free_user(buf: *mut ibv_buf) -> c_int {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { sys::ibv_free_user_buf(buf) };
    0
}

/// `ibv_free_buf`, which cannot fail, with the signature of a verb that can.
unsafe extern "C" fn free(buf: *mut ibv_buf) -> c_int {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { sys::ibv_free_buf(buf) };
    0
}

impl ProtectionDomain {
    /// `ibv_alloc_buf(pd, size, &buf)` — lets the driver allocate `len` bytes. Requires IBVERBS_1.17.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the library or the driver does not support it, `EINVAL` if the length is zero, and
    /// `ENOMEM` if memory is exhausted.
    #[doc(alias = "ibv_alloc_buf")]
    pub fn alloc_buf(self: &Arc<Self>, len: usize) -> Result<Arc<ProviderBuffer>, VerbError> {
        const VERB: &str = "ibv_alloc_buf";
        if len == 0 {
            return Err(VerbError::invalid(VERB, "the length is 0; allocate at least one byte"));
        }
        let mut buf = ptr::null_mut();
        // SAFETY: the domain is live, and the call may write to `buf`.
        let first = check_pointer(VERB, unsafe { sys::ibv_alloc_buf(self.raw(), len, &mut buf) })?.as_ptr().cast();
        let buf = check_pointer(VERB, buf)?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(buf, free, "ibv_free_buf") };
        Ok(Arc::new(ProviderBuffer { handle, first, len, pd: Arc::clone(self) }))
    }

    /// `ibv_alloc_user_buf(pd, addr, size, dmabuf_fd)` — wraps the caller's `len` bytes at `ptr`, and optionally the
    /// dma-buf that contains them. Requires IBVERBS_1.17.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`alloc_buf`](Self::alloc_buf).
    ///
    /// # Safety
    ///
    /// While the buffer lives, the contract of [`reg_mr`](Self::reg_mr) applies to the memory and to the dma-buf, for
    /// every access with which regions of the buffer are registered.
    #[doc(alias = "ibv_alloc_user_buf")]
    pub unsafe fn alloc_user_buf(
        self: &Arc<Self>,
        ptr: usize,
        len: usize,
        dmabuf: Option<BorrowedFd<'_>>,
    ) -> Result<Arc<ProviderBuffer>, VerbError> {
        const VERB: &str = "ibv_alloc_user_buf";
        if len == 0 {
            return Err(VerbError::invalid(VERB, "the length is 0; pass at least one byte"));
        }
        let first = ptr::with_exposed_provenance_mut::<u8>(ptr);
        let fd = dmabuf.map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: the domain and the descriptor are live, and the caller upholds the contract for the memory.
        let buf = check_pointer(VERB, unsafe { sys::ibv_alloc_user_buf(self.raw(), first.cast(), len, fd) })?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(buf, free_user, "ibv_free_user_buf") };
        Ok(Arc::new(ProviderBuffer { handle, first, len, pd: Arc::clone(self) }))
    }
}

impl ProviderBuffer {
    /// Returns a pointer to the first byte. Unsafe code that uses it must follow the rules of
    /// [`ProtectionDomain::reg_mr`] for references. The bytes are mapped as long as `self` lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.first
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "the length is at least one byte")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the protection domain.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Returns the C object for this crate.
    pub(super) fn raw(&self) -> *mut ibv_buf {
        self.handle.as_ptr()
    }
}
