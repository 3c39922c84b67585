//! Using RDMA together with `fork(2)`.
//!
//! On Linux before 5.12, the kernel may copy a page that the parent shares with a forked child when the parent writes
//! to it. The device then keeps using the original page, which the parent no longer sees. [`fork_init`] makes the
//! library hide registered memory from children. Later kernels copy such pages for the child at once, so nothing is
//! needed ([`ForkStatus::Unneeded`]). The pages of an [`OwnedMemoryRegion`](super::memory_region::OwnedMemoryRegion)
//! are always hidden from children.

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
        /// No protection: forking is not safe.
        Disabled = raw::IBV_FORK_DISABLED.0 => "disabled",
        /// Registered memory is hidden from children.
        Enabled = raw::IBV_FORK_ENABLED.0 => "enabled",
        /// The kernel makes forking safe.
        Unneeded = raw::IBV_FORK_UNNEEDED.0 => "unneeded",
    }
}

/// `ibv_fork_init()` — makes `fork(2)` safe for the parent, in every library and provider. Call it before opening a
/// device or creating an event channel of the connection manager: libibverbs sets up its record of registered memory
/// without a lock. Once it has succeeded, later calls succeed at any time. If other code registers reserved huge pages,
/// also set the environment variable `RDMAV_HUGEPAGES_SAFE`.
///
/// # Errors
///
/// `EINVAL` if a device was opened or memory registered before; `EOPNOTSUPP` without a library; `ENOSYS` on a kernel
/// without `MADV_DONTFORK`.
///
/// # References
///
/// [ibv_fork_init(3)](https://man7.org/linux/man-pages/man3/ibv_fork_init.3.html)
#[doc(alias = "ibv_fork_init")]
pub fn fork_init() -> Result<(), VerbError> {
    const VERB: &str = "ibv_fork_init";
    let devices_used = lock();
    // Initialisation happens once.
    if is_fork_initialized() != ForkStatus::Disabled {
        return Ok(());
    }
    if *devices_used {
        return Err(VerbError::invalid(
            VERB,
            "a device is already open; call fork_init before opening the first device",
        ));
    }
    // SAFETY: no device was opened here, and none is opened during the call (`before_device`), so no memory is
    // registered.
    check_errno(VERB, unsafe { sys::ibv_fork_init() }).map_err(|error| match error.errno().raw() {
        libc::EINVAL => error.with_hint("memory was registered already; call fork_init first"),
        _ => error,
    })
}

/// Whether a device may have been opened: code that opens one calls [`before_device`] first.
static DEVICES_USED: Mutex<bool> = Mutex::new(false);

fn lock() -> MutexGuard<'static, bool> {
    DEVICES_USED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called before a device is opened: waits for a running [`fork_init`], and makes later calls of it fail.
pub(crate) fn before_device() {
    *lock() = true;
}

/// `ibv_is_fork_initialized()` — returns the library's protection against `fork(2)`; [`ForkStatus::Disabled`] without a
/// library.
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
/// registered memory: use it for memory that a device accesses in other ways. Calls are counted: undo each with
/// [`dofork_range`]. Has no effect without [`fork_init`].
///
/// # Errors
///
/// `EINVAL` if the range is not mapped; `ENOMEM`; `EOPNOTSUPP` without a library, or if it lacks the function.
///
/// # Safety
///
/// - The `len` bytes at `ptr` are mapped.
/// - Until it calls `exec(3)`, no child of `fork(2)` touches anything in the range's pages, because the child does not
///   have them. This includes the stack and the heap of the forking thread, also with [`std::process::Command`].
#[doc(alias = "ibv_dontfork_range")]
pub unsafe fn dontfork_range(ptr: *mut u8, len: usize) -> Result<(), VerbError> {
    // SAFETY: the range is mapped, by contract.
    check_errno("ibv_dontfork_range", unsafe { sys::ibv_dontfork_range(ptr.cast::<c_void>(), len) })
}

/// `ibv_dofork_range(base, size)` — undoes a [`dontfork_range`].
///
/// # Errors
///
/// The same errors as [`dontfork_range`].
///
/// # Safety
///
/// Exactly this range was passed to [`dontfork_range`], is still mapped, and is undone at most as often as it was
/// passed; otherwise pages lose protection that another registration needs.
#[doc(alias = "ibv_dofork_range")]
pub unsafe fn dofork_range(ptr: *mut u8, len: usize) -> Result<(), VerbError> {
    // SAFETY: the range is mapped, by contract.
    check_errno("ibv_dofork_range", unsafe { sys::ibv_dofork_range(ptr.cast::<c_void>(), len) })
}
