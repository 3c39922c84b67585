//! The requester's side of a reliable connection: which packets it sends, and what the responses mean.
//!
//! Lost packets are sent again from the first one that is missing on (go-back-N), as RoCE requires. This happens if the
//! responder reports a gap, if a response is missing before one that has arrived, or after a time without any
//! acknowledgement. The QP above counts that time: it fails a request whose peer does not respond.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::line::{Emit, Line};
use super::packet::{Acknowledgement, Body, Nak, Packet, Place, Range, SendEnd, Syndrome};
use super::psn::{before, distance};
use super::window::Window;
use crate::wire::bytes::Fault;
use crate::wire::message::{Refusal, Reply};
use crate::wire::operation::Operation;
use crate::wire::packet::{MAX_PAYLOAD, Part, psn_after};
use crate::wire::transport::Stuck;

/// The maximum number of bytes that wait for an acknowledgement or to be sent.
const BUFFER_LIMIT: usize = 2 << 20;
/// A read asks for at most this part of the window in one packet, so that its data does not overrun the receive buffer.
const READ_SHARE: i32 = 2;

/// Reports of a loss within this time are one.
const REPORT: Duration = Duration::from_micros(500);

/// The requests of the QP that are not finished.
#[derive(Debug)]
pub(super) struct Requests {
    line: Line,
    /// The maximum number of reads, atomics and other requests with a response of their own in flight.
    max_reads: usize,
    /// The oldest PSN that is not acknowledged.
    oldest: u32,
    /// The PSN of the next packet to send.
    next: u32,
    /// The PSN after the last packet that was sent in this attempt of the QP, and in any attempt.
    sent: u32,
    ever_sent: u32,
    /// The PSN after the last message.
    end: u32,
    messages: VecDeque<Message>,
    /// The bytes of the messages.
    buffered: usize,
    /// The requests with responses of their own that were sent and are not answered, oldest first.
    asked: VecDeque<Asked>,
    /// The attempt that the QP has abandoned. Parts that belong to it are dropped.
    abandoned: Option<u32>,
    pub(super) window: Window,
    /// The PSN after the last packet that was sent before the last loss. A loss before it is not a new one.
    recovery: Option<u32>,
    /// When packets were last sent again from the oldest one on, and this PSN.
    went_back: Option<(u32, Instant)>,
    /// The packet whose round trip is measured: its PSN, and when it was sent.
    timed: Option<(u32, Instant)>,
    /// The PSN of the last packet with AckReq.
    last_ask: u32,
    /// When packets are sent again without an acknowledgement.
    deadline: Option<Instant>,
    /// Buffers that later parts reuse.
    spare: Vec<Vec<u8>>,
    /// How many packets were sent again.
    pub(super) retransmitted: u64,
}

/// A message of the QP.
#[derive(Debug)]
struct Message {
    psn: u32,
    packets: u32,
    attempt: u32,
    operation: Operation,
    is_solicited: bool,
    queue: u32,
    length: u64,
    /// The parts that the QP has passed so far. All have [`MAX_PAYLOAD`] bytes except for the last one.
    parts: VecDeque<Vec<u8>>,
    /// The number of parts that were removed because they are acknowledged.
    removed: usize,
    /// The number of bytes that the QP has passed so far.
    passed: u64,
    /// The answer, if the message needs one of its own and it has arrived.
    reply: Option<Reply>,
}

/// A request with responses of its own.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The PSN after its last response.
    end: u32,
    /// Whether it was sent since packets were last sent again.
    is_in_flight: bool,
}

/// What a packet from the responder means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing for the QP, except for the messages that are now finished.
    Nothing,
    /// The payload is data of a read.
    Data { psn: u32, attempt: u32, offset: u64 },
}

impl Message {
    fn end(&self) -> u32 {
        psn_after(self.psn, self.packets)
    }

    /// Whether the peer responds to the message itself, instead of acknowledging it.
    fn has_answer(&self) -> bool {
        is_answered(self.operation)
    }

