//! The receiving side of a connection. It reads the socket, and delivers segments to the QP.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::Connection;
use super::messages::Messages;
use crate::net::iwarp::code::Code;
use crate::net::iwarp::fpdu::Frames;
use crate::net::iwarp::outgoing::{Await, Outgoing, refusal_of};
use crate::net::iwarp::receiver::Event;
use crate::wire::bytes::with_segment;
use crate::wire::packet::{Part, Response, ResponseKind, STREAM_PEER};
use crate::wire::transport::{Carrier, MAX_UNSETTLED};

/// The maximum number of times that one socket is read before the other sockets are served. It ensures that a fast peer
/// does not delay other connections.
const MAX_READS: usize = 4;
/// How long a Send waits until a receive is posted. As with retries on InfiniBand, the sender therefore needs no
/// credits.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Incoming {
    frames: Frames,
    /// The number of bytes that have arrived.
    pub(super) received: u64,
    messages: Messages,
    waiting: Option<Waiting>,
    /// Whether the segments that have arrived are held back until the QP has handled earlier completions. While they
    /// are, the socket is not read.
    pub(super) is_held: bool,
    /// Since when the QP has not handled earlier completions.
    unsettled: Option<Instant>,
}

/// A part of a message that waits until a receive is posted.
#[derive(Debug)]
struct Waiting {
    part: Part,
    payload: Vec<u8>,
    until: Instant,
}

impl Incoming {
    pub(super) fn new(has_crc: bool) -> Self {
        Self {
            frames: Frames::new(has_crc),
            received: 0,
            messages: Messages::default(),
            waiting: None,
            is_held: false,
            unsettled: None,
        }
    }
}

impl Connection {
    /// Reads the socket. Returns whether anything has arrived.
    pub(super) fn receive(&self, incoming: &mut Incoming, carrier: &Arc<dyn Carrier>) -> bool {
        {
            let out = self.out();
            if out.end.is_closed || out.cut.is_some() {
                return false;
            }
        }
        if !self.retry(incoming, carrier) {
            return false;
        }
        if incoming.is_held {
            self.deliver(incoming, carrier);
            if incoming.is_held {
                return false;
            }
        }
        for round in 0..MAX_READS {
            if incoming.waiting.is_some() || incoming.is_held {
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

    /// Tries again to deliver the part that waits until a receive is posted, and then the segments after it. Returns
    /// whether no part waits any more.
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

    /// Whether the segments that have arrived can be delivered. The peer may have sent them in response to messages that
    /// TCP has only just accepted, so these messages complete first. If they have not completed, this connection is
    /// served again soon.
    fn is_next(&self, incoming: &mut Incoming) -> bool {
        incoming.is_held = false;
        if self.is_settled() {
            incoming.unsettled = None;
        } else if incoming.unsettled.get_or_insert_with(Instant::now).elapsed() < MAX_UNSETTLED {
            incoming.is_held = true;
            self.engine.notify(self.id);
            thread::yield_now();
        }
        !incoming.is_held
    }

    /// Delivers the segments that have arrived completely.
    fn deliver(&self, incoming: &mut Incoming, carrier: &Arc<dyn Carrier>) {
        if !self.is_next(incoming) {
            return;
        }
        loop {
            let mut out = self.out();
            if out.end.is_ending {
                // If the QP has failed, nothing is delivered to it.
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
            let Incoming { frames, messages, waiting, .. } = &mut *incoming;
            let Outgoing { stream, buffer, .. } = &mut *out;
            let event = match stream.segment(frames.segment(&found), buffer) {
                Ok(event) => event,
                Err(code) => {
                    rdma_mummy_sys::log!(debug, "QP {:#x}: the peer has violated the protocol: {code:?}", self.number);
                    (out.end.is_terminated, out.end.is_ending) = (true, true);
                    continue;
                }
            };
            let (request, offset, payload) = match event {
                Event::Nothing => continue,
                Event::Terminated(code) => {
                    rdma_mummy_sys::log!(debug, "QP {:#x}: the peer has ended the connection: {code:?}", self.number);
                    out.end.refusal = Some(refusal_of(code));
                    (out.end.is_terminated, out.end.is_ending) = (true, true);
                    continue;
                }
                Event::ReadResponse { offset, payload, is_last } => {
                    let Some(oldest) = out.oldest(Await::Data) else { continue };
                    let (psn, attempt) = (oldest.psn, oldest.attempt);
                    drop(out);
                    // The conversion is lossless, because a segment has at most 64 KiB.
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
                message => match messages.part(message, self.template, &mut out.asked) {
                    Some(found) => found,
                    None => continue,
                },
            };
            drop(out);
            let part = Part { number: self.number, request, offset, length: payload.len() as u32, attempt: 0 };
            if part.is_last() {
                messages.end();
            }
            with_segment(payload, |segments| self.engine.deliver.part(&part, segments, carrier));
            if self.is_unready.swap(false, Ordering::Relaxed) {
                let until = Instant::now() + RECEIVE_TIMEOUT;
                *waiting = Some(Waiting { part, payload: payload.to_vec(), until });
                return self.set_waiting(true);
            }
        }
    }

    /// Delivers a response to the QP. Returns `false` if another thread has locked the QP. That thread then handles the
    /// response.
    pub(super) fn respond(&self, psn: u32, attempt: u32, kind: ResponseKind, payload: &[u8]) -> bool {
        let response = Response { number: self.number, source_number: STREAM_PEER, psn, attempt, kind };
        with_segment(payload, |segments| self.engine.deliver.response(&response, segments))
    }
}
