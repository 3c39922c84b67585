//! `struct ibv_xrcd`: XRC domains.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_xrcd, ibv_xrcd_init_attr, ibv_xrcd_init_attr_mask};

use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_pointer};
use crate::ibverbs::device_context::DeviceContext;

const OPEN: &str = "ibv_open_xrcd";

bitflags::bitflags! {
    /// The `oflags` of [`open_xrcd`](DeviceContext::open_xrcd).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct XrcDomainFlags: c_int {
        /// `O_CREAT`: creates the file's domain if it does not exist.
        const Create = libc::O_CREAT;
        /// `O_EXCL`: together with `Create`, the call fails if the file already has a domain.
        const Exclusive = libc::O_EXCL;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

/// An XRC domain. An XRC shared receive queue and a receiving XRC queue pair can be used together only if they belong
/// to the same domain.
#[doc(alias = "ibv_xrcd")]
#[derive(Debug)]
pub struct XrcDomain {
    // This is the first field, so it is dropped first, because the context must outlive it.
    handle: Handle<ibv_xrcd>,
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_open_xrcd(context, {fd, oflags})` — opens the domain of a file, shared by all processes that open the same
    /// file. If `file` is `None`, creates a domain private to this process, which needs [`XrcDomainFlags::Create`].
    ///
    /// The file may be closed afterwards.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`, `ENOSYS`: the device or its driver does not support XRC.
    /// - `EINVAL`: the file already has a domain and `Exclusive` is set, or there is neither a file nor the flag
    ///   `Create`.
    /// - `EAGAIN`: the file has no domain, and `Create` is not set.
    /// - Otherwise the driver's errno.
    ///
    /// # References
    ///
    /// [ibv_open_xrcd(3)](https://man7.org/linux/man-pages/man3/ibv_open_xrcd.3.html)
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrcd(
        self: &Arc<Self>,
        file: Option<BorrowedFd<'_>>,
        flags: XrcDomainFlags,
    ) -> Result<Arc<XrcDomain>, VerbError> {
        if file.is_none() && !flags.contains(XrcDomainFlags::Create) {
            return Err(VerbError::invalid(
                OPEN,
                "without a file there is no domain to open; pass XrcDomainFlags::Create",
            ));
        }
        if !can_close(self) {
            return Err(unsupported(VerbError::new(OPEN, Errno::EOPNOTSUPP)));
        }
        let mut attr = ibv_xrcd_init_attr {
            comp_mask: ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_FD.0
                | ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_OFLAGS.0,
            fd: file.map_or(-1, |file| file.as_raw_fd()),
            oflags: flags.bits(),
        };
        // SAFETY: the context is open as long as `self` lives, the attributes are initialised, and the descriptor is
        // open.
        let xrcd = unsafe { sys::ibv_open_xrcd(self.raw(), &mut attr) };
        let xrcd = check_pointer(OPEN, xrcd).map_err(|error| explain(error, file.is_some(), flags))?;
        // SAFETY: the domain was just opened and is not shared, and ibv_close_xrcd closes it.
        let handle = unsafe { Handle::new(xrcd, close_xrcd, "ibv_close_xrcd") };
        Ok(Arc::new(XrcDomain { handle, context: Arc::clone(self) }))
    }
}

impl XrcDomain {
    /// `ibv_close_xrcd(xrcd)` — closes the domain. This method returns an error of the verb, whereas drop only logs it.
    /// The domain itself exists until the last process has closed it.
    ///
    /// Take a domain out of its `Arc` with [`Arc::into_inner`], which succeeds once all its objects are dropped.
    ///
    /// # Errors
    ///
    /// The driver's errno; the domain is then leaked.
    ///
    /// # References
    ///
    /// [ibv_close_xrcd(3)](https://man7.org/linux/man-pages/man3/ibv_open_xrcd.3.html)
    #[doc(alias = "ibv_close_xrcd")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the domain's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use it only while `self` lives, and do not close it.
    pub unsafe fn xrcd(&self) -> NonNull<ibv_xrcd> {
        self.handle.as_non_null()
    }

    /// Returns the C object for this crate.
    pub(crate) fn raw(&self) -> *mut ibv_xrcd {
        self.handle.as_ptr()
    }
}

/// Whether the driver can close a domain that it has opened. The inline function of the C header does not check this.
fn can_close(context: &DeviceContext) -> bool {
    // SAFETY: the context is open, and the member is read only if the table is long enough to have it.
    unsafe {
        let table = sys::verbs_get_ctx(context.raw());
        !table.is_null()
            && (*table).sz >= size_of::<sys::verbs_context>() - std::mem::offset_of!(sys::verbs_context, close_xrcd)
            && (*table).close_xrcd.is_some()
    }
}

/// The verb as a function with the calling convention of C.
unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: only the handle calls this function, with a live domain of a context that can close domains
    // (`can_close`).
    unsafe { sys::ibv_close_xrcd(xrcd) }
}

#[cold]
fn explain(error: VerbError, has_file: bool, flags: XrcDomainFlags) -> VerbError {
    match error.errno().raw() {
        libc::EOPNOTSUPP | libc::ENOSYS => unsupported(error),
        libc::EINVAL if has_file && flags.contains(XrcDomainFlags::Create | XrcDomainFlags::Exclusive) => {
            error.with_hint("the file may already have a domain; omit Exclusive")
        }
        libc::EAGAIN | libc::ENOENT if has_file && !flags.contains(XrcDomainFlags::Create) => {
            error.with_hint("the file has no domain; pass XrcDomainFlags::Create")
        }
        libc::EBADF => error.with_hint("the kernel does not accept this descriptor; pass a file"),
        _ => error,
    }
}

#[cold]
fn unsupported(error: VerbError) -> VerbError {
    error.with_hint("the device or its driver does not support XRC (DeviceCapabilityFlags::ExtendedReliableConnection)")
}
