//! The error of a failed verb: the verb, the errno, and a hint if this crate can add to what the kernel
//! reported.

use std::borrow::Cow;
use std::{fmt, io};

/// An `errno` value, displayed with its name: `EINVAL (Invalid argument)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// Wraps an errno value.
    pub const fn from_raw(raw: i32) -> Self {
        Self(raw)
    }

    /// Returns the errno value.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// Returns the standard library's kind for this errno.
    pub fn kind(self) -> io::ErrorKind {
        io::Error::from_raw_os_error(self.0).kind()
    }
}

macro_rules! errnos {
    ($($name:ident)+) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub const $name: Self = Self(libc::$name);
            )+

            /// Returns the symbolic name, such as `EINVAL`, if verbs are known to return this errno.
            pub const fn name(self) -> Option<&'static str> {
                Some(match self {
                    $( Self::$name => stringify!($name), )+
                    _ => return None,
                })
            }
        }
    };
}

errnos! {
    EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV EINVAL EMFILE ENOSPC
    EPIPE ERANGE ENOSYS ENODATA EPROTO EOVERFLOW EPROTONOSUPPORT EOPNOTSUPP EADDRINUSE EADDRNOTAVAIL ENETDOWN
    ENETUNREACH ECONNREFUSED ECONNRESET ETIMEDOUT EHOSTUNREACH
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = io::Error::from_raw_os_error(self.0).to_string();
        match (self.name(), text.split_once(" (os error")) {
            (Some(name), Some((words, _))) => write!(f, "{name} ({words})"),
            (Some(name), None) => f.write_str(name),
            (None, _) => f.write_str(&text),
        }
    }
}

/// A failed verb: its C name, its errno, and a hint if this crate has one.
#[derive(Clone, PartialEq, Eq)]
pub struct VerbError(
    // The error is a boxed pointer, so that the success path stays small.
    Box<Failure>,
);

#[derive(Clone, PartialEq, Eq)]
struct Failure {
    verb: &'static str,
    errno: Errno,
    hint: Option<Cow<'static, str>>,
}

impl VerbError {
    /// Creates the error of a call of `verb`, without a hint.
    #[cold]
    pub fn new(verb: &'static str, errno: Errno) -> Self {
        Self(Box::new(Failure { verb, errno, hint: None }))
    }

    /// Creates an `EINVAL` error with a hint, for arguments rejected before the library call.
    #[cold]
    pub fn invalid(verb: &'static str, hint: impl Into<Cow<'static, str>>) -> Self {
        Self::new(verb, Errno::EINVAL).with_hint(hint)
    }

    /// Creates the error of a failed poll. Drivers return no errno for it.
    #[cold]
    pub(crate) fn of_poll(verb: &'static str, ret: i32) -> Self {
        Self::new(verb, Errno::EIO).with_hint(format!(
            "the completion queue overran, or the device is gone (the driver returned {ret}); build a new queue"
        ))
    }

    /// Adds a hint.
    #[cold]
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Returns the C function, such as `ibv_create_cq`.
    pub fn verb(&self) -> &'static str {
        self.0.verb
    }

    /// Returns the errno.
    pub fn errno(&self) -> Errno {
        self.0.errno
    }

    /// Returns the standard library's kind for the errno: `WouldBlock`, `PermissionDenied`, ….
    pub fn kind(&self) -> io::ErrorKind {
        self.errno().kind()
    }

    /// Returns the hint, if this crate has one.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

/// Makes `Debug` print the `Display` text, because `main` and `unwrap` print `Debug`.
macro_rules! debug_is_text {
    ($($Error:ty),+ $(,)?) => { $(
        impl std::fmt::Debug for $Error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )+ };
}

pub(crate) use debug_is_text;

debug_is_text!(VerbError);

impl fmt::Display for VerbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.verb(), self.errno())?;
        match self.hint() {
            Some(hint) => write!(f, ": {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for VerbError {}

const _: () = assert!(size_of::<Result<(), VerbError>>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verb_error_with_hint_displays_verb_errno_and_hint() {
        let error = VerbError::new("ibv_alloc_pd", Errno::ENOMEM);
        assert_eq!(error.to_string(), "ibv_alloc_pd: ENOMEM (Cannot allocate memory)");
        assert_eq!(format!("{error:?}"), error.to_string());
        assert_eq!((error.errno(), error.kind()), (Errno::ENOMEM, io::ErrorKind::OutOfMemory));
        let error = VerbError::invalid("ibv_create_cq", "cqe is 0; ask for at least 1");
        assert_eq!(error.to_string(), "ibv_create_cq: EINVAL (Invalid argument): cqe is 0; ask for at least 1");
    }

    #[test]
    fn unnamed_errno_displays_its_number() {
        assert_eq!(format!("{:?}", Errno::from_raw(9999)), "Errno(9999)");
        assert!(Errno::from_raw(9999).to_string().contains("9999"));
        assert!(Errno::from_raw(-3).to_string().contains("-3"));
    }
}
