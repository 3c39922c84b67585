//! Sends a stream.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::{RECONNECT, Summary, of_peer};
use crate::channel::{BLOCK, Block, BlockKind};
use crate::error::{Error, Kind, Result};
use crate::link::{Link, Sender};
use crate::proto::{Frame, Kept, Step, StreamSource, Totals};
use crate::thread::start;

/// Maximum size of a pipe buffer that an unprivileged process may set.
const PIPE: usize = 1 << 20;
/// The stream fails after this many consecutive connections over which no data arrives, although there is some to send.
const STUCK: u32 = 5;
/// Maximum number of unused buffers that are kept.
const SPARE: usize = 32;

/// Sends all data of a descriptor; `name` appears in errors. If the connection breaks, the stream continues over the
/// connection that `again` returns before its deadline. Returns when the peer has written everything.
///
/// # Errors
///
/// The descriptor cannot be read, the peer cannot write, or the connection broke and was not restored.
pub fn send(
    mut link: Link,
    mut again: impl FnMut(Instant) -> Result<Link>,
    input: &OwnedFd,
    name: &str,
) -> Result<Summary> {
    // Ignores the error: the descriptor need not be a pipe.
    _ = rustix::pipe::fcntl_setpipe_size(input, PIPE);
    let started = Instant::now();
    let sending = Sending::new(input.as_fd(), name)?;
    let (mut stuck, mut acknowledged) = (0, 0);
    loop {
        let broken = match sending.run(link) {
            Ok(totals) => return Ok(Summary { bytes: totals.bytes, time: started.elapsed() }),
            Err(error) => error,
        };
        let (now, is_idle) = {
            let source = &sending.lock().source;
            (source.acknowledged(), source.is_acknowledged())
        };
        stuck = if now > acknowledged || is_idle { 0 } else { stuck + 1 };
        acknowledged = now;
        if !broken.is_disconnect() || stuck == STUCK {
            return Err(broken);
        }
        log::info!("{broken}; connecting again");
        // The error that broke the connection is more useful than the error of the failed reconnect.
        link = again(Instant::now() + RECONNECT).map_err(|error| if is_final(&error) { error } else { broken })?;
    }
}

/// Whether an attempt to reconnect failed for another reason than an unreachable peer.
fn is_final(error: &Error) -> bool {
    !error.is_disconnect() && !matches!(error.kind(), Kind::Unreachable | Kind::TimedOut)
}

/// A stream that is being sent, over one connection after another.
struct Sending<'s> {
    input: BorrowedFd<'s>,
    name: &'s str,
    /// If the input is a file, the position of the first byte. The blocks of a file are not kept but read again.
    start: Option<u64>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    source: StreamSource<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// Whether the peer has answered, or the connection broke.
    is_stopped: bool,
}

