//! Buffers for long messages that a receiver announces, and to which the sender WRITEs (wire version 2).
//!
//! The receiver numbers its buffers in the order of their announcement. The sender uses them in this order, and skips
//! those that are too short for its message. A WRITTEN frame names the buffer of its message; all buffers before it are
//! then the receiver's again. A receiver that does not need its buffers withdraws them, and has them back when the
//! sender has confirmed this.

use std::collections::VecDeque;

use crate::memory::Buf;
use crate::proto::frame::{Frame, HEADER, Kind, Offer};
use crate::proto::{Failure, Remote, Request, Stock};

use super::{End, Whole};

/// Length of the longest message for which a buffer is announced. READ takes longer ones only a little more time.
const LONGEST: u32 = 256 << 10;
/// How many bytes a peer that sends much may have announced, in at least two buffers.
const BYTES: u32 = 256 << 10;
/// Maximum number of buffers that a peer has announced at a time.
const MOST: usize = 16;
/// Maximum number of announced buffers that this side accepts from a peer.
const ACCEPTED: usize = 64;
/// After this number of ticks without a message, announced buffers are withdrawn.
const IDLE: u8 = 4;

/// The buffers that this side has announced.
#[derive(Debug, Default)]
pub(super) struct Landings {
    /// The announced buffers that the peer has not used, in order, and the number of the first of them.
    open: VecDeque<(Remote, u32)>,
    first: u32,
    /// The total length of `open`.
    bytes: usize,
    /// Length of the next buffers; 0 until a long message has arrived.
    length: u32,
    /// How many buffers are announced together. The number grows while the peer uses them.
    count: usize,
    is_withdrawing: bool,
    /// Whether the last attempt to announce a buffer found no memory. The next tick tries again.
    lacks_memory: bool,
    /// Whether the peer or the backend does not support announced buffers.
    is_off: bool,
    /// The number of ticks since the last message.
    idle: u8,
}

impl Landings {
    /// Records the length of a long message that arrived in another way.
    pub(super) fn note(&mut self, length: u32) {
        if length <= LONGEST {
            self.length = self.length.max(length.next_power_of_two());
        }
        self.idle = 0;
    }

    /// A peer that speaks version 1 knows no announced buffers.
    pub(super) fn new(version: u8) -> Landings {
        Landings { is_off: version < 2, ..Landings::default() }
    }

    pub(super) fn is_active(&self) -> bool {
        self.length != 0 && !self.is_off
    }

    /// Whether buffers must be announced. `ahead` is the number of bytes that have arrived, and `most` is the limit for
    /// these and the announced buffers.
    pub(super) fn is_due(&self, ahead: usize, most: usize) -> bool {
        self.is_active()
            && !self.is_withdrawing
            && !self.lacks_memory
            && self.open.len() <= self.count / 2
            && self.has_room(ahead, most)
    }

    fn has_room(&self, ahead: usize, most: usize) -> bool {
        let used = ahead + self.bytes;
        used == 0 || used + self.length as usize <= most
    }

    /// Returns the number of buffers that are announced together next.
    fn next_count(&self) -> usize {
        let most = (BYTES / self.length.max(1)) as usize;
        (2 * self.count).clamp(2, most.clamp(2, MOST))
    }

    /// Takes the buffer with this number, to which the peer has written a message, and passes the buffers before it to
    /// `skipped`.
    fn take(&mut self, number: u32, length: u32, mut skipped: impl FnMut(Remote)) -> Result<Remote, Failure> {
        let index = number.wrapping_sub(self.first) as usize;
        let Some(&(remote, _)) = self.open.get(index).filter(|&&(_, capacity)| (1..=capacity).contains(&length)) else {
            return Err(Failure::violation("the peer wrote a message to a buffer that it does not have"));
        };
        self.first = number.wrapping_add(1);
        self.idle = 0;
        for (at, (remote, capacity)) in self.open.drain(..=index).enumerate() {
            self.bytes -= capacity as usize;
            if at != index {
                skipped(remote);
            }
        }
        Ok(remote)
    }
}

/// The buffers that the peer has announced, and this side has not used, in order.
#[derive(Debug, Default)]
pub(super) struct Offers {
    open: VecDeque<Offer>,
    /// The number of the first buffer of `open`.
    first: u32,
    /// Whether the peer has withdrawn its buffers, and the confirmation is not sent yet.
    pub(super) is_withdrawn: bool,
}

impl Offers {
    /// Takes the first buffer with space for a message. The buffers before it are not used any more.
    pub(super) fn take(&mut self, length: usize) -> Option<(u32, Remote)> {
        let index = self.open.iter().position(|offer| offer.length as usize >= length)?;
        let number = self.first.wrapping_add(index as u32);
        self.first = number.wrapping_add(1);
        self.open.drain(..index);
        self.open.pop_front().map(|offer| (number, offer.remote))
    }

    pub(super) fn fits(&self, length: usize) -> bool {
        self.open.iter().any(|offer| offer.length as usize >= length)
    }

    /// Returns the number of buffers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns the number of the next buffer that the peer announces.
    fn end(&self) -> u32 {
        self.first.wrapping_add(self.open.len() as u32)
    }

    fn add(&mut self, first: u32, payload: &[u8]) -> Result<(), Failure> {
        let (offers, rest) = payload.as_chunks::<{ Offer::LENGTH }>();
        let offers = offers.iter().map(Offer::parse);
        let is_valid = first == self.end()
            && !self.is_withdrawn
            && rest.is_empty()
            && self.open.len() + offers.len() <= ACCEPTED
            && offers.clone().all(|offer| offer.length != 0);
        if !is_valid {
            return Err(Failure::violation("the peer announced buffers that it may not announce"));
        }
        self.open.extend(offers);
        Ok(())
    }

