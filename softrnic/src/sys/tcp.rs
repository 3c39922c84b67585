//! Options of TCP sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The segment size that every host accepts (RFC 9293, section 3.7.1).
const DEFAULT: u16 = 536;

/// Returns the maximum segment size of a connection.
pub(crate) fn max_segment(socket: impl AsFd) -> u16 {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value and its length are writable.
    let code = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if code == 0 { u16::try_from(value).unwrap_or(u16::MAX).max(DEFAULT) } else { DEFAULT }
}

/// Configures a listener so that it accepts a connection only after the peer has sent data or this time has passed.
pub(crate) fn defer_accept(socket: impl AsFd, seconds: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value has this length.
    let code = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            length,
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
