//! A connection: the carrier of one QP, on a TCP socket.
//!
//! [`Carrier::put`] encodes messages into a buffer, and [`Carrier::flush`] or a full buffer passes it to TCP. A send or
//! write completes when TCP has accepted its last byte. The engine's thread, or a program that polls,
//! [serves](Connection::serve) the connection: it reads the socket, delivers segments to the QP, and continues
//! blocked deliveries and writes.
//!
//! Lock order: `incoming`, then the locks of the QP, then `outgoing`. `incoming` is held while segments are delivered.
//! `outgoing` is held only briefly, and never while calling the QP.

use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::connect::Agreed;
use super::engine::{Engine, PEER_TIMEOUT};
use super::fpdu::Frames;
use super::outgoing::{Asked, Await, BUFFER_LIMIT, Outgoing, SEND_FOLLOWS, refusal_of};
use super::rdmap::Atomic;
use super::receiver::{Event, Last};
use super::stream::Stream;
use super::terminate::Code;
use crate::sys::descriptor::Descriptor;
use crate::sys::unpoisoned;
use crate::wire::bytes::Segment;
use crate::wire::message::{Reply, Request, UNKNOWN_LENGTH};
use crate::wire::operation::Operation;
use crate::wire::packet::{Packet, Part, Payload, Response, ResponseKind, STREAM_PEER, psn_after};
use crate::wire::transport::{Carrier, Stuck, Wake};

/// A buffer of at least this length is passed to TCP immediately.
const WRITE_LENGTH: usize = 64 << 10;
/// Reads of the socket at a time, so that a fast peer does not delay the others.
const MAX_READS: usize = 4;
/// Time for the peer to close its direction after this end has closed its own.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a Send waits for a receive, so that its sender needs no credits, as with retries on InfiniBand.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) id: u64,
    pub(super) socket: Arc<Descriptor>,
    engine: &'static Engine,
    this: Weak<Self>,
    /// The QP.
    number: u32,
    /// Requests for received messages are copies of this one, with further fields set.
    template: Request,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
    /// Whether a thread is delivering segments; it flushes afterwards.
    is_receiving: AtomicBool,
    /// Whether the QP had no receive for the part that was just delivered.
    is_unready: AtomicBool,
    /// Whether a part waits for a receive; until then the socket is not read.
    is_waiting: AtomicBool,
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
    waiting: Option<Waiting>,
}

/// A part of a message that waits for a receive.
#[derive(Debug)]
struct Waiting {
    part: Part,
    payload: Vec<u8>,
    until: Instant,
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
            waiting: None,
        };
        Arc::new_cyclic(|this| Self {
            id,
            socket,
            engine,
            this: this.clone(),
            number,
            template,
            incoming: Mutex::new(incoming),
            outgoing: Mutex::new(Outgoing::new(stream, first)),
            is_receiving: AtomicBool::new(false),
            is_unready: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
        })
    }

    fn out(&self) -> MutexGuard<'_, Outgoing> {
        unpoisoned(self.outgoing.lock())
    }

    /// Reads the socket, and continues blocked deliveries and writes. The caller holds no lock of a QP. Without
    /// `waits`, returns `false` if another thread serves the connection. Returns whether anything has arrived.
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
            // Writes even if TCP accepted nothing before, because it may have space now.
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
        if !self.retry(incoming, carrier) {
            return false;
        }
        for round in 0..MAX_READS {
            if incoming.waiting.is_some() {
                return true;
            }
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

    /// Tries again to deliver the part that waits for a receive, and the segments after it. Returns whether no part
    /// waits any more.
    fn retry(&self, incoming: &mut Incoming, carrier: &Arc<dyn Carrier>) -> bool {
        let Some(Waiting { part, payload, until }) = incoming.waiting.take() else { return true };
        if !self.out().end.is_ending {
            with_segment(&payload, |segments| self.engine.deliver.part(&part, segments, carrier));
        }
        if self.is_unready.swap(false, Ordering::Relaxed) {
            if Instant::now() < until {
                incoming.waiting = Some(Waiting { part, payload, until });
                return false;
            }
            let mut out = self.out();
            out.terminate(Code::NO_BUFFER);
            out.end.is_ending = true;
        }
        self.set_waiting(false);
        self.deliver(incoming, carrier);
        true
    }

    /// Stops or resumes reading the socket. While reading is stopped, TCP's flow control stops the peer.
    fn set_waiting(&self, is_waiting: bool) {
        if self.is_waiting.swap(is_waiting, Ordering::Relaxed) != is_waiting {
            self.engine.waiting(is_waiting);
            self.watched();
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
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
                out.end.heard = Some(Instant::now());
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
            let Incoming { frames, psn, immediate, write, is_in_write, waiting, .. } = &mut *incoming;
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
                // The peer may answer messages that TCP has just accepted.
                self.complete();
            }
            let part = Part { number: self.number, request, offset, length: payload.len() as u32, attempt: 0 };
            if part.is_last() {
                *psn = psn_after(*psn, 1);
            }
            with_segment(payload, |segments| self.engine.deliver.part(&part, segments, carrier));
            if self.is_unready.swap(false, Ordering::Relaxed) {
                let until = Instant::now() + RECEIVE_TIMEOUT;
                *waiting = Some(Waiting { part, payload: payload.to_vec(), until });
                return self.set_waiting(true);
            }
        }
    }

    /// Delivers a response to the QP.
    fn respond(&self, psn: u32, attempt: u32, kind: ResponseKind, payload: &[u8]) {
        let response = Response { number: self.number, source_number: STREAM_PEER, psn, attempt, kind };
        // If another thread has locked the QP, that thread handles the response.
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
                    // Data that was received before the failure is still delivered.
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
        self.engine.watch(self, !out.end.is_closed && !self.is_waiting(), out.is_blocked);
    }

    /// Delivers the completions in order. One thread at a time does this.
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
            let now = Instant::now();
            let began = *end.began.get_or_insert(now);
            let is_late = has_ended(now - began, now - end.heard.unwrap_or(began));
            if is_empty && !end.is_shut {
                end.is_shut = true;
                let _ = rustix::net::shutdown(&*self.socket, Shutdown::Write);
            }
            (is_new, end.refusal, end.is_shut && end.is_closed || is_late)
        };
        if is_new {
            self.engine.ending();
            self.engine.deliver.ended(self.number, carrier, refusal);
        }
        if is_over {
            self.set_waiting(false);
            self.engine.forget(self);
            let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
        }
    }
}

impl Carrier for Connection {
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck> {
        if let Packet::Response(Response { kind: ResponseKind::Reply(Reply::NotReady { .. }), .. }) = packet {
            self.is_unready.store(true, Ordering::Relaxed);
            return Ok(());
        }
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

/// Whether to close a connection that the peer has not closed. `whole` is the time since the end began, `silent` the
/// time since data last arrived. Closing it earlier would reset it, and the peer would lose the last data that this end
/// sent.
pub(super) fn has_ended(whole: Duration, silent: Duration) -> bool {
    silent >= CLOSE_TIMEOUT || whole >= PEER_TIMEOUT
}

/// Calls `call` with the received bytes as a segment, or with no segment if there are no bytes.
fn with_segment(payload: &[u8], call: impl FnOnce(&[Segment])) {
    if payload.is_empty() {
        return call(&[]);
    }
    // SAFETY: the slice is alive during the call, and the receivers only read it.
    let segment = unsafe { Segment::of_raw(payload.as_ptr().cast_mut(), payload.len()) };
    call(slice::from_ref(&segment));
}
