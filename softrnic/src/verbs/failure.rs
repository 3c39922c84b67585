//! How a verb fails: errno is set, and the value that its manual page documents is returned.

use std::ffi::c_int;
use std::ptr;

use crate::sys::errno::Errno;

fn set(errno: Errno) {
    // SAFETY: libc gives the address of this thread's errno, which is valid and aligned for as long as the thread runs.
    unsafe { *libc::__errno_location() = errno.0 };
}

/// Null, and errno.
pub(crate) fn null<T>(errno: Errno) -> *mut T {
    set(errno);
    ptr::null_mut()
}

/// -1, and errno.
pub(crate) fn minus_one(errno: Errno) -> c_int {
    set(errno);
    -1
}

/// The errno value, which is also set.
pub(crate) fn code(errno: Errno) -> c_int {
    set(errno);
    errno.0
}

/// Zero, or the errno value.
pub(crate) fn result(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => code(errno),
    }
}
