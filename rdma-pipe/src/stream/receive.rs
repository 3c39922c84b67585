//! Receives a stream.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TryRecvError, TrySendError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::{RECONNECT, Summary, of_peer};
use crate::channel::{Block, BlockKind};
use crate::error::{Error, Kind, Result};
use crate::link::{Link, Payload, Received, verify};
use crate::proto::{Frame, StreamSink, Totals};
use crate::standard::write_all;
use crate::thread::refused;
use crate::tree::{open_special, own_stream, settle, temporary_name};

/// Maximum number of received blocks that wait to be written.
const AHEAD: usize = 4;
/// Time between pings while the output blocks.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum size of a pipe buffer that an unprivileged process may set.
const PIPE: usize = 1 << 20;

/// Destination of a stream.
#[derive(Debug)]
pub enum Output {
    /// A descriptor, with a name for it in error messages.
    Fd(OwnedFd, String),
    /// A file that gets its final name when it is complete.
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
        if let Some(stream) = own_stream(path) {
            return stream.map(|fd| Output::Fd(fd, crate::error::escape(path)));
        }
        match rustix::fs::stat(path) {
            Ok(found) if rustix::fs::FileType::from_raw_mode(found.st_mode).is_file() => {}
            Ok(_) => return Ok(Output::Fd(open_special(path)?, crate::error::escape(path))),
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

    /// Gives the output file its final name, although nothing was written to it.
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
            Output::File(file) => file.finish().map_err(|error| {
                let error = Error::file("rename to", &file.path, &error.into());
                if file.discard() {
                    return error;
                }
                let left = file.path.with_file_name(&file.temporary);
                Error::new(error.kind(), format!("{error}; the data is in {}", crate::error::escape(&left)))
            }),
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
        let temporary = temporary_name(name.as_bytes(), format!("rdrecv {}", std::process::id()).as_bytes());
        let temporary = OsString::from_vec(temporary);
        if name.len() > 255 {
            return Err(cannot(Errno::NAMETOOLONG));
        }
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let (fd, is_named) = match rustix::fs::openat(&folder, ".", flags | OFlags::TMPFILE, mode) {
            // An unnamed file gets its name through /proc.
            Ok(fd) if Path::new("/proc/self/fd").exists() => (fd, false),
            // The file system does not support unnamed files.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
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

    /// Removes the file. Returns whether it is gone.
    fn discard(&mut self) -> bool {
        let is_named = std::mem::take(&mut self.is_named);
        let removed = || rustix::fs::unlinkat(&self.folder, &self.temporary, AtFlags::empty());
        !is_named || matches!(removed(), Ok(()) | Err(Errno::NOENT))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Receives a stream, and writes it. If the connection breaks, the stream continues over the next connection that
/// `again` returns before its deadline. Returns when everything is written and the peer has been informed.
///
/// # Errors
///
/// The output cannot be written, the stream is incomplete or altered, or the connection broke and was not restored.
pub fn receive(mut link: Link, mut again: impl FnMut(Instant) -> Result<Link>, output: Output) -> Result<Summary> {
    // Ignores the error: the descriptor need not be a pipe.
    _ = rustix::pipe::fcntl_setpipe_size(output.fd(), PIPE);
    let started = Instant::now();
    let mut receiving = Receiving::start(output)?;
    let mut begun = receiving.begin(&mut link);
    loop {
        let broken = match begun.and_then(|()| receiving.run(&mut link)) {
            Ok(totals) => return Ok(Summary { bytes: totals.bytes, time: started.elapsed() }),
            Err(error) if error.is_disconnect() => error,
            Err(error) => return Err(failed(&link, error)),
        };
        drop(link);
        log::info!("{broken}; waiting for another connection");
        let until = Instant::now() + RECONNECT;
        (link, begun) = loop {
            let mut next = match (again(until), &receiving.done) {
                (Ok(next), _) => next,
                // Everything is written, although the sender could not be informed.
                (Err(_), Some(totals)) => return Ok(Summary { bytes: totals.bytes, time: started.elapsed() }),
                (Err(_), None) => return Err(broken),
            };
            match receiving.begin(&mut next) {
                // Another sender must not end this stream.
                Err(error) if !error.is_disconnect() => log::warn!("rejected a sender: {}", failed(&next, error)),
                begun => break (next, begun),
            }
        };
    }
}

/// Reports a failure to the peer.
fn failed(link: &Link, error: Error) -> Error {
    link.sender.abort(&error);
    link.sender.flush();
    error
}

/// A stream that is being received, over one connection after another.
struct Receiving {
    sink: StreamSink,
    /// The output, until it is closed.
    output: Option<Arc<Output>>,
    /// The channel to the writing thread; `None` after the end of the stream.
    blocks: Option<SyncSender<(Block, Payload)>>,
    /// The result of the writing thread.
    result: mpsc::Receiver<Result<()>>,
    /// The totals, once everything is written.
    done: Option<Totals>,
}

impl Receiving {
    /// Starts the writing thread.
    fn start(output: Output) -> Result<Receiving> {
        let (blocks, arrived) = mpsc::sync_channel(AHEAD);
        let (finished, result) = mpsc::channel();
        let output = Arc::new(output);
        let (writing, receiving) = (Arc::clone(&output), thread::current());
        let started = thread::Builder::new().name("writes".to_owned()).spawn(move || {
            let written = write_blocks(writing.fd(), &writing.name(), arrived, &receiving);
            drop(writing);
            // Fails if the receiver was dropped because the connection broke. Then no thread waits for the result.
            _ = finished.send(written);
            receiving.unpark();
        });
        started.map_err(|error| refused(&error))?;
        Ok(Receiving { sink: StreamSink::new(), output: Some(output), blocks: Some(blocks), result, done: None })
    }

    /// Processes the first frame of a connection, and sends the answer.
    fn begin(&mut self, link: &mut Link) -> Result<()> {
        self.sink.connected();
        let answer = self.sink.begin(&link.frame().map_err(of_peer)?)?;
        link.sender.frame(&answer)
    }

    /// Receives over a connection, up to the end of the stream.
    fn run(&mut self, link: &mut Link) -> Result<Totals> {
        let totals = match self.receive_blocks(link) {
            Ok(totals) => totals,
            Err(error) if error.is_disconnect() => return Err(error),
            // If the writing thread failed, its error is the cause. This thread waits only briefly for it, because the
            // writing thread may be blocked.
            Err(error) => return Err(self.result.recv_timeout(PAUSE).ok().and_then(Result::err).unwrap_or(error)),
        };
        self.blocks = None;
        if self.done.is_none() {
            self.finish(link)?;
            self.done = Some(totals);
        }
        link.sender.frame(&Frame::StreamDone(totals))?;
        match link.wait_for_close() {
            // The sender may not have received the last frame.
            Err(error) if error.is_disconnect() => Err(error),
            _ => Ok(totals),
        }
    }

    /// Passes blocks to the writing thread. Returns the totals at the end of the stream.
    fn receive_blocks(&mut self, link: &mut Link) -> Result<Totals> {
        loop {
            match link.receiver.receive().map_err(of_peer)? {
                Received::Block(block, payload) => {
                    if block.kind != BlockKind::Data || block.file != 0 {
                        return Err(Error::protocol("the sender sent an unexpected block"));
                    }
                    self.sink.check(block.offset)?;
                    let length = payload.len();
                    let (mut waiting, mut is_closed) = (Some((block, payload)), self.blocks.is_none());
                    let blocks = self.blocks.as_ref();
                    wait_for(link, || {
                        match waiting.take().zip(blocks).map(|(block, blocks)| blocks.try_send(block)) {
                            Some(Err(TrySendError::Full(block))) => waiting = Some(block),
                            Some(Err(TrySendError::Disconnected(_))) => is_closed = true,
                            Some(Ok(())) | None => {}
                        }
                        waiting.is_none()
                    })?;
                    if is_closed {
                        return Err(incomplete());
                    }
                    // The block is counted only now. If the connection had broken before, the sender would send the
                    // block again.
                    if let Some(acknowledgement) = self.sink.block(length) {
                        link.sender.frame(&acknowledgement)?;
                    }
                }
                Received::Frame(Frame::StreamEnd(totals)) => return self.sink.end(&totals),
                Received::Frame(_) => return Err(Error::protocol("the sender sent an unexpected frame")),
            }
        }
    }

    /// Waits until everything is written, and closes the output.
    fn finish(&mut self, link: &Link) -> Result<()> {
        let mut written = None;
        wait_for(link, || {
            written = match self.result.try_recv() {
                Ok(written) => Some(written),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Err(Error::protocol("the writing thread panicked"))),
            };
            written.is_some()
        })?;
        written.unwrap_or_else(|| Err(incomplete()))?;
        // Closes the output, because a command may be waiting for its end.
        match self.output.take().and_then(Arc::into_inner) {
            Some(mut output) => output.finish(),
            None => Err(Error::protocol("the output is in use")),
        }
    }
}

fn incomplete() -> Error {
    Error::protocol("the stream was not completely written")
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

fn write_blocks(
    output: BorrowedFd<'_>,
    name: &str,
    blocks: mpsc::Receiver<(Block, Payload)>,
    receiving: &Thread,
) -> Result<()> {
    for (block, payload) in blocks {
        receiving.unpark();
        verify(&block, &payload)?;
        write_all(output, &payload).map_err(|error| {
            // A process that writes to a pipe without a reader is ended by SIGPIPE, so the exit status is the same
            // here.
            let kind = if error == Errno::PIPE { Kind::Signal(13) } else { Kind::File };
            Error::new(kind, format!("cannot write {name}: {}", crate::error::reason(&io::Error::from(error))))
        })?;
    }
    Ok(())
}
