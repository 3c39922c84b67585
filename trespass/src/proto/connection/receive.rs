//! Processes incoming SENDs, and READs long messages.

use crate::memory::Buf;
use crate::proto::frame::{Frame, HEADER, Kind, LAST, OPTIONAL, Source};
use crate::proto::{FLOOR, Failure, RESERVE, Request, Stock, WINDOW_MAX};

use super::{End, Inbox, Incoming, Read, Whole};

/// The minimum number of messages that a DONE announces. If fewer READs are in progress, their number is the minimum.
const DONE_BATCH: u16 = 4;

impl Whole {
    /// Processes a SEND that arrived. An error is a protocol violation, for which the worker ends the link.
    pub(crate) fn received(&mut self, mut message: Buf, length: usize, stock: &mut Stock) -> Result<(), Failure> {
        message.truncate(length);
        let incoming = &mut self.incoming;
        incoming.received += 1;
        let has_credit = incoming.left() <= u16::MAX / 2;
        let Some(frame) = Frame::parse(&message).filter(|_| has_credit) else {
            self.incoming.inbox.free(message, stock);
            return Err(Failure::violation(match has_credit {
                true => "a frame is cut short",
                false => "the peer sent without a credit",
            }));
        };
        let ordered = self.scan(&message, stock);
        // Applies the credits last: after a RETURN, credits are ignored until RETURNED arrives, and RETURNED may be one
        // of the frames above.
        self.take_credits(frame.credits);
        let inbox = &mut self.incoming.inbox;
        if matches!(ordered, Ok(true)) && !inbox.discard {
            inbox.sends.push(message, 0);
        } else {
            inbox.free(message, stock);
        }
        self.grow(stock);
        ordered.map(|_| ())
    }

    /// Processes a completed READ.
    pub(crate) fn read_done(&mut self, token: u32, message: Buf, whole: bool) {
        let incoming = &mut self.incoming;
        let inbox = &mut incoming.inbox;
        incoming.in_flight -= 1;
        self.alive.heard = true;
        incoming.landings.note(message.len() as u32);
        if !whole {
            return;
        }
        incoming.done = incoming.done.wrapping_add(1);
        inbox.arrive(token, message);
        self.rendezvous_received += 1;
    }

    /// Records whether the program has accepted the connection. Before that, no memory is allocated for the peer's
    /// messages.
    pub(crate) fn claim(&mut self, is_claimed: bool) {
        self.is_unclaimed = !is_claimed;
    }

    /// Begins READs, within the read-ahead limit and the free memory.
    #[inline]
    pub(super) fn start_reads(&mut self, stock: &mut Stock) {
        let incoming = &mut self.incoming;
        let inbox = &mut incoming.inbox;
        // The peer frees messages in their order, so those after the one for a region wait.
        let is_placing = matches!(inbox.reads.front(), Some(Read::Placing(_)));
        if inbox.reads.is_empty() || self.is_unclaimed || inbox.places || is_placing {
            return;
        }
        for (index, read) in inbox.reads.iter_mut().enumerate() {
            let &mut Read::Waiting { from, length } = read else { continue };
            // The first message must arrive even if later ones, which the peer has written, use all the space.
            let enough = index != 0 && inbox.ahead + length as usize > self.settings.read_ahead;
            if enough || incoming.in_flight >= self.agreement.reads {
                return;
            }
            let Some(into) = stock.pool.alloc_announced(length as usize) else {
                stock.starved = true;
                stock.is_short = true;
                inbox.lacking = if index == 0 && stock.is_exhausted() { length } else { 0 };
                return;
            };
            *read = Read::InFlight;
            inbox.lacking = 0;
            incoming.in_flight += 1;
            inbox.ahead += length as usize;
            let token = inbox.first_read.wrapping_add(index as u32);
            self.requests.push_back(Request::Read { token, into, from });
        }
    }

