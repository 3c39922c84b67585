//! `poll(2)`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Sleeps until one of the descriptors can be read or is broken, or the time is up.
pub(crate) fn wait(descriptors: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let entry = |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut entries: Vec<_> = descriptors.iter().map(entry).collect();
    let count = libc::nfds_t::try_from(entries.len()).map_err(io::Error::other)?;
    // Rounded up, so that the time has passed afterwards; -1 is without limit.
    let milliseconds =
        timeout.map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    // SAFETY: the entries are there to be read and written, and there are so many of them.
    match unsafe { libc::poll(entries.as_mut_ptr(), count, milliseconds) } {
        0.. => Ok(()),
        _ => match io::Error::last_os_error() {
            // A signal: the caller looks again, as always.
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
    }
}
