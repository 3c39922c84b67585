//! errno, and how C functions report it.

use libc::c_int;

/// How a return value reports a failure.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// As the manual page documents.
    Documented,
    /// The negated errno value.
    Negative,
    /// `-1`, with errno set.
    MinusOne,
    /// Null, with errno as it was before the call.
    Silent,
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: libc returns the address of this thread's errno, valid and aligned as long as the thread runs.
    unsafe { *libc::__errno_location() = errno };
}
