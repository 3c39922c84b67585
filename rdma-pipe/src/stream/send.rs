//! The source of a stream.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use trespass::Buf;

use super::Summary;
use crate::channel::{BLOCK, Block, BlockKind};
use crate::error::{Error, Kind, Result};
use crate::link::{Link, Received, Sender};
use crate::proto::{Frame, Totals};

/// Blocks that are read before they are sent.
const AHEAD: usize = 4;
/// What an unprivileged process may make of a pipe.
const PIPE: usize = 1 << 20;

/// Sends all that a descriptor has; `name` is for errors. Returns when the peer has written all of it.
///
/// # Errors
///
/// The descriptor cannot be read, the peer cannot write, or the connection broke.
pub fn send(mut link: Link, input: &OwnedFd, name: &str) -> Result<Summary> {
    // Not every descriptor is a pipe.
    _ = rustix::pipe::fcntl_setpipe_size(input, PIPE);
    let started = Instant::now();
    let sender = link.sender.clone();
    let sent: Result<Totals> = thread::scope(|scope| {
        let (blocks, read) = mpsc::sync_channel(AHEAD);
        let reader = scope.spawn(|| read_all(input.as_fd(), name, &sender, blocks));
        let mut totals = Totals { files: 1, ..Totals::default() };
        for (block, buffer, length) in read {
            sender.block(&block, buffer, length)?;
            totals.bytes += length as u64;
            totals.entries += 1;
        }
        reader.join().map_err(|_| Error::protocol("the reading thread panicked"))??;
        Ok(totals)
    });
    let totals = match sent {
        Ok(totals) => totals,
        // The peer's own reason is better than that of a broken connection.
        Err(error) if error.kind() != Kind::File => return Err(reason_of_peer(&mut link).unwrap_or(error)),
        Err(error) => {
            link.sender.abort(&error);
            link.sender.flush();
            return Err(error);
        }
    };
    let done = match link.sender.frame(&Frame::StreamEnd(totals)) {
        Ok(()) => link.frame()?,
        Err(error) => return Err(reason_of_peer(&mut link).unwrap_or(error)),
    };
    match done {
        Frame::StreamDone(done) if done == totals => Ok(Summary { bytes: totals.bytes, time: started.elapsed() }),
        Frame::StreamDone(done) => {
            let text = format!("the receiver wrote {} of {} bytes; send it again", done.bytes, totals.bytes);
            Err(Error::protocol(text))
        }
        _ => Err(Error::protocol("the receiver sent an unexpected frame")),
    }
}

/// Why the peer has aborted, if it has.
fn reason_of_peer(link: &mut Link) -> Option<Error> {
    loop {
        match link.receiver.receive() {
            Ok(Received::Frame(_)) => {}
            Ok(Received::Block(..)) => return None,
            Err(error) => return Some(error),
        }
    }
}

/// Reads blocks until the end, and hashes them. A block is full unless the descriptor has no more at the moment.
fn read_all(input: BorrowedFd<'_>, name: &str, sender: &Sender, blocks: SyncSender<(Block, Buf, usize)>) -> Result<()> {
    let mut offset = 0;
    loop {
        let mut buffer = sender.buffer(BLOCK);
        let mut length = 0;
        while length < BLOCK {
            if length != 0 && !is_readable(input) {
                break;
            }
            match rustix::io::read(input, &mut buffer[length..BLOCK]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait_readable(input),
                Err(error) => {
                    let why = crate::error::reason(&io::Error::from(error));
                    return Err(Error::new(Kind::File, format!("cannot read {name}: {why}")));
                }
            }
        }
        if length == 0 {
            return Ok(());
        }
        let block = Block::of(BlockKind::Data, 0, offset, &buffer[..length]);
        offset += length as u64;
        if blocks.send((block, buffer, length)).is_err() {
            // The sending thread has failed, and reports it.
            return Ok(());
        }
    }
}

fn is_readable(input: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::from_borrowed_fd(input, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
}

/// For a descriptor that another process has made non-blocking.
fn wait_readable(input: BorrowedFd<'_>) {
    // Reading again shows the error.
    _ = poll(&mut [PollFd::from_borrowed_fd(input, PollFlags::IN)], None);
}
