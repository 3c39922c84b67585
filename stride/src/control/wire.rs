//! Byte streams that carry frames: a TCP connection, or a socket pair within the process.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// A byte stream whose reads and writes have a time limit.
pub trait Wire: Read + Write + Send {
    /// Limits later reads and writes to `time`. A call that exceeds it fails with `WouldBlock` or `TimedOut`.
    ///
    /// # Errors
    ///
    /// Returns any error of the system.
    fn limit(&mut self, time: Duration) -> io::Result<()>;

    /// Whether a read would return at once, with data, end of file or an error.
    ///
    /// # Errors
    ///
    /// Returns any error of the system.
    fn has_input(&mut self) -> io::Result<bool>;

    /// Returns a descriptor that becomes readable when [`has_input`](Self::has_input) may be true, if the stream has
    /// one. The descriptor may stay readable until the next call of `has_input`.
    fn readable_fd(&mut self) -> Option<OwnedFd> {
        None
    }
}

macro_rules! wire {
    ($($Stream:ty),*) => {$(
        impl Wire for $Stream {
            fn limit(&mut self, time: Duration) -> io::Result<()> {
                let time = Some(time.max(Duration::from_millis(1)));
                self.set_read_timeout(time)?;
                self.set_write_timeout(time)
            }

            fn has_input(&mut self) -> io::Result<bool> {
                let mut this = [PollFd::new(self, PollFlags::IN)];
                // The call is retried because a signal can interrupt even a poll that does not wait.
                let found = retry_on_intr(|| poll(&mut this, Some(&Timespec::default())))?;
                Ok(found > 0)
            }

            fn readable_fd(&mut self) -> Option<OwnedFd> {
                // Ignores the error. If no descriptor is free, the step fails too and reports this.
                self.as_fd().try_clone_to_owned().ok()
            }
        }
    )*};
}

wire!(TcpStream, UnixStream);

/// A point in time at which an operation must end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    end: Instant,
}

impl Deadline {
    pub(super) fn after(time: Duration) -> Self {
        let now = Instant::now();
        Self { end: now.checked_add(time).unwrap_or(now) }
    }

    /// Returns the time that remains until the deadline.
    ///
    /// # Errors
    ///
    /// Returns `TimedOut` if no time remains.
    pub(super) fn left(self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// Reads the bytes that are available, or the end of file. Fails if neither arrives before the deadline.
pub(super) fn read_some(wire: &mut dyn Wire, into: &mut [u8], deadline: Deadline) -> io::Result<usize> {
    loop {
        wire.limit(deadline.left()?)?;
        match wire.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            other => return other,
        }
    }
}

/// Writes all bytes, and fails if the deadline passes before they are written.
pub(super) fn write_all(wire: &mut dyn Wire, mut bytes: &[u8], deadline: Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        wire.limit(deadline.left()?)?;
        match wire.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        }
    }
    wire.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_end_of_file_arrive() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        assert!(!other.has_input().unwrap());
        one.write_all(b"abc").unwrap();
        assert!(other.has_input().unwrap());
        let readable_fd = other.readable_fd().unwrap();
        drop(one);
        let mut all = Vec::new();
        other.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"abc");
        assert!(other.has_input().unwrap(), "the end of file is readable");
        assert_eq!(poll(&mut [PollFd::new(&readable_fd, PollFlags::IN)], Some(&Timespec::default())), Ok(1));
        assert_eq!(other.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn blocked_reads_and_writes_time_out() {
        let (mut one, _other) = UnixStream::pair().unwrap();
        let soon = || Deadline::after(Duration::from_millis(10));
        assert_eq!(read_some(&mut one, &mut [0], soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let more_than_fits = vec![0; 1 << 24];
        assert_eq!(write_all(&mut one, &more_than_fits, soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
