//! Return values of verbs without an implementation: each fails as its manual page documents, so that C callers detect
//! it.
//!
//! Each function takes an errno value, stores it in `errno`, and returns the verb's failure value.

use core::ffi::c_int;
use core::ptr;

use crate::bindings::verbs::{__be16, __be64, ibv_fork_status};

pub(crate) fn set_errno(code: c_int) {
    // SAFETY: libc returns the address of this thread's errno, which is valid and aligned while the thread runs.
    unsafe { *libc::__errno_location() = code };
}

/// Returns this thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: libc returns the address of this thread's errno, which is valid and aligned while the thread runs.
    unsafe { *libc::__errno_location() }
}

/// Returns a null pointer, and sets errno.
pub(crate) fn null<T>(code: c_int) -> *mut T {
    set_errno(code);
    ptr::null_mut()
}

/// Returns a null pointer to constant data, and sets errno.
pub(crate) fn null_const<T>(code: c_int) -> *const T {
    set_errno(code);
    ptr::null()
}

/// Returns -1, and sets errno.
pub(crate) fn minus_one(code: c_int) -> c_int {
    set_errno(code);
    -1
}

/// Returns the errno value, and sets errno.
pub(crate) fn code(code: c_int) -> c_int {
    set_errno(code);
    code
}

/// Returns the negated errno value, for a verb that otherwise returns a count.
pub(crate) fn negative(code: c_int) -> isize {
    set_errno(code);
    // Lossless: errno values are small and positive.
    -(code as isize)
}

/// Returns the negated errno value, for a verb that otherwise returns a descriptor or a count.
pub(crate) fn negative_code(code: c_int) -> c_int {
    set_errno(code);
    -code
}

/// Returns -1 and sets errno, for a verb that otherwise returns a number of bytes.
pub(crate) fn minus_one_bytes(code: c_int) -> isize {
    set_errno(code);
    -1
}

/// Sets errno, for a verb without a return value.
pub(crate) fn nothing(code: c_int) {
    set_errno(code);
}

/// Returns zero ("no"), and sets errno.
pub(crate) fn zero(code: c_int) -> c_int {
    set_errno(code);
    0
}

/// Returns `false`, and sets errno.
pub(crate) fn no(code: c_int) -> bool {
    set_errno(code);
    false
}

/// Returns the zero GUID, and sets errno.
pub(crate) fn zero_guid(code: c_int) -> __be64 {
    set_errno(code);
    0
}

/// Returns port zero, and sets errno.
pub(crate) fn zero_port(code: c_int) -> __be16 {
    set_errno(code);
    0
}

/// Returns "not initialized", and sets errno.
pub(crate) fn fork_disabled(code: c_int) -> ibv_fork_status {
    set_errno(code);
    ibv_fork_status::IBV_FORK_DISABLED
}
