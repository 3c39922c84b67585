//! A connection: the carrier of one QP, on a TCP socket.
//!
//! [`Carrier::put`] encodes messages into a buffer, and [`Carrier::flush`] or a full buffer passes it to TCP. A send or
//! write completes when TCP has its last byte. The engine's thread, or a program that polls, [serves](Connection::serve)
//! the connection: it reads the socket, delivers segments to the QP, and continues what was blocked.
//!
//! Locks: `incoming` is held while segments are delivered, and `outgoing` only briefly, below the locks of the QP. No
//! call of the QP is made with `outgoing` locked.

use std::collections::VecDeque;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::connect::Agreed;
use super::engine::Engine;
use super::fpdu::Frames;
use super::rdmap::{Atomic, ReadRequest};
use super::receiver::{Event, Last};
use super::stream::Stream;
use super::terminate::{Code, Terminate};
use crate::sys::descriptor::Descriptor;
use crate::sys::unpoisoned;
use crate::wire::bytes::{self, Segment};
use crate::wire::message::{Refusal, Reply, Request, UNKNOWN_LENGTH};
use crate::wire::operation::Operation;
use crate::wire::packet::{Packet, Part, Payload, Response, ResponseKind, STREAM_PEER, psn_after};
use crate::wire::transport::{Carrier, Stuck, Wake};

/// The buffer is passed to TCP from this length on, and refuses packets from the limit on.
const WRITE_LENGTH: usize = 64 << 10;
const BUFFER_LIMIT: usize = 256 << 10;
/// Reads of the socket at a time, so that a fast peer does not delay the others.
const MAX_READS: usize = 4;
/// Time for the peer to close its direction after this end has closed its own.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The first half of an Immediate Data message that belongs to the next Send. Otherwise, it is the length of the Write
/// that it belongs to. RFC 7306 leaves all eight bytes to the program.
const SEND_FOLLOWS: u32 = u32::MAX;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) id: u64,
    pub(super) socket: Arc<Descriptor>,
    engine: &'static Engine,
    this: Weak<Self>,
    /// The QP.
    number: u32,
    /// Received messages begin as this one.
    template: Request,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
    /// A thread delivers segments, and flushes afterwards.
    is_receiving: AtomicBool,
}

#[derive(Debug)]
struct Incoming {
    frames: Frames,
    /// The number of received bytes.
    received: u64,
    /// The number of the next message.
    psn: u32,
    /// The immediate data of the next Send.
    immediate: Option<u32>,
    /// The first STag, offset and the length of the current Write, or of the last one.
    write: (u32, u64, u64),
    is_in_write: bool,
}

#[derive(Debug)]
struct Outgoing {
    stream: Stream,
    /// The bytes after `taken` wait for TCP.
    buffer: Vec<u8>,
    taken: usize,
    /// The number of bytes that TCP has taken before this buffer.
    position: u64,
    /// A copy of a payload.
    scratch: Vec<u8>,
    /// The requests of the QP that are not complete.
    requests: VecDeque<Outstanding>,
    /// The peer's requests that are not answered.
    asked: VecDeque<(u32, Asked)>,
    /// Whose message is partially put.
    open: Option<Owner>,
    waiter: Option<Weak<dyn Wake>>,
    /// A thread delivers completions.
    is_completing: bool,
    /// TCP takes nothing at the moment.
    is_blocked: bool,
    end: End,
}

/// The end of a connection.
#[derive(Debug, Default)]
struct End {
    /// Nothing more is put.
    is_ending: bool,
    deadline: Option<Instant>,
    /// A Terminate message was put.
    is_terminated: bool,
    /// The peer's reason.
    refusal: Option<Refusal>,
    /// The QP was informed.
    is_reported: bool,
    /// This end has closed its direction.
    is_shut: bool,
    /// The peer has closed its direction.
    is_closed: bool,
    /// TCP sends nothing more.
    is_broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Requests,
    Responses,
}

