//! What can go wrong in a verb, in one shape: the verb, the errno, and a hint where this crate knows more than the kernel says.

use std::borrow::Cow;
use std::{fmt, io};

/// A value of `errno`, printed by its name: `EINVAL (Invalid argument)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// The errno with this number.
    pub const fn from_raw(raw: i32) -> Self {
        Self(raw)
    }

    /// The number.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// What Rust's standard library makes of it.
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

            /// The symbolic name of those that verbs are known to give, such as `EINVAL`.
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

/// A verb that failed: its C name, its errno, and what to change where that is known.
#[derive(Clone, PartialEq, Eq)]
pub struct VerbError(
    // One pointer wide, so that a call which succeeds carries no room for its failure.
    Box<Failure>,
);

#[derive(Clone, PartialEq, Eq)]
struct Failure {
    verb: &'static str,
    errno: Errno,
    hint: Option<Cow<'static, str>>,
}

impl VerbError {
    /// A failure of `verb` with nothing to add.
    #[cold]
    pub fn new(verb: &'static str, errno: Errno) -> Self {
        Self(Box::new(Failure { verb, errno, hint: None }))
    }

    /// `EINVAL` found before the library was asked, with what to change.
    #[cold]
    pub fn invalid(verb: &'static str, hint: impl Into<Cow<'static, str>>) -> Self {
        Self::new(verb, Errno::EINVAL).with_hint(hint)
    }

    /// A poll failed: what drivers return then is no errno.
    #[cold]
    pub(crate) fn of_poll(verb: &'static str, ret: i32) -> Self {
        Self::new(verb, Errno::EIO).with_hint(format!(
            "the driver returned {ret}: the completion queue is broken, because it overran or the device is gone"
        ))
    }

    /// The same with a hint.
    #[cold]
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The C function, such as `ibv_create_cq`.
    pub fn verb(&self) -> &'static str {
        self.0.verb
    }

    /// What it gave.
    pub fn errno(&self) -> Errno {
        self.0.errno
    }

    /// What the standard library makes of the errno: `WouldBlock`, `PermissionDenied`, ….
    pub fn kind(&self) -> io::ErrorKind {
        self.errno().kind()
    }

    /// What to change, where this crate knows.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

/// `Debug` of errors is their text: it is what `main` and `unwrap` print.
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

impl From<VerbError> for io::Error {
    fn from(error: VerbError) -> Self {
        io::Error::new(error.kind(), error)
    }
}

const _: () = assert!(size_of::<Result<(), VerbError>>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_a_sentence() {
        let error = VerbError::new("ibv_alloc_pd", Errno::ENOMEM);
        assert_eq!(error.to_string(), "ibv_alloc_pd: ENOMEM (Cannot allocate memory)");
        assert_eq!(format!("{error:?}"), error.to_string());
        assert_eq!((error.errno(), error.kind()), (Errno::ENOMEM, io::ErrorKind::OutOfMemory));
        let error = VerbError::invalid("ibv_create_cq", "cqe is 0; ask for at least 1");
        assert_eq!(error.to_string(), "ibv_create_cq: EINVAL (Invalid argument): cqe is 0; ask for at least 1");
    }

    #[test]
    fn an_unnamed_errno_prints_its_number() {
        assert_eq!(format!("{:?}", Errno::from_raw(9999)), "Errno(9999)");
        assert!(Errno::from_raw(9999).to_string().contains("9999"));
        assert!(Errno::from_raw(-3).to_string().contains("-3"));
    }

    #[test]
    fn an_io_error_keeps_kind_and_text() {
        let error: io::Error = VerbError::new("ibv_open_device", Errno::EACCES).into();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().starts_with("ibv_open_device: EACCES"));
    }
}
