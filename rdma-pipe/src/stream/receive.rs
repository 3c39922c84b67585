//! Receives a stream.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError, TrySendError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::Summary;
use crate::channel::{Block, BlockKind};
use crate::error::{Error, Kind, Result};
use crate::link::{Link, Payload, Received, verify};
use crate::proto::{Frame, Totals};
use crate::tree::settle;

/// Maximum number of received blocks that wait to be written.
const AHEAD: usize = 4;
/// Time between pings while the output blocks.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum size of a pipe buffer that an unprivileged process may set.
const PIPE: usize = 1 << 20;

/// Destination of a stream.
#[derive(Debug)]
pub enum Output {
    /// A descriptor, and its name for error messages.
    Fd(OwnedFd, String),
    /// A file that gets its name when it is complete.
    File(NewFile),
}

/// An unnamed file (`O_TMPFILE`), or a file with a temporary name if the file system does not support these.
#[derive(Debug)]
pub struct NewFile {
    fd: OwnedFd,
    /// Name for error messages.
    path: PathBuf,
    /// The folder, which is opened once; all names are relative to it.
    folder: OwnedFd,
    name: OsString,
    temporary: OsString,
    /// Whether the file still has its temporary name.
    is_named: bool,
}

impl Output {
    /// Opens a file. A regular file is replaced when the new file is complete; anything else is written in place.
    ///
    /// # Errors
    ///
    /// The file cannot be created or opened.
    pub fn create(path: &Path) -> Result<Output> {
        let cannot = |error: Errno| Error::file("create", path, &error.into());
        match rustix::fs::stat(path) {
            Ok(found) if rustix::fs::FileType::from_raw_mode(found.st_mode).is_file() => {}
            Ok(_) => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(cannot)?;
                return Ok(Output::Fd(fd, crate::error::escape(path)));
            }
            Err(Errno::NOENT) => {}
            Err(error) => return Err(cannot(error)),
        }
        NewFile::create(path).map(Output::File)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Output::Fd(fd, _) => fd.as_fd(),
            Output::File(file) => file.fd.as_fd(),
        }
    }

    fn name(&self) -> String {
        match self {
            Output::Fd(_, name) => name.clone(),
            Output::File(file) => crate::error::escape(&file.path),
        }
    }

    /// Keeps a file without writing to it.
    ///
    /// # Errors
    ///
    /// The file cannot be renamed.
    pub fn keep(mut self) -> Result<()> {
        self.finish()
    }

    /// Links or renames a file to its final name.
    fn finish(&mut self) -> Result<()> {
        settle(self.fd()).map_err(|error| Error::file("write", self.name().as_ref(), &error.into()))?;
        match self {
            Output::Fd(..) => Ok(()),
            Output::File(file) => file.finish().map_err(|error| Error::file("rename to", &file.path, &error.into())),
        }
    }
}

