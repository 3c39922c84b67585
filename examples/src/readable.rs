//! Waiting for several descriptors at once.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Instant;

use libc::c_int;

/// Waits until one of the descriptors can be read, has failed, or the time has come: who waits looks at all of them then.
///
/// # Errors
///
/// Those of `poll(2)`. A signal is none: it ends the wait.
pub fn wait_readable<const N: usize>(fds: [BorrowedFd<'_>; N], deadline: Option<Instant>) -> io::Result<()> {
    let mut polls = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let milliseconds = deadline.map_or(-1, |deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that the last wait does not spin.
        c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    });
    // SAFETY: the pointer is to as many entries as the second argument says, which nobody else has.
    match unsafe { libc::poll(polls.as_mut_ptr(), N as libc::nfds_t, milliseconds) } {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn any_descriptor_ends_the_wait() {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let (_silent, other) = UnixStream::pair().unwrap();
        writer.write_all(b"x").unwrap();
        wait_readable([other.as_fd(), reader.as_fd()], None).unwrap();
        wait_readable([reader.as_fd(), other.as_fd()], None).unwrap();
        drop(writer);
        wait_readable([reader.as_fd()], None).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn so_does_time() {
        let (_silent, reader) = UnixStream::pair().unwrap();
        let deadline = Instant::now() + Duration::from_millis(5);
        wait_readable([reader.as_fd()], Some(deadline)).unwrap();
        assert!(deadline <= Instant::now());
        wait_readable([reader.as_fd()], Some(deadline)).unwrap();
    }
}
