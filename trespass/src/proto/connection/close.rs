//! Ends connections: shutdown, close, failure.

use std::io;

use crate::proto::frame::{Frame, HEADER, Kind};
use crate::proto::{Failure, Stock};

use super::{End, Fin, Item, Whole};

impl Whole {
    /// Ends this side's sending. The peer can still read the messages that were sent before, and this side continues to
    /// read.
    pub(crate) fn shutdown(&mut self, stock: &mut Stock) -> io::Result<()> {
        if self.outgoing.fin != Fin::Open || self.ended || self.peer_close.is_some() {
            return Ok(());
        }
        self.push_frame(Frame::new(Kind::FIN), &[], stock)?;
        (self.outgoing.fin, self.outgoing.is_open) = (Fin::Shut, false);
        Ok(())
    }

    /// Ends both directions: this side sends no further message, and reads none. The link ends when the peer has
    /// received everything, or when the linger time has passed.
    pub(crate) fn close(&mut self, code: u32, reason: &str, now: u64, stock: &mut Stock) {
        self.incoming.discard(stock);
        if self.outgoing.fin == Fin::Closed || self.ended {
            return;
        }
        self.linger_until = Some(now + self.settings.linger);
        if self.peer_close.is_none() {
            let room = self.agreement.segment as usize - HEADER;
            let reason = &reason.as_bytes()[..reason.len().min(room).min(128)];
            if self.push_frame(Frame { a: code, ..Frame::new(Kind::CLOSE) }, reason, stock).is_err() {
                // If there is no memory for the frame, the link ends without sending it.
                self.linger_until = Some(now);
            }
        }
        (self.outgoing.fin, self.outgoing.is_open) = (Fin::Closed, false);
    }

    /// Whether this side has ended sending, and the peer has acknowledged this or closed.
    pub(super) fn is_ending(&self) -> bool {
        self.outgoing.fin != Fin::Open && (self.outgoing.fin_acked || self.peer_close.is_some())
    }

    /// Whether the worker must end the link: both sides have received everything, or the linger time has passed.
    pub(crate) fn wants_disconnect(&self, now: u64) -> bool {
        if self.ended || self.outgoing.in_flight() && self.linger_until.is_none_or(|until| now < until) {
            return false;
        }
        let over = match self.outgoing.fin {
            Fin::Open | Fin::Shut => self.incoming.end == End::Acked,
            Fin::Closed => self.incoming.end != End::Arrived,
        };
        self.is_ending() && over && self.incoming.in_flight == 0 && self.requests.is_empty()
            || self.linger_until.is_some_and(|until| now >= until)
    }

    /// Fails the connection because of a protocol violation or an unsuitable hello; its link must then end.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
        self.outgoing.is_open = false;
        self.linger_until = Some(0);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns how the connection ended. Before its end, returns `WouldBlock`.
    pub(crate) fn outcome(&self) -> io::Result<()> {
        match &self.failure {
            _ if !self.ended => Err(io::ErrorKind::WouldBlock.into()),
            Some(failure) => Err(failure.clone().into()),
            None => Ok(()),
        }
    }

    /// Whether the program has abandoned the connection, which the worker removes after its link has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.outgoing.fin == Fin::Closed
    }

    /// Returns the code and the reason of the peer, once the peer has closed the connection.
    pub(crate) fn peer_close(&self) -> Option<(u32, &str)> {
        self.peer_close.as_ref().map(|(code, reason)| (*code, reason.as_str()))
    }

    /// Records that the link has ended. `failure` is the reason, if the connection was not closed before.
    pub(crate) fn ended(&mut self, failure: Option<Failure>, stock: &mut Stock) {
        if self.ended {
            return;
        }
        self.ended = true;
        self.outgoing.is_open = false;
        let acked = self.outgoing.fin_acked || self.peer_close.is_some();
        if self.failure.is_none() && !(acked && (self.is_closed() || self.incoming.end != End::Open)) {
            self.failure = Some(failure.unwrap_or_else(|| match self.is_closed() {
                true => Failure::new(io::ErrorKind::TimedOut, "the peer has not acknowledged everything"),
                false => Failure::new(io::ErrorKind::ConnectionReset, "the peer disconnected without closing"),
            }));
        }
        self.drop_queue(stock);
        self.end_landings(stock);
        self.requests.clear();
        self.outgoing.exposed.clear();
        (self.outgoing.waiting, self.outgoing.valid_from) = (0, 0);
        stock.ledger.release(std::mem::take(&mut self.incoming.lease) - self.held());
        self.incoming.lease = self.held();
    }

    /// Returns all buffers and credits. The connection must not be used afterwards.
    pub(crate) fn forget(&mut self, stock: &mut Stock) {
        self.ended(None, stock);
        self.incoming.discard(stock);
        stock.ledger.release(self.incoming.lease);
    }

    /// Returns the number of SENDs in the inbox.
    pub(crate) fn held(&self) -> u16 {
        self.incoming.held()
    }

    /// Drops the messages that wait to be sent, because the peer reads no more. Buffers that the peer may be reading
    /// are kept until the link ends.
    pub(super) fn drop_queue(&mut self, stock: &mut Stock) {
        for item in self.outgoing.queue.drain(..) {
            match item {
                Item::Send(send) => {
                    self.outgoing.waiting -= send.len();
                    stock.give(send);
                }
                Item::Rest { message, .. } => self.outgoing.waiting -= message.len(),
            }
        }
    }

    pub(super) fn take_fin_ack(&mut self) -> Result<(), Failure> {
        if self.outgoing.fin == Fin::Open {
            return Err(Failure::violation("the peer acknowledged an end that was not sent"));
        }
        self.outgoing.fin_acked = true;
        Ok(())
    }
}
