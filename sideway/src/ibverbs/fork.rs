//! Using RDMA together with `fork(2)`.
//!
//! A forked child shares its parent's pages until one of them writes. When the parent writes to such a page, Linux
//! before 5.12 may give the parent a copy. The device then keeps using the original page, which the parent no longer
//! sees. [`fork_init`] prevents this: it makes the library hide registered memory from children. Later kernels copy
//! pages that a device uses for the child during `fork(2)`, so no call is needed ([`ForkStatus::Unneeded`]). The pages
//! of an [`OwnedMemoryRegion`](super::memory_region::OwnedMemoryRegion) are always hidden from children.

use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::c_void;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_fork_status as raw;

use crate::error::VerbError;
use crate::ffi::{check_errno, open_enum};

open_enum! {
    /// `enum ibv_fork_status`: the library's protection against `fork(2)`.
    #[doc(alias = "ibv_fork_status")]
    pub enum ForkStatus {
        /// There is no protection, so forking is not safe.
        Disabled = raw::IBV_FORK_DISABLED.0 => "disabled",
        /// Registered memory is hidden from children.
        Enabled = raw::IBV_FORK_ENABLED.0 => "enabled",
        /// The kernel makes forking safe.
        Unneeded = raw::IBV_FORK_UNNEEDED.0 => "unneeded",
    }
}

/// `ibv_fork_init()` — makes `fork(2)` safe for the parent, for all code in the process that uses libibverbs. Call it
/// before opening a device or creating an event channel of the connection manager, because libibverbs sets up its
/// record of registered memory without a lock. After one call has succeeded, further calls succeed at any time. If
/// other code registers reserved huge pages, also set the environment variable `RDMAV_HUGEPAGES_SAFE`.
///
/// # Errors
///
/// Returns `EINVAL` if a device was opened or memory was registered before. Returns `EOPNOTSUPP` if libibverbs is not
/// installed, and `ENOSYS` if the kernel lacks `MADV_DONTFORK`.
///
/// # References
///
/// [ibv_fork_init(3)](https://man7.org/linux/man-pages/man3/ibv_fork_init.3.html)
#[doc(alias = "ibv_fork_init")]
pub fn fork_init() -> Result<(), VerbError> {
    const VERB: &str = "ibv_fork_init";
    let devices_used = lock();
    // If the library is already initialised, there is nothing to do.
    if is_fork_initialized() != ForkStatus::Disabled {
        return Ok(());
    }
    if *devices_used {
        return Err(VerbError::invalid(
            VERB,
            "a device is already open; call fork_init before opening the first device",
        ));
    }
    // SAFETY: this process has not opened a device, and cannot open one during the call (`before_device`). So no memory
    // is registered.
    check_errno(VERB, unsafe { sys::ibv_fork_init() }).map_err(|error| match error.errno().raw() {
        libc::EINVAL => error.with_hint("memory was registered already; call fork_init first"),
        _ => error,
    })
}

/// Whether a device may have been opened. Code that opens a device calls [`before_device`] first.
static DEVICES_USED: Mutex<bool> = Mutex::new(false);

fn lock() -> MutexGuard<'static, bool> {
    DEVICES_USED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Must be called before a device is opened. Waits for a running [`fork_init`], and makes later calls of [`fork_init`]
/// fail.
pub(crate) fn before_device() {
    *lock() = true;
}

/// `ibv_is_fork_initialized()` — returns the library's protection against `fork(2)`, or [`ForkStatus::Disabled`] if
/// libibverbs is not installed.
///
/// # References
///
/// [ibv_is_fork_initialized(3)](https://man7.org/linux/man-pages/man3/ibv_is_fork_initialized.3.html)
#[doc(alias = "ibv_is_fork_initialized")]
pub fn is_fork_initialized() -> ForkStatus {
    // SAFETY: the function takes no arguments.
    ForkStatus::from_raw(unsafe { sys::ibv_is_fork_initialized() }.0)
}

/// `ibv_dontfork_range(base, size)` — hides the pages of a range from forked children, as the library does for
/// registered memory. Use it for memory that a device accesses without a registration. The library counts the calls, so
/// each call must be undone with [`dofork_range`]. The function has no effect without [`fork_init`].
///
/// # Errors
///
/// Returns `EINVAL` if the range is not mapped, and `ENOMEM` if memory is exhausted. Returns `EOPNOTSUPP` if libibverbs
/// is not installed or lacks the function.
///
/// # Safety
///
/// - The `len` bytes at `ptr` are mapped.
/// - Until it calls `exec(3)`, a child of `fork(2)` does not access anything in the pages of the range, because the
///   child does not have these pages. So the range must not contain the stack of the forking thread, or heap memory
///   that the child uses. This also applies to [`std::process::Command`].
#[doc(alias = "ibv_dontfork_range")]
pub unsafe fn dontfork_range(ptr: *mut u8, len: usize) -> Result<(), VerbError> {
    // SAFETY: the range is mapped, by contract.
    check_errno("ibv_dontfork_range", unsafe { sys::ibv_dontfork_range(ptr.cast::<c_void>(), len) })
}

/// `ibv_dofork_range(base, size)` — undoes one call of [`dontfork_range`].
///
/// # Errors
///
/// Returns the same errors as [`dontfork_range`].
///
/// # Safety
///
/// Exactly this range was passed to [`dontfork_range`] and is still mapped. Each call of [`dontfork_range`] is undone
/// at most once; otherwise, pages lose the protection that another registration needs.
#[doc(alias = "ibv_dofork_range")]
pub unsafe fn dofork_range(ptr: *mut u8, len: usize) -> Result<(), VerbError> {
    // SAFETY: the range is mapped, by contract.
    check_errno("ibv_dofork_range", unsafe { sys::ibv_dofork_range(ptr.cast::<c_void>(), len) })
}
