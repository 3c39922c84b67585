//! Registering memory that the caller keeps.

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
    /// Memory that a region is to own is registered without unsafe code:
    /// [`create_mr_builder`](Self::create_mr_builder).
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: out of keys, or over the limit of locked memory (`ulimit -l`).
    /// - `EFAULT`: the range is not mapped, or not writable though `access` asks for writing.
    /// - `EINVAL`: flags that do not go together: remote writes and atomics need [`AccessFlags::LocalWrite`].
    /// - `EOPNOTSUPP`: the device does not know a flag, such as [`AccessFlags::OnDemand`].
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
    /// - `MemoryWindowBind` counts as `RemoteRead`, and with `LocalWrite` as `RemoteWrite` and `RemoteAtomic` too: binding
    ///   a window is safe code;
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
        let mr = unsafe { sys::ibv_reg_mr(self.raw(), memory(ptr), len, flags(access)) };
        let mr = check_pointer("ibv_reg_mr", mr).map_err(|error| explain_registration(error, len, access))?;
        let registration = Registration::new(ptr as u64, len, access);
        // SAFETY: just registered so in this PD, ours alone; its memory is the caller's.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, None) }))
    }

    /// `ibv_reg_mr_iova(pd, addr, length, iova, access)` — registers `len` bytes at `ptr`, which requests and peers name
    /// from the address `iova` on: zero for offsets, or the address that a peer knows the bytes by.
    ///
    /// # Errors
    ///
    /// As for [`reg_mr`](Self::reg_mr). `EINVAL` also where `iova` and `ptr` stand at different places within their pages,
    /// which drivers refuse.
    ///
    /// # Safety
    ///
    /// As for [`reg_mr`](Self::reg_mr).
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
        // SAFETY: the PD is live; the range is the caller's promise, and the kernel checks that it is mapped.
        let mr = unsafe { sys::ibv_reg_mr_iova(self.raw(), memory(ptr), len, iova, flags(access)) };
        let mr = check_pointer("ibv_reg_mr_iova", mr).map_err(|error| {
            let shifted = (ptr as u64 ^ iova) & (page_size() as u64 - 1) != 0;
            match error.errno().raw() {
                libc::EINVAL if shifted => error.with_hint(format!(
                    "the address {ptr:#x} and the I/O address {iova:#x} have different offsets within a page"
                )),
                _ => explain_registration(error, len, access),
            }
        })?;
        let registration = Registration::new(iova, len, access);
        // SAFETY: just registered so in this PD, ours alone; its memory is the caller's.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, None) }))
    }

    /// `ibv_reg_mr(pd, NULL, SIZE_MAX, access | IBV_ACCESS_ON_DEMAND)` — registers the whole address space of the process,
    /// also what is mapped later (implicit on-demand paging). Requests name memory by its address; the device faults pages
    /// in when it needs them.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` or `EINVAL` where the device has no implicit on-demand paging
    /// ([`OdpGeneralCapabilities`](crate::ibverbs::device_context::OdpGeneralCapabilities)).
    ///
    /// # Safety
    ///
    /// As for [`reg_mr`](Self::reg_mr), of *all* memory of the process, except that it need not stay mapped: a request to
    /// what is not mapped fails. With `LocalWrite` alone this comes to what each `setup_sge` promises; a flag that lets
    /// peers at the memory asks for a peer that touches no byte which Rust code counts on.
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    #[doc(alias = "implicit ODP")]
    pub unsafe fn reg_implicit_odp_mr(self: &Arc<Self>, access: AccessFlags) -> Result<Arc<MemoryRegion>, VerbError> {
        let access = access | AccessFlags::OnDemand;
        // SAFETY: the PD is live; the memory is the caller's promise.
        let mr = unsafe { sys::ibv_reg_mr(self.raw(), ptr::null_mut(), usize::MAX, flags(access)) };
        let mr = check_pointer("ibv_reg_mr", mr).map_err(|error| match error.errno().raw() {
            libc::EINVAL | libc::EOPNOTSUPP => {
                error.with_hint("the device has no implicit on-demand paging: see DeviceAttr::odp_caps")
            }
            _ => error,
        })?;
        let registration = Registration { iova: Some(0), len: usize::MAX, access: Some(access) };
        // SAFETY: just registered so in this PD, ours alone; its memory is the caller's.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, None) }))
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
        let mr = unsafe { sys::ibv_reg_dmabuf_mr(self.raw(), offset, length, iova, fd.as_raw_fd(), flags(access)) };
        let mr = check_pointer("ibv_reg_dmabuf_mr", mr).map_err(|error| explain_registration(error, length, access))?;
        let registration = Registration::new(iova, length, access);
        // SAFETY: just registered so in this PD, ours alone; its memory is the caller's.
        Ok(Arc::new(unsafe { MemoryRegion::from_raw(mr, self, registration, None) }))
    }
}

/// An address as C takes it. Whoever registered it exposed its provenance by making a number of it; the device needs none.
pub(super) fn memory(ptr: usize) -> *mut libc::c_void {
    ptr::with_exposed_provenance_mut(ptr)
}

/// The flags as C takes them.
pub(super) fn flags(access: AccessFlags) -> c_int {
    access.bits().cast_signed()
}

/// The size of a page of this machine.
pub(super) fn page_size() -> usize {
    // SAFETY: the call takes a plain number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

/// Says what registration failures usually mean.
#[cold]
pub(crate) fn explain_registration(error: VerbError, len: usize, access: AccessFlags) -> VerbError {
    let writes = AccessFlags::RemoteWrite | AccessFlags::RemoteAtomic;
    match error.errno().raw() {
        libc::EINVAL if access.intersects(writes) && !access.contains(AccessFlags::LocalWrite) => {
            error.with_hint("RemoteWrite and RemoteAtomic need LocalWrite as well")
        }
        libc::EINVAL if len == 0 => error.with_hint("the length is 0"),
        libc::EINVAL | libc::EOPNOTSUPP if access.contains(AccessFlags::OnDemand) => {
            error.with_hint("perhaps the device has no on-demand paging: see DeviceAttr::odp_caps")
        }
        libc::EINVAL | libc::EOPNOTSUPP
            if access.intersects(AccessFlags::FlushGlobal | AccessFlags::FlushPersistent) =>
        {
            error.with_hint("perhaps the device, or the kernel, does not know flush")
        }
        libc::ENOMEM => match locked_memory_limit() {
            Some(limit) => error.with_hint(format!(
                "{len} bytes are to be locked and the limit is {limit}, in which counts what was locked before: unless \
                 the device is out of keys, raise it with `ulimit -l unlimited` or in /etc/security/limits.conf"
            )),
            None => error,
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