/// A request of the QP.
#[derive(Debug)]
struct Outstanding {
    psn: u32,
    attempt: u32,
    wait: Await,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Await {
    /// Until TCP has taken this byte.
    Taken(u64),
    Data,
    Original,
    Nothing {
        original: u64,
    },
}

/// A request of the peer.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Read(ReadRequest),
    Atomic(u32),
}

impl Outgoing {
    fn pending(&self) -> usize {
        self.buffer.len() - self.taken
    }

    /// Whether the next packet of this owner fits.
    fn fits(&self, owner: Owner) -> bool {
        self.stream.may_send() && self.pending() < BUFFER_LIMIT && self.open.is_none_or(|open| open == owner)
    }

    fn terminate(&mut self, code: Code) {
        if !self.end.is_terminated && !self.end.is_shut {
            log::debug!("sent a Terminate message: {code:?}");
            self.stream.terminate(&Terminate::new(code), &mut self.buffer);
            self.end.is_terminated = true;
        }
    }

    /// The number of bytes that TCP has taken.
    fn sent(&self) -> u64 {
        self.position + self.taken as u64
    }

    /// Whether the oldest request is complete.
    fn has_completed(&self) -> bool {
        self.requests.front().is_some_and(|request| match request.wait {
            Await::Taken(end) => self.sent() >= end,
            Await::Nothing { .. } => true,
            Await::Data | Await::Original => false,
        })
    }

    /// The next completed request.
    fn completed(&mut self) -> Option<(u32, u32, u64)> {
        if !self.has_completed() {
            return None;
        }
        let Outstanding { psn, attempt, wait } = self.requests.pop_front()?;
        let original = if let Await::Nothing { original } = wait { original } else { 0 };
        Some((psn, attempt, original))
    }

    /// TCP sends nothing more. What it has not taken does not complete, and other requests may still be answered.
    fn stop_sending(&mut self) {
        let sent = self.sent();
        self.requests.retain(|request| !matches!(request.wait, Await::Taken(end) if end > sent));
        self.buffer.clear();
        (self.position, self.taken, self.is_blocked, self.end.is_broken) = (sent, 0, false, true);
    }

    /// The oldest request that waits for this kind of response.
    fn oldest(&mut self, wait: Await) -> Option<&mut Outstanding> {
        self.requests.iter_mut().find(|request| request.wait == wait)
    }

