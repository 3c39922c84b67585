//! The process and the user at the other end of a Unix socket.

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the process and the user that the other end had when it connected or listened. A user of another user
/// namespace appears as the overflow user.
///
/// This function calls libc, because for a process in another PID namespace the kernel reports the process ID zero,
/// which rustix cannot represent.
fn peer(socket: BorrowedFd<'_>) -> Option<libc::ucred> {
    let mut credentials = MaybeUninit::<libc::ucred>::uninit();
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `credentials` has space for `length` bytes.
    let result = unsafe {
        let start = credentials.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, start, &raw mut length)
    };
    if result != 0 || length as usize != size_of::<libc::ucred>() {
        return None;
    }
    // SAFETY: the kernel has written all bytes of `credentials`.
    Some(unsafe { credentials.assume_init() })
}

/// Whether the other end belongs to the user of this process.
pub(crate) fn is_ours(socket: BorrowedFd<'_>) -> bool {
    peer(socket).is_some_and(|peer| peer.uid == rustix::process::geteuid().as_raw())
}

/// Whether the other end belongs to this process.
pub(crate) fn is_this_process(socket: BorrowedFd<'_>) -> bool {
    peer(socket).is_some_and(|peer| peer.pid.cast_unsigned() == std::process::id())
}
