//! Processes received frames.

use crate::error::Status;
use crate::wire::{Flags, Frame, Header, Hello, Kind, META_LIMIT, VERSION};

use super::{BulkFrame, BulkOperation, Connection, Event, FIXED_LIMIT, Request, Violation, flow};

impl<C> Connection<C> {
    /// Processes a received frame, and returns its event.
    ///
    /// # Errors
    ///
    /// [`Violation`]: the connection must end.
    pub fn on_frame<'f>(&mut self, frame: &Frame<'f>, now: u64) -> Result<Event<'f>, Violation> {
        (self.heard_at, self.ping_sent) = (now, None);
        let Frame { header, meta, body } = *frame;
        let most = match header.kind {
            Kind::Hello | Kind::Bulk => FIXED_LIMIT,
            _ => self.limits.body as usize,
        };
        if body.len() > most {
            return Err(Violation::Body(body.len(), most));
        }
        if meta.len() > META_LIMIT {
            return Err(Violation::Body(meta.len(), META_LIMIT));
        }
        if header.kind == Kind::Hello {
            if self.peer.is_some() {
                return Err(Violation::Unexpected("a second hello"));
            }
            let hello = Hello::parse(body)?;
            let (oldest, newest) = hello.versions;
            if !(oldest..=newest).contains(&VERSION.into()) {
                return Err(Violation::Versions(oldest, newest));
            }
            // Not every device reports the number of the peer's queue pair.
            let ((own, other), (peer, here)) = (self.ends, hello.ends);
            if own != 0 && (here != 0 && here != own || other != 0 && other != peer) {
                return Err(Violation::Ends((here, peer), (own, other)));
            }
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
                    return Err(Violation::Unexpected("an answer of the wrong kind for its call"));
                }
                let is_refused = header.flags.has(Flags::REFUSED);
                let has_waiter = self.calls.answered(id, header.credit())?;
                self.release(now);
                Ok(if has_waiter { Event::Answer { id, status, is_refused, body } } else { Event::None })
            }
            Kind::Cancel => Ok(if self.serving.get(id).is_some() { Event::Cancel { id } } else { Event::None }),
            Kind::Credit => self.on_credit(header, now),
            Kind::Ping => {
                self.pong_due = Some(header.method);
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
                    // The call ended on this side while the item was in flight.
                    None => return Ok(Event::None),
                };
                Ok(if known { Event::Item { id, body } } else { Event::None })
            }
            Kind::StreamEnd => Ok(if self.serving.get(id).is_some() { Event::End { id } } else { Event::None }),
            Kind::Bulk => self.on_bulk(header, body),
            Kind::Pong => {
                if self.leaves_at.is_some_and(|ping| header.method >= ping) {
                    self.leaves_at = None;
                }
                Ok(Event::None)
            }
            Kind::Hello => Ok(Event::None),
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
            return Err(Violation::Unexpected("a request with a call number of this side"));
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
}