impl NewFile {
    fn create(path: &Path) -> Result<NewFile> {
        let cannot = |error: Errno| Error::file("create", path, &error.into());
        // If the path is a link, the link is kept and its target is replaced.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = path.file_name().ok_or(Errno::ISDIR).map_err(cannot)?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(parent, flags, Mode::empty()).map_err(cannot)?;
        let mode = Mode::from_raw_mode(rustix::fs::stat(&path).map_or(0o666, |found| found.st_mode & 0o777));
        let mut temporary = OsString::from(".");
        temporary.push(&name);
        temporary.push(format!(".rdrecv-{:x}", std::process::id()));
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let (fd, is_named) = match rustix::fs::openat(&folder, ".", flags | OFlags::TMPFILE, mode) {
            Ok(fd) => (fd, false),
            // The file system does not support unnamed files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                (rustix::fs::openat(&folder, &temporary, flags, mode).map_err(cannot)?, true)
            }
            Err(error) => return Err(cannot(error)),
        };
        Ok(NewFile { fd, path, folder, name, temporary, is_named })
    }

    fn finish(&mut self) -> rustix::io::Result<()> {
        if !self.is_named {
            let file = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
            rustix::fs::linkat(CWD, file, &self.folder, &self.temporary, AtFlags::SYMLINK_FOLLOW)?;
            self.is_named = true;
        }
        rustix::fs::renameat(&self.folder, &self.temporary, &self.folder, &self.name)?;
        self.is_named = false;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.is_named {
            // Ignores the error: the file may have been removed already.
            _ = rustix::fs::unlinkat(&self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

/// Receives a stream, and writes it. Returns when all of it is written and the peer has been informed.
///
/// # Errors
///
/// The output cannot be written, the stream is incomplete or altered, or the connection broke.
pub fn receive(mut link: Link, output: Output) -> Result<Summary> {
    // Ignores the error: the descriptor need not be a pipe.
    _ = rustix::pipe::fcntl_setpipe_size(output.fd(), PIPE);
    let started = Instant::now();
    let output = Arc::new(output);
    let received = receive_blocks(&mut link, &output);
    // If the connection breaks while a write blocks, the writing thread still owns the output, until the process exits.
    let done = received.and_then(|totals| match Arc::into_inner(output) {
        Some(mut output) => output.finish().map(|()| (totals, output)),
        None => Err(Error::protocol("the output is in use")),
    });
    match done {
        Ok((totals, output)) => {
            let summary = Summary { bytes: totals.bytes, time: started.elapsed() };
            // A command may be waiting for the end of the output.
            drop(output);
            link.sender.frame(&Frame::StreamDone(totals))?;
            link.wait_for_close();
            Ok(summary)
        }
        Err(error) => {
            link.sender.abort(&error);
            link.sender.flush();
            Err(error)
        }
    }
}

/// Receives all blocks while another thread writes them.
fn receive_blocks(link: &mut Link, output: &Arc<Output>) -> Result<Totals> {
    let (blocks, arrived) = mpsc::sync_channel(AHEAD);
    let (finished, result) = mpsc::channel();
    let (output, receiving) = (Arc::clone(output), thread::current());
    let started = thread::Builder::new().name("writes".to_owned()).spawn(move || {
        let written = write_all(output.fd(), &output.name(), arrived, &receiving);
        drop(output);
        // Fails if the connection broke, and then nothing waits for the result.
        _ = finished.send(written);
        receiving.unpark();
    });
    started.map_err(|error| Error::new(Kind::File, format!("cannot start a thread: {error}")))?;
    let announced = pass_blocks(link, &blocks);
    drop(blocks);
    let announced = match announced {
        Ok(announced) => announced,
        // If the writing thread failed, its error is the cause. This thread waits only briefly for it, because the
        // writing thread may be blocked.
        Err(error) => return Err(result.recv_timeout(PAUSE).ok().and_then(Result::err).unwrap_or(error)),
    };
    let mut written = None;
    wait_for(link, || {
        written = match result.try_recv() {
            Ok(written) => Some(written),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Error::protocol("the writing thread panicked"))),
        };
        written.is_some()
    })?;
    let written = written.unwrap_or_else(|| Err(Error::protocol("the stream was not completely written")))?;
    match announced {
        Some(announced) if announced == written => Ok(written),
        Some(announced) => {
            let text = format!("{} of {} bytes arrived; send it again", written.bytes, announced.bytes);
            Err(Error::protocol(text))
        }
        None => Err(Error::protocol("the stream was not completely written")),
    }
}

/// Passes blocks to the writing thread. Returns the totals that the peer announced; `None` if the writing thread has
/// failed.
fn pass_blocks(link: &mut Link, blocks: &SyncSender<(Block, Payload)>) -> Result<Option<Totals>> {
    loop {
        match link.receiver.receive()? {
            Received::Block(block, buffer) => {
                let (mut waiting, mut is_closed) = (Some((block, buffer)), false);
                wait_for(link, || {
                    match waiting.take().map(|block| blocks.try_send(block)) {
                        Some(Err(TrySendError::Full(block))) => waiting = Some(block),
                        Some(Err(TrySendError::Disconnected(_))) => is_closed = true,
                        Some(Ok(())) | None => {}
                    }
                    waiting.is_none()
                })?;
                if is_closed {
                    return Ok(None);
                }
            }
            Received::Frame(Frame::StreamEnd(totals)) => return Ok(Some(totals)),
            Received::Frame(_) => return Err(Error::protocol("the sender sent an unexpected frame")),
        }
    }
}

/// Waits for the writing thread. A ping fails if the connection breaks in the meantime.
fn wait_for(link: &Link, mut is_done: impl FnMut() -> bool) -> Result<()> {
    let mut checked = Instant::now();
    while !is_done() {
        thread::park_timeout(PAUSE);
        if checked.elapsed() >= PAUSE {
            link.sender.frame(&Frame::Ping)?;
            checked = Instant::now();
        }
    }
    Ok(())
}

fn write_all(
    output: BorrowedFd<'_>,
    name: &str,
    blocks: Receiver<(Block, Payload)>,
    receiving: &Thread,
) -> Result<Totals> {
    let mut totals = Totals { files: 1, ..Totals::default() };
    for (block, payload) in blocks {
        receiving.unpark();
        if block.kind != BlockKind::Data || block.file != 0 || block.offset != totals.bytes {
            return Err(Error::protocol(format!("a block is missing before offset {}", block.offset)));
        }
        verify(&block, &payload)?;
        write(output, &payload).map_err(|error| {
            // The exit status of a process that writes to a pipe without a reader.
            let kind = if error == Errno::PIPE { Kind::Signal(13) } else { Kind::File };
            Error::new(kind, format!("cannot write {name}: {}", crate::error::reason(&io::Error::from(error))))
        })?;
        totals.bytes += payload.len() as u64;
        totals.entries += 1;
    }
    Ok(totals)
}

fn write(output: BorrowedFd<'_>, mut bytes: &[u8]) -> std::result::Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(output, bytes) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            // Another process may have made the descriptor non-blocking.
            Err(Errno::AGAIN) => _ = poll(&mut [PollFd::from_borrowed_fd(output, PollFlags::OUT)], None),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
