//! Failures of verbs. Each function sets errno and returns the value by which verbs of one kind report a failure.

use std::ffi::c_int;
use std::ptr;

use crate::sys::errno::Errno;

fn set(errno: Errno) {
    // SAFETY: libc returns the address of this thread's errno, which is valid and aligned while the thread runs.
    unsafe { *libc::__errno_location() = errno.0 };
}

/// Sets errno and returns null.
pub(crate) fn null<T>(errno: Errno) -> *mut T {
    set(errno);
    ptr::null_mut()
}

/// Sets errno and returns -1.
pub(crate) fn minus_one(errno: Errno) -> c_int {
    set(errno);
    -1
}

/// Sets errno and returns it.
pub(crate) fn code(errno: Errno) -> c_int {
    set(errno);
    errno.0
}

/// Returns zero, or sets errno and returns it.
pub(crate) fn result(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => code(errno),
    }
}
