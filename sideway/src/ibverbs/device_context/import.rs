//! Importing a second context of an open device.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use rdma_mummy_sys as sys;

use super::DeviceContext;
use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_pointer};
use crate::ibverbs::fork;

impl DeviceContext {
    /// `ibv_import_device(cmd_fd)` — creates a context from the descriptor ([`cmd_fd`](Self::cmd_fd)) of a context that
    /// is already open. The descriptor may come from this process, or from another process through `SCM_RIGHTS`. Both
    /// contexts share the objects in the kernel. [`import_pd`](Self::import_pd) and related methods make these objects
    /// usable in the new context. The objects exist until the last of the contexts is closed.
    ///
    /// This function duplicates the descriptor. Closing the context closes the duplicate.
    ///
    /// # Errors
    ///
    /// - `EINVAL`, `ENODEV`: the descriptor does not belong to an RDMA device.
    /// - `EOPNOTSUPP`: the library or the driver does not support importing.
    /// - Otherwise the errno of dup(2) or of the driver. The duplicate then stays open, because some drivers have
    ///   already closed it.
    ///
    /// # References
    ///
    /// [ibv_import_device(3)](https://man7.org/linux/man-pages/man3/ibv_import_device.3.html)
    #[doc(alias = "ibv_import_device")]
    pub fn import_device(cmd_fd: BorrowedFd<'_>) -> Result<Arc<Self>, VerbError> {
        const VERB: &str = "ibv_import_device";
        let duplicate = cmd_fd
            .try_clone_to_owned()
            .map_err(|error| VerbError::new("dup", Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))))?;
        fork::before_device();
        // SAFETY: the descriptor is open, and the library owns it from here on. The library checks that it belongs to
        // an RDMA device.
        let context = unsafe { sys::ibv_import_device(duplicate.as_raw_fd()) };
        let context = check_pointer(VERB, context);
        mem::forget(duplicate);
        // SAFETY: the context was just created and is not shared, and ibv_close_device closes it.
        let handle =
            unsafe { Handle::new(context.map_err(explain_device)?, sys::ibv_close_device, "ibv_close_device") };
        Ok(Arc::new(Self::of(handle)))
    }

    /// `context->cmd_fd` — returns the descriptor of the open device, or `None` if the provider has none.
    pub fn cmd_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the context is open as long as `self` lives, and the field does not change.
        let fd = unsafe { (*self.raw()).cmd_fd };
        // SAFETY: the descriptor is open as long as the borrowed context.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

/// Adds to the error that the file is not the descriptor of a device.
#[cold]
fn explain_device(error: VerbError) -> VerbError {
    let hint = match error.errno().raw() {
        libc::EINVAL | libc::ENODEV => "the descriptor does not belong to an RDMA device of this machine",
        libc::EOPNOTSUPP => "the library or the device's driver does not support importing",
        _ => return error,
    };
    error.with_hint(hint)
}
