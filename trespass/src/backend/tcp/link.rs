//! One TCP connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::record::{self, Head, Record};
use super::{connect_error, is_again};
use crate::backend::{Ended, Established};
use crate::memory::{Buf, Pool};

/// Maximum number of bytes of one read, beyond the rest of a message in progress.
pub(super) const STAGING: usize = 256 << 10;
/// The maximum while long messages arrive. Bytes read beyond a message are copied once more.
const AHEAD: usize = 4 << 10;
/// Maximum number of records in one write.
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
    /// The part of the peer's handshake, or of a record's head, that has arrived.
    head: Vec<u8>,
    /// Records to be written.
    queue: VecDeque<Record>,
    /// Bytes of the first record that were written to the socket.
    written: usize,
    /// Buffers that the peer may read, once each, with their keys.
    exposed: Vec<(u32, Buf)>,
    next_key: u32,
    /// Outstanding READs: the key, the token, and the buffer.
    reads: VecDeque<(u32, u32, Buf)>,
    /// The record that is being received: a SEND, or the answer to the first READ, which has a token.
    partial: Option<(Option<u32>, Buf)>,
    filled: usize,
    /// Whether answers are arriving. If so, few bytes are read beyond the end of an answer.
    is_bulk: bool,
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
    Read(u32, Buf),
}

/// The buffers of a link that has ended.
pub(super) struct Remains {
    pub(super) spare: Vec<Buf>,
    pub(super) receive: Option<Buf>,
    /// READs that have failed, with their tokens.
    pub(super) reads: Vec<(u32, Buf)>,
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
            exposed: Vec::new(),
            next_key: 0,
            reads: VecDeque::new(),
            partial: None,
            filled: 0,
            is_bulk: false,
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

    /// Accepts the connection, as the worker has decided.
    pub(super) fn answer(&mut self, hello: &[u8]) {
        self.handshake = handshake(HELLO, hello);
        self.state = State::Answered;
    }

