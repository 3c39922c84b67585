//! What the packets of the responder mean.

use std::time::Instant;

use super::{Answer, Requests};
use crate::net::roce::packet::{Acknowledgement, Body, Nak, Packet, Syndrome};
use crate::net::roce::psn::{before, distance};
use crate::wire::bytes::Fault;
use crate::wire::message::{Refusal, Reply};
use crate::wire::operation::Operation;
use crate::wire::packet::psn_after;

impl Requests {
    /// The first message that the peer must answer itself and has not, from the oldest PSN on.
    fn unanswered(&self) -> Option<usize> {
        self.messages.iter().position(|message| message.has_answer() && message.reply.is_none())
    }

    /// Handles a packet of the responder.
    pub(in crate::net::roce) fn answered(&mut self, packet: &Packet, length: usize, now: Instant) -> Answer {
        match packet.body {
            Body::Acknowledge(acknowledgement) => self.acknowledged(packet.psn, acknowledgement, now),
            Body::AtomicAcknowledge { acknowledgement, original } => {
                if acknowledgement.syndrome != Syndrome::Ack {
                    self.acknowledged(packet.psn, acknowledgement, now);
                } else if let Some(index) = self.expects(packet.psn, now) {
                    let message = &mut self.messages[index];
                    let is_atomic = message.operation.is_atomic();
                    message.reply = Some(if is_atomic { Reply::Done { original } } else { Reply::BadResponse });
                    self.advance(psn_after(packet.psn, 1), now);
                }
            }
            Body::ReadResponse { acknowledgement, .. } => {
                if let Some(acknowledgement) = acknowledgement.filter(|found| found.syndrome != Syndrome::Ack) {
                    self.acknowledged(packet.psn, acknowledgement, now);
                } else {
                    return self.read(packet.psn, length, now);
                }
            }
            _ => {}
        }
        Answer::Nothing
    }

    /// Handles a response to a read or to another request without an acknowledgement of its own.
    fn read(&mut self, psn: u32, length: usize, now: Instant) -> Answer {
        let Some(index) = self.expects(psn, now) else { return Answer::Nothing };
        let mtu = u64::from(self.line.mtu);
        let message = &mut self.messages[index];
        let place = distance(message.psn, psn) as u64;
        let is_last = place + 1 == u64::from(message.packets);
        let (is_read, offset) = (matches!(message.operation, Operation::Read { .. }), place * mtu);
        let expected = if is_read { (message.length - offset.min(message.length)).min(mtu) } else { 0 };
        let (first, attempt) = (message.psn, message.attempt);
        if message.operation.is_atomic() || expected != length as u64 {
            message.reply = Some(Reply::BadResponse);
            return Answer::Nothing;
        }
        if is_last {
            message.reply = Some(Reply::Done { original: 0 });
        }
        self.advance(psn_after(psn, 1), now);
        match is_read {
            true => Answer::Data { psn: first, attempt, offset },
            false => Answer::Nothing,
        }
    }

    /// Returns the message to which the next response belongs, if it is the one with this PSN. If an earlier one is
    /// missing, goes back to it.
    fn expects(&mut self, psn: u32, now: Instant) -> Option<usize> {
        let index = self.unanswered()?;
        let first = self.messages[index].psn;
        let expected = if distance(first, self.oldest) > 0 { self.oldest } else { first };
        match distance(expected, psn) {
            0 if distance(psn, self.sent) > 0 => {
                self.advance(expected, now);
                Some(index)
            }
            // A response to a later packet: an earlier one was lost.
            1.. if distance(psn, self.sent) > 0 => {
                self.advance(expected, now);
                self.lost(expected, false, now);
                None
            }
            _ => None,
        }
    }

    /// Handles an acknowledgement, or a negative one.
    fn acknowledged(&mut self, mut psn: u32, mut acknowledgement: Acknowledgement, now: Instant) {
        // An acknowledgement may repeat the last one, but a responder refuses only packets that it has not acknowledged,
        // and answers only packets that were sent. It may already have received those that are sent again in this attempt.
        let first = if acknowledgement.syndrome == Syndrome::Ack { -1 } else { 0 };
        if distance(self.oldest, psn) < first || distance(psn, self.ever_sent) < 1 {
            return;
        }
        if distance(psn, self.sent) < 1 {
            psn = before(self.sent);
            acknowledgement.syndrome = Syndrome::Ack;
        }
        // The first responses to a read may have arrived.
        let missing = self.unanswered().map(|index| self.messages[index].psn);
        let missing = missing.map(|first| if distance(first, self.oldest) > 0 { self.oldest } else { first });
        let until = |end: u32| match missing {
            Some(missing) if distance(missing, end) > 0 => (missing, true),
            _ => (end, false),
        };
        match acknowledgement.syndrome {
            Syndrome::Ack => {
                let (end, is_missing) = until(psn_after(psn, 1));
                self.advance(end, now);
                // The responder has answered a read, and the answer was lost.
                if is_missing {
                    self.lost(self.oldest, false, now);
                }
            }
            Syndrome::Nak(Nak::Sequence) => {
                self.counters.sequence_naks += 1;
                let (end, _) = until(psn);
                self.advance(end, now);
                self.lost(self.oldest, true, now);
            }
            Syndrome::NotReady(timer) => {
                self.counters.rnr_nak_received += 1;
                self.failed(psn, Reply::NotReady { timer }, until(psn), now);
            }
            Syndrome::Nak(nak) => self.failed(psn, Reply::Refused(refusal(nak)), until(psn), now),
        }
    }

    /// The responder has refused the message with the packet `psn`, or has no receive for it.
    fn failed(&mut self, psn: u32, reply: Reply, (end, is_missing): (u32, bool), now: Instant) {
        self.advance(end, now);
        // What precedes the message must be answered first.
        if is_missing {
            return self.lost(self.oldest, false, now);
        }
        let index = self.index_of(psn);
        if let Some(message) = self.messages.get_mut(index).filter(|message| message.reply.is_none()) {
            message.reply = Some(reply);
        }
    }
}

fn refusal(nak: Nak) -> Refusal {
    match nak {
        // The responder does not say which of its checks has failed.
        Nak::RemoteAccess => Refusal::AccessError(Fault::Rights),
        Nak::RemoteOperation => Refusal::OperationError,
        Nak::Sequence | Nak::InvalidRequest | Nak::InvalidDatagram => Refusal::InvalidRequest,
    }
}
