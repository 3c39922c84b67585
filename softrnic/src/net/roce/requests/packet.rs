//! The packets of a message.

use super::message::Message;
use super::{READ_SHARE, Requests};
use crate::net::roce::packet::{Body, Packet, Place, Range, SendEnd};
use crate::net::roce::psn::distance;
use crate::wire::operation::Operation;
use crate::wire::packet::psn_after;

impl Requests {
    /// Returns the packet at this place of a message, its payload, and the number of PSNs that it takes. `space` is the
    /// number of PSNs for which the window has space.
    pub(super) fn packet<'m>(&self, message: &'m Message, place: u32, space: i32) -> Option<(Packet, &'m [u8], u32)> {
        if space <= 0 {
            return None;
        }
        let mtu = self.line.mtu;
        let left = message.packets - place;
        let in_flight = self.asked.iter().filter(|asked| asked.is_in_flight).count();
        if message.has_answer() && in_flight >= self.max_reads {
            return None;
        }
        let payload = message.payload(place, mtu)?;
        let (is_first, is_last) = (place == 0, left == 1);
        let whole = Place::new(is_first, is_last);
        // The conversions are lossless, because a message has at most 2 GiB.
        let range = |address, rkey, length: u64| Range { address, rkey, length: length as u32 };
        let mut packets = 1;
        let body = match message.operation {
            Operation::Send | Operation::SendImmediate { .. } | Operation::SendInvalidate { .. } => {
                let end = match message.operation {
                    Operation::SendImmediate { immediate } if is_last => SendEnd::Immediate(immediate),
                    Operation::SendInvalidate { rkey } if is_last => SendEnd::Invalidate(rkey),
                    _ => SendEnd::Nothing,
                };
                Body::Send { place: whole, end }
            }
            Operation::Write { address, rkey } => {
                let range = is_first.then(|| range(address, rkey, message.length));
                Body::Write { place: whole, range, immediate: None }
            }
            Operation::WriteImmediate { address, rkey, immediate } => {
                let range = is_first.then(|| range(address, rkey, message.length));
                Body::Write { place: whole, range, immediate: is_last.then_some(immediate) }
            }
            Operation::Read { address, rkey } => {
                // A share of the window, so that the next one is already sent when the responses to this one arrive.
                let share = (self.window.packets() / READ_SHARE).min(self.window.burst()).max(1) as u32;
                // The peer repeats only data for which one packet has asked before.
                let before = self.asked.iter().map(|asked| distance(self.next, asked.end)).find(|left| *left > 0);
                packets = before.map_or(left.min(share), |left| left as u32);
                if packets as i32 > space && in_flight > 0 {
                    return None;
                }
                let offset = u64::from(place) * u64::from(mtu);
                let length = (message.length - offset.min(message.length)).min(u64::from(packets) * u64::from(mtu));
                Body::Read(range(address.wrapping_add(offset), rkey, length))
            }
            Operation::CompareSwap { address, rkey, compare, swap } => {
                Body::CompareSwap { address, rkey, compare, swap }
            }
            Operation::FetchAdd { address, rkey, add } => Body::FetchAdd { address, rkey, add },
            Operation::AtomicWrite { address, rkey } => Body::AtomicWrite(range(address, rkey, message.length)),
            Operation::Flush { address, rkey, length, placement, level } => {
                Body::Flush { range: range(address, rkey, length), placement, level }
            }
            Operation::LocalInvalidate { .. } | Operation::Bind => return None,
        };
        let quarter = (self.window.packets() / 4).max(1);
        let after = psn_after(self.next, 1);
        let is_end = after == self.end || message.has_answer();
        let asks = is_last && (is_end || message.is_solicited)
            || space == 1
            || distance(self.last_ask, self.next) >= quarter
            || self.next == self.oldest;
        let packet = Packet {
            asks,
            is_solicited: message.is_solicited && is_last,
            ..self.line.packet(body, message.queue, self.next)
        };
        Some((packet, payload, packets))
    }
}
