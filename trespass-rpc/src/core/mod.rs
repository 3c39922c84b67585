//! One connection as a state machine: no I/O, clock, threads or unsafe code. Times are microseconds of any clock.
//!
//! The driver passes frames to [`Connection::on_frame`], sends what [`Connection::poll_transmit`] has, and calls [`Connection::on_time`]
//! at [`Connection::next_timeout`].
//!
//! # Memory
//!
//! What the peer can make this side hold follows from what this side granted: `calls` requests of `bytes` bytes together, and `window`
//! bytes of items on each stream. A request returns its credit when its answer has left, an item when the program has taken it; a cancelled
//! call is answered too. So frames that do nothing cost their sender credit, and answers in flight always have room. Pings are answered
//! by one flag.

mod calls;
mod flow;
mod serving;
#[cfg(test)]
mod sim;

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::error::{Certainty, RpcError, Status};
use crate::wire::{Bulk, Flags, Frame, Header, Hello, Kind, META_LIMIT, WireError, write};

use calls::Calls;
use serving::Serving;

pub use calls::{Outgoing, Refused};

/// Bytes that wait to leave, above which no item of a stream follows.
const BACKLOG: usize = 1 << 20;

/// What a side grants, and how long it waits. Times in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Calls that the peer may have in flight, 32,768 at most.
    pub calls: u32,
    /// Bytes of requests that the peer may have in flight.
    pub bytes: u32,
    /// Bytes of the body of a request, an answer or an item at most.
    pub body: u32,
    /// Bytes of items that the peer may send ahead on a stream.
    pub window: u32,
    /// Bytes of an attachment or a target at most.
    pub attachment: u64,
    /// Calls of this side that wait for credit at most; more are refused.
    pub waiting: usize,
    /// A connection without a frame for this time is pinged, and ends after three times of it; 0 is never.
    pub keepalive: u64,
    /// A peer that takes nothing for this time is disconnected.
    pub stall: u64,
    /// Whether frames have checksums.
    pub checksum: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: 1024,
            bytes: 8 << 20,
            body: 1 << 20,
            window: 256 << 10,
            attachment: 1 << 30,
            waiting: 65_536,
            keepalive: 3_000_000,
            stall: 10_000_000,
            checksum: false,
        }
    }
}

/// Which side began the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This one; its calls have odd numbers.
    Client,
    /// The peer's address.
    Server,
}

/// The peer broke the protocol: the connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Bytes that are no frame.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A frame that may not come here.
    #[error("the peer sent {0}")]
    Unexpected(&'static str),
    /// The peer has used credit that it does not have.
    #[error("the peer sent more {0} than it was granted")]
    Credit(&'static str),
    /// A body that is longer than this side takes.
    #[error("the peer sent a body of {0} bytes; {1} are allowed")]
    Body(usize, usize),
}

/// A request that arrived.
#[derive(Debug)]
pub struct Request<'f> {
    /// The call, for its answer.
    pub id: u32,
    /// Hash of the method's name.
    pub method: u64,
    /// The flags.
    pub flags: Flags,
    /// When the caller stops waiting, by this side's clock.
    pub deadline: Option<u64>,
    /// Metadata.
    pub meta: &'f [u8],
    /// Descriptors, arguments and inline bytes: see [`Bulk::split`].
    pub body: &'f [u8],
}