impl<'s> Sending<'s> {
    fn new(input: BorrowedFd<'s>, name: &'s str) -> Result<Sending<'s>> {
        let mut id = [0; 16];
        getrandom(&mut id, GetRandomFlags::empty())
            .map_err(|error| Error::protocol(format!("the system cannot provide random numbers: {error}")))?;
        let is_file =
            rustix::fs::fstat(input).is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_file());
        let start = if is_file { rustix::fs::seek(input, SeekFrom::Current(0)).ok() } else { None };
        let source = StreamSource::new(u128::from_le_bytes(id));
        let state = Mutex::new(State { source, spare: Vec::new(), is_stopped: false });
        Ok(Sending { input, name, start, state, changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends over a connection, up to the end of the stream.
    fn run(&self, mut link: Link) -> Result<Totals> {
        let sender = link.sender.clone();
        let stop = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|error| Error::file("watch", self.name.as_ref(), &error.into()))?;
        let begin = self.lock().source.begin();
        self.lock().is_stopped = false;
        let (sent, answer) = thread::scope(|scope| {
            // The peer answers at the end. If it answers earlier, this side stops reading, even while the input is idle.
            let answering = start(scope, || {
                let answer = self.take_answers(&mut link);
                self.lock().is_stopped = true;
                self.changed.notify_all();
                signal(&stop);
                answer
            });
            let answering = answering.inspect_err(|error| {
                sender.abort(error);
                sender.flush();
            })?;
            let sent = sender.frame(&begin).and_then(|()| self.send_all(&sender, stop.as_fd()));
            match &sent {
                Err(error) if error.kind() == Kind::File => {
                    sender.abort(error);
                    sender.flush();
                }
                // The receiving thread ends when the peer ends the connection.
                Err(_) => sender.shut_down(),
                Ok(()) => {}
            }
            Ok::<_, Error>((
                sent,
                answering.join().unwrap_or_else(|_| Err(Error::protocol("the receiving thread panicked"))),
            ))
        })?;
        match (sent, answer) {
            (Err(error), _) if error.kind() == Kind::File => Err(error),
            // The peer's own reason is more precise than the error of the connection.
            (_, Err(reason)) => Err(reason),
            (Err(error), _) => Err(error),
            (Ok(()), Ok(totals)) => self.lock().source.done(&totals),
        }
    }

    /// Receives the peer's frames up to its totals.
    fn take_answers(&self, link: &mut Link) -> Result<Totals> {
        loop {
            match link.frame().map_err(of_peer)? {
                Frame::StreamReceived(at) => {
                    let mut state = self.lock();
                    let freed = state.source.received(at)?;
                    let count = SPARE.saturating_sub(state.spare.len());
                    state.spare.extend(freed.into_iter().filter(|data| data.capacity() != 0).take(count));
                    drop(state);
                    self.changed.notify_all();
                }
                Frame::StreamDone(totals) => return Ok(totals),
                _ => return Err(Error::protocol("the receiver sent an unexpected frame")),
            }
        }
    }

    /// Sends all blocks and the end of the stream, and waits until the peer answers or the connection breaks.
    fn send_all(&self, sender: &Sender, stop: BorrowedFd<'_>) -> Result<()> {
        let mut state = self.lock();
        while !state.is_stopped {
            match state.source.next_step() {
                Step::Wait => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Step::Again(&Kept { offset, length, ref data }) => {
                    let mut buffer = sender.buffer(BLOCK);
                    match self.start {
                        Some(start) => {
                            drop(state);
                            self.read_again(&mut buffer[..length], start + offset)?;
                        }
                        None => {
                            buffer[..length].copy_from_slice(data);
                            drop(state);
                        }
                    }
                    sender.block(&Block::of(BlockKind::Data, 0, offset, &buffer[..length]), buffer, length)?;
                    state = self.lock();
                }
                Step::Read => {
                    let mut data = state.spare.pop().unwrap_or_default();
                    drop(state);
                    let mut buffer = sender.buffer(BLOCK);
                    let Some(length) = self.read(&mut buffer[..BLOCK], stop)? else { return Ok(()) };
                    if length != 0 && self.start.is_none() {
                        data.clear();
                        data.extend_from_slice(&buffer[..length]);
                    }
                    state = self.lock();
                    if length == 0 {
                        state.source.end();
                        continue;
                    }
                    let offset = state.source.push(length, data);
                    drop(state);
                    sender.block(&Block::of(BlockKind::Data, 0, offset, &buffer[..length]), buffer, length)?;
                    state = self.lock();
                }
                Step::End(end) => {
                    drop(state);
                    sender.frame(&end)?;
                    state = self.lock();
                }
            }
        }
        Ok(())
    }

    /// Reads a block, which is full unless the input has no more data at the moment. Returns 0 at the end of the input,
    /// and `None` if the connection ends before any data is available.
    fn read(&self, buffer: &mut [u8], stop: BorrowedFd<'_>) -> Result<Option<usize>> {
        let mut length = 0;
        while length < buffer.len() {
            match wait_readable(self.input, stop, length == 0) {
                Ready::Input => {}
                Ready::Nothing => break,
                Ready::Stop => return Ok(None),
            }
            match rustix::io::read(self.input, &mut buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                // Another process may have made the descriptor non-blocking and read the available data.
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(self.cannot_read(&error.into())),
            }
        }
        Ok(Some(length))
    }

    /// Reads a block of a file again.
    fn read_again(&self, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
        while !buffer.is_empty() {
            match rustix::io::pread(self.input, &mut *buffer, offset) {
                Ok(0) => return Err(Error::new(Kind::File, format!("{} was truncated while it was read", self.name))),
                Ok(count) => (buffer, offset) = (&mut buffer[count..], offset + count as u64),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.cannot_read(&error.into())),
            }
        }
        Ok(())
    }

    fn cannot_read(&self, error: &io::Error) -> Error {
        Error::new(Kind::File, format!("cannot read {}: {}", self.name, crate::error::reason(error)))
    }
}

/// Makes the reading thread stop.
fn signal(stop: &OwnedFd) {
    // The write fails only if the counter is full, and then the eventfd is readable already.
    _ = rustix::io::write(stop, &1_u64.to_ne_bytes());
}

enum Ready {
    Input,
    Nothing,
    Stop,
}

/// Checks whether the input is readable; waits for it if `waits` is set. If part of a block has been read, the caller
/// sets `waits` to false and sends this part, even if the connection has ended.
fn wait_readable(input: BorrowedFd<'_>, stop: BorrowedFd<'_>, waits: bool) -> Ready {
    let mut fds = [input, stop].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut fds, (!waits).then_some(&at_once)) {
        Err(Errno::INTR) => wait_readable(input, stop, waits),
        Ok(0) => Ready::Nothing,
        Ok(_) if waits && !fds[1].revents().is_empty() => Ready::Stop,
        Ok(_) if fds[0].revents().is_empty() => Ready::Nothing,
        // If an error occurred, the next read returns it.
        _ => Ready::Input,
    }
}
