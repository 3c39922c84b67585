//! How verbs report failure: a null pointer, `-1`, or the errno value.

use std::io;
use std::ptr::NonNull;

use libc::c_int;

use crate::error::{Errno, VerbError};

/// Returns the calling thread's errno.
#[cold]
pub(crate) fn last_errno() -> Errno {
    match io::Error::last_os_error().raw_os_error() {
        // The verb failed without setting errno.
        None | Some(0) => Errno::EIO,
        Some(errno) => Errno::from_raw(errno),
    }
}

/// Clears the calling thread's errno, before a call that may fail without setting it.
pub(crate) fn clear_errno() {
    // SAFETY: libc returns the address of this thread's errno, valid and aligned while the thread runs.
    unsafe { *libc::__errno_location() = 0 };
}

/// Returns the errno of a verb documented to return 0 or an errno value.
///
/// Some providers return the errno value, some return its negative, and some return `-1` and set errno. A negated
/// `EPERM` is also `-1`, so it cannot be distinguished from the last case.
#[cold]
pub(crate) fn errno_of(ret: c_int) -> Errno {
    match ret {
        -1 => last_errno(),
        c_int::MIN => Errno::EINVAL,
        negative if negative < 0 => Errno::from_raw(-negative),
        positive => Errno::from_raw(positive),
    }
}

/// Checks a verb that returns 0 or an errno value.
#[inline]
pub(crate) fn check_errno(verb: &'static str, ret: c_int) -> Result<(), VerbError> {
    if ret == 0 { Ok(()) } else { Err(VerbError::new(verb, errno_of(ret))) }
}

/// Checks a verb that returns a pointer, or null with errno set.
#[inline]
pub(crate) fn check_pointer<T>(verb: &'static str, pointer: *mut T) -> Result<NonNull<T>, VerbError> {
    NonNull::new(pointer).ok_or_else(|| VerbError::new(verb, last_errno()))
}
