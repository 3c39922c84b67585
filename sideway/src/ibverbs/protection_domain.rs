//! `struct ibv_pd`: what may be used together.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_pd;

use super::AccessFlags;
use super::device_context::DeviceContext;
use super::memory_region::MemoryRegion;
use super::parent_domain::DomainHandle;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer};

/// A protection domain: memory regions, queue pairs and address handles work together only within one.
#[doc(alias = "ibv_pd")]
#[derive(Debug)]
pub struct ProtectionDomain {
    // Dropped first: the context must outlive it.
    pub(super) handle: DomainHandle,
    pub(super) context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_alloc_pd(context)` — allocates a protection domain.
    ///
    /// # Errors
    ///
    /// The errno of the driver, `ENOMEM` mostly.
    ///
    /// # References
    ///
    /// [ibv_alloc_pd(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_pd.3.html)
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(self: &Arc<Self>) -> Result<Arc<ProtectionDomain>, VerbError> {
        // SAFETY: the context is open as long as `self`.
        let pd = check_pointer("ibv_alloc_pd", unsafe { sys::ibv_alloc_pd(self.raw()) })?;
        // SAFETY: just allocated, ours alone, and ibv_dealloc_pd is its verb.
        let handle = unsafe { Handle::new(pd, sys::ibv_dealloc_pd, "ibv_dealloc_pd") };
        Ok(Arc::new(ProtectionDomain { handle: handle.into(), context: Arc::clone(self) }))
    }
}

impl ProtectionDomain {
    /// `ibv_reg_mr(pd, addr, length, access)` — registers `len` bytes at the address `ptr` with the device.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: out of keys, or over the limit of locked memory (`ulimit -l`).
    /// - `EFAULT`: the range is not mapped, or not writable though `access` asks for writing.
    /// - `EINVAL`: flags that do not go together: remote writes and atomics need [`AccessFlags::LocalWrite`].
    ///
    /// # Safety
    ///
    /// Until the registration has ended (the last owner of the region dropped it and no failure was logged, or
    /// [`close`](MemoryRegion::close) returned `Ok`), and until every request that names its keys has completed:
    ///
    /// - the `len` bytes at `ptr` stay allocated and mapped;
    /// - with `LocalWrite`, `RemoteWrite` or `RemoteAtomic`, no Rust reference to them is held across a moment at which
    ///   the device or a peer may write: access goes through raw pointers or atomics, as with memory shared with
    ///   another process;
    /// - with `RemoteRead`, no `&mut` to them is held across a moment at which a peer may read;
    /// - whoever is told the remote key is trusted with what `access` allows.
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    #[doc(alias = "ibv_reg_mr")]
    pub unsafe fn reg_mr(
        self: &Arc<Self>,
        ptr: usize,
        len: usize,
        access: AccessFlags,
    ) -> Result<Arc<MemoryRegion>, VerbError> {
        // SAFETY: the PD is live; the range is the caller's promise, and the kernel checks that it is mapped.
        let mr = unsafe { sys::ibv_reg_mr(self.raw(), ptr as *mut _, len, access.bits() as _) };
        let mr = check_pointer("ibv_reg_mr", mr).map_err(|error| explain_registration(error, len, access))?;
        // SAFETY: just registered in this PD, ours alone.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self) }))
    }

    /// `ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access)` — registers `length` bytes from `offset` of a dma-buf,
    /// such as memory of a GPU; `iova` is the address by which requests and peers name its first byte.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`, `EPROTONOSUPPORT` or `ENOSYS` where the library, kernel or driver has no dma-buf registration;
    /// `EBADF` where `fd` is no dma-buf.
    ///
    /// # Safety
    ///
    /// As for [`reg_mr`](Self::reg_mr), for the memory behind the dma-buf.
    ///
    /// # References
    ///
    /// [ibv_reg_dmabuf_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_dmabuf_mr.3.html)
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub unsafe fn reg_dmabuf_mr(
        self: &Arc<Self>,
        offset: u64,
        length: usize,
        iova: u64,
        fd: BorrowedFd<'_>,
        access: AccessFlags,
    ) -> Result<Arc<MemoryRegion>, VerbError> {
        // SAFETY: the PD and the descriptor are live; the memory behind it is the caller's promise.
        let mr =
            unsafe { sys::ibv_reg_dmabuf_mr(self.raw(), offset, length, iova, fd.as_raw_fd(), access.bits() as _) };
        let mr = check_pointer("ibv_reg_dmabuf_mr", mr).map_err(|error| explain_registration(error, length, access))?;
        // SAFETY: just registered in this PD, ours alone.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self) }))
    }

    /// `ibv_dealloc_pd(pd)` — frees the domain and reports, where dropping only logs.
    ///
    /// A domain in an `Arc` is taken out of it with [`Arc::into_inner`], which succeeds once everything that was made in it
    /// has gone.
    ///
    /// # Errors
    ///
    /// The driver's errno; the domain is leaked then.
    #[doc(alias = "ibv_dealloc_pd")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// The device that the domain is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and not deallocated.
    pub unsafe fn pd(&self) -> NonNull<ibv_pd> {
        self.handle.as_non_null()
    }

    /// The C object, for this crate.
    pub(crate) fn raw(&self) -> *mut ibv_pd {
        self.handle.as_ptr()
    }
}

/// Says what registration failures usually mean.
#[cold]
fn explain_registration(error: VerbError, len: usize, access: AccessFlags) -> VerbError {
    let writes = AccessFlags::RemoteWrite | AccessFlags::RemoteAtomic;
    match error.errno().raw() {
        libc::EINVAL if access.intersects(writes) && !access.contains(AccessFlags::LocalWrite) => {
            error.with_hint("RemoteWrite and RemoteAtomic need LocalWrite as well")
        }
        libc::EINVAL if len == 0 => error.with_hint("the length is 0"),
        libc::ENOMEM => match locked_memory_limit() {
            Some(limit) if limit < len as u64 => error.with_hint(format!(
                "{len} bytes are to be locked and the limit is {limit}: raise it with `ulimit -l unlimited` \
                 or in /etc/security/limits.conf"
            )),
            _ => error,
        },
        libc::EFAULT => error.with_hint("the range is not mapped, or not writable though the access flags ask for it"),
        _ => error,
    }
}

/// `RLIMIT_MEMLOCK` in bytes, or `None` where it is unlimited or unknown.
fn locked_memory_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live rlimit for the call to fill.
    let ret = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (ret == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
