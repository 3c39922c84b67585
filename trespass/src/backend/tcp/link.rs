//! One TCP connection.

mod handshake;
mod receive;

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpStream};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use self::handshake::{HANDSHAKE, HELLO, REFUSAL, handshake};
pub(super) use self::receive::Intake;
use self::receive::{Of, Partial, Stalled};
use super::record::{PUSHED, READ_FIRST, Record, WINDOW};
use super::{connect_error, is_again, socket};
use crate::backend::{Ended, Established, Remote};
use crate::memory::Buf;

/// Maximum number of bytes that one read takes beyond the rest of a message that is already arriving.
pub(super) const STAGING: usize = 256 << 10;
/// Maximum number of records in one write.
const GATHER: usize = 16;

#[derive(Debug)]
pub(super) struct TcpLink {
    pub(super) socket: TcpStream,
    state: State,
    /// The deadline of the current state, in nanoseconds of CLOCK_MONOTONIC.
    pub(super) deadline: u64,
    /// The part of this side's handshake that is not written yet.
    handshake: Vec<u8>,
    /// The part of the peer's handshake, or of a record's head, that has arrived.
    head: Vec<u8>,
    /// Records to be written.
    queue: VecDeque<Record>,
    /// How many bytes of the first record were written to the socket.
    written: usize,
    /// Whether a probe waits until all records are written.
    is_probing: bool,
    /// Buffers that the peer may read, once each.
    exposed: Vec<Keyed>,
    next_key: u32,
    /// Messages that are sent without a READ. `pushes` contains those that are not queued yet; `pushed` contains the
    /// keys and lengths of all that the peer has not acknowledged.
    pushes: Vec<Keyed>,
    pushed: Vec<Pushed>,
    /// Outstanding READs.
    reads: Vec<Outstanding>,
    /// Answers that arrived before the worker requested them.
    arrived: Vec<Keyed>,
    /// The record that is being received.
    partial: Option<Partial>,
    /// The answer for which there is no memory. Nothing more is received before it has memory.
    stalled: Option<Stalled>,
    /// Whether answers are arriving. If so, few bytes are read beyond the end of an answer.
    is_bulk: bool,
    /// Whether the peer may have bytes to acknowledge. `is_overdue` states whether an acknowledgement was overdue at
    /// the last check.
    is_unacknowledged: bool,
    is_overdue: bool,
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

/// A buffer with the key by which the peer requests it, or by which this side requests it from the peer.
#[derive(Debug)]
struct Keyed {
    key: u32,
    message: Buf,
}

/// A message that the peer has not acknowledged.
#[derive(Debug)]
struct Pushed {
    key: u32,
    length: usize,
}

/// A READ whose answer has not arrived.
#[derive(Debug)]
struct Outstanding {
    key: u32,
    token: u32,
    into: Buf,
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

impl TcpLink {
    pub(super) fn connecting(socket: TcpStream, hello: &[u8], deadline: u64) -> TcpLink {
        TcpLink { handshake: handshake(HELLO, hello), ..TcpLink::new(socket, State::Connecting, deadline) }
    }

    pub(super) fn accepted(socket: TcpStream, deadline: u64) -> TcpLink {
        TcpLink::new(socket, State::Handshake, deadline)
    }

    fn new(socket: TcpStream, state: State, deadline: u64) -> TcpLink {
        TcpLink {
            socket,
            state,
            deadline,
            handshake: Vec::new(),
            head: Vec::new(),
            queue: VecDeque::new(),
            is_probing: false,
            written: 0,
            exposed: Vec::new(),
            next_key: 0,
            pushes: Vec::new(),
            pushed: Vec::new(),
            reads: Vec::new(),
            arrived: Vec::new(),
            partial: None,
            stalled: None,
            is_bulk: false,
            is_unacknowledged: false,
            is_overdue: false,
        }
    }

    pub(super) fn is_established(&self) -> bool {
        self.state == State::Open
    }

    /// Posts a record. The record is sent before answers of which no byte was sent, because the peer may be waiting for
    /// the credits in it.
    pub(super) fn push(&mut self, record: Record) {
        let after = self.queue.iter().rposition(|record| !record.is_answer()).map_or(0, |at| at + 1);
        self.queue.insert(after.max(usize::from(self.written != 0)), record);
    }

    /// Lets the peer read a buffer. If the peer has space for the bytes, they are sent without a READ.
    pub(super) fn expose(&mut self, message: Buf) -> Remote {
        self.next_key = self.next_key.wrapping_add(1);
        let (key, length) = (self.next_key, message.len());
        let waiting: usize = self.pushed.iter().map(|pushed| pushed.length).sum();
        if waiting + length > WINDOW {
            self.exposed.push(Keyed { key, message });
            return Remote { address: READ_FIRST, key };
        }
        self.pushes.push(Keyed { key, message });
        self.pushed.push(Pushed { key, length });
        Remote { address: PUSHED, key }
    }

