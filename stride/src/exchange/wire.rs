//! What frames go over: TCP, or a pipe within the process.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A stream of bytes between two sides, of which reading and writing can be limited in time.
pub trait Wire: Read + Write {
    /// From now on a read or write that takes longer fails, with `WouldBlock` or `TimedOut`.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn limit(&mut self, time: Duration) -> io::Result<()>;

    /// Whether a read would return at once: with bytes, the end, or an error.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn has_input(&mut self) -> io::Result<bool>;
}

impl Wire for TcpStream {
    fn limit(&mut self, time: Duration) -> io::Result<()> {
        let time = Some(time.max(Duration::from_millis(1)));
        self.set_read_timeout(time)?;
        self.set_write_timeout(time)
    }

    fn has_input(&mut self) -> io::Result<bool> {
        self.set_nonblocking(true)?;
        let found = self.peek(&mut [0]);
        self.set_nonblocking(false)?;
        Ok(!found.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
    }
}

/// When something has to be over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    end: Instant,
}

impl Deadline {
    pub(super) fn after(time: Duration) -> Self {
        let now = Instant::now();
        Self { end: now.checked_add(time).unwrap_or(now) }
    }

    /// What is left.
    ///
    /// # Errors
    ///
    /// `TimedOut` where nothing is.
    pub(super) fn left(self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// Reads what is there, some bytes or the end, before the deadline.
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

/// Writes all of it before the deadline.
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
