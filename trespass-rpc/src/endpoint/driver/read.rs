//! Reads messages, and makes tasks for the requests in them.

use std::io;
use std::mem;
use std::sync::Arc;

use trespass::{Buf, Wait};

use crate::body::Body;
use crate::core::{Event, Violation};
use crate::error::{Certainty, RpcError, Status};
use crate::wire::{Bulk, Flags, Frame, Kind};

use super::super::Linked;
use super::super::home::Due;
use super::super::state::Serving;
use super::super::tasks::Arrived;
#[cfg(feature = "tls")]
use super::tls::Session;
use super::{Driver, Entry};

/// Maximum number of messages that the driver reads from a link before it continues with the next link.
const TURN: usize = 64;
/// A body of at least this length is not copied if it is the last part of its message. It keeps the buffer of the
/// message instead.
const KEEP: usize = 4 << 10;

impl Driver {
    /// Reads messages of a link. Returns true if more messages may have arrived, which the driver reads later.
    pub(super) fn read(&mut self, index: u32) -> bool {
        for _ in 0..TURN {
            let Some(Some(entry)) = self.links.get(index as usize) else { return false };
            let failure = match self.worker.try_recv(entry.id) {
                Ok(message) => match self.open(index, message).and_then(|message| self.message(index, message)) {
                    Ok(()) => continue,
                    Err(failure) => {
                        self.arrived.clear();
                        rdma_mummy_sys::log!(warn, "ended a connection: {}", failure.detail);
                        failure
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.worker.register(entry.id, Wait::Read, &entry.readable);
                    return false;
                }
                Err(error) => {
                    let close = self.worker.peer_close(entry.id);
                    let is_refused = close.as_ref().is_some_and(|(code, _)| *code == Status::UNAUTHENTICATED.0);
                    let status = if is_refused { Status::UNAUTHENTICATED } else { Status::UNAVAILABLE };
                    let detail = match close {
                        Some((_, reason)) if !reason.is_empty() => format!("the peer closed the connection: {reason}"),
                        _ if error.kind() == io::ErrorKind::UnexpectedEof => {
                            "the peer closed the connection".to_owned()
                        }
                        _ => error.to_string(),
                    };
                    RpcError::new(status, Certainty::Unknown, detail)
                }
            };
            let (code, text) = (failure.status.0, failure.detail.to_string());
            self.end(index, failure, code, &text);
            return false;
        }
        // The driver reads the remaining messages after it has served other links.
        self.shared.poke(|signal| signal.readable.push(index));
        true
    }

    /// Decrypts a message, if the connection uses TLS.
    fn open(&mut self, index: u32, message: Buf) -> Result<Buf, RpcError> {
        let Some(Some(Entry { id, tls: Some(session), .. })) = self.links.get_mut(index as usize) else {
            return Ok(message);
        };
        if !session.opens() {
            return Ok(message);
        }
        let was_handshaking = session.is_handshaking();
        let opened = session.open(&message);
        drop(message);
        let frames = opened.inspect_err(|_| {
            // The alert reports the reason to the peer. If it cannot be sent, the connection still ends.
            _ = session.flush(|records| self.worker.try_send(*id, records));
        })?;
        if was_handshaking || !session.is_flushed() {
            self.shared.poke(|signal| signal.dirty.push(index));
        }
        let mut message = self.worker.alloc(*id, frames.len());
        message.copy_from_slice(&frames);
        Ok(message)
    }

    /// Processes the frames of a message.
    fn message(&mut self, index: u32, message: Buf) -> Result<(), RpcError> {
        let outcome = self.frames(index, message);
        if let Some((ready, link)) = self.established.take() {
            // If the caller has abandoned the attempt, dropping the link closes the connection.
            ready.send(Ok(Linked::new(&link)));
        }
        outcome.map_err(|violation| RpcError::new(violation.status(), Certainty::Unknown, violation.to_string()))
    }

    fn frames(&mut self, index: u32, mut message: Buf) -> Result<(), Violation> {
        let Some(Some(mut entry)) = self.links.get_mut(index as usize).map(Option::as_mut) else { return Ok(()) };
        let now = self.now;
        let link = Arc::clone(&entry.link);
        let mut state = link.lock();
        let (mut kept, mut late_keys) = (None, Vec::new());
        let mut rest = &message[..];
        while !rest.is_empty() {
            let (frame, after) = Frame::split(rest)?;
            // A long body at the end of the message is not copied. It keeps the buffer of the message instead.
            let keeps = after.is_empty() && frame.body.len() >= KEEP;
            let at = message.len() - frame.body.len();
            rest = after;
            let event = state.core.on_frame(&frame, now)?;
            if !state.late_keys.is_empty() && matches!(frame.header.kind, Kind::Response | Kind::Error) {
                late_keys.extend(state.late_keys.remove(&frame.header.call));
            }
            match event {
                Event::None => {}
                Event::Ready => {
                    if let Some(hello) = state.core.peer() {
                        link.set_peer(hello.clone());
                    }
                    #[cfg(feature = "tls")]
                    link.set_certificates(entry.tls.as_ref().map_or_else(Vec::new, Session::certificates));
                    entry.hello_until = u64::MAX;
                    self.established = entry.ready.take().map(|ready| (ready, Arc::clone(&link)));
                }
                Event::Request(request) => {
                    let body = if keeps { Body::default() } else { Body::copy(request.body) };
                    if request.flags.has(Flags::STREAM_IN) || !Bulk::are_inline(request.body, request.flags.bulks()) {
                        state.serving.insert(request.id, Serving::default());
                    }
                    kept = keeps.then_some((None, at));
                    self.arrived.push(Arrived {
                        link: Arc::clone(&link),
                        id: request.id,
                        method: request.method,
                        flags: request.flags,
                        deadline: request.deadline,
                        meta: if request.meta.is_empty() { Body::default() } else { Body::copy(request.meta) },
                        body,
                    });
                }
                Event::Answer { id, status, is_refused: true, body } => {
                    let detail = String::from_utf8_lossy(body).into_owned();
                    state.on_answer(id, Err(RpcError::new(status, Certainty::Refused, detail)));
                }
                Event::Answer { id, status, body, .. } => {
                    if keeps {
                        kept = Some((Some((id, status)), at));
                    } else {
                        state.on_answer(id, Ok((status, Body::copy(body))));
                    }
                }
                Event::Item { id, body } => state.on_item(id, Body::copy(body)),
                Event::End { id } => {
                    if let Some(serving) = state.serving.get_mut(&id) {
                        serving.has_ended = true;
                    }
                    state.wake_reader(id);
                }
                Event::Room { id } => state.wake_writer(id),
                Event::Cancel { id } => {
                    state.end_serving(id);
                    if let Some(place) = self.arrived.iter().position(|request| request.id == id) {
                        // The cancelled request was still waiting for its handler, which now does not start.
                        self.arrived.remove(place);
                        kept = None;
                    }
                    // Releases the lock first, because the handler's `Drop` may use the link.
                    drop(state);
                    let task = entry.tasks.remove(&id);
                    self.drop_ready(&link, Some(id));
                    self.cancel(task);
                    state = link.lock();
                    let Some(Some(again)) = self.links.get_mut(index as usize) else { return Ok(()) };
                    entry = again;
                    state.answer(id, Status::CANCELLED, false, &[]);
                }
                Event::Bulk(frame) => state.on_bulk(&frame)?,
                Event::GoAway { reason } => {
                    rdma_mummy_sys::log!(info, "the peer accepts no more calls: {}", String::from_utf8_lossy(reason));
                }
            }
        }
        if let Some((answer, at)) = kept {
            message.advance(at);
            let body = Body::message(message);
            match answer {
                None => _ = self.arrived.last_mut().map(|request| request.body = body),
                Some((id, status)) => state.on_answer(id, Ok((status, body))),
            }
        } else {
            drop(message);
        }
        state.wake_room();
        let is_new = !state.is_dirty && state.wants_transmit();
        state.is_dirty |= is_new;
        state.looks_at = state.core.next_timeout();
        self.next = self.next.min(state.looks_at);
        drop(state);
        if is_new {
            self.shared.poke(|signal| signal.dirty.push(index));
        }
        self.begin(index);
        Ok(())
    }

    /// Makes tasks for the requests that arrived.
    pub(super) fn begin(&mut self, index: u32) {
        let mut arrived = mem::take(&mut self.arrived);
        for request in arrived.drain(..) {
            let Some(Some(entry)) = self.links.get(index as usize) else { break };
            let runner = entry.runner.and_then(|runner| self.runners.get_mut(runner as usize)?.as_mut());
            match runner.and_then(|runner| runner.task(request.method)) {
                None => request.link.answer(request.id, Status::UNIMPLEMENTED, true, &[]),
                Some(task) => self.ready.push_back(Due { task, request: Some(request) }),
            }
        }
        self.arrived = arrived;
    }
}