    /// Encodes a part of a request of the QP.
    fn put_part(&mut self, part: &Part, payload: Payload<'_>) -> Result<(), Stuck> {
        if !self.fits(Owner::Requests) {
            return Err(Stuck::Full);
        }
        let Self { stream, buffer, scratch, .. } = self;
        let payload = copied(payload, scratch)?;
        let request = &part.request;
        let is_last = part.is_last();
        // Messages have at most 2 GiB.
        let offset = part.offset as u32;
        let kind = |invalidate| Last { is_solicited: request.is_solicited, invalidate };
        let immediate = |first: u32, immediate: u32| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&first.to_be_bytes());
            bytes[4..].copy_from_slice(&immediate.to_ne_bytes());
            bytes
        };
        let mut wait = None;
        match request.operation {
            Operation::Send => stream.send(kind(None), offset, payload, is_last, buffer),
            Operation::SendInvalidate { rkey } => stream.send(kind(Some(rkey)), offset, payload, is_last, buffer),
            Operation::SendImmediate { immediate: value } => {
                if part.offset == 0 {
                    stream.immediate(immediate(SEND_FOLLOWS, value), false, buffer);
                }
                stream.send(kind(None), offset, payload, is_last, buffer);
            }
            Operation::Write { address, rkey } | Operation::WriteImmediate { address, rkey, .. } => {
                stream.write(rkey, address.wrapping_add(part.offset), payload, is_last, buffer);
                if let (Operation::WriteImmediate { immediate: value, .. }, true) = (request.operation, is_last) {
                    stream.immediate(immediate(request.length as u32, value), request.is_solicited, buffer);
                }
            }
            Operation::Read { address, rkey } => {
                stream.read(request.length as u32, rkey, address, buffer);
                wait = Some(Await::Data);
            }
            Operation::CompareSwap { address, rkey, compare, swap } => {
                stream.atomic(rkey, address, Atomic::CompareSwap { compare, swap }, buffer);
                wait = Some(Await::Original);
            }
            Operation::FetchAdd { address, rkey, add } => {
                stream.atomic(rkey, address, Atomic::FetchAdd { add }, buffer);
                wait = Some(Await::Original);
            }
            // The service has no such message.
            Operation::AtomicWrite { .. } | Operation::Flush { .. } => return Err(Stuck::Fault),
            Operation::LocalInvalidate { .. } | Operation::Bind => return Err(Stuck::Fault),
        }
        self.open = (!is_last).then_some(Owner::Requests);
        if is_last {
            let wait = wait.unwrap_or(Await::Taken(self.position + self.buffer.len() as u64));
            self.requests.push_back(Outstanding { psn: request.psn, attempt: part.attempt, wait });
        }
        Ok(())
    }

    /// Encodes a response of the QP.
    fn put_response(&mut self, response: &Response, payload: Payload<'_>) -> Result<(), Stuck> {
        let asked = self.asked.front().filter(|(psn, _)| *psn == response.psn).map(|(_, asked)| *asked);
        let (offset, length, original) = match response.kind {
            ResponseKind::Data { offset, length } => (offset, length, 0),
            // Nothing is acknowledged, and a read ends with its last data.
            ResponseKind::Reply(Reply::Done { original }) => match asked {
                Some(Asked::Atomic(_) | Asked::Read(ReadRequest { length: 0, .. })) => (0, 0, original),
                _ => return Ok(()),
            },
            ResponseKind::Reply(reply) => {
                self.refuse(reply, asked);
                return Ok(());
            }
        };
        if self.end.is_ending || self.end.is_broken {
            return Err(Stuck::Lost);
        }
        if !self.fits(Owner::Responses) {
            return Err(Stuck::Full);
        }
        let Self { stream, buffer, scratch, .. } = self;
        let mut is_last = true;
        match asked {
            Some(Asked::Read(read)) => {
                let payload = copied(payload, scratch)?;
                is_last = offset + u64::from(length) >= read.length.into();
                stream.read_response(&read, offset as u32, payload, buffer);
            }
            Some(Asked::Atomic(id)) => stream.atomic_response(id, original, buffer),
            None => return Ok(()),
        }
        self.open = (!is_last).then_some(Owner::Responses);
        if is_last {
            self.asked.pop_front();
        }
        Ok(())
    }

    /// Ends the connection because the QP refuses a message.
    fn refuse(&mut self, reply: Reply, asked: Option<Asked>) {
        let code = match reply {
            // A QP that has failed or was disconnected handles no message.
            Reply::Silence if self.end.is_ending => return,
            Reply::Done { .. } => return,
            Reply::NotReady { .. } => Code::NO_BUFFER,
            Reply::Refused(refusal) => code_of(refusal, asked.is_some()),
            Reply::Silence | Reply::LocalFault => Code::UNSPECIFIED,
        };
        self.terminate(code);
        self.end.is_ending = true;
    }
}

/// The code for a refused message.
fn code_of(refusal: Refusal, is_read: bool) -> Code {
    match (refusal, is_read) {
        (Refusal::AccessError, true) => Code::READ_STAG,
        (Refusal::AccessError, false) => Code::TAGGED_STAG,
        (Refusal::InvalidRequest, true) => Code::ACCESS,
        (Refusal::InvalidRequest, false) => Code::TOO_LONG,
        (Refusal::OperationError, _) => Code::UNSPECIFIED,
    }
}

