//! Errors as errno values.

use std::error::Error;
use std::ffi::{c_char, c_int};
use std::io;
use std::iter;
use std::slice;
use std::time::{Duration, Instant};

/// Returns 0, or `-errno`.
pub(crate) fn code(result: io::Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => -errno(&error),
    }
}

/// Returns the errno value for an error of the library.
fn errno(error: &io::Error) -> c_int {
    use io::ErrorKind as Kind;
    let causes = iter::successors(Some(error as &(dyn Error + 'static)), |&cause| cause.source());
    if let Some(errno) = causes.filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error()).next() {
        return errno;
    }
    match error.kind() {
        Kind::WouldBlock => libc::EAGAIN,
        Kind::TimedOut => libc::ETIMEDOUT,
        Kind::ConnectionRefused => libc::ECONNREFUSED,
        Kind::ConnectionReset => libc::ECONNRESET,
        Kind::ConnectionAborted => libc::ECONNABORTED,
        Kind::NotConnected => libc::ENOTCONN,
        Kind::AddrInUse => libc::EADDRINUSE,
        Kind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        Kind::BrokenPipe => libc::EPIPE,
        Kind::HostUnreachable => libc::EHOSTUNREACH,
        Kind::NetworkUnreachable => libc::ENETUNREACH,
        Kind::NetworkDown => libc::ENETDOWN,
        Kind::OutOfMemory => libc::ENOMEM,
        Kind::QuotaExceeded => libc::EDQUOT,
        Kind::InvalidInput => libc::EINVAL,
        Kind::Unsupported => libc::EOPNOTSUPP,
        Kind::NotFound => libc::ENODEV,
        Kind::PermissionDenied => libc::EACCES,
        Kind::InvalidData => libc::EPROTO,
        Kind::Interrupted => libc::EINTR,
        _ => libc::EIO,
    }
}

/// Returns the time that is `milliseconds` from now. If `milliseconds` is negative, returns `None`, which means no
/// deadline.
pub(crate) fn deadline(milliseconds: c_int) -> Option<Instant> {
    let milliseconds = u64::try_from(milliseconds).ok()?;
    Instant::now().checked_add(Duration::from_millis(milliseconds))
}

pub(crate) fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Maximum length of a host name. `NI_MAXHOST` includes the zero byte.
const LONGEST_NAME: usize = 1024;

/// Converts a host name from a C string. Reads no byte after the longest name.
///
/// # Safety
///
/// `text` is null, or ends with a zero byte, or has more bytes than the longest name.
pub(crate) unsafe fn name<'t>(text: *const c_char) -> io::Result<&'t str> {
    if text.is_null() {
        return Err(invalid("the host is null"));
    }
    // SAFETY: guaranteed by the caller.
    let length = unsafe { libc::strnlen(text, LONGEST_NAME + 1) };
    if length > LONGEST_NAME {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    // SAFETY: no zero byte is among the first `length` bytes, so the caller guarantees that they can be read.
    let bytes = unsafe { slice::from_raw_parts(text.cast::<u8>(), length) };
    str::from_utf8(bytes).map_err(|_| invalid("the host is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_errno_that_sockets_have() {
        let of = |kind: io::ErrorKind| code(Err(kind.into()));
        assert_eq!(code(Ok(())), 0);
        assert_eq!(of(io::ErrorKind::ConnectionRefused), -libc::ECONNREFUSED);
        assert_eq!(of(io::ErrorKind::WouldBlock), -libc::EAGAIN);
        assert_eq!(of(io::ErrorKind::Other), -libc::EIO);
        let full = || io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(code(Err(full())), -libc::EMFILE);
    }

    #[test]
    fn negative_time_has_no_deadline() {
        assert!(deadline(-1).is_none());
        assert!(deadline(0).is_some_and(|deadline| deadline <= Instant::now()));
    }
}
