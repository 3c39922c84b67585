//! The short path: short messages that are sent, received and read without a look at the whole state.
//!
//! The short path has a budget: how many messages it may still send, receive and read. The budget is computed from the
//! whole state, and stays valid as long as only the short path changes that state. Everything else needs
//! [`Protocol::whole`] for a change, which gives the budget back. So no other code can forget to do so.

use std::ops::Deref;

use crate::memory::Buf;
use crate::proto::frame::{Frame, HEADER, Kind, LAST};
use crate::proto::{Agreement, RESERVE, Settings, Stock, WINDOW_MAX};

use super::{Inbox, Incoming, Whole};

/// Maximum length of a message that is sent at once. It fits into each segment.
const SHORT: usize = 256;

/// A connection that is established, or has ended.
#[derive(Debug)]
pub(crate) struct Protocol {
    budget: Budget,
    /// The worker's turn in which a message was sent at once. Later messages of that turn wait for its end, and share
    /// SENDs.
    sent_in: u32,
    whole: Whole,
}

/// How far the short path may go. All numbers count from the start of the connection; 0 ends the short path.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    /// While fewer SENDs than this were sent, a short message may be sent at once: the connection is open, nothing waits
    /// to be sent, and credits are left.
    sends: u64,
    /// While fewer SENDs than this have arrived, a SEND of one message needs no turn: the connection is settled, and the
    /// peer has enough credits.
    arrivals: u64,
    /// While fewer receives than this are free, a read needs no turn: the connection is settled, and no announcement of
    /// credits is due.
    frees: u64,
}

/// Reading the state needs no care.
impl Deref for Protocol {
    type Target = Whole;

    #[inline]
    fn deref(&self) -> &Whole {
        &self.whole
    }
}

impl Protocol {
    /// Creates an established connection. The hello granted `lease` credits to the peer; the ledger has leased them
    /// already.
    pub(crate) fn new(settings: Settings, agreement: Agreement, lease: u16, now: u64) -> Protocol {
        Protocol { budget: Budget::default(), sent_in: 0, whole: Whole::new(settings, agreement, lease, now) }
    }

    /// Gives the budget of the short path back, and returns the state for any change.
    #[inline]
    pub(crate) fn whole(&mut self) -> &mut Whole {
        self.budget = Budget::default();
        &mut self.whole
    }

    /// Returns the inbox for reading. This affects the budget only by freeing receives, which
    /// [`Protocol::needs_turn`] checks.
    #[inline]
    pub(super) fn inbox(&mut self) -> &mut Inbox {
        &mut self.whole.incoming.inbox
    }

    /// Sends a short message at once by `post`, if it is the first of the worker's turn and no frame waits before it.
    /// The connection then needs no turn. If `post` returns false, nothing was sent.
    #[inline]
    pub(crate) fn send_now(
        &mut self,
        message: &[u8],
        stock: &Stock,
        post: impl FnOnce(&[u8; HEADER], &[u8]) -> bool,
    ) -> bool {
        if self.sent_in == stock.turn
            || message.len() > SHORT
            || self.whole.outgoing.sent >= self.budget.sends && !self.renew_for_sends()
        {
            return false;
        }
        let incoming = &mut self.whole.incoming;
        // Only posted receives may be announced as credits, so the limit does not rise while some receives are not
        // posted yet.
        let credits = if stock.receives.is_empty() { incoming.target() } else { incoming.announced };
        let length = message.len() as u32;
        let frame = Frame { flags: LAST, a: length, length, credits, ..Frame::new(Kind::DATA) };
        if !post(&frame.emit(), message) {
            return false;
        }
        incoming.announced = credits;
        self.sent_in = stock.turn;
        self.whole.outgoing.sent += 1;
        true
    }

