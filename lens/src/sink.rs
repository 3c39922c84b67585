//! Where a trace or counts go: a file, or the standard error.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

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
    /// The standard error as it was at the first call.
    pub(crate) fn standard_error() -> io::Result<&'static Self> {
        static KEPT: OnceLock<Sink> = OnceLock::new();
        match KEPT.get() {
            Some(kept) => Ok(kept),
            None => Self::new(io::stderr().as_fd()).map(|sink| KEPT.get_or_init(|| sink)),
        }
    }

    /// Opens a file, to which other processes may append too. `%p` stands for the number of the process.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
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
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        loop {
            match (&*self.file).write(bytes) {
                // The program has made it nonblocking. Another writer may take the space first.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut poll = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
                    // SAFETY: there is one descriptor, which is open.
                    if unsafe { libc::poll(&raw mut poll, 1, PATIENCE) } <= 0 {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read};
    use std::os::fd::OwnedFd;
    use std::thread;

    use super::*;

    fn pipe() -> (PipeReader, Sink) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, Sink::new(writer.as_fd()).unwrap())
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn nonblocking_pipe_that_is_full_gets_all() {
        let (mut reader, mut sink) = pipe();
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(sink.file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let bytes: Vec<u8> = (0..1 << 20).map(|index| index as u8).collect();
        let expected = bytes.clone();
        let writer = thread::spawn(move || sink.write_all(&bytes));
        let mut found = Vec::new();
        reader.read_to_end(&mut found).unwrap();
        writer.join().unwrap().unwrap();
        assert!(found == expected, "{} bytes", found.len());
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn errors_of_a_write_are_returned() {
        let (reader, mut sink) = pipe();
        drop(reader);
        assert_eq!(sink.write(b"x").unwrap_err().raw_os_error(), Some(libc::EPIPE));
        let mut full = Sink::open(Path::new("/dev/full")).unwrap();
        assert_eq!(full.write(b"x").unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }

    /// The program closes all descriptors, and opens a file of its own.
    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn file_that_gets_the_number_is_not_written() {
        let (_reader, mut sink) = pipe();
        let (mut other, writer) = io::pipe().unwrap();
        let number = sink.file.as_raw_fd();
        // SAFETY: the number is that of the sink, which no other thread uses.
        let taken = unsafe {
            assert_eq!(libc::dup2(writer.as_raw_fd(), number), number);
            OwnedFd::from_raw_fd(number)
        };
        sink.write(b"x").unwrap_err();
        drop((sink, taken, writer));
        let mut found = Vec::new();
        other.read_to_end(&mut found).unwrap();
        assert_eq!(found, b"");
    }
}
