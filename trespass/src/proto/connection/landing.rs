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

#[cfg(test)]
mod tests;

/// Length of the longest message for which a buffer is announced. Clearing longer buffers takes longer than the round
/// trip of a READ.
const LONGEST: u32 = 32 << 10;
/// How many bytes a peer that sends much may have announced, in at least two buffers.
const BYTES: u32 = 256 << 10;
/// Length of the shortest announced buffer: the smallest size of a pool.
const SHORTEST: u32 = 4 << 10;
/// Maximum number of buffers that a peer may use at a time. As many again may wait for the messages that it has written.
const MOST: usize = 16;
/// The announced buffers of all peers use at most 1/`SHARE` of a pool.
const SHARE: usize = 8;
/// Maximum number of announced buffers that this side accepts from a peer.
const ACCEPTED: usize = 64;
/// A message is copied if it uses less than 1/`WASTE` of its buffer.
const WASTE: usize = 4;
/// After this number of ticks without a message, announced buffers are withdrawn.
const IDLE: u8 = 4;

/// The buffers that this side has announced.
#[derive(Debug, Default)]
pub(super) struct Landings {
    /// The announced buffers that the peer has not used, in order, and the number of the first of them.
    open: VecDeque<(Remote, u32)>,
    first: u32,
    /// How many buffers at the front of `open` the peer has used, which it has reported when it returned the others.
    used: usize,
    /// The total length of `open`.
    bytes: usize,
    /// Length of the next buffers; 0 until a long message has arrived.
    length: u32,
    /// How many buffers are announced together. The number grows while the peer uses them.
    count: usize,
    is_withdrawing: bool,
    /// Whether no buffer could be announced. The next tick tries again.
    waits: bool,
    /// Whether the peer or the backend does not support announced buffers.
    is_off: bool,
    /// The number of ticks since the last message.
    idle: u8,
    /// How many bytes of a message that is sent in parts have arrived.
    partial: u32,
}

impl Landings {
    /// Records that a long message has arrived in another way. A length alone, without the bytes, takes no memory.
    pub(super) fn note(&mut self, length: u32) {
        if length <= LONGEST {
            self.length = self.length.max(length.next_power_of_two().max(SHORTEST));
            self.idle = 0;
        }
    }

    /// Records the arrival of a part of a message.
    pub(super) fn note_part(&mut self, length: u32, is_last: bool) {
        self.partial = self.partial.saturating_add(length);
        if is_last {
            let whole = std::mem::take(&mut self.partial);
            if whole != length {
                self.note(whole);
            }
        }
    }

    pub(super) fn new(is_off: bool) -> Landings {
        Landings { is_off, ..Landings::default() }
    }

