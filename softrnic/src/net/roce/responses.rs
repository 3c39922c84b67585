//! The responder's side of a reliable connection: which packets of the peer are new, and how they are answered.

mod reads;
#[cfg(test)]
pub(super) mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use self::reads::Repeat;
use super::assembly::{Assembly, Current};
use super::counters::Counters;
use super::line::{Emit, Line};
use super::packet::{Acknowledgement, Body, Nak, Packet, Place, Range, Syndrome};
use super::psn::{before, distance};
use super::spare::Spare;
use crate::wire::message::{Refusal, Reply, Request};
use crate::wire::operation::Operation;
use crate::wire::packet::{MAX_NUMBER, Part, Response, ResponseKind, psn_after};
use crate::wire::transport::Stuck;

/// The maximum number of bytes of responses that wait for space in the socket.
const BUFFER_LIMIT: usize = 256 << 10;
/// The maximum number of answers that wait for space in the socket. The QP keeps further replies, and the peer repeats
/// further requests.
const MAX_WAITING: usize = 1024;
/// The maximum number of buffers that are kept for later responses.
const MAX_SPARE: usize = 8;
/// A gap is reported again after this time, because the packets that were sent again may be lost too.
const REPORT_AGAIN: Duration = Duration::from_millis(1);

/// Packets that this host has dropped may be those of a peer that has sent others in this time.
const RECENT: Duration = Duration::from_millis(100);

/// The requests of the peer, and the responses to them.
#[derive(Debug)]
pub(super) struct Responses {
    line: Line,
    /// The number of reads and atomics for which the peer may ask again.
    depth: usize,
    assembly: Assembly,
    /// The PSN of the next packet.
    expected: u32,
    /// When the last packet has arrived.
    arrived: Option<Instant>,
    /// When a gap before `expected` was last reported.
    gap: Option<Instant>,
    /// Whether the packet `expected` was refused for now, so that those after it are dropped.
    is_not_ready: bool,
    /// The number of messages that were executed (MSN).
    messages: u32,
    /// The messages that the QP has not answered yet, oldest first.
    pending: VecDeque<Pending>,
    /// Reads that are answered again.
    repeats: VecDeque<Repeat>,
    /// The last answers with data.
    saved: VecDeque<Saved>,
    /// The packet that was refused for good.
    refused: Option<(u32, Nak)>,
    /// Whether the packet `expected` contradicts the ones before it.
    is_invalid: bool,
    is_acknowledgement_due: bool,
    is_gap_due: bool,
    /// Whether the QP may still be handling the last packet, and so may refuse it.
    is_handling: bool,
    out: VecDeque<Out>,
    buffered: usize,
    /// Buffers that later responses reuse.
    spare: Spare,
    pub(super) counters: Counters,
}

/// A message that was delivered to the QP.
#[derive(Debug)]
struct Pending {
    psn: u32,
    /// The PSN of its last packet.
    last: u32,
    operation: Operation,
    length: u64,
    /// The state before its last packet.
    before: Option<Current>,
    /// How many bytes of a read were sent, and the MSN of the responses with them.
    given: u64,
    messages: u32,
    /// Whether the peer has asked for the data again, so that the rest is not sent.
    is_cut: bool,
}

#[derive(Debug)]
struct Saved {
    psn: u32,
    packets: u32,
    answer: Answer,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Read(Range),
    Atomic { original: u64 },
    Done,
}

/// A response that waits for space in the socket.
#[derive(Debug)]
enum Out {
    Packet(Packet),
    Data(Data),
}

/// Data of a read.
#[derive(Debug)]
struct Data {
    /// The PSN of the first response to the read.
    psn: u32,
    /// The length of the read.
    length: u64,
    /// The MSN of its responses.
    messages: u32,
    /// The offset of the next packet in the data of the read, and in `bytes`.
    at: u64,
    sent: usize,
    bytes: Vec<u8>,
}

/// What happens with a packet of the peer.
#[derive(Debug)]
pub(super) enum Verdict {
    Nothing,
    /// The QP receives a part of a message.
    Part(Part),
    /// The QP sends the data of a read again.
    Again(Part),
}

