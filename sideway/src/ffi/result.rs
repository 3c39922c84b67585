//! How verbs report failure: a null pointer, `-1`, or the errno itself.

use std::io;
use std::ptr::NonNull;

use libc::c_int;

use crate::error::{Errno, VerbError};

/// The errno of the calling thread.
#[cold]
pub(crate) fn last_errno() -> Errno {
    match io::Error::last_os_error().raw_os_error() {
        // A failure without a reason.
        None | Some(0) => Errno::EIO,
        Some(errno) => Errno::from_raw(errno),
    }
}

/// Forgets the errno of the calling thread, before a call that may fail without setting it.
pub(crate) fn clear_errno() {
    // SAFETY: libc gives the address of this thread's errno, valid and aligned as long as the thread runs.
    unsafe { *libc::__errno_location() = 0 };
}

/// The errno that a verb means which is documented to return 0 or an errno value.
///
/// Providers differ: some return the value, some its negative, some `-1` with errno set (so that a negative `EPERM` cannot
/// be told from that).
#[cold]
pub(crate) fn errno_of(ret: c_int) -> Errno {
    match ret {
        -1 => last_errno(),
        c_int::MIN => Errno::EINVAL,
        negative if negative < 0 => Errno::from_raw(-negative),
        positive => Errno::from_raw(positive),
    }
}

/// For verbs that return 0 or an errno value.
#[inline]
pub(crate) fn check_errno(verb: &'static str, ret: c_int) -> Result<(), VerbError> {
    if ret == 0 { Ok(()) } else { Err(VerbError::new(verb, errno_of(ret))) }
}

/// For verbs that return a pointer, or null with errno set.
#[inline]
pub(crate) fn check_pointer<T>(verb: &'static str, pointer: *mut T) -> Result<NonNull<T>, VerbError> {
    NonNull::new(pointer).ok_or_else(|| VerbError::new(verb, last_errno()))
}