    #[inline(never)]
    pub(super) fn take_credits(&mut self, limit: u16) {
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
            if frame.kind.is_ordered() && !(frame.kind == Kind::CLOSE && self.incoming.end != End::Open) {
                ordered |= self.incoming.may_follow()?;
            }
            if frame.kind != Kind::DATA {
                self.take_frame(frame, payload, stock)?;
            } else {
                self.incoming.landings.note_part(frame.length, frame.flags & LAST != 0);
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
                if incoming.inbox.discard {
                    incoming.done = incoming.done.wrapping_add(1);
                } else {
                    incoming.inbox.reads.push_back(Read::Waiting { from, length: frame.a });
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
                    let lease = kept.wrapping_sub(incoming.inbox.freed as u16).min(incoming.lease);
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
            Kind::FIN => {
                incoming.end = End::Arrived;
                self.end_landings(stock);
            }
            Kind::CLOSE => {
                if incoming.end == End::Open {
                    incoming.end = End::Arrived;
                }
                self.end_landings(stock);
                self.outgoing.is_open = false;
                self.peer_close = Some((frame.a, String::from_utf8_lossy(payload).into_owned()));
                self.drop_queue(stock);
            }
            Kind::FIN_ACK => self.take_fin_ack()?,
            Kind::BUFFERS | Kind::WRITTEN | Kind::WITHDRAW | Kind::WITHDRAWN => match self.agreement.version {
                0..2 => return Err(Failure::violation("a frame of a later version")),
                _ => self.take_landing(frame, payload, stock)?,
            },
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
        if incoming.held() <= incoming.lease / 2 {
            let wanted = incoming.lease.min(self.settings.window - incoming.lease);
            incoming.lease += stock.ledger.lease(wanted);
        }
    }
}

impl Incoming {
    /// Returns how many announced credits the peer has not used.
    #[inline]
    pub(super) fn left(&self) -> u16 {
        self.announced.wrapping_sub(self.received as u16)
    }

    /// Returns the number of SENDs in the inbox.
    #[inline]
    pub(super) fn held(&self) -> u16 {
        (self.received as u16).wrapping_sub(self.inbox.freed as u16)
    }

    /// Returns an error if FIN or CLOSE arrived earlier, because no ordered frame may follow these; otherwise returns
    /// true.
    #[inline]
    fn may_follow(&self) -> Result<bool, Failure> {
        if self.end != End::Open { Err(Failure::violation("the peer sent a message after the end")) } else { Ok(true) }
    }

    /// Returns the limit that may be announced to the peer.
    #[inline]
    pub(super) fn target(&self) -> u16 {
        (self.inbox.freed as u16).wrapping_add(self.lease)
    }

    /// Returns the number of credits that may be announced to the peer.
    #[inline]
    pub(super) fn free_credits(&self) -> u16 {
        self.target().wrapping_sub(self.announced)
    }

    /// Returns the number of free credits that are announced with a SEND of their own.
    #[inline]
    pub(super) fn grant(&self) -> u16 {
        if self.left() <= RESERVE { 2 } else { (self.lease / 2).max(2) }
    }

    /// Whether to announce freed credits with a SEND of their own. This is the case if at least two are free, and either
    /// the peer has few left or half of the lease is free.
    #[inline]
    pub(super) fn is_grant_due(&self) -> bool {
        self.free_credits() >= self.grant()
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
            && match self.inbox.discard {
                true => self.in_flight == 0,
                false => untold >= u32::from(self.in_flight.min(DONE_BATCH)),
            }
    }

    #[inline]
    fn is_ack_due(&self) -> bool {
        self.end == End::Arrived
            && self.in_flight == 0
            && self.inbox.reads.iter().all(|read| matches!(read, Read::Ready(_)))
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
            self.end = End::Acked;
            send.push(&Frame::new(Kind::FIN_ACK).emit());
        }
    }

    /// Frees all messages in the inbox, because the program has stopped reading.
    pub(super) fn discard(&mut self, stock: &mut Stock) {
        let inbox = &mut self.inbox;
        inbox.discard = true;
        inbox.assembly = None;
        inbox.clear(stock);
        for read in inbox.reads.drain(..) {
            match read {
                Read::Waiting { .. } | Read::Placing(_) => self.done = self.done.wrapping_add(1),
                Read::InFlight => {}
                Read::Ready(message) => inbox.ahead -= message.len(),
            }
        }
    }
}

impl Inbox {
    /// Frees the receive of a SEND.
    #[inline]
    pub(super) fn free(&mut self, send: Buf, stock: &mut Stock) {
        self.freed += 1;
        stock.free(send);
    }

    /// Stores a long message that has arrived.
    pub(super) fn arrive(&mut self, token: u32, message: Buf) {
        let index = token.wrapping_sub(self.first_read) as usize;
        if self.discard {
            self.ahead -= message.len();
        } else if let Some(read) = self.reads.get_mut(index) {
            *read = Read::Ready(message);
        }
    }

    pub(super) fn clear(&mut self, stock: &mut Stock) {
        while let Some(send) = self.sends.pop() {
            self.free(send, stock);
        }
    }
}