impl Responses {
    pub(super) fn new(line: Line, psn: u32, depth: usize, number: u32, template: Request) -> Self {
        Self {
            line,
            depth: depth.max(1),
            assembly: Assembly::new(line.mtu, number, template),
            expected: psn & MAX_NUMBER,
            arrived: None,
            gap: None,
            is_not_ready: false,
            messages: 0,
            pending: VecDeque::new(),
            repeats: VecDeque::new(),
            saved: VecDeque::new(),
            refused: None,
            is_invalid: false,
            is_acknowledgement_due: false,
            is_gap_due: false,
            is_handling: false,
            out: VecDeque::new(),
            buffered: 0,
            spare: Spare::new(MAX_SPARE),
            counters: Counters::new(),
        }
    }

    /// Sets the number of reads and atomics for which the peer may ask again.
    pub(super) fn set_depth(&mut self, depth: usize) {
        self.depth = depth.max(1);
    }

    /// Decides about a request packet.
    pub(super) fn arrived(&mut self, packet: &Packet, length: usize, now: Instant) -> Verdict {
        self.arrived = Some(now);
        if let Some((psn, nak)) = self.refused {
            // The refusal may have been lost.
            if packet.asks && distance(psn, packet.psn) >= 0 && self.out.len() < MAX_WAITING {
                self.answer(psn, Syndrome::Nak(nak));
            }
            return Verdict::Nothing;
        }
        match distance(self.expected, packet.psn) {
            0 => {}
            1.. => {
                self.missing(packet, now);
                return Verdict::Nothing;
            }
            _ => return self.again(packet),
        }
        (self.gap, self.is_gap_due, self.is_not_ready) = (None, false, false);
        let current = self.assembly.current();
        let Ok(part) = self.assembly.part(packet, length) else {
            self.is_invalid = true;
            return Verdict::Part(self.assembly.invalid(packet.psn));
        };
        self.assembly.accepted(&part);
        let packets = if matches!(part.request.operation, Operation::Read { .. }) { part.request.packets } else { 1 };
        self.expected = psn_after(packet.psn, packets);
        self.is_acknowledgement_due |= packet.asks;
        self.is_handling = true;
        if self.assembly.current().is_none() {
            let Request { operation, psn, length, .. } = part.request;
            let last = before(self.expected);
            let (before, given, messages, is_cut) = (current, 0, 0, false);
            self.pending.push_back(Pending { psn, last, operation, length, before, given, messages, is_cut });
        }
        Verdict::Part(part)
    }

    /// The QP has handled all packets that have arrived, so they can be acknowledged.
    pub(super) fn handled(&mut self) {
        self.is_handling = false;
    }

    /// Handles a packet that arrives before an earlier one.
    fn missing(&mut self, packet: &Packet, now: Instant) {
        self.counters.out_of_sequence += 1;
        let is_new = match self.gap {
            None => true,
            Some(reported) => packet.asks && now.saturating_duration_since(reported) >= REPORT_AGAIN,
        };
        if is_new && !self.is_not_ready {
            (self.gap, self.is_gap_due) = (Some(now), true);
        }
    }

    /// Reports a gap after the last packet of a peer that has sent something recently. A peer that has sent nothing else
    /// ignores the report. Returns whether there is something to send.
    pub(super) fn has_lost_packets(&mut self, now: Instant) -> bool {
        let is_recent = self.arrived.is_some_and(|last| now.saturating_duration_since(last) < RECENT);
        let is_expecting = is_recent && self.gap.is_none() && !self.is_not_ready && self.refused.is_none();
        if is_expecting {
            (self.gap, self.is_gap_due) = (Some(now), true);
        }
        is_expecting
    }

    /// Handles a packet that has arrived before.
    fn again(&mut self, packet: &Packet) -> Verdict {
        self.counters.duplicate_requests += 1;
        let psn = packet.psn;
        match packet.body {
            Body::Read(range) => {
                // The part is that of a whole message, which the assembly does not expect now.
                let current = self.assembly.current();
                self.assembly.set_current(None);
                let part = self.assembly.part(packet, 0);
                self.assembly.set_current(current);
                if let Ok(part) = part
                    && self.repeat(psn, part.request.packets, range)
                {
                    return Verdict::Again(part);
                }
            }
            Body::CompareSwap { .. } | Body::FetchAdd { .. } | Body::AtomicWrite(_) | Body::Flush { .. } => {
                let saved = self.saved.iter().find(|saved| saved.psn == psn);
                if let Some(saved) = saved.filter(|_| self.out.len() < MAX_WAITING) {
                    let answer = saved.answer;
                    self.conclude(psn, answer);
                }
            }
            _ => self.is_acknowledgement_due = true,
        }
        Verdict::Nothing
    }

