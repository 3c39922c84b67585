//! Where a trace or counts go: a file, or the standard error.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file with a high number, because programs close all low ones or expect certain numbers. If the program closes it and
/// another file gets the number, nothing is written into that file.
#[derive(Debug)]
pub(crate) struct Sink {
    file: ManuallyDrop<File>,
    /// Device and inode.
    identity: (u64, u64),
}

/// Milliseconds that a reader may take.
const PATIENCE: libc::c_int = 5000;
/// The lowest number of a sink, unless the limit of the process is lower.
const LOWEST: RawFd = 700;

impl Sink {
    /// Opens a file, to which other processes may append too; `-` is the standard error. `%p` stands for the number of the
    /// process.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Self::new(io::stderr().as_fd());
        }
        let text = path.to_string_lossy();
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true);
        let file = if text.contains("%p") {
            file.open(text.replace("%p", &std::process::id().to_string()))?
        } else {
            file.open(path)?
        };
        Self::new(file.as_fd())
    }

    fn new(file: BorrowedFd<'_>) -> io::Result<Self> {
        let duplicate = |lowest: RawFd| {
            // SAFETY: the descriptor is open, and the call only makes another one.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) }
        };
        let number = [LOWEST, 3].into_iter().map(duplicate).find(|number| *number >= 0);
        let number = number.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the descriptor is new, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(number) };
        let identity = identity(&file)?;
        Ok(Self { file: ManuallyDrop::new(file), identity })
    }

    fn is_own(&self) -> bool {
        identity(&self.file).is_ok_and(|found| found == self.identity)
    }

    fn check(&self) -> io::Result<()> {
        if self.is_own() {
            Ok(())
        } else {
            Err(io::Error::other("the program has closed the descriptor of the output"))
        }
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let data = file.metadata()?;
    Ok((data.dev(), data.ino()))
}

impl Drop for Sink {
    fn drop(&mut self) {
        // The number may belong to another file of the program.
        if self.is_own() {
            // SAFETY: the file is not used again.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        match self.file.write(bytes) {
            // The program has made it nonblocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut poll = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
                // SAFETY: there is one descriptor, which is open.
                if unsafe { libc::poll(&raw mut poll, 1, PATIENCE) } > 0 { self.file.write(bytes) } else { Err(error) }
            }
            result => result,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