/// What the peer's code means for the oldest request.
fn refusal_of(code: Code) -> Refusal {
    match code.0 >> 8 {
        // Protection errors; the kernel's siw sends the code 0x1000 for them.
        0x01 | 0x10 | 0x11 => Refusal::AccessError,
        0x12 => Refusal::InvalidRequest,
        _ => Refusal::OperationError,
    }
}

/// The bytes of a payload, by a copy if others can change them.
fn copied<'p>(payload: Payload<'p>, scratch: &'p mut Vec<u8>) -> Result<&'p [u8], Stuck> {
    match payload {
        Payload::Bytes(bytes) => Ok(bytes),
        Payload::Memory(segments) => {
            let length = segments.iter().map(Segment::len).sum();
            if scratch.len() < length {
                scratch.resize(length, 0);
            }
            let copy = &mut scratch[..length];
            bytes::read_bytes(segments, copy).map_err(|_| Stuck::Fault)?;
            Ok(copy)
        }
    }
}

impl Connection {
    /// Creates the connection of the QP `number`, which is served once the engine watches it. `first` is sent before
    /// everything else.
    pub(super) fn new(
        engine: &'static Engine,
        (id, socket): (u64, Arc<Descriptor>),
        agreed: &Agreed,
        stream: Stream,
        first: Vec<u8>,
        (number, template): (u32, Request),
    ) -> Arc<Self> {
        let incoming = Incoming {
            frames: Frames::new(agreed.has_crc),
            received: 0,
            psn: 0,
            immediate: None,
            write: (0, 0, 0),
            is_in_write: false,
        };
        let outgoing = Outgoing {
            stream,
            buffer: first,
            taken: 0,
            position: 0,
            scratch: Vec::new(),
            requests: VecDeque::new(),
            asked: VecDeque::new(),
            open: None,
            waiter: None,
            is_completing: false,
            is_blocked: false,
            end: End::default(),
        };
        Arc::new_cyclic(|this| Self {
            id,
            socket,
            engine,
            this: this.clone(),
            number,
            template,
            incoming: Mutex::new(incoming),
            outgoing: Mutex::new(outgoing),
            is_receiving: AtomicBool::new(false),
        })
    }