    /// Queues the buffers that are sent without a READ; the SENDs that announce them are queued before.
    pub(super) fn push_exposed(&mut self) {
        self.queue.extend(self.pushes.drain(..).map(|Keyed { key, message }| Record::answer(key, message)));
    }

    /// Ends the exposure of a message that the peer has acknowledged. Returns the buffer of the message if this link
    /// still has it. Returns an error if the peer acknowledges an answer that is still queued: such a peer could make
    /// this side queue message after message without receiving any of them.
    pub(super) fn conceal(&mut self, remote: Remote) -> Result<Option<Buf>, Ended> {
        if self.queue.iter().any(|record| record.answers() == Some(remote.key)) {
            return Err(invalid("the peer acknowledged a message before it was sent"));
        }
        self.pushed.retain(|pushed| pushed.key != remote.key);
        let at = self.exposed.iter().position(|exposed| exposed.key == remote.key);
        Ok(at.map(|at| self.exposed.swap_remove(at).message))
    }

    /// Requests a buffer that the peer has exposed. Returns the message if it has arrived already.
    pub(super) fn read(&mut self, from: Remote, token: u32, into: Buf) -> Result<Option<Buf>, Ended> {
        let other_length = || invalid("the length of a message is not the announced one");
        if from.address == PUSHED {
            if let Some(at) = self.arrived.iter().position(|arrived| arrived.key == from.key) {
                let message = self.arrived.swap_remove(at).message;
                return if message.len() == into.len() { Ok(Some(message)) } else { Err(other_length()) };
            }
            if let Some(Partial { of: of @ Of::Push(_), message, .. }) = &mut self.partial
                && matches!(of, Of::Push(key) if *key == from.key)
            {
                *of = Of::Read(token);
                return if message.len() == into.len() { Ok(None) } else { Err(other_length()) };
            }
            if let Some(stalled) = &self.stalled
                && stalled.key == from.key
                && self.partial.is_none()
            {
                let is_sound = stalled.length == into.len();
                self.partial = Some(Partial { of: Of::Read(token), message: into, filled: 0 });
                return if is_sound { Ok(None) } else { Err(other_length()) };
            }
        } else {
            self.push(Record::read(from.key));
        }
        self.reads.push(Outstanding { key: from.key, token, into });
        Ok(None)
    }

    pub(super) fn into_remains(self) -> Remains {
        let TcpLink { queue, exposed, pushes, arrived, reads, partial, .. } = self;
        let mut spare: Vec<Buf> = queue.into_iter().filter_map(|record| record.body).collect();
        spare.extend([exposed, pushes, arrived].into_iter().flatten().map(|keyed| keyed.message));
        let reads = reads.into_iter().map(|read| (read.token, read.into)).collect();
        let mut remains = Remains { spare, receive: None, reads };
        match partial {
            Some(Partial { of: Of::Read(token), message, .. }) => remains.reads.push((token, message)),
            Some(Partial { of: Of::Send, message, .. }) => remains.receive = Some(message),
            Some(Partial { of: Of::Push(_), message, .. }) => remains.spare.push(message),
            None => {}
        }
        remains
    }

    pub(super) fn probe(&mut self) {
        self.is_probing = true;
    }

    /// Whether a probe has completed: the kernel has all requests that were posted before. Returns true once.
    pub(super) fn take_probe(&mut self) -> bool {
        self.queue.is_empty() && mem::take(&mut self.is_probing)
    }

    /// Ends an established link: the peer receives all SENDs, then the end of the stream. Answers are discarded.
    pub(super) fn end(&mut self, deadline: u64) {
        self.state = State::Ending;
        self.queue.clear();
        self.written = 0;
        self.deadline = deadline;
        _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Whether the peer's kernel has acknowledged nothing for too long, although it had something to acknowledge. A
    /// peer whose program reads nothing acknowledges the probes of the full window. Probes are rare, so the last
    /// acknowledgement may be old while the next one is in flight. Therefore two consecutive checks must find the
    /// acknowledgement overdue.
    pub(super) fn is_silent(&mut self) -> bool {
        if !self.is_unacknowledged {
            return false;
        }
        let acknowledgements = socket::acknowledgements(&self.socket);
        self.is_unacknowledged = acknowledgements.are_outstanding;
        let was_overdue = mem::replace(&mut self.is_overdue, acknowledgements.are_overdue);
        was_overdue && self.is_overdue
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
        intake: Intake<'_>,
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
        // Even if the write fails, this side still receives the data that the peer sent before its process died.
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
                self.receive(intake, hangup, report)?;
                // Sends answers to the READs that have just arrived.
                written = written.and_then(|()| self.write(sent, spare));
            }
            State::Ending => self.discard(intake.staging)?,
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
            // `write_vectored` would raise SIGPIPE, which ends C programs.
            let mut none = SendAncillaryBuffer::default();
            let count = match sendmsg(&self.socket, slices, &mut none, SendFlags::NOSIGNAL) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            self.is_unacknowledged = true;
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

fn invalid(text: &'static str) -> Ended {
    Ended::Failed(io::Error::new(io::ErrorKind::InvalidData, text))
}
