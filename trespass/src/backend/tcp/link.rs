//! One TCP connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::{connect_error, is_again};
use crate::backend::{Ended, Established};
use crate::memory::{Buf, Pool};

/// Maximum number of bytes that one read takes from the socket.
pub(super) const STAGING: usize = 256 << 10;
/// Size of the length prefix of a SEND, in bytes.
const PREFIX: usize = 4;
/// Maximum number of SENDs that one write passes to the socket.
const GATHER: usize = 16;
/// A handshake: its kind, its length, and its bytes.
const HELLO: u8 = 1;
const REFUSAL: u8 = 2;
const HANDSHAKE: usize = 2;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: TcpStream,
    state: State,
    /// Deadline of the state, in nanoseconds of CLOCK_MONOTONIC.
    pub(super) deadline: u64,
    /// The part of this side's handshake that is not written yet.
    handshake: Vec<u8>,
    /// The part of the peer's handshake, or of a SEND's prefix, that has arrived.
    head: Vec<u8>,
    /// Posted SENDs.
    pub(super) queue: VecDeque<Buf>,
    /// Bytes of the first posted SEND, including its prefix, that were written to the socket.
    written: usize,
    /// The SEND that is being received, and how many of its bytes have arrived.
    pub(super) partial: Option<Buf>,
    filled: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    /// Waits for the peer's handshake.
    Handshake,
    /// Waits for the worker's answer.
    Answering,
    /// Established, but not reported yet.
    Answered,
    Open,
    /// This side has ended the link, and waits for the peer.
    Ending,
}

/// An event of a link.
pub(super) enum Progress<'b> {
    Established(Established, &'b [u8]),
    Received(Buf),
}

impl Link {
    pub(super) fn connecting(socket: TcpStream, hello: &[u8], deadline: u64) -> Link {
        Link { handshake: handshake(HELLO, hello), ..Link::new(socket, State::Connecting, deadline) }
    }

    pub(super) fn accepted(socket: TcpStream, deadline: u64) -> Link {
        Link::new(socket, State::Handshake, deadline)
    }

    fn new(socket: TcpStream, state: State, deadline: u64) -> Link {
        Link {
            socket,
            state,
            deadline,
            handshake: Vec::new(),
            head: Vec::new(),
            queue: VecDeque::new(),
            written: 0,
            partial: None,
            filled: 0,
        }
    }

    pub(super) fn is_established(&self) -> bool {
        self.state == State::Open
    }

