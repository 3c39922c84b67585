//! Processes incoming SENDs, and READs long messages.

use crate::memory::Buf;
use crate::proto::frame::{Frame, HEADER, Kind, LAST, OPTIONAL, Source};
use crate::proto::{FLOOR, Failure, RESERVE, Request, Stock, WINDOW_MAX};

use super::{Connection, Incoming, Read};

/// The minimum number of messages that a DONE announces. If fewer READs are in progress, their number is the minimum.
const DONE_BATCH: u16 = 4;

impl Connection {
    /// Processes a SEND in the usual case: it is one DATA frame, and the connection needs no turn. Otherwise returns the
    /// message, and the caller must use [`Connection::received`]. `message` has the length of a segment, and `length` is
    /// the length of the SEND.
    ///
    /// If `is_quick` is true, this function handles only the most frequent case, and calls no other function.
    #[inline(always)]
    pub(crate) fn received_alone(&mut self, message: Buf, length: usize, is_quick: bool) -> Result<(), Buf> {
        let received = self.incoming.received + 1;
        if received >= self.incoming.usual_until && (is_quick || !self.will_be_usual()) {
            return Err(message);
        }
        let Some((credits, payload)) = alone(&message, length) else { return Err(message) };
        let has_credits = credits != self.outgoing.limit;
        let inbox = &mut self.incoming.inbox;
        if is_quick && (has_credits || !inbox.is_empty()) {
            return Err(message);
        }
        inbox.push(message, payload);
        self.incoming.received = received;
        if has_credits {
            self.take_credits(credits);
        }
        Ok(())
    }

    /// Processes a SEND that arrived. An error is a protocol violation, for which the worker ends the link.
    pub(crate) fn received(&mut self, mut message: Buf, length: usize, stock: &mut Stock) -> Result<(), Failure> {
        message.truncate(length);
        let incoming = &mut self.incoming;
        incoming.received += 1;
        let has_credit = incoming.left() <= u16::MAX / 2;
        let Some(frame) = Frame::parse(&message).filter(|_| has_credit) else {
            self.incoming.free(message, stock);
            return Err(Failure::violation(match has_credit {
                true => "a frame is cut short",
                false => "the peer sent without a credit",
            }));
        };
        let ordered = self.scan(&message, stock);
        // Applies the credits last: after a RETURN, credits are ignored until RETURNED arrives, and RETURNED may be one
        // of the frames above.
        self.take_credits(frame.credits);
        if matches!(ordered, Ok(true)) && !self.incoming.discard {
            self.incoming.inbox.push(message, 0);
        } else {
            self.incoming.free(message, stock);
        }
        self.grow(stock);
        ordered.map(|_| ())
    }

    /// Whether the next SEND will need no turn if it is a message. Remembers for how many SENDs this will be so. If few
    /// credits are left, the SEND may need more of them.
    #[cold]
    fn will_be_usual(&mut self) -> bool {
        let is_settled = !self.is_unsettled && self.requests.is_empty() && self.outgoing.queue.is_empty();
        let incoming = &mut self.incoming;
        let can_grow = incoming.lease < self.settings.window;
        let low = if can_grow { RESERVE.max(incoming.lease / 2) } else { RESERVE };
        let left = incoming.left();
        let is_usual = is_settled && !incoming.fin && !incoming.discard && left <= WINDOW_MAX;
        incoming.usual_until = incoming.received + u64::from(left.saturating_sub(low));
        // Freed credits that wait for a credit of their own must be announced after the SEND.
        if !is_usual || self.is_grant_due() {
            self.pause();
        }
        self.incoming.received + 1 < self.incoming.usual_until
    }

    /// Processes a completed READ.
    pub(crate) fn read_done(&mut self, token: u32, message: Buf, whole: bool) {
        self.unsettle();
        let incoming = &mut self.incoming;
        incoming.in_flight -= 1;
        self.alive.heard = true;
        let index = token.wrapping_sub(incoming.first_read) as usize;
        if !whole {
            return;
        }
        incoming.done = incoming.done.wrapping_add(1);
        if incoming.discard {
            incoming.ahead -= message.len();
        } else if let Some(read) = incoming.reads.get_mut(index) {
            *read = Read::Ready(message);
        }
        self.read.1 += 1;
    }

    /// Records that the program has not accepted the connection. Until [`Connection::claim`], no memory is allocated
    /// for the peer's messages.
    pub(crate) fn unclaimed(self) -> Connection {
        Connection { is_unclaimed: true, ..self }
    }

    pub(crate) fn claim(&mut self) {
        self.is_unclaimed = false;
    }