    /// The payload of the packet at this index, if the QP has passed it.
    fn payload(&self, index: u32, mtu: u32) -> Option<&[u8]> {
        if !self.operation.has_data() || self.length == 0 {
            return Some(&[]);
        }
        let start = u64::from(index) * u64::from(mtu);
        let end = (start + u64::from(mtu)).min(self.length);
        if end > self.passed {
            return None;
        }
        let part = (start / u64::from(MAX_PAYLOAD)) as usize;
        let from = (start % u64::from(MAX_PAYLOAD)) as usize;
        self.parts.get(part.checked_sub(self.removed)?)?.get(from..from + (end - start) as usize)
    }
}

fn is_answered(operation: Operation) -> bool {
    operation.is_read_or_atomic() || matches!(operation, Operation::AtomicWrite { .. } | Operation::Flush { .. })
}

impl Requests {
    pub(super) fn new(line: Line, max_reads: usize) -> Self {
        Self {
            line,
            max_reads: max_reads.max(1),
            oldest: 0,
            next: 0,
            sent: 0,
            ever_sent: 0,
            end: 0,
            messages: VecDeque::new(),
            buffered: 0,
            asked: VecDeque::new(),
            abandoned: None,
            window: Window::new(line.mtu),
            recovery: None,
            went_back: None,
            timed: None,
            last_ask: 0,
            deadline: None,
            spare: Vec::new(),
            retransmitted: 0,
        }
    }

    /// Sets the maximum number of reads in flight.
    pub(super) fn set_max_reads(&mut self, max_reads: usize) {
        self.max_reads = max_reads.max(1);
    }

    /// Whether a part of the QP has space.
    pub(super) fn has_space(&self) -> bool {
        self.buffered < BUFFER_LIMIT
    }

    /// Adds a part of a message. `read` copies its payload.
    pub(super) fn add(
        &mut self,
        part: &Part,
        read: impl FnOnce(&mut Vec<u8>) -> Result<(), Stuck>,
    ) -> Result<(), Stuck> {
        if self.abandoned == Some(part.attempt) {
            return Ok(());
        }
        if !self.has_space() && part.length > 0 {
            return Err(Stuck::Full);
        }
        let request = &part.request;
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        read(&mut payload)?;
        self.buffered += payload.len();
        if part.offset == 0 {
            if self.messages.is_empty() && request.psn != self.end {
                let psn = request.psn;
                (self.oldest, self.next, self.sent, self.ever_sent, self.end) = (psn, psn, psn, psn, psn);
            }
            self.messages.push_back(Message {
                psn: request.psn,
                packets: request.packets,
                attempt: part.attempt,
                operation: request.operation,
                is_solicited: request.is_solicited,
                queue: request.srq_number,
                length: request.length,
                parts: VecDeque::new(),
                removed: 0,
                passed: 0,
                reply: None,
            });
            self.end = psn_after(request.psn, request.packets);
        }
        if let Some(message) = self.messages.back_mut() {
            message.passed += payload.len() as u64;
            message.parts.push_back(payload);
        }
        Ok(())
    }

    /// Sends the packets for which the window has space.
    pub(super) fn send(&mut self, now: Instant, emit: &mut Emit<'_>) {
        let mut index = self.index_of(self.next);
        while let Some(message) = self.messages.get(index) {
            let (place, end) = (distance(message.psn, self.next), message.end());
            if place < 0 || distance(self.next, end) <= 0 {
                index += 1;
                continue;
            }
            let space = self.window.packets() - distance(self.oldest, self.next);
            let Some((packet, payload, packets)) = self.packet(message, place as u32, space) else { break };
            if !emit(&packet, payload) {
                break;
            }
            let is_answered = message.has_answer();
            let after = psn_after(self.next, packets);
            if distance(self.ever_sent, self.next) < 0 {
                self.retransmitted += 1;
            } else if self.timed.is_none() && packet.asks {
                self.timed = Some((packet.psn, now));
            }
            if is_answered {
                match self.asked.iter_mut().find(|asked| distance(self.next, asked.end) > 0) {
                    Some(asked) => asked.is_in_flight = true,
                    None => self.asked.push_back(Asked { end: after, is_in_flight: true }),
                }
            }
            if packet.asks {
                self.last_ask = packet.psn;
            }
            if distance(self.sent, after) > 0 {
                self.sent = after;
            }
            if distance(self.ever_sent, after) > 0 {
                self.ever_sent = after;
            }
            self.next = after;
            if self.deadline.is_none() {
                self.deadline = Some(now + self.window.timeout());
            }
        }
    }

