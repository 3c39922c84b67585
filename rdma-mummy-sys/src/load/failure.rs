//! How a verb that cannot be served fails: in the way that C callers of that verb test for, as its manual page says.
//!
//! Each function takes the errno value, stores it where the C library does, and returns the value of the failure.

use core::ffi::c_int;
use core::ptr;

use crate::bindings::verbs::{__be16, __be64, ibv_fork_status};

pub(crate) fn set_errno(code: c_int) {
    // SAFETY: libc gives the address of this thread's errno, which is valid and aligned for as long as the thread runs.
    unsafe { *libc::__errno_location() = code };
}

/// The errno of this thread.
pub(crate) fn errno() -> c_int {
    // SAFETY: libc gives the address of this thread's errno, which is valid and aligned for as long as the thread runs.
    unsafe { *libc::__errno_location() }
}

/// A null pointer, with errno set.
pub(crate) fn null<T>(code: c_int) -> *mut T {
    set_errno(code);
    ptr::null_mut()
}

/// A null pointer to what may only be read, with errno set.
pub(crate) fn null_const<T>(code: c_int) -> *const T {
    set_errno(code);
    ptr::null()
}

/// -1, with errno set.
pub(crate) fn minus_one(code: c_int) -> c_int {
    set_errno(code);
    -1
}

/// The errno value itself, which is also set.
pub(crate) fn code(code: c_int) -> c_int {
    set_errno(code);
    code
}

/// The errno value negated, for a verb which returns a count otherwise.
pub(crate) fn negative(code: c_int) -> isize {
    set_errno(code);
    // Lossless: errno values are small and positive.
    -(code as isize)
}

/// The errno value negated, for a verb which returns a descriptor or a count otherwise.
pub(crate) fn negative_code(code: c_int) -> c_int {
    set_errno(code);
    -code
}

/// -1, with errno set, for a verb which returns a number of bytes otherwise.
pub(crate) fn minus_one_bytes(code: c_int) -> isize {
    set_errno(code);
    -1
}

/// Nothing to return: only errno is set.
pub(crate) fn nothing(code: c_int) {
    set_errno(code);
}

/// "No": zero, with errno set.
pub(crate) fn zero(code: c_int) -> c_int {
    set_errno(code);
    0
}

/// "No", with errno set.
pub(crate) fn no(code: c_int) -> bool {
    set_errno(code);
    false
}

/// The GUID that no device has, with errno set.
pub(crate) fn zero_guid(code: c_int) -> __be64 {
    set_errno(code);
    0
}

/// The port that nothing is bound to, with errno set.
pub(crate) fn zero_port(code: c_int) -> __be16 {
    set_errno(code);
    0
}

/// Not initialized, with errno set.
pub(crate) fn fork_disabled(code: c_int) -> ibv_fork_status {
    set_errno(code);
    ibv_fork_status::IBV_FORK_DISABLED
}