/// What a frame means for the driver.
#[derive(Debug)]
pub enum Event<'f> {
    /// Nothing.
    None,
    /// The peer's hello: calls may be made.
    Ready,
    /// A request to run.
    Request(Request<'f>),
    /// A call of this side is answered.
    Answer {
        /// The call.
        id: u32,
        /// How.
        status: Status,
        /// The library of the peer has refused it, and no handler ran.
        is_refused: bool,
        /// The result, the error, or text.
        body: &'f [u8],
    },
    /// An item of a stream; its bytes are to be returned by [`Connection::consumed`].
    Item {
        /// The call.
        id: u32,
        /// The item.
        body: &'f [u8],
    },
    /// The caller's stream has ended.
    End {
        /// The call.
        id: u32,
    },
    /// The caller has given the call up: it is to be answered with [`Status::CANCELLED`].
    Cancel {
        /// The call.
        id: u32,
    },
    /// More items may be sent.
    Room {
        /// The call.
        id: u32,
    },
    /// Bytes of an attachment or a target, or a request for them.
    Bulk(BulkFrame<'f>),
    /// The peer takes no more calls.
    GoAway {
        /// Why.
        reason: &'f [u8],
    },
}

/// What a `Bulk` frame does: the budget field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum BulkOperation {
    /// The body has bytes for the offset.
    Data = 0,
    /// The body has a number, 8 bytes: as many bytes from the offset are requested.
    Pull = 1,
    /// The request cannot be answered any more.
    Gone = 2,
}

/// A `Bulk` frame.
#[derive(Debug)]
pub struct BulkFrame<'f> {
    /// The call.
    pub id: u32,
    /// Which of the call's attachments and targets.
    pub index: usize,
    /// What it does.
    pub operation: BulkOperation,
    /// Where its bytes belong.
    pub offset: u64,
    /// The bytes.
    pub body: &'f [u8],
}

/// One connection. `C` is what the driver keeps for each of this side's calls.
#[derive(Debug)]
pub struct Connection<C> {
    side: Side,
    limits: Limits,
    peer: Option<Hello>,
    /// Frames that have not left.
    out: Vec<u8>,
    /// Bytes at the start of `out` that have left.
    sent: usize,
    /// Bytes that have left in all.
    left: u64,
    /// Calls with items that wait until less is in `out`.
    held: BTreeSet<u32>,
    calls: Calls<C>,
    serving: Serving,
    /// No request is taken any more.
    is_leaving: bool,
    /// The peer takes no more.
    peer_leaves: bool,
    failure: Option<RpcError>,
    pong_due: bool,
    /// When the peer was pinged, if it has sent nothing since.
    ping_sent: Option<u64>,
    heard_at: u64,
    /// When something last left, or `out` was empty.
    progress_at: u64,
}

impl<C> Connection<C> {
    /// A connection that is established. Its hello is the first thing to transmit.
    pub fn new(side: Side, limits: Limits, hello: &Hello, now: u64) -> Self {
        let limits = Limits { calls: limits.calls.clamp(1, calls::MOST), window: limits.window.max(1), ..limits };
        let mut connection = Self {
            side,
            limits,
            peer: None,
            out: Vec::new(),
            sent: 0,
            left: 0,
            held: BTreeSet::new(),
            calls: Calls::new(side),
            serving: Serving::new(&limits),
            is_leaving: false,
            peer_leaves: false,
            failure: None,
            pong_due: false,
            ping_sent: None,
            heard_at: now,
            progress_at: now,
        };
        let hello = Hello {
            versions: (1, 1),
            calls: limits.calls,
            bytes: limits.bytes,
            body: limits.body,
            window: limits.window,
            attachment: limits.attachment,
            ..hello.clone()
        };
        connection.frame(Header::new(Kind::Hello, 0), &[], &[&hello.to_bytes()]);
        connection
    }

