//! A descriptor that is readable while events are queued: each event is a token in it.

use libc::c_int;

/// Creates a descriptor without tokens.
pub(super) fn new() -> c_int {
    // Miri has no semaphore mode, so `take` puts back the surplus tokens. Miri also cannot change the blocking mode
    // later.
    let flags =
        if cfg!(miri) { libc::EFD_CLOEXEC | libc::EFD_NONBLOCK } else { libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE };
    // SAFETY: the call takes only numbers.
    unsafe { libc::eventfd(0, flags) }
}

/// Adds tokens.
///
/// # Safety
///
/// `fd` was made by [`new`] and is open.
pub(super) unsafe fn put(fd: c_int, tokens: u64) {
    // SAFETY: eight bytes are live, the size that an eventfd reads.
    unsafe { libc::write(fd, (&raw const tokens).cast(), size_of::<u64>()) };
}

/// Takes a token, waiting for one if the descriptor blocks; false, with errno set, on failure.
///
/// # Safety
///
/// As for [`put`].
pub(super) unsafe fn take(fd: c_int) -> bool {
    let mut tokens = 0_u64;
    // SAFETY: eight bytes are live.
    if unsafe { libc::read(fd, (&raw mut tokens).cast(), size_of::<u64>()) } < 0 {
        return false;
    }
    if tokens > 1 {
        // SAFETY: the caller's descriptor.
        unsafe { put(fd, tokens - 1) };
    }
    true
}