    /// Whether buffers are announced or may have to be.
    #[inline]
    pub(super) fn are_used(&self) -> bool {
        self.length != 0 || !self.open.is_empty()
    }

    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.length != 0 && !self.is_off
    }

    /// Whether buffers must be announced. `ahead` is the number of bytes that have arrived, and `most` is the limit for
    /// these and the announced buffers.
    pub(super) fn is_due(&self, ahead: usize, most: usize) -> bool {
        self.is_active()
            && !self.is_withdrawing
            && !self.waits
            && self.open.len() < 2 * MOST
            && self.open.len() - self.used <= self.count / 2
            && self.has_room(ahead, most)
    }

    /// Whether the announced buffers are too short for the messages that arrive, or are not used or needed.
    fn is_unsuitable(&self, are_needed: bool) -> bool {
        let last = self.open.back().filter(|_| self.open.len() > self.used);
        last.is_some_and(|&(_, length)| length < self.length || self.length == 0 || !are_needed)
    }

    /// Whether a part of a message has arrived, and its last part has not.
    pub(super) fn has_part(&self) -> bool {
        self.partial != 0
    }

    /// Returns the number of the next buffer that is announced.
    fn end(&self) -> u32 {
        self.first.wrapping_add(self.open.len() as u32)
    }

    /// Takes the buffers from this number on back.
    fn take_back(&mut self, from: u32, stock: &mut Stock, requests: &mut VecDeque<Request>) -> Result<(), Failure> {
        let index = from.wrapping_sub(self.first) as usize;
        if index > self.open.len() {
            return Err(Failure::violation("the peer returned buffers that it does not have"));
        }
        self.used = index;
        for (remote, length) in self.open.drain(index..) {
            self.bytes -= length as usize;
            stock.announced -= 1;
            requests.push_back(Request::Conceal(remote));
        }
        Ok(())
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

    /// Takes the buffer with this number, to which the peer has written a message, and takes those before it back.
    fn take(
        &mut self,
        number: u32,
        length: u32,
        stock: &mut Stock,
        requests: &mut VecDeque<Request>,
    ) -> Result<Remote, Failure> {
        let index = number.wrapping_sub(self.first) as usize;
        let Some(&(remote, _)) = self.open.get(index).filter(|&&(_, capacity)| (1..=capacity).contains(&length)) else {
            return Err(Failure::violation("the peer wrote a message to a buffer that it does not have"));
        };
        self.first = number.wrapping_add(1);
        self.used = self.used.saturating_sub(index + 1);
        self.idle = 0;
        for (at, (remote, capacity)) in self.open.drain(..=index).enumerate() {
            self.bytes -= capacity as usize;
            stock.announced -= 1;
            if at != index {
                requests.push_back(Request::Conceal(remote));
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
    /// Returns the number and the address of the first buffer with space for a message.
    pub(super) fn find(&self, length: usize) -> Option<(u32, Remote)> {
        let index = self.open.iter().position(|offer| offer.length as usize >= length)?;
        self.open.get(index).map(|offer| (self.first.wrapping_add(index as u32), offer.remote))
    }

    /// Records that this buffer is used. The buffers before it are not used any more.
    pub(super) fn used(&mut self, number: u32) {
        let count = number.wrapping_sub(self.first) as usize + 1;
        self.open.drain(..count.min(self.open.len()));
        self.first = number.wrapping_add(1);
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

    /// Returns the frame that confirms a withdrawal.
    pub(super) fn confirmation(&self) -> Frame {
        Frame { a: self.first, ..Frame::new(Kind::WITHDRAWN) }
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
        self.is_withdrawn = true;
        self.open.clear();
        Ok(())
    }
}

impl Whole {
    /// Processes a frame about announced buffers.
    pub(super) fn take_landing(&mut self, frame: Frame, payload: &[u8], stock: &mut Stock) -> Result<(), Failure> {
        let (landings, inbox) = (&mut self.incoming.landings, &mut self.incoming.inbox);
        match frame.kind {
            Kind::BUFFERS => self.outgoing.offers.add(frame.a, payload)?,
            Kind::WITHDRAW => self.outgoing.offers.withdraw(frame.a)?,
            Kind::WITHDRAWN => {
                if !std::mem::take(&mut landings.is_withdrawing) {
                    return Err(Failure::violation("the peer returned buffers that were not withdrawn"));
                }
                // A peer drops messages that it has written if this side does not read them.
                if !inbox.discard {
                    landings.take_back(frame.a, stock, &mut self.requests)?;
                }
            }
            _ => {
                if frame.a > self.settings.message {
                    return Err(Failure::violation("a written message is too long"));
                }
                let remote = landings.take(frame.b, frame.a, stock, &mut self.requests)?;
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
    pub(crate) fn landed(&mut self, token: u32, mut message: Buf, stock: &mut Stock) {
        // A short message in a long buffer would use much more memory than counts as read ahead.
        let room = message.len() + message.room();
        if room > SHORTEST as usize * WASTE
            && message.len() < room / WASTE
            && let Some(mut copy) = stock.pool.alloc(message.len())
        {
            copy.copy_from_slice(&message);
            message = copy;
        }
        self.alive.heard = true;
        self.rendezvous_received += 1;
        self.incoming.inbox.arrive(token, message);
    }

    /// Takes all announced buffers back, because the peer sends no further message. It has written none after its last
    /// one.
    pub(super) fn end_landings(&mut self, stock: &mut Stock) {
        let landings = &mut self.incoming.landings;
        landings.is_off = true;
        let first = landings.first;
        // There is no error, because the number is that of a buffer.
        _ = landings.take_back(first, stock, &mut self.requests);
    }

    /// Whether the announced buffers must be withdrawn.
    pub(super) fn is_withdrawal_due(&self) -> bool {
        let incoming = &self.incoming;
        let is_open = !self.ended && incoming.end == End::Open && !incoming.inbox.discard;
        is_open && !incoming.landings.is_withdrawing && incoming.landings.is_unsuitable(!incoming.inbox.places)
    }

    /// Whether buffers must be announced to the peer.
    pub(super) fn is_landing_due(&self) -> bool {
        let incoming = &self.incoming;
        !self.ended
            && incoming.end == End::Open
            && !incoming.inbox.discard
            && !incoming.inbox.places
            && !self.is_unclaimed
            && incoming.landings.is_due(incoming.inbox.ahead, self.settings.read_ahead)
    }

    /// Withdraws or announces buffers, if this is due.
    #[inline(never)]
    pub(super) fn care_for_landings(&mut self, stock: &mut Stock, expose: impl FnMut(Buf) -> Result<Remote, Buf>) {
        if self.is_withdrawal_due() {
            self.withdraw(stock);
        } else if self.is_landing_due() {
            self.announce(stock, expose);
        }
    }

    /// Announces buffers, as many as memory permits.
    fn announce(&mut self, stock: &mut Stock, mut expose: impl FnMut(Buf) -> Result<Remote, Buf>) {
        if self.credits() < 2 {
            return;
        }
        let Some(mut send) = stock.take() else { return };
        let landings = &mut self.incoming.landings;
        landings.count = landings.next_count();
        let frame = Frame { a: landings.end(), ..Frame::new(Kind::BUFFERS) };
        let most = (self.agreement.segment as usize - HEADER) / Offer::LENGTH;
        let mut payload = Vec::with_capacity(MOST * Offer::LENGTH);
        while landings.open.len() - landings.used < landings.count
            && landings.open.len() < 2 * MOST
            && payload.len() < most * Offer::LENGTH
            && landings.has_room(self.incoming.inbox.ahead, self.settings.read_ahead)
        {
            let may_take = stock.announced * (LONGEST as usize) < stock.pool.limit() / SHARE;
            let buffer = may_take.then(|| stock.pool.alloc_to_spare(landings.length as usize)).flatten();
            // The peer may report a message that it has not written, and must not get what the memory had before.
            let cleared = buffer.map(|mut buffer| {
                buffer.fill(0);
                buffer
            });
            let Some(Ok(remote)) = cleared.map(&mut expose) else {
                landings.waits = true;
                break;
            };
            stock.announced += 1;
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

    /// Stops announcing buffers if the peer has not sent long messages for some time, or if memory is short.
    pub(super) fn tick_landings(&mut self, stock: &Stock) {
        let landings = &mut self.incoming.landings;
        landings.waits = stock.is_short;
        landings.idle = landings.idle.saturating_add(1);
        if landings.idle >= IDLE || stock.is_short {
            (landings.length, landings.count) = (0, 0);
        }
    }

    /// Withdraws the announced buffers.
    fn withdraw(&mut self, stock: &mut Stock) {
        if self.credits() < 2 {
            return;
        }
        let Some(mut send) = stock.take() else { return };
        let landings = &mut self.incoming.landings;
        (landings.is_withdrawing, landings.count) = (true, 0);
        send.push(&Frame { a: landings.end(), ..Frame::new(Kind::WITHDRAW) }.emit());
        self.launch(send);
    }
}
