//! Registering memory that the caller keeps valid.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;

use super::{MemoryRegion, Registration};
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::ibverbs::AccessFlags;
use crate::ibverbs::protection_domain::ProtectionDomain;

impl ProtectionDomain {
    /// `ibv_reg_mr(pd, addr, length, access)` — registers `len` bytes at the address `ptr` with the device.
    ///
    /// To register memory that the region owns, without unsafe code, use
    /// [`create_mr_builder`](Self::create_mr_builder).
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: the device has no more keys, or the registration exceeds the limit of locked memory (`ulimit -l`).
    /// - `EFAULT`: the range is not mapped, or not writable although `access` includes writing.
    /// - `EINVAL`: the flags are inconsistent. Remote writes and atomics require [`AccessFlags::LocalWrite`].
    /// - `EOPNOTSUPP`: the device does not support a flag, such as [`AccessFlags::OnDemand`].
    ///
    /// # Safety
    ///
    /// The following must hold until the registration has ended and every request that uses its keys has completed. The
    /// registration has ended when the last owner of the region has dropped it without logging a failure, or when
    /// [`close`](MemoryRegion::close) has returned `Ok`.
    ///
    /// - The `len` bytes at `ptr` stay allocated and mapped.
    /// - With `LocalWrite`, `RemoteWrite` or `RemoteAtomic`, no Rust reference to these bytes exists while the device
    ///   or a peer may write. Use raw pointers or atomics, as for memory shared with another process.
    /// - With `RemoteRead`, no `&mut` to these bytes exists while a peer may read.
    /// - The flag `MemoryWindowBind` is treated like `RemoteRead`, and together with `LocalWrite` also like
    ///   `RemoteWrite` and `RemoteAtomic`. The reason is that safe code can bind windows that grant these rights.
    /// - Peers that receive the remote key are trusted with what `access` allows.
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
        // SAFETY: the PD is live. The contract of this function covers the range, and the kernel checks that it is
        // mapped.
        let mr = unsafe { sys::ibv_reg_mr(self.raw(), memory(ptr), len, flags(access)) };
        let mr = check_pointer("ibv_reg_mr", mr).map_err(|error| explain_registration(error, len, access))?;
        let registration = Registration::new(ptr as u64, len, access);
        // SAFETY: the region was just registered in this domain with these attributes, and is not shared. The caller
        // keeps its memory valid.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, None) }))
    }

    /// `ibv_reg_mr_iova(pd, addr, length, iova, access)` — registers `len` bytes at `ptr`. In local and remote
    /// requests, `iova` is the address of the first of these bytes. Use zero to address the bytes by offsets, or use
    /// the address that a peer has for them.
    ///
    /// # Errors
    ///
    /// The errors are those of [`reg_mr`](Self::reg_mr). In addition, returns `EINVAL` if `iova` and `ptr` have
    /// different offsets within their pages, because drivers reject this.
    ///
    /// # Safety
    ///
    /// The contract of [`reg_mr`](Self::reg_mr) applies.
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    #[doc(alias = "ibv_reg_mr_iova")]
    #[doc(alias = "ibv_reg_mr_iova2")]
    pub unsafe fn reg_mr_iova(
        self: &Arc<Self>,
        ptr: usize,
        len: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<Arc<MemoryRegion>, VerbError> {
        // SAFETY: the PD is live. The contract of this function covers the range, and the kernel checks that it is
        // mapped.
        let mr = unsafe { sys::ibv_reg_mr_iova(self.raw(), memory(ptr), len, iova, flags(access)) };
        let mr = check_pointer("ibv_reg_mr_iova", mr).map_err(|error| {
            let shifted = (ptr as u64 ^ iova) & (page_size() as u64 - 1) != 0;
            match error.errno().raw() {
                libc::EINVAL if shifted => error.with_hint(format!(
                    "the address {ptr:#x} and the I/O address {iova:#x} have different offsets within a page; \
                    choose an I/O address with the same offset"
                )),
                _ => explain_registration(error, len, access),
            }
        })?;
        let registration = Registration::new(iova, len, access);
        // SAFETY: the region was just registered in this domain with these attributes, and is not shared. The caller
        // keeps its memory valid.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, None) }))
    }

    /// `ibv_reg_mr(pd, NULL, SIZE_MAX, access | IBV_ACCESS_ON_DEMAND)` — registers the whole address space of the
    /// process, including later mappings (implicit on-demand paging). Requests use process addresses; the device faults
    /// pages in as needed.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` or `EINVAL` if the device does not support implicit on-demand paging
    /// ([`OdpGeneralCapabilities`](crate::ibverbs::device_context::OdpGeneralCapabilities)).
    ///
    /// # Safety
    ///
    /// The contract of [`reg_mr`](Self::reg_mr) applies to *all* memory of the process, with one exception: the memory
    /// need not stay mapped, because requests to unmapped memory fail. If `LocalWrite` is the only flag, it is
    /// sufficient that each call of `setup_sge` follows its contract. With flags for remote access, the peer must not
    /// access any byte on which Rust code relies.
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    #[doc(alias = "implicit ODP")]
    pub unsafe fn reg_implicit_odp_mr(self: &Arc<Self>, access: AccessFlags) -> Result<Arc<MemoryRegion>, VerbError> {
        let access = access | AccessFlags::OnDemand;
        // SAFETY: the PD is live, and the contract of this function covers the memory.
        let mr = unsafe { sys::ibv_reg_mr(self.raw(), ptr::null_mut(), usize::MAX, flags(access)) };
        let mr = check_pointer("ibv_reg_mr", mr).map_err(|error| match error.errno().raw() {
            libc::EINVAL | libc::EOPNOTSUPP => {
                error.with_hint("the device does not support implicit on-demand paging; check DeviceAttr::odp_caps")
            }
            _ => error,
        })?;
        let registration = Registration { iova: Some(0), len: usize::MAX, access: Some(access) };
        // SAFETY: the region was just registered in this domain with these attributes, and is not shared. The caller
        // keeps its memory valid.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, None) }))
    }

    /// `ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access)` — registers `length` bytes of a dma-buf, such as GPU
    /// memory, starting at `offset`. `iova` is the address of the first of these bytes in local and remote requests.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP`, `EPROTONOSUPPORT` or `ENOSYS` if the library, kernel or driver does not support dma-buf
    /// registration, and `EBADF` if `fd` is not a dma-buf.
    ///
    /// # Safety
    ///
    /// The contract of [`reg_mr`](Self::reg_mr) applies to the memory of the dma-buf.
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
        // SAFETY: the PD and the descriptor are live, and the caller upholds the contract for the memory.
        let mr = unsafe { sys::ibv_reg_dmabuf_mr(self.raw(), offset, length, iova, fd.as_raw_fd(), flags(access)) };
        let mr = check_pointer("ibv_reg_dmabuf_mr", mr).map_err(|error| explain_registration(error, length, access))?;
        let registration = Registration::new(iova, length, access);
        // SAFETY: the region was just registered in this domain with these attributes, and is not shared. The caller
        // keeps its memory valid.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, None) }))
    }
}

