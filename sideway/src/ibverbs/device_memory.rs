//! `struct ibv_dm`: device memory.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_alloc_dm_attr, ibv_dm, ibv_dm_mask};

use super::device_context::DeviceContext;
use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_errno, check_pointer, last_errno};

/// Memory on the device. It is small, but the device accesses it without PCI Express transfers.
/// [`max_dm_size`](super::device_context::DeviceAttr::max_dm_size) returns how much the device has.
///
/// Device memory is not part of the process's memory. [`memcpy_to_dm`](Self::memcpy_to_dm) and
/// [`memcpy_from_dm`](Self::memcpy_from_dm) copy bytes in and out. Writes to it do not affect any Rust reference, so
/// registering it is safe ([`reg_dm_mr`](super::protection_domain::ProtectionDomain::reg_dm_mr)).
#[doc(alias = "ibv_dm")]
#[derive(Debug)]
pub struct DeviceMemory {
    // This is the first field, so it is dropped first, because the context must outlive it.
    handle: Handle<ibv_dm>,
    len: usize,
    context: Arc<DeviceContext>,
}

/// `ibv_free_dm` as a function with a C signature.
unsafe extern "C" fn free(dm: *mut ibv_dm) -> c_int {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { sys::ibv_free_dm(dm) }
}

impl DeviceContext {
    /// `ibv_alloc_dm(context, attr)` — allocates `len` bytes on the device, aligned to 2^`log_align` bytes. Use 3 for
    /// atomics. The initial contents are unspecified.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device does not support allocation.
    /// - `ENOMEM`, `ENOSPC`: too little memory is free.
    /// - `EINVAL`: `len` is 0, or the alignment is not supported.
    ///
    /// # References
    ///
    /// [ibv_alloc_dm(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_dm.3.html)
    #[doc(alias = "ibv_alloc_dm")]
    pub fn alloc_dm(self: &Arc<Self>, len: usize, log_align: u32) -> Result<Arc<DeviceMemory>, VerbError> {
        const VERB: &str = "ibv_alloc_dm";
        if len == 0 {
            return Err(VerbError::invalid(VERB, "the length is 0; allocate at least one byte"));
        }
        let mut attr = ibv_alloc_dm_attr { length: len, log_align_req: log_align, comp_mask: 0 };
        // SAFETY: the context is open as long as `self` lives, and the attributes are initialised.
        let dm = check_pointer(VERB, unsafe { sys::ibv_alloc_dm(self.raw(), &mut attr) })?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(dm, free, "ibv_free_dm") };
        // SAFETY: the memory belongs to this device and has `len` bytes.
        Ok(Arc::new(unsafe { DeviceMemory::from_handle(handle, len, self) }))
    }
}

impl DeviceMemory {
    /// Wraps device memory with the verb that releases it.
    ///
    /// # Safety
    ///
    /// The object was created in `context` and has `len` bytes.
    pub(crate) unsafe fn from_handle(handle: Handle<ibv_dm>, len: usize, context: &Arc<DeviceContext>) -> Self {
        Self { handle, len, context: Arc::clone(context) }
    }

    /// `ibv_memcpy_to_dm(dm, dm_offset, host_addr, length)` — copies bytes to the device, at `offset`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the range exceeds the memory, or, on some devices, the offset or the length is not a multiple of 4.
    /// - `EOPNOTSUPP`: the driver does not support it.
    ///
    /// # References
    ///
    /// [ibv_alloc_dm(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_dm.3.html)
    #[doc(alias = "ibv_memcpy_to_dm")]
    pub fn memcpy_to_dm(&self, offset: u64, bytes: &[u8]) -> Result<(), VerbError> {
        const VERB: &str = "ibv_memcpy_to_dm";
        self.check(VERB, offset, bytes.len())?;
        // SAFETY: the memory is live, and its driver set the fields on creation.
        self.require(VERB, unsafe { (*self.handle.as_ptr()).memcpy_to_dm.is_some() })?;
        // SAFETY: the memory is live, its function exists, the range is within it, and the bytes can be read.
        // Concurrent copies cause no data race, because the memory is not part of the process.
        let ret = unsafe { sys::ibv_memcpy_to_dm(self.handle.as_ptr(), offset, bytes.as_ptr().cast(), bytes.len()) };
        check_errno(VERB, ret)
    }

