//! The functions that replace those of the C library. Each finds out what its descriptor is, and calls the C library for
//! a descriptor of the kernel.
//!
//! A panic ends the process: it does not pass through C.

/// Defines a function that serves a stream, and otherwise calls the C library.
macro_rules! replace {
    (fn $name:ident($fd:ident: c_int $(, $argument:ident: $type:ty)*) -> $result:ty, $stream:ident => $serve:expr) => {
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($fd: c_int $(, $argument: $type)*) -> $result {
            match $crate::exports::find($fd) {
                // SAFETY: guaranteed by the caller.
                Ok(Some($crate::table::Found::Stream($stream))) => unsafe { $serve },
                Ok(Some($crate::table::Found::Inherited)) => fail(libc::EIO),
                Err(number) => fail(number),
                // SAFETY: guaranteed by the caller.
                _ => unsafe { $crate::system::$name($fd $(, $argument)*) },
            }
        }
    };
}

mod connect;
mod exit;
mod file;
mod input;
mod many;
mod names;
mod output;
mod wait;

use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::slice;

use libc::{iovec, ssize_t};

use crate::inside::{Inside, refusal};
use crate::system;
use crate::table::{self, Found};

/// Finds what a number stands for. Returns an error number if it may be a stream and the thread is in a call.
#[inline]
fn find(fd: c_int) -> Result<Option<Found>, c_int> {
    if table::within(fd.cast_unsigned(), fd.cast_unsigned()).next().is_none() {
        return Ok(None);
    }
    match Inside::enter() {
        Some(_inside) => Ok(table::find(fd)),
        None if table::is_held(fd) => Ok(None),
        None => {
            let flags = system::control(fd, libc::F_GETFL, 0).unwrap_or(0);
            Err(refusal(flags & libc::O_NONBLOCK == 0))
        }
    }
}

/// The system transfers no more in one call.
const MOST_BYTES: usize = 0x7fff_f000;
/// The longest list of parts.
const MOST_PARTS: usize = 1024;

/// Checks a list of parts as the system does. Returns those that are not empty, or an error number.
///
/// # Safety
///
/// The list is null or has `count` parts.
unsafe fn parts(list: *const iovec, count: usize) -> Result<Vec<iovec>, c_int> {
    match count {
        0 => return Ok(Vec::new()),
        1..=MOST_PARTS if list.is_null() => return Err(libc::EFAULT),
        1..=MOST_PARTS => {}
        _ => return Err(libc::EINVAL),
    }
    let mut left = MOST_BYTES;
    let mut parts = Vec::with_capacity(count);
    // SAFETY: guaranteed by the caller.
    for part in unsafe { slice::from_raw_parts(list, count) } {
        match part.iov_len {
            0 => continue,
            length if length > isize::MAX as usize => return Err(libc::EINVAL),
            _ if part.iov_base.is_null() => return Err(libc::EFAULT),
            length if left != 0 => parts.push(iovec { iov_len: length.min(left), ..*part }),
            _ => continue,
        }
        left -= part.iov_len.min(left);
    }
    Ok(parts)
}

/// A result of a C function.
trait Outcome {
    const FAILURE: Self;
}

impl Outcome for c_int {
    const FAILURE: Self = -1;
}

impl Outcome for ssize_t {
    const FAILURE: Self = -1;
}

/// Sets `errno`, and returns -1.
fn fail<T: Outcome>(number: c_int) -> T {
    system::set_errno(number);
    T::FAILURE
}

/// Returns a number of bytes, or sets `errno`.
fn count(result: io::Result<usize>) -> ssize_t {
    match result {
        Ok(count) => count as ssize_t,
        Err(error) => {
            exit::stay_if_ending();
            fail(number(&error))
        }
    }
}

/// Returns 0, or sets `errno`.
fn done(result: io::Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => fail(number(&error)),
    }
}

/// The number that TCP reports for an event.
fn number(error: &io::Error) -> c_int {
    match error.kind() {
        _ if error.raw_os_error().is_some() => error.raw_os_error().unwrap_or(libc::EIO),
        ErrorKind::WouldBlock => libc::EAGAIN,
        ErrorKind::BrokenPipe => libc::EPIPE,
        ErrorKind::ConnectionReset => libc::ECONNRESET,
        ErrorKind::ConnectionAborted => libc::ECONNABORTED,
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
        ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
        ErrorKind::NetworkDown => libc::ENETDOWN,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        ErrorKind::InvalidInput => libc::EINVAL,
        _ => libc::EIO,
    }
}