/// Converts an address to C's type. The pointer needs no provenance for the device. The owner of the memory exposed the
/// provenance by converting the pointer to a number.
pub(super) fn memory(ptr: usize) -> *mut libc::c_void {
    ptr::with_exposed_provenance_mut(ptr)
}

/// Converts the flags to C's type.
pub(super) fn flags(access: AccessFlags) -> c_int {
    access.bits().cast_signed()
}

/// Returns the page size of this machine.
pub(super) fn page_size() -> usize {
    // SAFETY: the argument of the call is a plain number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

/// Adds the usual cause to the error of a registration.
#[cold]
pub(crate) fn explain_registration(error: VerbError, len: usize, access: AccessFlags) -> VerbError {
    let writes = AccessFlags::RemoteWrite | AccessFlags::RemoteAtomic;
    match error.errno().raw() {
        libc::EINVAL if access.intersects(writes) && !access.contains(AccessFlags::LocalWrite) => {
            error.with_hint("RemoteWrite and RemoteAtomic also need LocalWrite")
        }
        libc::EINVAL if len == 0 => error.with_hint("the length is 0; register at least one byte"),
        libc::EINVAL | libc::EOPNOTSUPP if access.contains(AccessFlags::OnDemand) => {
            error.with_hint("the device may not support on-demand paging; check DeviceAttr::odp_caps")
        }
        libc::EINVAL | libc::EOPNOTSUPP
            if access.intersects(AccessFlags::FlushGlobal | AccessFlags::FlushPersistent) =>
        {
            error.with_hint("the device or the kernel may not support flush; omit the flush flags")
        }
        libc::ENOMEM => match locked_memory_limit() {
            Some(limit) => error.with_hint(format!(
                "cannot lock {len} bytes: the limit, including memory locked before, is {limit}; unless the device \
                is out of keys, raise it with `ulimit -l unlimited` or in /etc/security/limits.conf"
            )),
            None => error,
        },
        libc::EFAULT => error.with_hint(
            "the range is not mapped, or not writable although the access flags include \
            writing",
        ),
        _ => error,
    }
}

/// Returns `RLIMIT_MEMLOCK` in bytes, or `None` if it is unlimited or unknown.
fn locked_memory_limit() -> Option<libc::rlim_t> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live rlimit that the call fills in.
    let ret = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (ret == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
