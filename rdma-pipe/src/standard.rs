//! The standard streams of this process, if they were open when it started.
//!
//! Rust's runtime opens `/dev/null` for a standard stream that is closed, and its handles ignore the error of a closed
//! one. Both would lose data and messages without an error. So this module records which streams are closed before the
//! runtime starts, and returns `EBADF` for them.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::stdio;

use crate::error::{Error, Kind, Result};

/// A standard stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// The standard input.
    Input,
    /// The standard output.
    Output,
    /// The standard error.
    Error,
}

/// The streams that were closed when the process started: bit N stands for descriptor N.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The loader calls this function before `main`, and so before Rust's runtime opens `/dev/null`.
// SAFETY: the loader expects pointers to functions in this section, as this one is. It passes arguments that the function
// ignores. The function calls fcntl(2) and stores a number, so it needs no part of the runtime, and it does not panic.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    let closed = Standard::ALL.into_iter().filter(|stream| {
        // A descriptor that only names a file can be neither read nor written.
        rustix::fs::fcntl_getfl(stream.fd()).map_or(true, |flags| flags.contains(OFlags::PATH))
    });
    CLOSED.store(closed.fold(0, |bits, stream| bits | stream.bit()), Relaxed);
}

impl Standard {
    const ALL: [Standard; 3] = [Standard::Input, Standard::Output, Standard::Error];

    fn fd(self) -> BorrowedFd<'static> {
        match self {
            Standard::Input => stdio::stdin(),
            Standard::Output => stdio::stdout(),
            Standard::Error => stdio::stderr(),
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The name of the stream, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Standard::Input => "the standard input",
            Standard::Output => "the standard output",
            Standard::Error => "the standard error",
        }
    }

    /// Whether the stream was closed when the process started.
    pub fn is_closed(self) -> bool {
        CLOSED.load(Relaxed) & self.bit() != 0
    }

    /// Duplicates the stream. Reads and writes of the duplicate report every error, and use no buffer.
    ///
    /// # Errors
    ///
    /// `EBADF` if the stream was closed when the process started.
    pub fn duplicate(self) -> io::Result<OwnedFd> {
        self.opened()?.try_clone_to_owned()
    }

    fn opened(self) -> io::Result<BorrowedFd<'static>> {
        if self.is_closed() { Err(Errno::BADF.into()) } else { Ok(self.fd()) }
    }

    /// Opens the stream as a file.
    ///
    /// # Errors
    ///
    /// The stream was closed when the process started.
    pub fn open(self) -> Result<File> {
        self.duplicate().map(File::from).map_err(|error| self.error(&error))
    }

    /// The error of a stream that cannot be read or written.
    pub fn error(self, error: &io::Error) -> Error {
        let (what, way) = if self == Standard::Input { ("read", "from") } else { ("write", "to") };
        if self.is_closed() {
            let text = format!("cannot {what} {}: it is closed; redirect it {way} a file or /dev/null", self.name());
            return Error::new(Kind::File, text);
        }
        Error::file(what, Path::new(self.name()), error)
    }

    /// Writes these bytes to the stream, with a single call if possible. See [`write_all`]. Needs no descriptor, so that
    /// a process that has none left can report it.
    ///
    /// # Errors
    ///
    /// See write(2).
    pub fn write(self, bytes: &[u8]) -> io::Result<()> {
        Ok(write_all(self.opened()?, bytes)?)
    }
}

/// Writes all of these bytes. If another process has made the descriptor non-blocking, waits until it takes more.
///
/// # Errors
///
/// See write(2); `ENOSPC` if the descriptor takes no bytes.
pub fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> std::result::Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => _ = poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Replaces the files that Rust's runtime has opened for closed streams by sockets without a peer. They keep the numbers
/// from other files, and, unlike `/dev/null`, they accept no data: neither here, nor by a name such as `/dev/stdin`, nor
/// in a child process. Call this first in `main`.
///
/// # Errors
///
/// The process has no descriptors left.
pub fn refuse_closed() -> Result<()> {
    for stream in Standard::ALL.into_iter().filter(|stream| stream.is_closed()) {
        let replaced = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let replaced = replaced.and_then(|socket| match stream {
            Standard::Input => stdio::dup2_stdin(socket),
            Standard::Output => stdio::dup2_stdout(socket),
            Standard::Error => stdio::dup2_stderr(socket),
        });
        replaced.map_err(|error| Error::file("replace", Path::new(stream.name()), &error.into()))?;
    }
    Ok(())
}
