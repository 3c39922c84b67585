//! The error type of verbs.

use std::ffi::c_int;

/// An errno value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const NO_MEMORY: Self = Self(libc::ENOMEM);
    pub(crate) const NOT_SUPPORTED: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const FAULT: Self = Self(libc::EFAULT);
    pub(crate) const IO: Self = Self(libc::EIO);
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);

    /// Returns the errno of the last system call that failed on this thread.
    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}
