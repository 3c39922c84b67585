//! Sends the calls, answers, items and `Bulk` frames of this side.

use std::borrow::Cow;

use crate::error::{Certainty, RpcError, Status};
use crate::wire::{Flags, Header, Kind, META_LIMIT};

use super::{BACKLOG, BulkOperation, Connection, Outgoing, Refused, flow};

impl<C> Connection<C> {
    /// Makes a call, whose frame is sent when credit is available.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the call cannot be made. Its request was not sent, and will not be sent later.
    pub fn start(&mut self, call: &Outgoing<'_>, data: C, now: u64) -> Result<u32, Refused> {
        let refuse = |status, detail: Cow<'static, str>| Err(RpcError::new(status, Certainty::NotSent, detail));
        if let Some(failure) = &self.failure {
            return refuse(failure.status, failure.detail.clone());
        }
        let Some(peer) = self.peer.as_ref().filter(|_| !self.peer_leaves) else {
            return refuse(Status::UNAVAILABLE, "the peer accepts no more calls".into());
        };
        let (length, most) = (call.length(), peer.body as usize);
        if length > most || call.meta.len() > META_LIMIT {
            return refuse(
                Status::TOO_LARGE,
                format!("the request has {length} bytes, the peer accepts {most}; use an attachment").into(),
            );
        }
        if call.deadline.is_some_and(|deadline| deadline <= now) {
            return refuse(Status::DEADLINE, Cow::Borrowed(""));
        }
        if self.calls.waiting() >= self.limits.waiting {
            return refuse(Status::OVERLOADED, "too many calls wait for the peer's credit".into());
        }
        let windows = (peer.window, self.limits.window);
        let checksum = self.limits.checksum;
        match self.calls.start(call, data, windows, now, checksum, &mut self.out) {
            Some(id) => Ok(id),
            None => refuse(Status::OVERLOADED, "too many calls are in flight".into()),
        }
    }

    /// Returns the driver's data for a call of this side.
    pub fn call(&mut self, id: u32) -> Option<&mut C> {
        self.calls.data(id)
    }

    /// Cancels a call. If the call has not ended, the peer receives a cancellation. Returns the driver's data for the
    /// call. The clock is read only if other calls wait for credit.
    pub fn forget(&mut self, id: u32, now: impl FnOnce() -> u64) -> Option<C> {
        let (data, is_running) = self.calls.forget(id)?;
        if is_running && self.failure.is_none() {
            self.frame(Header::new(Kind::Cancel, id), &[], &[]);
        }
        if self.calls.has_queue() {
            self.release(now());
        }
        Some(data)
    }

    /// Answers a request of the peer, which ends the call on this side. Set `is_refused` if no handler has run. Returns
    /// false if the request no longer exists.
    pub fn answer(&mut self, id: u32, status: Status, is_refused: bool, parts: &[&[u8]]) -> bool {
        let Some(credit) = self.serving.end(id) else { return false };
        let kind = if status == Status::OK { Kind::Response } else { Kind::Error };
        let flags = Flags(if is_refused { Flags::REFUSED } else { 0 });
        self.frame(Header { flags, ..Header::answer(kind, id, status.0, credit) }, &[], parts);
        self.serving.answered(self.left + self.backlog() as u64);
        true
    }

    /// Sends an item of a stream if credit is available and few other bytes wait to be sent; otherwise returns false.
    /// Returns `None` if the call has ended, or if its request has not been sent yet. When a later attempt may succeed,
    /// [`Connection::take_room`] returns the call.
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

    /// Returns a call that may now send its items, because its request was sent, or because the number of bytes that
    /// wait to be sent has decreased enough. Call this function until it returns `None`.
    pub fn take_room(&mut self) -> Option<u32> {
        let may_send = !self.held.is_empty() && self.backlog() < BACKLOG / 2;
        self.calls.take_released().or_else(|| if may_send { self.held.pop_first() } else { None })
    }

    /// Whether the request of a call has been sent, so that the items of its stream may follow.
    pub fn is_sent(&self, id: u32) -> bool {
        self.calls.is_on_wire(id)
    }

    /// Whether the peer's answer to a call of this side is pending, even if the call was cancelled or has expired.
    pub fn is_unanswered(&self, id: u32) -> bool {
        self.calls.is_unanswered(id)
    }

    /// Whether a request of the peer still needs an answer.
    pub fn is_serving(&mut self, id: u32) -> bool {
        self.serving.get(id).is_some()
    }

    /// Ends the stream of a call of this side.
    pub fn end_items(&mut self, id: u32) {
        if self.calls.is_on_wire(id) {
            self.frame(Header::new(Kind::StreamEnd, id), &[], &[]);
        }
    }

    /// Records that the program has taken an item of this length, so that the credit for the item returns to the peer.
    pub fn consumed(&mut self, id: u32, length: usize) {
        let window = self.limits.window;
        let is_live = !self.is_own(id) || self.calls.is_on_wire(id);
        let due = self.flow(id).and_then(|flow| flow.consumed(flow::cost(length, window), window));
        if let Some(bytes) = due.filter(|_| is_live) {
            self.frame(Header::answer(Kind::Credit, id, 0, bytes), &[], &[]);
        }
    }

    /// Returns the header of a `Bulk` frame that the driver sends itself. The driver adds the bytes without copying
    /// them into the connection.
    pub fn bulk_header(id: u32, index: usize, operation: BulkOperation, offset: u64) -> Header {
        let header = Header { flags: Flags::new(0, index), method: offset, ..Header::new(Kind::Bulk, id) };
        Header { budget: operation as u32, ..header }
    }

    /// Sends a `Bulk` frame.
    pub fn bulk(&mut self, id: u32, index: usize, operation: BulkOperation, offset: u64, body: &[u8]) {
        self.frame(Self::bulk_header(id, index, operation, offset), &[], &[body]);
    }

    /// Sets whether memory is short. While it is short, this side withholds the credit for further calls; afterwards it
    /// grants the withheld credit.
    pub fn withhold(&mut self, withhold: bool) {
        let calls = self.serving.withhold(withhold);
        if calls != 0 {
            self.frame(Header::answer(Kind::Credit, 0, 0, calls), &[], &[]);
        }
    }
}
