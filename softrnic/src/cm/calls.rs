//! Helpers for the results and the arguments of C functions.

use std::ffi::{c_int, c_void};
use std::{io, slice};

use crate::sys::errno::Errno;
use crate::verbs::failure;

/// Returns zero, or sets errno and returns -1.
pub(super) fn return_code(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => failure::minus_one(errno),
    }
}

/// Returns the errno of a verb that has returned null.
pub(super) fn last() -> Errno {
    Errno(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Converts the result of a verb that returns an object or null.
pub(super) fn made<T>(object: *mut T) -> Result<*mut T, Errno> {
    if object.is_null() { Err(last()) } else { Ok(object) }
}

/// Converts the result of a verb that returns an errno value.
pub(super) fn checked(code: c_int) -> Result<(), Errno> {
    if code == 0 { Ok(()) } else { Err(Errno(code)) }
}

/// Converts the errno of a system call.
pub(super) fn system(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}

/// Copies bytes that C passes.
///
/// # Safety
///
/// `data` is null, or `length` bytes are readable.
pub(super) unsafe fn bytes(data: *const c_void, length: usize) -> Vec<u8> {
    if data.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec()
}

/// Returns an unpredictable number.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
