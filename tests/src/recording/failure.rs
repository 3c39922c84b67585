//! errno, and the ways of C to report it.

use libc::c_int;

/// How a number says that a call failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// As the manual page has it.
    Documented,
    /// The negated errno value.
    Negative,
    /// `-1`, with errno set.
    MinusOne,
    /// Null, with errno as it was before the call.
    Silent,
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: libc gives the address of this thread's errno, valid and aligned as long as the thread runs.
    unsafe { *libc::__errno_location() = errno };
}