    /// `ibv_memcpy_from_dm(host_addr, dm, dm_offset, length)` — copies bytes from the device, at `offset`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`memcpy_to_dm`](Self::memcpy_to_dm).
    ///
    /// # References
    ///
    /// [ibv_alloc_dm(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_dm.3.html)
    #[doc(alias = "ibv_memcpy_from_dm")]
    pub fn memcpy_from_dm(&self, offset: u64, bytes: &mut [u8]) -> Result<(), VerbError> {
        const VERB: &str = "ibv_memcpy_from_dm";
        self.check(VERB, offset, bytes.len())?;
        // SAFETY: as in `memcpy_to_dm`.
        self.require(VERB, unsafe { (*self.handle.as_ptr()).memcpy_from_dm.is_some() })?;
        let (to, len) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: as in `memcpy_to_dm`; the call may write to `bytes`.
        check_errno(VERB, unsafe { sys::ibv_memcpy_from_dm(to, self.handle.as_ptr(), offset, len) })
    }

    /// `ibv_dm_export_dmabuf_fd(dm)` — exports the memory as a dma-buf, which other devices can access. rdma-core added
    /// this verb after version 44.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the library, the driver or the kernel does not support it.
    ///
    /// # References
    ///
    /// [ibv_dm_export_dmabuf_fd(3)](https://man7.org/linux/man-pages/man3/ibv_dm_export_dmabuf_fd.3.html)
    #[doc(alias = "ibv_dm_export_dmabuf_fd")]
    pub fn export_dmabuf_fd(&self) -> Result<OwnedFd, VerbError> {
        // SAFETY: the memory is live.
        let fd = unsafe { sys::ibv_dm_export_dmabuf_fd(self.handle.as_ptr()) };
        if fd < 0 {
            return Err(VerbError::new("ibv_dm_export_dmabuf_fd", last_errno()));
        }
        // SAFETY: the descriptor is new and not shared.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// `ibv_free_dm(dm)` — frees the memory. This method returns an error of the verb, whereas drop only logs it. For
    /// imported memory, this only releases the import (`ibv_unimport_dm`).
    ///
    /// Take the memory out of its `Arc` with [`Arc::into_inner`], which succeeds once its regions are dropped.
    ///
    /// # Errors
    ///
    /// The driver's errno; the memory is then leaked.
    ///
    /// # References
    ///
    /// [ibv_alloc_dm(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_dm.3.html)
    #[doc(alias = "ibv_free_dm")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "the length is at least one byte")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the kernel's number of the memory, or `None` if the driver does not provide it. A process that shares
    /// the device's descriptor uses this number to [import](DeviceContext::import_dm) the memory.
    pub fn handle(&self) -> Option<u32> {
        // SAFETY: the memory is live, and its driver set the fields on creation.
        let (mask, handle) = unsafe { ((*self.handle.as_ptr()).comp_mask, (*self.handle.as_ptr()).handle) };
        (mask & ibv_dm_mask::IBV_DM_MASK_HANDLE.0 != 0).then_some(handle)
    }

    /// Returns the device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns the C object for this crate.
    pub(super) fn raw(&self) -> *mut ibv_dm {
        self.handle.as_ptr()
    }

    pub(super) fn check(&self, verb: &'static str, offset: u64, len: usize) -> Result<(), VerbError> {
        let within = offset.checked_add(len as u64).is_some_and(|end| end <= self.len as u64);
        if within {
            return Ok(());
        }
        let hint = format!("{len} bytes at offset {offset} exceed the {} bytes of device memory", self.len);
        Err(VerbError::invalid(verb, hint))
    }

    fn require(&self, verb: &'static str, there: bool) -> Result<(), VerbError> {
        if there {
            return Ok(());
        }
        Err(VerbError::new(verb, Errno::EOPNOTSUPP).with_hint("the driver does not support copying this memory"))
    }
}