    /// Handles a response of the QP. `read` appends its payload.
    pub(super) fn respond(
        &mut self,
        response: &Response,
        read: impl FnOnce(&mut Vec<u8>) -> Result<(), Stuck>,
    ) -> Result<(), Stuck> {
        match response.kind {
            ResponseKind::Data { offset, .. } => self.give(response.psn, offset, read),
            ResponseKind::Reply(_) if self.out.len() >= MAX_WAITING => Err(Stuck::Full),
            ResponseKind::Reply(reply) => {
                self.replied(response.psn, reply);
                Ok(())
            }
        }
    }

    fn data(&self, place: Place) -> Body {
        let acknowledgement = (place != Place::Middle).then(|| self.acknowledgement(Syndrome::Ack));
        Body::ReadResponse { place, acknowledgement }
    }

    /// Handles the reply of the QP to the message with this PSN.
    fn replied(&mut self, psn: u32, reply: Reply) {
        match reply {
            Reply::Done { original } => self.done(psn, original),
            Reply::NotReady { timer } => {
                if let Some(restart) = self.return_to(psn) {
                    self.counters.rnr_nak_sent += 1;
                    self.is_not_ready = true;
                    self.answer(restart, Syndrome::NotReady(timer));
                }
            }
            Reply::Refused(refusal) => {
                let nak = match refusal {
                    Refusal::InvalidRequest => Nak::InvalidRequest,
                    Refusal::AccessError(_) => Nak::RemoteAccess,
                    Refusal::OperationError => Nak::RemoteOperation,
                };
                self.repeats.retain(|repeat| repeat.psn != psn);
                let failed = self.pending.iter().find(|pending| pending.psn == psn).map(|pending| {
                    let is_read = matches!(pending.operation, Operation::Read { .. });
                    let given = (pending.given / u64::from(self.line.mtu)) as u32;
                    if is_read { psn_after(psn, given) } else { pending.last }
                });
                let last = if self.is_invalid { self.expected } else { before(self.expected) };
                self.refuse(failed.unwrap_or(last), nak);
            }
            // The QP has ignored the message, as if it had not arrived.
            Reply::Silence | Reply::LocalFault | Reply::BadResponse => _ = self.return_to(psn),
        }
    }

    fn done(&mut self, psn: u32, original: u64) {
        let place = self.pending.iter().position(|pending| pending.psn == psn);
        let Some(pending) = place.and_then(|place| self.pending.remove(place)) else {
            if let Some(Repeat { length: 0, .. }) = self.repeated(psn) {
                self.put(psn, self.data(Place::Only));
            }
            return;
        };
        if pending.given == 0 {
            self.messages = psn_after(self.messages, 1);
        }
        let packets = pending.packets();
        let answer = match pending.operation {
            Operation::Read { address, rkey } => {
                // The conversion is lossless, because a read has at most 2 GiB.
                let range = Range { address, rkey, length: pending.length as u32 };
                if pending.length == 0 && !pending.is_cut {
                    self.put(psn, self.data(Place::Only));
                }
                Answer::Read(range)
            }
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => Answer::Atomic { original },
            Operation::AtomicWrite { .. } | Operation::Flush { .. } => Answer::Done,
            _ => return,
        };
        self.conclude(psn, answer);
        if self.saved.len() >= self.depth {
            self.saved.pop_front();
        }
        self.saved.push_back(Saved { psn, packets, answer });
    }

    /// Sends the answer to a request that is neither acknowledged nor a read.
    fn conclude(&mut self, psn: u32, answer: Answer) {
        let body = match answer {
            Answer::Read(_) => return,
            Answer::Atomic { original } => {
                Body::AtomicAcknowledge { acknowledgement: self.acknowledgement(Syndrome::Ack), original }
            }
            Answer::Done => self.data(Place::Only),
        };
        self.put(psn, body);
    }