    fn withdraw(&mut self, end: u32) -> Result<(), Failure> {
        if end != self.end() || self.is_withdrawn {
            return Err(Failure::violation("the peer withdrew buffers that it has not announced"));
        }
        (self.first, self.is_withdrawn) = (end, true);
        self.open.clear();
        Ok(())
    }
}

impl Whole {
    /// Processes a frame about announced buffers.
    pub(super) fn take_landing(&mut self, frame: Frame, payload: &[u8]) -> Result<(), Failure> {
        let (landings, inbox) = (&mut self.incoming.landings, &mut self.incoming.inbox);
        match frame.kind {
            Kind::BUFFERS => self.outgoing.offers.add(frame.a, payload)?,
            Kind::WITHDRAW => self.outgoing.offers.withdraw(frame.a)?,
            Kind::WITHDRAWN => {
                if !std::mem::take(&mut landings.is_withdrawing) {
                    return Err(Failure::violation("the peer returned buffers that were not withdrawn"));
                }
                landings.first = landings.first.wrapping_add(landings.open.len() as u32);
                landings.bytes = 0;
                self.requests.extend(landings.open.drain(..).map(|(remote, _)| Request::Conceal(remote)));
            }
            _ => {
                let requests = &mut self.requests;
                let skipped = |remote| requests.push_back(Request::Conceal(remote));
                let remote = landings.take(frame.b, frame.a, skipped)?;
                if inbox.discard {
                    self.requests.push_back(Request::Conceal(remote));
                } else {
                    let token = inbox.first_read.wrapping_add(inbox.reads.len() as u32);
                    inbox.reads.push_back(super::Read::InFlight);
                    inbox.ahead += frame.a as usize;
                    self.requests.push_back(Request::Land { token, remote, length: frame.a });
                }
            }
        }
        Ok(())
    }

    /// Takes a message that the peer has written. The peer cannot change it any more.
    pub(crate) fn landed(&mut self, token: u32, message: Buf) {
        self.alive.heard = true;
        self.rendezvous_received += 1;
        self.incoming.inbox.arrive(token, message);
    }

    /// Whether buffers must be announced to the peer.
    pub(super) fn is_landing_due(&self) -> bool {
        let incoming = &self.incoming;
        !self.ended
            && incoming.end == End::Open
            && !incoming.inbox.discard
            && !self.is_unclaimed
            && incoming.landings.is_due(incoming.inbox.ahead, self.settings.read_ahead)
    }

    /// Announces buffers, as many as memory permits.
    #[inline(never)]
    pub(super) fn announce(&mut self, stock: &mut Stock, mut expose: impl FnMut(Buf) -> Result<Remote, Buf>) {
        if self.credits() < 2 {
            return;
        }
        let Some(mut send) = stock.take() else { return };
        let landings = &mut self.incoming.landings;
        landings.count = landings.next_count();
        let frame = Frame { a: landings.first.wrapping_add(landings.open.len() as u32), ..Frame::new(Kind::BUFFERS) };
        let most = (self.agreement.segment as usize - HEADER) / Offer::LENGTH;
        let mut payload = Vec::with_capacity(MOST * Offer::LENGTH);
        while landings.open.len() < landings.count
            && payload.len() < most * Offer::LENGTH
            && landings.has_room(self.incoming.inbox.ahead, self.settings.read_ahead)
        {
            let Some(buffer) = stock.pool.alloc_within_half(landings.length as usize) else {
                landings.lacks_memory = true;
                break;
            };
            let Ok(remote) = expose(buffer) else {
                landings.is_off = true;
                break;
            };
            payload.extend_from_slice(&Offer { remote, length: landings.length }.emit());
            landings.open.push_back((remote, landings.length));
            landings.bytes += landings.length as usize;
        }
        if payload.is_empty() {
            stock.give(send);
            return;
        }
        // The frame fits into a segment.
        send.append(&Frame { length: payload.len() as u32, ..frame }.emit(), &payload);
        self.launch(send);
    }

    /// Withdraws the announced buffers if the peer has not sent long messages for some time.
    pub(super) fn tick_landings(&mut self, stock: &mut Stock) {
        let landings = &mut self.incoming.landings;
        landings.lacks_memory = false;
        landings.idle = landings.idle.saturating_add(1);
        if landings.idle < IDLE || landings.is_withdrawing {
            return;
        }
        (landings.length, landings.count) = (0, 0);
        if landings.open.is_empty() || self.credits() < 2 || self.incoming.end != End::Open {
            return;
        }
        let Some(mut send) = stock.take() else { return };
        let landings = &mut self.incoming.landings;
        landings.is_withdrawing = true;
        let end = landings.first.wrapping_add(landings.open.len() as u32);
        send.push(&Frame { a: end, ..Frame::new(Kind::WITHDRAW) }.emit());
        self.launch(send);
    }

    /// Confirms that the peer's buffers are not used any more. The confirmation must not overtake WRITTEN frames, so it
    /// is sent in order with the messages.
    pub(super) fn confirm_withdrawal(&mut self, stock: &mut Stock) {
        let frame = Frame::new(Kind::WITHDRAWN);
        self.outgoing.offers.is_withdrawn = self.push_frame(frame, &[], stock).is_err();
    }
}