    /// The peer's hello.
    pub fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref()
    }

    /// What this side grants.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Why the connection has ended.
    pub fn failure(&self) -> Option<&RpcError> {
        self.failure.as_ref()
    }

    /// Whether neither side has a call in flight.
    pub fn is_idle(&self) -> bool {
        self.serving.count() == 0 && self.calls.count() == 0
    }

    /// Whether the peer has no call in flight, and everything was transmitted.
    pub fn is_drained(&self) -> bool {
        self.serving.count() == 0 && self.out.len() == self.sent
    }

    /// Whether calls may be made.
    pub fn is_open(&self) -> bool {
        self.peer.is_some() && self.failure.is_none() && !self.peer_leaves
    }

    /// What a frame means.
    ///
    /// # Errors
    ///
    /// [`Violation`]: the connection must end.
    pub fn on_frame<'f>(&mut self, frame: &Frame<'f>, now: u64) -> Result<Event<'f>, Violation> {
        (self.heard_at, self.ping_sent) = (now, None);
        let Frame { header, meta, body } = *frame;
        let is_bounded = matches!(header.kind, Kind::Hello | Kind::Bulk);
        if !is_bounded && body.len() > self.limits.body as usize {
            return Err(Violation::Body(body.len(), self.limits.body as usize));
        }
        if meta.len() > META_LIMIT {
            return Err(Violation::Body(meta.len(), META_LIMIT));
        }
        if header.kind == Kind::Hello {
            if self.peer.is_some() {
                return Err(Violation::Unexpected("a second hello"));
            }
            let hello = Hello::parse(body)?;
            self.calls.grant(hello.calls, hello.bytes);
            self.peer = Some(hello);
            return Ok(Event::Ready);
        }
        if self.peer.is_none() {
            return Err(Violation::Unexpected("a frame before its hello"));
        }
        let id = header.call;
        match header.kind {
            Kind::Request => self.on_request(header, meta, body, now),
            Kind::Response | Kind::Error => {
                let status = Status(header.status());
                if (header.kind == Kind::Response) != (status == Status::OK) {
                    return Err(Violation::Unexpected("an answer of the wrong kind"));
                }
                let is_refused = header.flags.has(Flags::REFUSED);
                let has_waiter = self.calls.answered(id, header.credit())?;
                self.release(now);
                Ok(if has_waiter { Event::Answer { id, status, is_refused, body } } else { Event::None })
            }
            Kind::Cancel => Ok(if self.serving.get(id).is_some() { Event::Cancel { id } } else { Event::None }),
            Kind::Credit => self.on_credit(header, now),
            Kind::Ping => {
                self.pong_due = true;
                Ok(Event::None)
            }
            Kind::GoAway => {
                self.peer_leaves = true;
                Ok(Event::GoAway { reason: body })
            }
            Kind::StreamData => {
                let cost = flow::cost(body.len(), self.limits.window);
                let known = match self.flow(id) {
                    Some(flow) => flow.receive(cost)?,
                    // Of a call that has ended here while the item was in flight.
                    None => return Ok(Event::None),
                };
                Ok(if known { Event::Item { id, body } } else { Event::None })
            }
            Kind::StreamEnd => Ok(if self.serving.get(id).is_some() { Event::End { id } } else { Event::None }),
            Kind::Bulk => self.on_bulk(header, body),
            Kind::Hello | Kind::Pong => Ok(Event::None),
        }
    }

    fn on_request<'f>(
        &mut self,
        header: Header,
        meta: &'f [u8],
        body: &'f [u8],
        now: u64,
    ) -> Result<Event<'f>, Violation> {
        if self.is_own(header.call) || header.call == 0 {
            return Err(Violation::Unexpected("a request with a number of this side"));
        }
        let deadline = (header.budget != 0).then(|| now.saturating_add(header.budget.into()));
        let window = self.peer.as_ref().map_or(0, |peer| peer.window);
        self.serving.begin(header.call, (meta.len() + body.len()) as u64, deadline, (window, self.limits.window))?;
        if self.is_leaving {
            self.answer(header.call, Status::UNAVAILABLE, true, &[b"the server is shutting down"]);
            return Ok(Event::None);
        }
        Ok(Event::Request(Request {
            id: header.call,
            method: header.method,
            flags: header.flags,
            deadline,
            meta,
            body,
        }))
    }

    fn on_credit<'f>(&mut self, header: Header, now: u64) -> Result<Event<'f>, Violation> {
        if header.call == 0 {
            self.calls.add_credit(header.credit());
            self.release(now);
            return Ok(Event::None);
        }
        let Some(flow) = self.flow(header.call) else { return Ok(Event::None) };
        flow.give(header.credit())?;
        Ok(Event::Room { id: header.call })
    }

    fn on_bulk<'f>(&mut self, header: Header, body: &'f [u8]) -> Result<Event<'f>, Violation> {
        let id = header.call;
        let operation = match header.budget {
            0 => BulkOperation::Data,
            1 => BulkOperation::Pull,
            2 => BulkOperation::Gone,
            _ => return Err(Violation::Unexpected("an unknown bulk operation")),
        };
        let known = if self.is_own(id) { self.calls.is_on_wire(id) } else { self.serving.get(id).is_some() };
        let frame = BulkFrame { id, index: header.flags.bulks(), operation, offset: header.method, body };
        Ok(if known { Event::Bulk(frame) } else { Event::None })
    }

    fn is_own(&self, id: u32) -> bool {
        (id & 1 == 1) == (self.side == Side::Client)
    }

    fn flow(&mut self, id: u32) -> Option<&mut flow::Flow> {
        if self.is_own(id) { self.calls.flow(id) } else { self.serving.get(id) }
    }

    /// Makes a call. Its frame leaves when there is credit for it.
    ///
    /// # Errors
    ///
    /// [`Refused`]: nothing was sent, and nothing is.
    pub fn start(&mut self, call: &Outgoing<'_>, data: C, now: u64) -> Result<u32, Refused> {
        let refuse = |status, detail: Cow<'static, str>| Err(RpcError::new(status, Certainty::NotSent, detail));
        if let Some(failure) = &self.failure {
            return refuse(failure.status, failure.detail.clone());
        }
        let Some(peer) = self.peer.as_ref().filter(|_| !self.peer_leaves) else {
            return refuse(Status::UNAVAILABLE, "the peer takes no more calls".into());
        };
        let (length, most) = (call.length(), peer.body as usize);
        if length > most || call.meta.len() > META_LIMIT {
            return refuse(
                Status::TOO_LARGE,
                format!("a request of {length} bytes; the peer takes {most}; use an attachment").into(),
            );
        }
        if call.deadline.is_some_and(|deadline| deadline <= now) {
            return refuse(Status::DEADLINE, Cow::Borrowed(""));
        }
        if self.calls.waiting() >= self.limits.waiting {
            return refuse(Status::OVERLOADED, "too many calls wait for the peer".into());
        }
        let windows = (peer.window, self.limits.window);
        let checksum = self.limits.checksum;
        match self.calls.start(call, data, windows, now, checksum, &mut self.out) {
            Some(id) => Ok(id),
            None => refuse(Status::OVERLOADED, "too many calls are in flight".into()),
        }
    }

    /// What the driver keeps for a call of this side.
    pub fn call(&mut self, id: u32) -> Option<&mut C> {
        self.calls.data(id)
    }

    /// Gives a call up. If it has not ended, the peer is asked to cancel it. Returns what the driver kept for it.
    pub fn forget(&mut self, id: u32, now: u64) -> Option<C> {
        let (data, is_running) = self.calls.forget(id)?;
        if is_running && self.failure.is_none() {
            self.frame(Header::new(Kind::Cancel, id), &[], &[]);
        }
        self.release(now);
        Some(data)
    }

    /// Answers a request: the end of the call for this side. `is_refused` is whether no handler has run. False if there is no such
    /// request any more.
    pub fn answer(&mut self, id: u32, status: Status, is_refused: bool, parts: &[&[u8]]) -> bool {
        let Some(credit) = self.serving.end(id) else { return false };
        let kind = if status == Status::OK { Kind::Response } else { Kind::Error };
        let flags = Flags(if is_refused { Flags::REFUSED } else { 0 });
        self.frame(Header { flags, ..Header::answer(kind, id, status.0, credit) }, &[], parts);
        self.serving.answered(self.left + self.backlog() as u64);
        true
    }

    /// Sends an item of a stream, if there is credit, and not too much waits to leave. `None` if the call has ended, or its request
    /// waits. [`Connection::take_room`] returns the call when it is worth another try.
    pub fn item(&mut self, id: u32, parts: &[&[u8]]) -> Option<bool> {
        let length = parts.iter().map(|part| part.len()).sum();
        let window = self.peer.as_ref()?.window;
        let is_live = !self.is_own(id) || self.calls.is_on_wire(id);
        if self.backlog() >= BACKLOG && is_live && self.flow(id).is_some() {
            self.held.insert(id);
            return Some(false);
        }
        let has_credit = self.flow(id).filter(|_| is_live)?.send(flow::cost(length, window));
        if has_credit {
            self.frame(Header::new(Kind::StreamData, id), &[], parts);
        }
        Some(has_credit)
    }

    /// A call that waits no more to send its items: its request has left, or there is less to send. Until `None`.
    pub fn take_room(&mut self) -> Option<u32> {
        self.calls.take_released().or_else(|| if self.backlog() < BACKLOG / 2 { self.held.pop_first() } else { None })
    }

    /// Bytes that wait to leave.
    fn backlog(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Whether a request has been sent already, so that items may follow.
    pub fn is_sent(&self, id: u32) -> bool {
        self.calls.is_on_wire(id)
    }

    /// Ends the stream of a call of this side.
    pub fn end_items(&mut self, id: u32) {
        if self.calls.is_on_wire(id) {
            self.frame(Header::new(Kind::StreamEnd, id), &[], &[]);
        }
    }

    /// The program has taken an item of this length: the peer may send as much again.
    pub fn consumed(&mut self, id: u32, length: usize) {
        let window = self.limits.window;
        let is_live = !self.is_own(id) || self.calls.is_on_wire(id);
        let due = self.flow(id).and_then(|flow| flow.consumed(flow::cost(length, window), window));
        if let Some(bytes) = due.filter(|_| is_live) {
            self.frame(Header::answer(Kind::Credit, id, 0, bytes), &[], &[]);
        }
    }

    /// A `Bulk` frame that the driver sends by itself: for bytes that it does not copy into the connection.
    pub fn bulk_header(id: u32, index: usize, operation: BulkOperation, offset: u64) -> Header {
        let header = Header { flags: Flags::new(0, index), method: offset, ..Header::new(Kind::Bulk, id) };
        Header { budget: operation as u32, ..header }
    }

    /// Sends a `Bulk` frame.
    pub fn bulk(&mut self, id: u32, index: usize, operation: BulkOperation, offset: u64, body: &[u8]) {
        self.frame(Self::bulk_header(id, index, operation, offset), &[], &[body]);
    }

    /// Grants no further calls while memory is short, and what was withheld when it is not.
    pub fn withhold(&mut self, withhold: bool) {
        let calls = self.serving.withhold(withhold);
        if calls != 0 {
            self.frame(Header::answer(Kind::Credit, 0, 0, calls), &[], &[]);
        }
    }

    /// Takes no more calls: the peer is asked to make none. Those that run are finished.
    pub fn go_away(&mut self, reason: &str) {
        if !self.is_leaving {
            self.is_leaving = true;
            self.frame(Header::new(Kind::GoAway, 0), &[], &[reason.as_bytes()]);
        }
    }

    /// Ends the connection: all calls of this side end, those that left with [`Certainty::Unknown`].
    pub fn fail(&mut self, failure: RpcError, mut each: impl FnMut(&mut C, RpcError)) {
        if self.failure.is_some() {
            return;
        }
        self.calls.end_all(|data, is_sent| {
            let certainty = if is_sent { Certainty::Unknown } else { Certainty::NotSent };
            each(data, RpcError { certainty, ..failure.clone() });
        });
        self.failure = Some(failure);
        self.serving.clear();
        self.held.clear();
        self.out.clear();
        self.sent = 0;
    }

    /// Requests whose caller waits no more, in the next [`Connection::on_time`].
    pub fn next_timeout(&self) -> u64 {
        if self.failure.is_some() {
            return u64::MAX;
        }
        let keepalive = match self.limits.keepalive {
            0 => u64::MAX,
            time => match self.ping_sent {
                Some(at) => at.saturating_add(time.saturating_mul(2)),
                None => self.heard_at.saturating_add(time),
            },
        };
        let stall = if self.backlog() == 0 { u64::MAX } else { self.progress_at.saturating_add(self.limits.stall) };
        self.calls.earliest().min(self.serving.earliest()).min(keepalive).min(stall)
    }

    /// Time has passed. Calls of this side that are over get their error; requests that are over are to be answered by the driver.
    ///
    /// # Errors
    ///
    /// The peer is silent, or takes nothing: the connection must end.
    pub fn on_time(
        &mut self,
        now: u64,
        mut each: impl FnMut(&mut C, RpcError),
        expired: &mut Vec<u32>,
    ) -> Result<(), RpcError> {
        if self.failure.is_some() {
            return Ok(());
        }
        let unavailable = |text| Err(RpcError::new(Status::UNAVAILABLE, Certainty::Unknown, text));
        if self.backlog() != 0 && now >= self.progress_at.saturating_add(self.limits.stall) {
            return unavailable("the peer reads nothing");
        }
        let keepalive = self.limits.keepalive;
        match self.ping_sent {
            // A side that slept has not given the peer its time.
            None if keepalive != 0 && now >= self.heard_at.saturating_add(keepalive) => {
                self.ping_sent = Some(now);
                self.frame(Header::new(Kind::Ping, 0), &[], &[]);
            }
            Some(at) if now >= at.saturating_add(keepalive.saturating_mul(2)) => {
                return unavailable("the peer is silent");
            }
            _ => {}
        }
        let out = &mut self.out;
        let checksum = self.limits.checksum;
        self.calls.expire(now, |id, data, is_sent| {
            let certainty = if is_sent { Certainty::Unknown } else { Certainty::NotSent };
            each(data, RpcError::new(Status::DEADLINE, certainty, ""));
            if is_sent {
                let flags = Flags(if checksum { Flags::CHECKSUM } else { 0 });
                write(out, &Header { flags, ..Header::new(Kind::Cancel, id) }, &[], &[]);
            }
        });
        self.serving.expire(now, expired);
        self.release(now);
        Ok(())
    }

    /// Frames to send, whole ones, `most` bytes at most unless the first frame is longer.
    pub fn poll_transmit(&mut self, most: usize, now: u64) -> Option<&[u8]> {
        if self.pong_due {
            self.pong_due = false;
            self.frame(Header::new(Kind::Pong, 0), &[], &[]);
        }
        let rest = &self.out[self.sent..];
        if rest.is_empty() {
            self.progress_at = now;
            return None;
        }
        let mut end = 0;
        while end < rest.len() {
            let length = frame_length(&rest[end..]);
            if end != 0 && end + length > most {
                break;
            }
            end += length;
        }
        Some(&rest[..end.min(rest.len())])
    }

    /// Whether there is something to send.
    pub fn wants_transmit(&self) -> bool {
        self.pong_due || self.out.len() != self.sent
    }

    /// Bytes that [`Connection::poll_transmit`] returned have left.
    pub fn transmitted(&mut self, bytes: usize, now: u64) {
        self.sent += bytes;
        self.left += bytes as u64;
        self.progress_at = now;
        self.serving.transmitted(self.left);
        if self.sent >= self.out.len() {
            self.out.clear();
            self.sent = 0;
            // A large answer leaves no memory with an idle connection.
            self.out.shrink_to(64 << 10);
        } else if self.sent > 1 << 20 {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Sends calls that waited for credit.
    fn release(&mut self, now: u64) {
        self.calls.release(now, &mut self.out);
    }

    fn frame(&mut self, mut header: Header, meta: &[u8], parts: &[&[u8]]) {
        if self.failure.is_some() {
            return;
        }
        if self.limits.checksum {
            header.flags.0 |= Flags::CHECKSUM;
        }
        write(&mut self.out, &header, meta, parts);
    }
}

/// Length of the first of frames that this side wrote.
fn frame_length(frames: &[u8]) -> usize {
    Frame::split(frames).map_or(frames.len(), |(_, rest)| frames.len() - rest.len())
}

/// Descriptors, arguments and inline bytes of a request's body: see [`Bulk::split`].
pub fn split_body(flags: Flags, body: &[u8]) -> Result<(impl Iterator<Item = Bulk> + '_, &[u8], &[u8]), WireError> {
    Bulk::split(body, flags.bulks())
}
