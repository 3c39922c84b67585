//! Sends a stream.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::Summary;
use crate::channel::{BLOCK, Block, BlockKind};
use crate::error::{Error, Kind, Result};
use crate::link::{Link, Sender};
use crate::proto::{Frame, Totals};

/// Maximum size of a pipe buffer that an unprivileged process may set.
const PIPE: usize = 1 << 20;

/// Sends all data of a descriptor; `name` appears in errors. Returns when the peer has written all of it.
///
/// # Errors
///
/// The descriptor cannot be read, the peer cannot write, or the connection broke.
pub fn send(mut link: Link, input: &OwnedFd, name: &str) -> Result<Summary> {
    // Ignores the error: the descriptor need not be a pipe.
    _ = rustix::pipe::fcntl_setpipe_size(input, PIPE);
    let started = Instant::now();
    let sender = link.sender.clone();
    let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| Error::file("watch", name.as_ref(), &error.into()))?;
    let (sent, answer) = thread::scope(|scope| {
        // The peer answers at the end. If it answers earlier, this side stops reading, even while the input is idle.
        let answering = scope.spawn(|| {
            let answer = link.frame();
            signal(&stop);
            answer
        });
        let sent = send_all(&sender, input.as_fd(), name, stop.as_fd());
        if let Err(error) = &sent
            && error.kind() == Kind::File
        {
            sender.abort(error);
            sender.flush();
        }
        (sent, answering.join().unwrap_or_else(|_| Err(Error::protocol("the receiving thread panicked"))))
    });
    let totals = match (sent, &answer) {
        (Ok(Some(totals)), _) => totals,
        // The peer's own reason is more precise than the error of the connection.
        (Err(error), Err(reason)) if error.kind() != Kind::File => return Err(reason.clone()),
        (Err(error), _) => return Err(error),
        (Ok(None), _) => {
            let early = || Error::protocol("the receiver answered before the end of the stream");
            return Err(answer.err().unwrap_or_else(early));
        }
    };
    match answer? {
        Frame::StreamDone(done) if done == totals => Ok(Summary { bytes: totals.bytes, time: started.elapsed() }),
        Frame::StreamDone(done) => {
            let text = format!("the receiver wrote {} of {} bytes; send it again", done.bytes, totals.bytes);
            Err(Error::protocol(text))
        }
        _ => Err(Error::protocol("the receiver sent an unexpected frame")),
    }
}

/// Makes the reading thread stop.
fn signal(stop: &OwnedFd) {
    // The write fails only if the counter is full, and then the eventfd is readable already.
    _ = rustix::io::write(stop, &1_u64.to_ne_bytes());
}

/// Sends all blocks and the end; returns `None` if the peer answered before the end. A block is full unless the
/// descriptor has no more data at the moment. Earlier blocks are in flight while this thread reads the next ones.
fn send_all(sender: &Sender, input: BorrowedFd<'_>, name: &str, stop: BorrowedFd<'_>) -> Result<Option<Totals>> {
    let mut totals = Totals { files: 1, ..Totals::default() };
    loop {
        let mut buffer = sender.buffer(BLOCK);
        let mut length = 0;
        while length < BLOCK {
            match wait_readable(input, stop, length == 0) {
                Ready::Input => {}
                Ready::Nothing => break,
                Ready::Stop => return Ok(None),
            }
            match rustix::io::read(input, &mut buffer[length..BLOCK]) {
                Ok(0) => break,
                Ok(count) => length += count,
                // Another process may have made the descriptor non-blocking and read the available data.
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => {
                    let why = crate::error::reason(&io::Error::from(error));
                    return Err(Error::new(Kind::File, format!("cannot read {name}: {why}")));
                }
            }
        }
        if length == 0 {
            sender.frame(&Frame::StreamEnd(totals))?;
            return Ok(Some(totals));
        }
        let block = Block::of(BlockKind::Data, 0, totals.bytes, &buffer[..length]);
        sender.block(&block, buffer, length)?;
        totals.bytes += length as u64;
        totals.entries += 1;
    }
}

enum Ready {
    Input,
    Nothing,
    Stop,
}

fn wait_readable(input: BorrowedFd<'_>, stop: BorrowedFd<'_>, waits: bool) -> Ready {
    let mut fds = [input, stop].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut fds, (!waits).then_some(&at_once)) {
        Err(Errno::INTR) => wait_readable(input, stop, waits),
        Ok(0) => Ready::Nothing,
        Ok(_) if !fds[1].revents().is_empty() => Ready::Stop,
        // If an error occurred, the next read returns it.
        _ => Ready::Input,
    }
}