    /// Begins READs, within the read-ahead limit and the free memory.
    #[inline]
    pub(super) fn start_reads(&mut self, stock: &mut Stock) {
        let incoming = &mut self.incoming;
        if incoming.reads.is_empty() || self.is_unclaimed {
            return;
        }
        for (index, read) in incoming.reads.iter_mut().enumerate() {
            let &mut Read::Waiting { from, length } = read else { continue };
            let enough = incoming.ahead != 0 && incoming.ahead + length as usize > self.settings.read_ahead;
            if enough || incoming.in_flight >= self.agreement.reads {
                return;
            }
            let Some(into) = stock.pool.alloc_announced(length as usize) else {
                stock.starved = true;
                return;
            };
            *read = Read::InFlight;
            incoming.in_flight += 1;
            incoming.ahead += length as usize;
            let token = incoming.first_read.wrapping_add(index as u32);
            self.requests.push_back(Request::Read { token, into, from });
        }
    }

    #[inline(never)]
    fn take_credits(&mut self, limit: u16) {
        let more = limit.wrapping_sub(self.outgoing.limit);
        if more <= WINDOW_MAX && !self.outgoing.returning {
            self.outgoing.limit = limit;
        }
    }

    /// Processes the frames of a SEND that is not a single DATA frame; returns whether it has frames for the program.
    fn scan(&mut self, message: &[u8], stock: &mut Stock) -> Result<bool, Failure> {
        let mut rest = message;
        let mut ordered = false;
        while !rest.is_empty() {
            let Some(frame) = Frame::parse(rest) else { return Err(Failure::violation("a frame is cut short")) };
            let payload = &rest[HEADER..frame.extent()];
            // A FIN may be followed by a CLOSE, which then means only that the peer reads no more.
            if frame.kind.is_ordered() && !(frame.kind == Kind::CLOSE && self.incoming.fin) {
                ordered |= self.incoming.may_follow()?;
            }
            // Only frames other than messages may need a further turn of the worker.
            if frame.kind != Kind::DATA {
                self.unsettle();
                self.take_frame(frame, payload, stock)?;
            }
            rest = &rest[frame.extent()..];
        }
        Ok(ordered)
    }

    fn take_frame(&mut self, frame: Frame, payload: &[u8], stock: &mut Stock) -> Result<(), Failure> {
        let incoming = &mut self.incoming;
        match frame.kind {
            Kind::GRANT => {}
            Kind::RTS => {
                let from = Source::parse(payload).ok_or_else(|| Failure::violation("an RTS is cut short"))?;
                if self.agreement.reads == 0
                    || frame.a == 0
                    || frame.a > self.settings.message.min(self.settings.rendezvous)
                {
                    return Err(Failure::violation("an announced message is too long"));
                }
                if incoming.discard {
                    incoming.done = incoming.done.wrapping_add(1);
                } else {
                    incoming.reads.push_back(Read::Waiting { from, length: frame.a });
                }
            }
            Kind::DONE => self.take_done(frame.a)?,
            Kind::RETURN => {
                let (held, kept) = (frame.a as u16, frame.b as u16);
                let left = kept.wrapping_sub(incoming.received as u16);
                if !(FLOOR..=WINDOW_MAX).contains(&left) {
                    return Err(Failure::violation("the peer returned credits that it does not have"));
                }
                if held == incoming.announced && held.wrapping_sub(kept) <= WINDOW_MAX {
                    let lease = kept.wrapping_sub(incoming.freed).min(incoming.lease);
                    stock.ledger.release(incoming.lease - lease);
                    (incoming.announced, incoming.lease) = (kept, lease);
                }
                incoming.returned = true;
            }
            Kind::RETURNED => {
                if !std::mem::take(&mut self.outgoing.returning) {
                    return Err(Failure::violation("the peer confirmed a return of credits that was not sent"));
                }
                self.take_credits(frame.a as u16);
            }
            Kind::FIN => incoming.fin = true,
            Kind::CLOSE => {
                incoming.fin = true;
                self.outgoing.is_open = false;
                self.peer_close = Some((frame.a, String::from_utf8_lossy(payload).into_owned()));
                self.drop_queue(stock);
            }
            Kind::FIN_ACK => self.take_fin_ack()?,
            _ if frame.flags & OPTIONAL != 0 => {}
            _ => return Err(Failure::violation("a frame of an unknown kind")),
        }
        Ok(())
    }

    /// Frees the buffers of messages that the peer has READ.
    fn take_done(&mut self, done: u32) -> Result<(), Failure> {
        let count = done.wrapping_sub(self.outgoing.done) as usize;
        if count > self.outgoing.exposed.len() {
            return Err(Failure::violation("the peer has read more messages than there are"));
        }
        for (remote, length) in self.outgoing.exposed.drain(..count) {
            self.outgoing.waiting -= length;
            self.requests.push_back(Request::Conceal(remote));
        }
        self.outgoing.done = done;
        Ok(())
    }

