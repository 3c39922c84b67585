//! What the functions have in common: where their results go, and what they read of C.

use std::ffi::{c_int, c_void};
use std::{io, slice};

use crate::sys::errno::Errno;
use crate::verbs::failure;

/// What a function returns: zero, or -1 and errno.
pub(super) fn answer(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => failure::minus_one(errno),
    }
}

/// What a verb that gives null has left in errno.
pub(super) fn last() -> Errno {
    Errno(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// What a verb made, or why not.
pub(super) fn made<T>(object: *mut T) -> Result<*mut T, Errno> {
    if object.is_null() { Err(last()) } else { Ok(object) }
}

/// What a verb that returns an errno value says.
pub(super) fn checked(code: c_int) -> Result<(), Errno> {
    if code == 0 { Ok(()) } else { Err(Errno(code)) }
}

/// The errno value of a system call.
pub(super) fn system(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}

/// A copy of bytes of C's.
///
/// # Safety
///
/// `data` is null, or so many bytes can be read there.
pub(super) unsafe fn bytes(data: *const c_void, length: usize) -> Vec<u8> {
    if data.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec()
}

/// A number that nobody can guess from the last.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