    fn out(&self) -> MutexGuard<'_, Outgoing> {
        unpoisoned(self.outgoing.lock())
    }

    /// Reads the socket, and continues what was blocked. The caller holds no lock of a QP. Without `waits`, returns
    /// `false` if another thread does it. Returns whether anything has arrived.
    pub(super) fn serve(&self, waits: bool) -> bool {
        let Some(this) = self.this.upgrade() else { return false };
        let has_found;
        {
            let mut incoming = match self.incoming.try_lock() {
                Ok(incoming) => incoming,
                Err(TryLockError::Poisoned(error)) => error.into_inner(),
                Err(TryLockError::WouldBlock) if waits => unpoisoned(self.incoming.lock()),
                Err(TryLockError::WouldBlock) => return false,
            };
            self.is_receiving.store(true, Ordering::SeqCst);
            let carrier: Arc<dyn Carrier> = this;
            has_found = self.receive(&mut incoming, &carrier);
            self.is_receiving.store(false, Ordering::SeqCst);
            // Also if TCP took nothing before: it may have space now.
            self.write(&mut self.out());
            self.complete();
            self.check_end(&carrier);
        }
        let waiter = {
            let mut out = self.out();
            let has_space = out.pending() < BUFFER_LIMIT / 2 && out.stream.may_send() || out.end.is_ending;
            out.waiter.take_if(|_| has_space)
        };
        if let Some(waiter) = waiter.and_then(|waiter| waiter.upgrade()) {
            waiter.wake();
            self.flush();
        }
        has_found
    }

    /// Reads the socket. Returns whether anything has arrived.
    fn receive(&self, incoming: &mut Incoming, carrier: &Arc<dyn Carrier>) -> bool {
        if self.out().end.is_closed {
            return false;
        }
        for round in 0..MAX_READS {
            let space = incoming.frames.space();
            let wanted = space.len();
            match rustix::net::recv(&*self.socket, space, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    let mut out = self.out();
                    (out.end.is_ending, out.end.is_closed) = (true, true);
                    self.watch(&out);
                    return true;
                }
                Ok((_, length)) => {
                    incoming.received += length as u64;
                    incoming.frames.filled(length);
                    self.deliver(incoming, carrier);
                    if length < wanted {
                        return true;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !self.out().end.is_broken => return round > 0,
                Err(error) => {
                    let mut out = self.out();
                    self.lose(&mut out, error);
                    (out.end.is_ending, out.end.is_closed) = (true, true);
                    return true;
                }
            }
        }
        true
    }

    /// Handles a failure of TCP.
    fn lose(&self, out: &mut Outgoing, error: Errno) {
        log::debug!("QP {:#x}: the connection is lost: {error}", self.number);
        out.stop_sending();
    }

    /// Delivers the complete segments.
    fn deliver(&self, incoming: &mut Incoming, carrier: &Arc<dyn Carrier>) {
        loop {
            let mut out = self.out();
            if out.end.is_ending {
                // Nothing is delivered to a QP that has failed.
                return incoming.frames.discard();
            }
            let found = match incoming.frames.next() {
                Ok(Some(found)) => found,
                Ok(None) => return,
                Err(code) => {
                    out.terminate(code);
                    out.end.is_ending = true;
                    continue;
                }
            };
            let Incoming { frames, psn, immediate, write, is_in_write, .. } = &mut *incoming;
            let Outgoing { stream, buffer, .. } = &mut *out;
            let event = match stream.segment(frames.segment(&found), buffer) {
                Ok(event) => event,
                Err(code) => {
                    log::debug!("QP {:#x}: the peer has violated the protocol: {code:?}", self.number);
                    (out.end.is_terminated, out.end.is_ending) = (true, true);
                    continue;
                }
            };
            let mut request = Request { psn: *psn, ..self.template };
            let (offset, payload) = match event {
                Event::Nothing => continue,
                Event::Terminated(code) => {
                    log::debug!("QP {:#x}: the peer has ended the connection: {code:?}", self.number);
                    out.end.refusal = Some(refusal_of(code));
                    (out.end.is_terminated, out.end.is_ending) = (true, true);
                    continue;
                }
                Event::ReadResponse { offset, payload, is_last } => {
                    let Some(oldest) = out.oldest(Await::Data) else { continue };
                    let (psn, attempt) = (oldest.psn, oldest.attempt);
                    drop(out);
                    // A segment has at most 64 KiB.
                    let kind = ResponseKind::Data { offset: offset.into(), length: payload.len() as u32 };
                    self.respond(psn, attempt, kind, payload);
                    if is_last && let Some(oldest) = self.out().oldest(Await::Data) {
                        oldest.wait = Await::Nothing { original: 0 };
                    }
                    continue;
                }
                Event::AtomicResponse { original } => {
                    if let Some(oldest) = out.oldest(Await::Original) {
                        oldest.wait = Await::Nothing { original };
                    }
                    continue;
                }
                Event::Send { offset, payload, last } => {
                    if payload.is_empty() && last.is_none() {
                        continue;
                    }
                    (request.operation, request.length) = (Operation::Send, UNKNOWN_LENGTH);
                    if let Some(Last { is_solicited, invalidate }) = last {
                        request.length = u64::from(offset) + payload.len() as u64;
                        request.is_solicited = is_solicited;
                        request.operation = match (invalidate, immediate.take()) {
                            (Some(rkey), _) => Operation::SendInvalidate { rkey },
                            (None, Some(immediate)) => Operation::SendImmediate { immediate },
                            (None, None) => Operation::Send,
                        };
                    }
                    (u64::from(offset), payload)
                }
                Event::Write { stag, offset, payload, is_last } => {
                    if !*is_in_write {
                        *write = (stag, offset, 0);
                    }
                    *is_in_write = !is_last;
                    write.2 += payload.len() as u64;
                    request.operation = Operation::Write { address: offset, rkey: stag };
                    request.length = payload.len() as u64;
                    (0, payload)
                }
                Event::Immediate { bytes: [a, b, c, d, value @ ..], is_solicited } => {
                    let (first, value) = (u32::from_be_bytes([a, b, c, d]), u32::from_ne_bytes(value));
                    if first == SEND_FOLLOWS {
                        *immediate = Some(value);
                        continue;
                    }
                    let (rkey, address, length) = *write;
                    let (rkey, address, length) =
                        if u64::from(first) == length { (rkey, address, length) } else { (0, 0, 0) };
                    request.operation = Operation::WriteImmediate { address, rkey, immediate: value };
                    (request.length, request.is_solicited) = (length, is_solicited);
                    (length, &[][..])
                }
                Event::ReadRequest(read) => {
                    out.asked.push_back((request.psn, Asked::Read(read)));
                    request.operation = Operation::Read { address: read.source_offset, rkey: read.source_stag };
                    request.length = read.length.into();
                    (0, &[][..])
                }
                Event::AtomicRequest(atomic) => {
                    out.asked.push_back((request.psn, Asked::Atomic(atomic.id)));
                    let (address, rkey) = (atomic.offset, atomic.stag);
                    request.operation = match atomic.kind {
                        Atomic::FetchAdd { add } => Operation::FetchAdd { address, rkey, add },
                        Atomic::CompareSwap { compare, swap } => {
                            Operation::CompareSwap { address, rkey, compare, swap }
                        }
                    };
                    request.length = 8;
                    (0, &[][..])
                }
            };
            let has_completed = out.has_completed();
            drop(out);
            if has_completed {
                // The peer may answer what TCP has just taken.
                self.complete();
            }
            let part = Part { number: self.number, request, offset, length: payload.len() as u32, attempt: 0 };
            if part.is_last() {
                *psn = psn_after(*psn, 1);
            }
            with_segment(payload, |segments| self.engine.deliver.part(&part, segments, carrier));
        }
    }

    /// Delivers a response to the QP.
    fn respond(&self, psn: u32, attempt: u32, kind: ResponseKind, payload: &[u8]) {
        let response = Response { number: self.number, source_number: STREAM_PEER, psn, attempt, kind };
        // If another thread holds the QP, that thread handles it.
        with_segment(payload, |segments| {
            self.engine.deliver.response(&response, segments);
        });
    }

    /// Passes the buffer to TCP.
    fn write(&self, out: &mut Outgoing) {
        while out.pending() > 0 && !out.end.is_broken {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&*self.socket, &out.buffer[out.taken..], flags) {
                Ok(length) => out.taken += length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !out.is_blocked {
                        out.is_blocked = true;
                        self.watch(out);
                    }
                    break;
                }
                Err(error) => {
                    // What was received before is still delivered.
                    self.lose(out, error);
                    self.engine.notify(self.id);
                }
            }
        }
        if out.pending() == 0 {
            out.position += out.buffer.len() as u64;
            out.buffer.clear();
            out.taken = 0;
            if out.is_blocked {
                out.is_blocked = false;
                self.watch(out);
            }
        } else if out.taken >= WRITE_LENGTH {
            out.position += out.taken as u64;
            out.buffer.drain(..out.taken);
            out.taken = 0;
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.out().buffer.capacity()
    }

    /// Sets the events of a socket that was added.
    pub(super) fn watched(&self) {
        self.watch(&self.out());
    }

    /// Sets the events of the socket that the engine waits for.
    fn watch(&self, out: &Outgoing) {
        self.engine.watch(self, !out.end.is_closed, out.is_blocked);
    }

    /// Delivers the completions, in order: one thread at a time.
    fn complete(&self) {
        let mut out = self.out();
        if std::mem::replace(&mut out.is_completing, true) {
            return;
        }
        while let Some((psn, attempt, original)) = out.completed() {
            drop(out);
            self.respond(psn, attempt, ResponseKind::Reply(Reply::Done { original }), &[]);
            out = self.out();
        }
        out.is_completing = false;
    }

    /// Continues the end of the connection.
    fn check_end(&self, carrier: &Arc<dyn Carrier>) {
        let (is_new, refusal, is_over) = {
            let mut out = self.out();
            if !out.end.is_ending {
                return;
            }
            let is_empty = out.pending() == 0 || out.end.is_broken;
            let end = &mut out.end;
            let is_new = !std::mem::replace(&mut end.is_reported, true);
            let deadline = *end.deadline.get_or_insert_with(|| Instant::now() + CLOSE_TIMEOUT);
            if is_empty && !end.is_shut {
                end.is_shut = true;
                let _ = rustix::net::shutdown(&*self.socket, Shutdown::Write);
            }
            (is_new, end.refusal, end.is_shut && end.is_closed || Instant::now() >= deadline)
        };
        if is_new {
            self.engine.ending();
            self.engine.deliver.ended(self.number, carrier, refusal);
        }
        if is_over {
            self.engine.forget(self);
            let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
        }
    }
}