    /// Returns the hello of a client, once it is complete.
    pub(super) fn read_hello(&mut self) -> io::Result<Option<(SocketAddr, Vec<u8>)>> {
        if self.state != State::Handshake || !self.read_handshake()? {
            return Ok(None);
        }
        if self.head[0] != HELLO {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.state = State::Answering;
        Ok(Some((self.socket.peer_addr()?, mem::take(&mut self.head).split_off(HANDSHAKE))))
    }

    /// Accepts the connection. The worker has decided to.
    pub(super) fn answer(&mut self, hello: &[u8]) {
        self.handshake = handshake(HELLO, hello);
        self.state = State::Answered;
    }

    pub(super) fn refuse(mut self, refusal: &[u8]) {
        // The refusal fits into the socket's empty buffer. If the write fails, the peer receives no reason.
        _ = self.socket.write(&handshake(REFUSAL, refusal));
        _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Ends an established link: the peer receives all data, then the end of the stream.
    pub(super) fn end(&mut self, deadline: u64) {
        self.state = State::Ending;
        self.deadline = deadline;
        _ = self.socket.shutdown(Shutdown::Write);
    }

    pub(super) fn timed_out(&self) -> Ended {
        match self.state {
            State::Ending => Ended::Closed,
            _ => Ended::Failed(io::Error::new(io::ErrorKind::TimedOut, "the peer does not answer")),
        }
    }

    /// Reads and writes as far as possible. An error ends the link.
    pub(super) fn drive(
        &mut self,
        (staging, receives, pool): (&mut [u8], &mut VecDeque<Buf>, &Pool),
        hangup: bool,
        sent: &mut u32,
        spare: &mut Vec<Buf>,
        mut report: impl FnMut(Progress<'_>) -> bool,
    ) -> Result<(), Ended> {
        if self.state == State::Connecting {
            connect_error(&self.socket).map_err(Ended::Failed)?;
            if self.socket.peer_addr().is_err() {
                return Ok(());
            }
            self.state = State::Handshake;
        }
        // Even if the write fails, data that the peer sent before it died is received.
        let written = self.write(sent, spare);
        if self.state == State::Answered {
            self.open(&[], &mut report)?;
        }
        if self.state == State::Handshake && self.read_handshake().map_err(Ended::Failed)? {
            let mut head = mem::take(&mut self.head);
            let bytes = head.split_off(HANDSHAKE);
            if head[0] == REFUSAL {
                return Err(Ended::Rejected(bytes));
            }
            self.open(&bytes, &mut report)?;
        }
        match self.state {
            State::Open => self.receive(staging, (receives, pool), hangup, report)?,
            State::Ending => self.discard(staging)?,
            _ => {}
        }
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Ended::PeerClosed,
            _ => Ended::Failed(error),
        })
    }

    /// Writes waiting bytes until the kernel's buffer is full.
    pub(super) fn write(&mut self, sent: &mut u32, spare: &mut Vec<Buf>) -> io::Result<()> {
        while !self.handshake.is_empty() && self.state != State::Connecting {
            match self.socket.write(&self.handshake) {
                Ok(count) => _ = self.handshake.drain(..count),
                Err(error) if is_again(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        while !self.queue.is_empty() {
            let mut prefixes = [[0; PREFIX]; GATHER];
            for (prefix, send) in prefixes.iter_mut().zip(&self.queue) {
                *prefix = (send.len() as u32).to_le_bytes();
            }
            let mut slices = [IoSlice::new(&[]); 2 * GATHER];
            for (index, (prefix, send)) in prefixes.iter().zip(&self.queue).enumerate() {
                slices[2 * index] = IoSlice::new(prefix);
                slices[2 * index + 1] = IoSlice::new(send);
            }
            let mut slices = &mut slices[..2 * self.queue.len().min(GATHER)];
            IoSlice::advance_slices(&mut slices, self.written);
            match self.socket.write_vectored(slices) {
                Ok(count) => self.written += count,
                Err(error) if is_again(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            while let Some(first) = self.queue.front()
                && self.written >= PREFIX + first.len()
            {
                self.written -= PREFIX + first.len();
                *sent += 1;
                spare.extend(self.queue.pop_front());
            }
        }
        Ok(())
    }

    fn open(&mut self, hello: &[u8], report: &mut impl FnMut(Progress<'_>) -> bool) -> Result<(), Ended> {
        let address = |address: io::Result<SocketAddr>| address.map_err(Ended::Failed);
        let (local, peer) = (address(self.socket.local_addr())?, address(self.socket.peer_addr())?);
        self.state = State::Open;
        self.deadline = u64::MAX;
        report(Progress::Established(Established { local, peer, path: format!("TCP {local} to {peer}") }, hello));
        Ok(())
    }

    /// Whether `head` contains the peer's whole handshake.
    fn read_handshake(&mut self) -> io::Result<bool> {
        loop {
            let whole = HANDSHAKE + self.head.get(1).map_or(0, |&length| usize::from(length));
            if self.head.len() >= HANDSHAKE && self.head.len() == whole {
                return Ok(true);
            }
            let mut bytes = [0; 256];
            match self.socket.read(&mut bytes[..whole - self.head.len()]) {
                Ok(0) => return Err(io::ErrorKind::ConnectionReset.into()),
                Ok(count) => self.head.extend_from_slice(&bytes[..count]),
                Err(error) if is_again(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
            if !matches!(self.head[0], HELLO | REFUSAL) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the peer does not speak trespass on this port",
                ));
            }
        }
    }

    fn receive(
        &mut self,
        staging: &mut [u8],
        (receives, pool): (&mut VecDeque<Buf>, &Pool),
        hangup: bool,
        mut report: impl FnMut(Progress<'_>) -> bool,
    ) -> Result<(), Ended> {
        loop {
            let count = match self.socket.read(staging) {
                Ok(0) => return Err(Ended::PeerClosed),
                Ok(count) => count,
                Err(error) if is_again(&error) => return Ok(()),
                Err(error) => return Err(Ended::Failed(error)),
            };
            let mut bytes = &staging[..count];
            while !bytes.is_empty() {
                bytes = self.take(bytes, receives, pool)?;
                if self.partial.as_ref().is_some_and(|message| self.filled == message.len()) {
                    self.filled = 0;
                    if !self.partial.take().is_none_or(|message| report(Progress::Received(message))) {
                        return Err(Ended::Closed);
                    }
                }
            }
            // After a short read, the socket contains no further data, or only the end of the stream.
            if count < staging.len() && !hangup {
                return Ok(());
            }
        }
    }

    /// Takes bytes of the next SEND; returns the rest.
    fn take<'b>(&mut self, mut bytes: &'b [u8], receives: &mut VecDeque<Buf>, pool: &Pool) -> Result<&'b [u8], Ended> {
        if self.partial.is_none() {
            let count = bytes.len().min(PREFIX - self.head.len());
            self.head.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            let Some(prefix) = self.head.first_chunk::<PREFIX>() else { return Ok(bytes) };
            let length = u32::from_le_bytes(*prefix) as usize;
            self.head.clear();
            let invalid = |text| Err(Ended::Failed(io::Error::new(io::ErrorKind::InvalidData, text)));
            // If no receive is left, some peer has sent without a credit. It need not be this peer; the worker
            // determines which one.
            let mut message =
                receives.pop_front().or_else(|| pool.segment()).unwrap_or_else(|| Buf::on_heap(pool.segment_length()));
            if length == 0 || length > message.len() {
                receives.push_front(message);
                return invalid("the peer sent more than a segment");
            }
            message.truncate(length);
            self.partial = Some(message);
        }
        let Some(message) = &mut self.partial else { return Ok(bytes) };
        let count = bytes.len().min(message.len() - self.filled);
        message[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        Ok(&bytes[count..])
    }

    /// Reads and drops arriving data. Closing a socket with unread data would reset the connection, and the peer would
    /// lose data that it has not read.
    fn discard(&mut self, staging: &mut [u8]) -> Result<(), Ended> {
        loop {
            match self.socket.read(staging) {
                Ok(1..) => {}
                Err(error) if is_again(&error) => return Ok(()),
                Ok(0) | Err(_) => return Err(Ended::Closed),
            }
        }
    }
}

fn handshake(what: u8, bytes: &[u8]) -> Vec<u8> {
    let mut handshake = vec![what, u8::try_from(bytes.len()).unwrap_or(u8::MAX)];
    handshake.extend_from_slice(bytes);
    handshake
}