    /// Leases more credits to a peer that uses its credits, while the program reads fast enough.
    #[inline]
    fn grow(&mut self, stock: &mut Stock) {
        let incoming = &mut self.incoming;
        if incoming.left() > RESERVE.max(incoming.lease / 2) || incoming.lease >= self.settings.window {
            return;
        }
        let held = (incoming.received as u16).wrapping_sub(incoming.freed);
        if held <= incoming.lease / 2 {
            let wanted = incoming.lease.min(self.settings.window - incoming.lease);
            incoming.lease += stock.ledger.lease(wanted);
        }
    }
}

/// Returns the credits and the length of the payload, if a SEND of `length` bytes consists of the only DATA frame of a
/// message, or of the last one. The inbox cannot represent a payload of no bytes in this way.
#[inline]
fn alone(message: &[u8], length: usize) -> Option<(u16, u32)> {
    let [kind, flags, c0, c1, l0, l1, l2, l3] = *message.first_chunk()?;
    let payload = u32::from_le_bytes([l0, l1, l2, l3]);
    let is_alone = [kind, flags] == [Kind::DATA.0, LAST] && HEADER + payload as usize == length && payload != 0;
    is_alone.then_some((u16::from_le_bytes([c0, c1]), payload))
}

impl Incoming {
    /// Returns how many announced credits the peer has not used.
    #[inline]
    pub(super) fn left(&self) -> u16 {
        self.announced.wrapping_sub(self.received as u16)
    }

    /// Frees the receive of a SEND.
    #[inline]
    pub(super) fn free(&mut self, send: Buf, stock: &mut Stock) {
        self.freed = self.freed.wrapping_add(1);
        stock.free(send);
    }

    /// Returns an error if FIN or CLOSE arrived earlier, because no ordered frame may follow these; otherwise returns
    /// true.
    #[inline]
    fn may_follow(&self) -> Result<bool, Failure> {
        if self.fin { Err(Failure::violation("the peer sent a message after the end")) } else { Ok(true) }
    }

    /// Returns the limit that may be announced to the peer.
    #[inline]
    pub(super) fn target(&self) -> u16 {
        self.freed.wrapping_add(self.lease)
    }

    /// Whether the peer waits for a control frame other than credits.
    #[inline]
    pub(super) fn has_status(&self) -> bool {
        self.is_done_due() || self.returned || self.is_ack_due()
    }

    /// Whether a DONE is due. While READs are in progress, one DONE announces several messages, so that the peer
    /// announces its next ones together; half of the messages stay in flight. After the program has stopped reading,
    /// DONE is due only when the READs in progress have completed.
    #[inline]
    fn is_done_due(&self) -> bool {
        let untold = self.done.wrapping_sub(self.done_told);
        untold != 0
            && match self.discard {
                true => self.in_flight == 0,
                false => untold >= u32::from(self.in_flight.min(DONE_BATCH)),
            }
    }

    #[inline]
    fn is_ack_due(&self) -> bool {
        self.fin
            && !self.fin_acked
            && self.in_flight == 0
            && self.reads.iter().all(|read| matches!(read, Read::Ready(_)))
    }

    /// Appends the pending control frames to a SEND with space for them.
    pub(super) fn append_status(&mut self, send: &mut Buf) {
        if self.is_done_due() {
            self.done_told = self.done;
            send.push(&Frame { a: self.done, ..Frame::new(Kind::DONE) }.emit());
        }
        if std::mem::take(&mut self.returned) {
            send.push(&Frame { a: u32::from(self.announced), ..Frame::new(Kind::RETURNED) }.emit());
        }
        if self.is_ack_due() {
            self.fin_acked = true;
            send.push(&Frame::new(Kind::FIN_ACK).emit());
        }
    }

    pub(super) fn clear_inbox(&mut self, stock: &mut Stock) {
        while let Some(send) = self.inbox.pop() {
            self.free(send, stock);
        }
    }

    /// Frees all messages in the inbox, because the program has stopped reading.
    pub(super) fn discard(&mut self, stock: &mut Stock) {
        self.discard = true;
        self.assembly = None;
        self.clear_inbox(stock);
        for read in &mut self.reads {
            match read {
                Read::Waiting { .. } => self.done = self.done.wrapping_add(1),
                Read::InFlight => {}
                Read::Ready(message) => self.ahead -= message.len(),
            }
        }
        self.reads.clear();
    }
}
