//! The requester's side of a reliable connection: which packets it sends, and what the responses mean.
//!
//! Lost packets are sent again from the first one that is missing on (go-back-N), as RoCE requires. This happens if the
//! responder reports a gap, if a response is missing before one that has arrived, or after a time without any
//! acknowledgement. The QP above counts that time: it fails a request whose peer does not respond.

mod answers;
mod message;
mod packet;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::counters::Counters;
use super::line::{Emit, Line};
use super::psn::distance;
use super::spare::Spare;
use super::window::Share;
use crate::wire::message::Reply;
use crate::wire::packet::{MAX_PAYLOAD, Part, psn_after};
use crate::wire::transport::Stuck;
use message::Message;

/// The maximum number of bytes that wait for an acknowledgement or to be sent.
const BUFFER_LIMIT: usize = 2 << 20;
/// A read asks for at most this part of the window in one packet, so that its data does not overrun the receive buffer.
const READ_SHARE: i32 = 2;

/// The maximum number of buffers that are kept for later parts.
const MAX_SPARE: usize = 64;
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
    pub(super) window: Share,
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
    spare: Spare,
    pub(super) counters: Counters,
    /// How many packets were acknowledged.
    pub(super) acknowledged: u64,
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

impl Requests {
    pub(super) fn new(line: Line, max_reads: usize, window: Share) -> Self {
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
            window,
            recovery: None,
            went_back: None,
            timed: None,
            last_ask: 0,
            deadline: None,
            spare: Spare::new(MAX_SPARE),
            counters: Counters::new(),
            acknowledged: 0,
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
        let mut payload = self.spare.take();
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
        let mut space = 0;
        while let Some(message) = self.messages.get(index) {
            let place = distance(message.psn, self.next);
            if place < 0 || place >= message.packets as i32 {
                index += 1;
                continue;
            }
            if space <= 0 {
                space = self.window.space(distance(self.oldest, self.next));
            }
            let Some((packet, payload, packets)) = self.packet(message, place as u32, space) else { break };
            if !emit(&packet, payload) {
                break;
            }
            let is_answered = message.has_answer();
            let after = psn_after(self.next, packets);
            if distance(self.ever_sent, self.next) < 0 {
                self.counters.retransmits += 1;
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
            space -= packets as i32;
            if self.deadline.is_none() {
                self.deadline = Some(now + self.window.timeout());
            }
        }
        self.window.update(distance(self.oldest, self.next));
    }

    /// The number of packets in flight before packets are sent again.
    pub(super) fn in_flight(&self) -> i32 {
        distance(self.oldest, self.sent)
    }

    fn index_of(&self, psn: u32) -> usize {
        // A message of 2^23 packets has no distance from its first PSN to the one after its last.
        let is_before = |message: &Message| distance(message.psn, psn) >= message.packets as i32;
        self.messages.iter().take_while(|message| is_before(message)).count()
    }

    /// Records that the packets before `psn` are acknowledged.
    fn advance(&mut self, psn: u32, now: Instant) {
        let packets = distance(self.oldest, psn);
        if packets <= 0 {
            return;
        }
        self.acknowledged += packets as u64;
        self.window.acknowledged(packets, psn == self.sent);
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
                    self.spare.keep(part);
                }
            }
        }
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
            self.window.lost(self.in_flight());
        }
        self.go_back(psn, now);
        // It may have to wait for its turn.
        self.deadline = None;
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
        self.counters.ack_timeouts += 1;
        self.window.expired(self.in_flight());
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
            self.spare.keep(part);
        }
        if self.messages.is_empty() {
            self.spare.rest(&mut self.messages);
        }
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