    /// Processes a SEND in the usual case: it is one DATA frame, and the connection needs no turn. Otherwise returns the
    /// message, and the caller must use [`Whole::received`]. `message` has the length of a segment, and `length` is the
    /// length of the SEND.
    ///
    /// If `is_quick` is true, this function handles only the most frequent case, and calls no other function.
    #[inline(always)]
    pub(crate) fn received_alone(&mut self, message: Buf, length: usize, is_quick: bool) -> Result<(), Buf> {
        let Some((credits, payload)) = alone(&message, length) else { return Err(message) };
        let received = self.whole.incoming.received + 1;
        if received >= self.budget.arrivals && (is_quick || !self.renew_for_arrivals()) {
            return Err(message);
        }
        let has_credits = credits != self.whole.outgoing.limit;
        let sends = &mut self.whole.incoming.inbox.sends;
        if is_quick && (has_credits || !sends.is_empty()) {
            return Err(message);
        }
        sends.push(message, payload);
        self.whole.incoming.received = received;
        if has_credits {
            self.whole.take_credits(credits);
        }
        Ok(())
    }

    /// Copies the bytes of a short message to `out` in the common case: the first SEND is one DATA frame, of which
    /// nothing was read, and the frame fills `out` or is the only one. In all other cases returns `None`, and the caller
    /// must use [`Protocol::read_to`].
    #[inline(always)]
    pub(crate) fn read_alone(&mut self, out: &mut [u8], stock: &mut Stock) -> Option<usize> {
        let inbox = &mut self.whole.incoming.inbox;
        if inbox.assembly.is_some() {
            return None;
        }
        let (count, send) = inbox.sends.take_alone(out)?;
        inbox.freed += 1;
        stock.receives.push(send);
        Some(count)
    }

    /// Records that `requests` more SENDs have completed.
    #[inline]
    pub(crate) fn sent(&mut self, requests: u32) {
        self.whole.outgoing.completed += u64::from(requests);
        self.whole.alive.heard = true;
    }

    /// Whether the worker must process the connection at the end of the turn. As long as the short path has a budget,
    /// only freed credits can require this.
    #[inline]
    pub(crate) fn needs_turn(&mut self, stock: &Stock) -> bool {
        self.whole.incoming.inbox.freed >= self.budget.frees && self.has_work(stock)
    }

    #[inline(never)]
    fn has_work(&mut self, stock: &Stock) -> bool {
        let has_work = self.whole.has_work(stock);
        if !has_work {
            self.budget.frees = self.whole.incoming.frees();
        }
        has_work
    }

    #[cold]
    fn renew_for_sends(&mut self) -> bool {
        self.budget.sends = self.whole.sends();
        self.whole.outgoing.sent < self.budget.sends
    }

    #[cold]
    fn renew_for_arrivals(&mut self) -> bool {
        self.budget.arrivals = self.whole.arrivals();
        self.whole.incoming.received + 1 < self.budget.arrivals
    }
}

/// The parts of the budget.
impl Whole {
    fn sends(&self) -> u64 {
        let out = &self.outgoing;
        let is_free = out.is_open && out.waiting == 0 && self.is_idle() && self.agreement.message as usize >= SHORT;
        if is_free { out.sent + u64::from(self.credits().saturating_sub(RESERVE)) } else { 0 }
    }

    fn arrivals(&self) -> u64 {
        let incoming = &self.incoming;
        let left = incoming.left();
        // Freed credits that wait for a credit of their own must be announced after the next SEND.
        // The last part of a message ends the count of its bytes.
        let has_part = incoming.landings.has_part();
        if has_part || !self.is_idle() || self.is_unsettled() || incoming.is_grant_due() || left > WINDOW_MAX {
            return 0;
        }
        // If few credits are left, the SEND may need more of them.
        let can_grow = incoming.lease < self.settings.window;
        let low = if can_grow { RESERVE.max(incoming.lease / 2) } else { RESERVE };
        incoming.received + u64::from(left.saturating_sub(low))
    }
}

impl Incoming {
    fn frees(&self) -> u64 {
        // Reading a long message makes room for buffers that are announced.
        if self.landings.is_active() {
            return 0;
        }
        self.inbox.freed + u64::from(self.grant().saturating_sub(self.free_credits()))
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
