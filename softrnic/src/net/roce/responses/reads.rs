//! The data of reads, and reads that the peer repeats because data was lost. The QP sends all data in the order in which it
//! was asked for.

use super::{Answer, BUFFER_LIMIT, Data, Out, Responses};
use crate::net::roce::packet::Range;
use crate::net::roce::psn::distance;
use crate::wire::operation::Operation;
use crate::wire::packet::psn_after;
use crate::wire::transport::Stuck;

/// A read that is answered again, or a part of it.
#[derive(Debug)]
pub(super) struct Repeat {
    pub(super) psn: u32,
    pub(super) packets: u32,
    pub(super) length: u64,
    /// Whether the peer has asked for a part of the data once more, so that the rest is not sent.
    pub(super) is_cut: bool,
}

impl Responses {
    /// Begins to answer a read again, from this PSN on. If its data is being sent, the rest of that is not. Returns
    /// whether the QP must send the data.
    pub(super) fn repeat(&mut self, psn: u32, packets: u32, range: Range) -> bool {
        // Those that are cut end soon.
        let is_busy = self.repeats.iter().any(|repeat| repeat.psn == psn && !repeat.is_cut);
        if is_busy || self.repeats.len() >= 2 * self.depth {
            return false;
        }
        let mtu = u64::from(self.line.mtu);
        let has = |start: u32, packets: u32| (0..packets as i32).contains(&distance(start, psn));
        // The conversion is lossless, because the PSN is not before the start.
        let skipped = |start: u32| distance(start, psn) as u64 * mtu;
        let is_in = |start: u32, packets: u32, whole: Range| {
            has(start, packets)
                && whole.rkey == range.rkey
                && range.address == whole.address.wrapping_add(skipped(start))
                && skipped(start) + u64::from(range.length) <= u64::from(whole.length)
        };
        let is_after_others = !self.repeats.is_empty();
        let is_known = match self.pending.iter_mut().find(|pending| has(pending.psn, pending.packets())) {
            Some(pending) => {
                let Operation::Read { address, rkey } = pending.operation else { return false };
                // The conversion is lossless, because a read has at most 2 GiB.
                let whole = Range { address, rkey, length: pending.length as u32 };
                let is_known = is_in(pending.psn, pending.packets(), whole);
                // Otherwise the peer has asked too early.
                let is_lost = is_after_others || skipped(pending.psn) < pending.given;
                pending.is_cut |= is_known && is_lost;
                is_known && is_lost
            }
            None => self.saved.iter().any(|saved| {
                let Answer::Read(whole) = saved.answer else { return false };
                is_in(saved.psn, saved.packets, whole)
            }),
        };
        for repeat in self.repeats.iter_mut().filter(|repeat| is_known && has(repeat.psn, repeat.packets)) {
            repeat.is_cut = true;
        }
        if is_known {
            self.repeats.push_back(Repeat { psn, packets, length: range.length.into(), is_cut: false });
        }
        is_known
    }

    /// Removes a read that was answered again. One with the same PSN that is answered for the first time comes before it.
    pub(super) fn repeated(&mut self, psn: u32) -> Option<Repeat> {
        let place = self.repeats.iter().position(|repeat| repeat.psn == psn)?;
        self.repeats.remove(place)
    }

    /// Sends data of a read.
    pub(super) fn give(
        &mut self,
        psn: u32,
        offset: u64,
        read: impl FnOnce(&mut Vec<u8>) -> Result<(), Stuck>,
    ) -> Result<(), Stuck> {
        let asked = match self.pending.iter().find(|pending| pending.psn == psn) {
            Some(pending) => Some((pending.length, pending.is_cut)),
            None => self.repeats.iter().find(|repeat| repeat.psn == psn).map(|repeat| (repeat.length, repeat.is_cut)),
        };
        let Some((length, false)) = asked else { return Ok(()) };
        if self.buffered >= BUFFER_LIMIT {
            return Err(Stuck::Full);
        }
        let mut bytes = self.spare.take();
        read(&mut bytes)?;
        let mut messages = self.messages;
        if let Some(pending) = self.pending.iter_mut().find(|pending| pending.psn == psn) {
            // A read is complete for the MSN before its first response, so that all of them have the same one.
            if pending.given == 0 {
                self.messages = psn_after(self.messages, 1);
                pending.messages = self.messages;
            }
            messages = pending.messages;
            pending.given = offset + bytes.len() as u64;
        }
        self.buffered += bytes.len();
        self.out.push_back(Out::Data(Data { psn, length, messages, at: offset, sent: 0, bytes }));
        Ok(())
    }
}