    /// Returns the packet at this place of a message, its payload, and the number of PSNs that it takes. `space` is the
    /// number of PSNs for which the window has space.
    fn packet<'m>(&self, message: &'m Message, place: u32, space: i32) -> Option<(Packet, &'m [u8], u32)> {
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
                let share = (self.window.packets() / READ_SHARE).max(1) as u32;
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

    fn index_of(&self, psn: u32) -> usize {
        let is_before = |message: &Message| distance(psn, message.end()) <= 0;
        self.messages.iter().take_while(|message| is_before(message)).count()
    }

    /// The first message that the peer must answer itself and has not, from the oldest PSN on.
    fn unanswered(&self) -> Option<usize> {
        self.messages.iter().position(|message| message.has_answer() && message.reply.is_none())
    }

    /// Handles a packet of the responder.
    pub(super) fn answered(&mut self, packet: &Packet, length: usize, now: Instant) -> Answer {
        match packet.body {
            Body::Acknowledge(acknowledgement) => self.acknowledged(packet.psn, acknowledgement, now),
            Body::AtomicAcknowledge { acknowledgement, original } => {
                if acknowledgement.syndrome != Syndrome::Ack {
                    self.acknowledged(packet.psn, acknowledgement, now);
                } else if let Some(index) = self.expects(packet.psn, now) {
                    let message = &mut self.messages[index];
                    let is_atomic = message.operation.is_atomic();
                    message.reply = Some(if is_atomic { Reply::Done { original } } else { INVALID });
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
            message.reply = Some(INVALID);
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
                let (end, _) = until(psn);
                self.advance(end, now);
                self.lost(self.oldest, true, now);
            }
            Syndrome::NotReady(timer) => self.failed(psn, Reply::NotReady { timer }, until(psn), now),
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

    /// Records that the packets before `psn` are acknowledged.
    fn advance(&mut self, psn: u32, now: Instant) {
        let packets = distance(self.oldest, psn);
        if packets <= 0 {
            return;
        }
        let is_full = distance(self.oldest, self.sent) + 1 >= self.window.packets() / 2;
        self.window.acknowledged(packets, is_full);
        if let Some((timed, at)) = self.timed.filter(|(timed, _)| distance(*timed, psn) > 0) {
            self.timed = None;
            if self.recovery.is_none_or(|recovery| distance(recovery, timed) >= 0) {
                self.window.measured(now.saturating_duration_since(at));
            }
        }
        if self.recovery.is_some_and(|recovery| distance(recovery, psn) >= 0) {
            self.recovery = None;
        }
        self.oldest = psn;
        if distance(self.next, psn) > 0 {
            self.next = psn;
        }
        if distance(self.last_ask, psn) > 0 {
            self.last_ask = psn;
        }
        while self.asked.front().is_some_and(|asked| distance(asked.end, psn) >= 0) {
            self.asked.pop_front();
        }
        self.deadline = (self.oldest != self.next).then(|| now + self.window.timeout());
        self.free();
    }

    /// Frees the acknowledged parts of the oldest unfinished message.
    fn free(&mut self) {
        let mtu = u64::from(self.line.mtu);
        let per_part = u64::from(MAX_PAYLOAD) / mtu;
        for message in &mut self.messages {
            let acknowledged = distance(message.psn, self.oldest);
            if acknowledged <= 0 {
                break;
            }
            let whole = (acknowledged as u64 / per_part) as usize;
            while message.removed < whole && !message.parts.is_empty() {
                message.removed += 1;
                if let Some(part) = message.parts.pop_front() {
                    self.buffered -= part.len();
                    self.spare.push(part);
                }
            }
        }
        self.spare.truncate(64);
    }

    /// Handles the loss of the packet `psn` or of the response to it: sends all packets from it on again, once. If they
    /// are lost again, the responder reports this later, or no acknowledgement arrives in time.
    fn lost(&mut self, psn: u32, is_reported: bool, now: Instant) {
        let is_again = self.went_back.is_some_and(|(last, at)| {
            let is_early = now.saturating_duration_since(at) < self.window.round_trip().max(REPORT);
            last == psn && (is_early || !is_reported)
        });
        if is_again || distance(psn, self.next) <= 0 {
            return;
        }
        if self.recovery.is_none() {
            self.window.lost();
        }
        self.go_back(psn, now);
    }

    fn go_back(&mut self, psn: u32, now: Instant) {
        self.recovery = Some(self.sent);
        self.went_back = Some((psn, now));
        self.timed = None;
        self.next = psn;
        self.last_ask = psn;
        self.asked.iter_mut().for_each(|asked| asked.is_in_flight = false);
    }

    /// When [`expired`](Self::expired) must be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Sends packets again if no acknowledgement has arrived in time.
    pub(super) fn expired(&mut self, now: Instant) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        if self.messages.is_empty() {
            self.deadline = None;
            return;
        }
        self.window.expired();
        self.go_back(self.oldest, now);
        self.deadline = Some(now + self.window.timeout());
    }

    /// Takes the oldest message if it is finished: its PSN, its attempt and its reply. After a reply that is not
    /// [`Reply::Done`], all later messages are abandoned.
    pub(super) fn finished(&mut self) -> Option<(u32, u32, Reply)> {
        let message = self.messages.front()?;
        let (psn, attempt, end) = (message.psn, message.attempt, message.end());
        let is_acknowledged = distance(end, self.oldest) >= 0;
        match message.reply {
            Some(reply @ Reply::Done { .. }) if is_acknowledged => self.remove(psn, attempt, reply),
            Some(Reply::Done { .. }) => None,
            Some(reply) => {
                self.abandon(attempt);
                Some((psn, attempt, reply))
            }
            None if is_acknowledged && !message.has_answer() => self.remove(psn, attempt, Reply::Done { original: 0 }),
            None => None,
        }
    }

    fn remove(&mut self, psn: u32, attempt: u32, reply: Reply) -> Option<(u32, u32, Reply)> {
        let message = self.messages.pop_front()?;
        for part in message.parts {
            self.buffered -= part.len();
            self.spare.push(part);
        }
        self.spare.truncate(64);
        Some((psn, attempt, reply))
    }

    /// Drops all messages. The QP sends them again, in a new attempt.
    fn abandon(&mut self, attempt: u32) {
        self.end = self.messages.front().map_or(self.end, |message| message.psn);
        self.messages.clear();
        self.asked.iter_mut().for_each(|asked| asked.is_in_flight = false);
        self.buffered = 0;
        self.abandoned = Some(attempt);
        (self.timed, self.deadline, self.recovery, self.went_back) = (None, None, None, None);
        (self.next, self.sent) = (self.oldest, self.oldest);
        self.last_ask = self.oldest;
    }

    /// The state in a few words.
    #[cfg(test)]
    pub(super) fn summary(&self) -> String {
        let messages = self.messages.iter().map(|message| {
            let Message { psn, packets, operation, passed, removed, reply, .. } = message;
            format!("  {psn}+{packets} {operation:?} passed {passed} removed {removed} {reply:?}\n")
        });
        format!(
            "oldest {} next {} sent {} ever {} end {} window {:?} asked {:?} recovery {:?} deadline {:?}\n{}",
            self.oldest,
            self.next,
            self.sent,
            self.ever_sent,
            self.end,
            self.window,
            self.asked,
            self.recovery,
            self.deadline,
            messages.collect::<String>()
        )
    }

    /// Whether the acknowledged messages that need an answer have one.
    #[cfg(test)]
    pub(super) fn is_sound(&self) -> bool {
        let lacks = |message: &Message| message.has_answer() && message.reply.is_none();
        !self.messages.iter().any(|message| lacks(message) && distance(message.end(), self.oldest) >= 0)
    }
}

/// The reply to a request whose response contradicts it.
const INVALID: Reply = Reply::Refused(Refusal::InvalidRequest);

fn refusal(nak: Nak) -> Refusal {
    match nak {
        // The responder does not say which of its checks has failed.
        Nak::RemoteAccess => Refusal::AccessError(Fault::Rights),
        Nak::RemoteOperation => Refusal::OperationError,
        Nak::Sequence | Nak::InvalidRequest | Nak::InvalidDatagram => Refusal::InvalidRequest,
    }
}