    /// Forgets the message with this PSN, so that the peer sends it again. Returns the PSN from which it does.
    fn return_to(&mut self, psn: u32) -> Option<u32> {
        let restart = match self.pending.iter().position(|pending| pending.psn == psn) {
            Some(place) => {
                let pending = self.pending.drain(place..).next()?;
                // The data of a write was received, and only its receive is missing.
                let is_placed = matches!(pending.operation, Operation::WriteImmediate { .. });
                let before = pending.before.filter(|_| is_placed);
                self.assembly.set_current(before);
                if before.is_some() { pending.last } else { psn }
            }
            None if self.assembly.current().is_some_and(|current| current.psn == psn) => {
                self.assembly.set_current(None);
                psn
            }
            None => {
                self.repeated(psn);
                return None;
            }
        };
        self.expected = restart;
        // The packet that has requested an acknowledgement arrives again. What precedes the restart is acknowledged by
        // an RNR NAK, or together with it.
        (self.is_acknowledgement_due, self.is_gap_due) = (false, false);
        Some(restart)
    }

    /// Refuses the packet with this PSN, and all later ones.
    pub(super) fn refuse(&mut self, psn: u32, nak: Nak) {
        self.refused = Some((psn, nak));
        self.pending.clear();
        self.answer(psn, Syndrome::Nak(nak));
    }

    /// Whether a packet was refused for good.
    pub(super) fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    fn acknowledgement(&self, syndrome: Syndrome) -> Acknowledgement {
        Acknowledgement { syndrome, messages: self.messages }
    }

    fn answer(&mut self, psn: u32, syndrome: Syndrome) {
        self.put(psn, Body::Acknowledge(self.acknowledgement(syndrome)));
    }

    fn put(&mut self, psn: u32, body: Body) {
        self.out.push_back(Out::Packet(self.line.packet(body, 0, psn)));
    }

    /// Whether the QP may send more responses.
    pub(super) fn has_space(&self) -> bool {
        self.buffered < BUFFER_LIMIT / 2 && self.out.len() < MAX_WAITING / 2
    }

    /// Sends what waits.
    pub(super) fn send(&mut self, emit: &mut Emit<'_>) {
        while let Some(out) = self.out.front_mut() {
            match out {
                Out::Packet(packet) => {
                    if !emit(packet, &[]) {
                        return;
                    }
                }
                Out::Data(data) => {
                    let mtu = self.line.mtu as usize;
                    while let Some(payload) = data.bytes.get(data.sent..).filter(|left| !left.is_empty()) {
                        let payload = &payload[..payload.len().min(mtu)];
                        let end = data.at + payload.len() as u64;
                        let place = Place::new(data.at == 0, end >= data.length);
                        let acknowledgement = Acknowledgement { syndrome: Syndrome::Ack, messages: data.messages };
                        let acknowledgement = (place != Place::Middle).then_some(acknowledgement);
                        let psn = psn_after(data.psn, (data.at / mtu as u64) as u32);
                        let packet = self.line.packet(Body::ReadResponse { place, acknowledgement }, 0, psn);
                        if !emit(&packet, payload) {
                            return;
                        }
                        (data.at, data.sent) = (end, data.sent + payload.len());
                        self.buffered -= payload.len();
                    }
                    self.spare.keep(std::mem::take(&mut data.bytes));
                }
            }
            self.out.pop_front();
        }
        if self.pending.is_empty() && self.repeats.is_empty() {
            self.spare.rest(&mut self.out);
        }
        if !self.is_settled() {
            return;
        }
        // The report of a gap also acknowledges what precedes it.
        let (psn, syndrome) = match (self.is_gap_due, self.is_acknowledgement_due) {
            (true, _) => (self.expected, Syndrome::Nak(Nak::Sequence)),
            (false, true) => (before(self.expected), Syndrome::Ack),
            (false, false) => return,
        };
        let acknowledgement = Body::Acknowledge(self.acknowledgement(syndrome));
        if emit(&self.line.packet(acknowledgement, 0, psn), &[]) {
            (self.is_acknowledgement_due, self.is_gap_due) = (false, false);
        }
    }

    /// Whether all packets so far can be acknowledged. The responses to reads come before an acknowledgement of later
    /// packets. If the QP refused a packet that was acknowledged, the peer would ignore that.
    fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.repeats.is_empty() && !self.is_handling && self.refused.is_none()
    }

    /// Whether there is something to send.
    pub(super) fn is_waiting(&self) -> bool {
        !self.out.is_empty() || (self.is_acknowledgement_due || self.is_gap_due) && self.is_settled()
    }
}

impl Pending {
    fn packets(&self) -> u32 {
        // The conversion is lossless, because the last packet is not before the first one.
        distance(self.psn, self.last) as u32 + 1
    }
}