    pub(super) fn refuse(mut self, refusal: &[u8]) {
        // The refusal fits into the socket's empty buffer. If the write fails, the peer receives no reason.
        _ = self.socket.write(&handshake(REFUSAL, refusal));
        _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Posts a record. The record is sent before answers that were not begun, because the peer may be waiting for the
    /// credits in it.
    pub(super) fn push(&mut self, record: Record) {
        let after = self.queue.iter().rposition(|record| !record.is_answer()).map_or(0, |at| at + 1);
        self.queue.insert(after.max(usize::from(self.written != 0)), record);
    }

    /// Lets the peer read a buffer; returns the key.
    pub(super) fn expose(&mut self, message: Buf) -> u32 {
        self.next_key = self.next_key.wrapping_add(1);
        self.exposed.push((self.next_key, message));
        self.next_key
    }

    /// Removes a buffer that the peer has not read.
    pub(super) fn conceal(&mut self, key: u32) -> Option<Buf> {
        let at = self.exposed.iter().position(|(exposed, _)| *exposed == key)?;
        Some(self.exposed.remove(at).1)
    }

    /// Requests a buffer that the peer has exposed.
    pub(super) fn read(&mut self, key: u32, token: u32, into: Buf) {
        self.push(Record::read(key));
        self.reads.push_back((key, token, into));
    }

    pub(super) fn into_remains(self) -> Remains {
        let Link { queue, exposed, reads, partial, .. } = self;
        let queued = queue.into_iter().filter_map(|record| record.body);
        let mut remains = Remains {
            spare: queued.chain(exposed.into_iter().map(|(_, buffer)| buffer)).collect(),
            receive: None,
            reads: reads.into_iter().map(|(_, token, into)| (token, into)).collect(),
        };
        match partial {
            Some((Some(token), into)) => remains.reads.push((token, into)),
            Some((None, receive)) => remains.receive = Some(receive),
            None => {}
        }
        remains
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
        let mut written = self.write(sent, spare);
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
            State::Open => {
                self.receive(staging, (receives, pool), hangup, report)?;
                // Answers to the READs that have arrived.
                written = written.and_then(|()| self.write(sent, spare));
            }
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
            let mut slices = [IoSlice::new(&[]); 2 * GATHER];
            for (slices, record) in slices.chunks_exact_mut(2).zip(&self.queue) {
                slices[0] = IoSlice::new(&record.head[..record.length]);
                slices[1] = IoSlice::new(record.body.as_deref().unwrap_or_default());
            }
            let mut slices = &mut slices[..2 * self.queue.len().min(GATHER)];
            IoSlice::advance_slices(&mut slices, self.written);
            let whole: usize = slices.iter().map(|slice| slice.len()).sum();
            let count = match self.socket.write_vectored(slices) {
                Ok(count) => count,
                Err(error) if is_again(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            self.written += count;
            while let Some(first) = self.queue.front()
                && self.written >= first.extent()
            {
                self.written -= first.extent();
                *sent += u32::from(first.is_send());
                spare.extend(self.queue.pop_front().and_then(|record| record.body));
            }
            // After a short write the kernel's buffer is full, and epoll reports when it has space.
            if count < whole {
                return Ok(());
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
            let rest = self.partial.as_mut().map_or(&mut [][..], |(_, message)| &mut message[self.filled..]);
            let staged = if self.is_bulk { AHEAD } else { staging.len() };
            let (direct, most) = (rest.len(), rest.len() + staged);
            let mut slices = [IoSliceMut::new(rest), IoSliceMut::new(&mut staging[..staged])];
            let count = match self.socket.read_vectored(&mut slices) {
                Ok(0) => return Err(Ended::PeerClosed),
                Ok(count) => count,
                Err(error) if is_again(&error) => return Ok(()),
                Err(error) => return Err(Ended::Failed(error)),
            };
            self.filled += count.min(direct);
            let mut bytes = &staging[..count.saturating_sub(direct)];
            self.is_bulk &= count < most;
            loop {
                if let Some((token, message)) = self.partial.take_if(|(_, message)| self.filled == message.len()) {
                    self.filled = 0;
                    let progress = match token {
                        Some(token) => Progress::Read(token, message),
                        None => Progress::Received(message),
                    };
                    if !report(progress) {
                        return Err(Ended::Closed);
                    }
                }
                if bytes.is_empty() {
                    break;
                }
                bytes = match &mut self.partial {
                    Some((_, message)) => {
                        let (now, later) = bytes.split_at(bytes.len().min(message.len() - self.filled));
                        message[self.filled..self.filled + now.len()].copy_from_slice(now);
                        self.filled += now.len();
                        later
                    }
                    None => self.begin(bytes, receives, pool)?,
                };
            }
            // After a short read, the socket contains no further data, or only the end of the stream.
            if count < most && !hangup {
                return Ok(());
            }
        }
    }

    /// Takes bytes of the next record's head; returns the rest.
    fn begin<'b>(&mut self, bytes: &'b [u8], receives: &mut VecDeque<Buf>, pool: &Pool) -> Result<&'b [u8], Ended> {
        let invalid = |text| Err(Ended::Failed(io::Error::new(io::ErrorKind::InvalidData, text)));
        let whole = record::head_length(&self.head);
        let (now, later) = bytes.split_at(bytes.len().min(whole - self.head.len()));
        self.head.extend_from_slice(now);
        let Some(head) = Head::parse(&self.head) else { return Ok(later) };
        self.head.clear();
        match head {
            Head::Send(length) => {
                // If no receive is left, some peer has sent without a credit. It need not be this peer; the worker
                // determines which one.
                let mut message = receives
                    .pop_front()
                    .or_else(|| pool.segment())
                    .unwrap_or_else(|| Buf::on_heap(pool.segment_length()));
                if length == 0 || length > message.len() {
                    receives.push_front(message);
                    return invalid("the peer sent more than a segment");
                }
                message.truncate(length);
                self.partial = Some((None, message));
            }
            Head::Read(key) => match self.conceal(key) {
                Some(message) => self.queue.push_back(Record::answer(key, message)),
                None => return invalid("the peer reads a message that was not announced"),
            },
            Head::Answer(key, length) => match self.reads.pop_front() {
                Some((of, token, into)) if of == key && into.len() == length => {
                    self.partial = Some((Some(token), into));
                    self.is_bulk = true;
                }
                other => {
                    self.reads.extend(other);
                    return invalid("the peer sent a message that was not read");
                }
            },
        }
        Ok(later)
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
