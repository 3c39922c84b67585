//! errno, and how C functions report it.

use libc::c_int;

/// How a call fails.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    errno: c_int,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Documented,
    Negative,
    MinusOne,
    Silent,
}

impl Failure {
    /// A failure as the manual page documents it: the errno value, or null or `-1` with errno set.
    pub const fn documented(errno: c_int) -> Self {
        Self { errno, how: How::Documented }
    }

    /// The negated errno value, where a number is returned.
    pub const fn negative(errno: c_int) -> Self {
        Self { errno, how: How::Negative }
    }

    /// `-1` with errno set, where a number is returned.
    pub const fn minus_one(errno: c_int) -> Self {
        Self { errno, how: How::MinusOne }
    }

    /// Null without a reason: errno stays as it was.
    pub const fn silent() -> Self {
        Self { errno: libc::EIO, how: How::Silent }
    }

    /// The errno value.
    pub const fn errno(self) -> c_int {
        self.errno
    }

    fn number(self, documented: c_int) -> c_int {
        match self.how {
            How::Documented | How::Silent => documented,
            How::Negative => -self.errno,
            How::MinusOne => self.minus(),
        }
    }

    /// For verbs that return zero or the errno value.
    pub(super) fn code(self) -> c_int {
        self.number(self.errno)
    }

    /// For verbs that return a count, or a negative value.
    pub(super) fn below_zero(self) -> c_int {
        self.number(-self.errno)
    }

    /// For verbs that return `-1` with errno set.
    pub(super) fn minus(self) -> c_int {
        set_errno(self.errno);
        -1
    }

    /// For verbs that return a pointer.
    pub(super) fn null<T>(self) -> *mut T {
        if !matches!(self.how, How::Silent) {
            set_errno(self.errno);
        }
        std::ptr::null_mut()
    }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: libc returns the address of this thread's errno, valid and aligned as long as the thread runs.
    unsafe { *libc::__errno_location() = errno };
}