impl Carrier for Connection {
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck> {
        let mut out = self.out();
        let is_response = matches!(packet, Packet::Response(_));
        let put = match packet {
            Packet::Part(_) if out.end.is_ending || out.end.is_broken => Err(Stuck::Lost),
            Packet::Part(part) => out.put_part(part, payload),
            Packet::Response(response) => out.put_response(response, payload),
        };
        if out.pending() >= WRITE_LENGTH && !out.is_blocked {
            self.write(&mut out);
        }
        let has_ended = is_response && out.end.is_ending;
        if out.open.is_none() && out.waiter.is_some() || has_ended {
            self.engine.notify(self.id);
        }
        drop(out);
        if is_response && !self.is_receiving.load(Ordering::SeqCst) {
            let mut out = self.out();
            if !out.is_blocked {
                self.write(&mut out);
            }
            // The caller may hold a lock of the QP, so another thread completes.
            if out.has_completed() {
                self.engine.notify(self.id);
            }
        }
        put
    }

    fn wake(&self, waiting: Weak<dyn Wake>) {
        self.out().waiter = Some(waiting);
    }

    fn taken(&self) -> u64 {
        0
    }

    fn flush(&self) {
        {
            let mut out = self.out();
            if !out.is_blocked {
                self.write(&mut out);
            }
            if out.waiter.is_some() && out.pending() < BUFFER_LIMIT / 2 {
                self.engine.notify(self.id);
            }
        }
        self.complete();
    }

    fn settle(&self) {
        let end = {
            let incoming = unpoisoned(self.incoming.lock());
            incoming.received + rustix::io::ioctl_fionread(&*self.socket).unwrap_or(0)
        };
        while self.serve(true) && unpoisoned(self.incoming.lock()).received < end {}
    }

    fn end(&self) {
        let is_new = !std::mem::replace(&mut self.out().end.is_ending, true);
        if is_new {
            self.engine.notify(self.id);
        }
    }
}

/// Calls `call` with received bytes as a segment; with none if there are none.
fn with_segment(payload: &[u8], call: impl FnOnce(&[Segment])) {
    if payload.is_empty() {
        return call(&[]);
    }
    // SAFETY: the slice is alive during the call, and the receivers only read it.
    let segment = unsafe { Segment::of_raw(payload.as_ptr().cast_mut(), payload.len()) };
    call(slice::from_ref(&segment));
}
