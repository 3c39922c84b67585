//! Living with `fork(2)`.
//!
//! On Linux before 5.12, a page that a device writes to and that a forked child shares can be copied when the parent writes
//! to it; the device then goes on with the copy that the parent has no more. [`fork_init`] makes the library keep
//! registered memory from children. Later kernels copy such pages for the child at once: nothing needs to be done
//! ([`ForkStatus::Unneeded`]). The pages of an [`OwnedMemoryRegion`](super::memory_region::OwnedMemoryRegion) are kept from
//! children in any case.

use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::c_void;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_fork_status as raw;

use crate::error::VerbError;
use crate::ffi::{check_errno, open_enum};

open_enum! {
    /// `enum ibv_fork_status`: what the library does about `fork(2)`.
    #[doc(alias = "ibv_fork_status")]
    pub enum ForkStatus {
        /// Nothing: forking is not safe.
        Disabled = raw::IBV_FORK_DISABLED.0 => "disabled",
        /// Registered memory is kept from children.
        Enabled = raw::IBV_FORK_ENABLED.0 => "enabled",
        /// The kernel sees to it.
        Unneeded = raw::IBV_FORK_UNNEEDED.0 => "unneeded",
    }
}

/// `ibv_fork_init()` — makes `fork(2)` safe for the parent, for every library and provider. Call it before a device is opened, or an
/// event channel of the connection manager: libibverbs sets up what it keeps of registered memory without a lock. Once it has
/// succeeded, it succeeds at any time. With reserved huge pages that other code registers, the environment variable `RDMAV_HUGEPAGES_SAFE` has to
/// be set too.
///
/// # Errors
///
/// `EINVAL` if a device was opened before, or memory registered; `EOPNOTSUPP` where there is no library; `ENOSYS` on a kernel without
/// `MADV_DONTFORK`.
///
/// # References
///
/// [ibv_fork_init(3)](https://man7.org/linux/man-pages/man3/ibv_fork_init.3.html)
#[doc(alias = "ibv_fork_init")]
pub fn fork_init() -> Result<(), VerbError> {
    const VERB: &str = "ibv_fork_init";
    let devices_used = lock();
    // What was done once is not done again.
    if is_fork_initialized() != ForkStatus::Disabled {
        return Ok(());
    }
    if *devices_used {
        return Err(VerbError::invalid(VERB, "a device was opened already: call fork_init before"));
    }
    // SAFETY: no device was opened here, none is meanwhile (`before_device`), and so no memory is registered.
    check_errno(VERB, unsafe { sys::ibv_fork_init() }).map_err(|error| match error.errno().raw() {
        libc::EINVAL => error.with_hint("memory has been registered already: call fork_init first"),
        _ => error,
    })
}

/// Whether a device may have been opened: what opens one says so before ([`before_device`]).
static DEVICES_USED: Mutex<bool> = Mutex::new(false);

fn lock() -> MutexGuard<'static, bool> {
    DEVICES_USED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device is going to be opened: [`fork_init`] has ended, and is refused from now on.
pub(crate) fn before_device() {
    *lock() = true;
}

/// `ibv_is_fork_initialized()` — what the library does about `fork(2)`; [`ForkStatus::Disabled`] where there is no library.
///
/// # References
///
/// [ibv_is_fork_initialized(3)](https://man7.org/linux/man-pages/man3/ibv_is_fork_initialized.3.html)
#[doc(alias = "ibv_is_fork_initialized")]
pub fn is_fork_initialized() -> ForkStatus {
    // SAFETY: the function takes nothing.
    ForkStatus::from_raw(unsafe { sys::ibv_is_fork_initialized() }.0)
}

/// `ibv_dontfork_range(base, size)` — keeps the pages of a range from forked children, as the library does for registered
/// memory: for memory that a device reaches otherwise. Ranges are counted: one given twice is taken back twice. Without
/// [`fork_init`] it does nothing.
///
/// # Errors
///
/// `EINVAL` where the range is not mapped; `ENOMEM`; `EOPNOTSUPP` where there is no library or it lacks the function.
///
/// # Safety
///
/// - The `len` bytes at `ptr` are mapped.
/// - No child of `fork(2)` touches anything in the pages of the range before it calls `exec(3)`: they are not there. That
///   goes for the stack and the heap of the thread that forks, by [`std::process::Command`] too.
#[doc(alias = "ibv_dontfork_range")]
pub unsafe fn dontfork_range(ptr: *mut u8, len: usize) -> Result<(), VerbError> {
    // SAFETY: the range is mapped, by contract.
    check_errno("ibv_dontfork_range", unsafe { sys::ibv_dontfork_range(ptr.cast::<c_void>(), len) })
}

/// `ibv_dofork_range(base, size)` — takes a [`dontfork_range`] back.
///
/// # Errors
///
/// As there.
///
/// # Safety
///
/// The very range was given to [`dontfork_range`], is still mapped, and is not taken back more often than it was given:
/// else pages lose the protection that another registration needs.
#[doc(alias = "ibv_dofork_range")]
pub unsafe fn dofork_range(ptr: *mut u8, len: usize) -> Result<(), VerbError> {
    // SAFETY: the range is mapped, by contract.
    check_errno("ibv_dofork_range", unsafe { sys::ibv_dofork_range(ptr.cast::<c_void>(), len) })
}
