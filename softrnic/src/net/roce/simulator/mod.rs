//! Simulates both ends of a reliable connection, with a network between them that loses, repeats, delays and reorders
//! packets, and QPs whose receives are sometimes missing.

mod crowd;
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::line::Line;
use super::packet::{Body, Packet};
use super::requests::{Answer, Requests};
use super::responses::tests::template;
use super::responses::{Responses, Verdict};
use super::run::{Run, Target};
use super::window::Share;
use crate::wire::bytes::{Segment, append_bytes};
use crate::wire::message::{Refusal, Reply, Request, UNKNOWN_LENGTH};
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{MAX_PAYLOAD, Part, Response, ResponseKind, packet_count, psn_after};
use crate::wire::transport::Stuck;

/// How the network treats packets, in thousandths, and the time that it takes.
#[derive(Clone, Copy, Debug)]
struct Network {
    loss: u32,
    repeat: u32,
    reorder: u32,
    delay: Duration,
    /// Receives that are missing, in thousandths of the messages that need one.
    unready: u32,
    /// How often the receiver believes that it has dropped packets.
    overflow: u32,
    /// How often a QP is late with its responses to reads, and its socket takes few packets.
    late: u32,
}

const PERFECT: Network =
    Network { loss: 0, repeat: 0, reorder: 0, delay: Duration::from_micros(10), unready: 0, overflow: 0, late: 0 };

/// A packet in flight to the end `to`.
#[derive(Debug)]
struct OnItsWay {
    at: Instant,
    order: u64,
    to: usize,
    packet: Packet,
    payload: Vec<u8>,
}

/// A QP, as its connection sees it.
#[derive(Debug)]
struct End {
    mtu: u32,
    requests: Requests,
    responses: Responses,
    works: Vec<(Operation, u64)>,
    /// The first works that have completed, that are in flight, and the bytes of the next one that were passed.
    completed: usize,
    posted: usize,
    passed: u64,
    psn: u32,
    /// The PSNs of the works in flight.
    psns: VecDeque<u32>,
    attempt: u32,
    not_before: Instant,
    /// What the program has seen: messages, and data of reads.
    received: Vec<Vec<u8>>,
    read: Vec<Vec<u8>>,
    reading: Vec<u8>,
    originals: Vec<u64>,
    failure: Option<Refusal>,
    /// The memory that the peer accesses, and the word on which its atomics operate.
    memory: Vec<u8>,
    word: u64,
    /// The PSN of the next message of the peer, and the message of which not all parts have arrived.
    expected: u32,
    message: Option<Request>,
    arriving: Vec<u8>,
    has_receive: bool,
    /// What the QP has not sent yet, in order.
    answers: VecDeque<Waiting>,
    /// Whether a message without a receive has no RNR NAK yet, so that the QP accepts none after it.
    is_refusing: bool,
}

/// A response that waits in the QP.
#[derive(Debug)]
enum Waiting {
    /// A read, with the number of bytes that were sent.
    Read(Part, u64),
    Reply(Part, Reply),
}

/// The addresses of the peer's memory begin here.
const BASE: u64 = 0x1000_0000;
const RKEY: u32 = 7;
const MEMORY: usize = 300_000;

fn data(work: usize, length: u64) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ work as u8).collect()
}

/// Copies a payload, as a carrier does.
fn read(payload: &[u8], to: &mut Vec<u8>) -> Result<(), Stuck> {
    to.extend_from_slice(payload);
    Ok(())
}

impl End {
    fn new(mtu: u32, psn: u32, peer_psn: u32, depth: usize, works: Vec<(Operation, u64)>, now: Instant) -> Self {
        let line = Line { mtu, service: Service::ReliableConnection, destination: 9 };
        Self {
            mtu,
            requests: Requests::new(line, depth, Share::alone(mtu)),
            responses: Responses::new(line, peer_psn, depth, 9, template(9)),
            works,
            completed: 0,
            posted: 0,
            passed: 0,
            psn,
            psns: VecDeque::new(),
            attempt: 1,
            not_before: now,
            received: Vec::new(),
            read: Vec::new(),
            reading: Vec::new(),
            originals: Vec::new(),
            failure: None,
            memory: (0..MEMORY).map(|at| ((at * 7) >> 2) as u8).collect(),
            word: 0,
            expected: peer_psn,
            message: None,
            arriving: Vec::new(),
            has_receive: false,
            answers: VecDeque::new(),
            is_refusing: false,
        }
    }

    /// Passes the parts for which the connection has space, as a requester does.
    fn post(&mut self, now: Instant, depth: usize) {
        while self.failure.is_none() && now >= self.not_before && self.posted < self.works.len() {
            let (operation, length) = self.works[self.posted];
            let in_flight = &self.works[self.completed..self.posted];
            let reads = in_flight.iter().filter(|(operation, _)| operation.is_read_or_atomic()).count();
            if self.passed == 0 && operation.is_read_or_atomic() && reads >= depth {
                return;
            }
            let packets = packet_count(length, self.mtu);
            let total = if operation.has_data() { length } else { 0 };
            let bytes = (total - self.passed).min(u64::from(MAX_PAYLOAD)) as u32;
            let request = Request { operation, length, psn: self.psn, packets, ..template_of(operation) };
            let part = Part { number: 9, request, offset: self.passed, length: bytes, attempt: self.attempt };
            let all = data(self.posted, total);
            let payload = &all[self.passed as usize..][..bytes as usize];
            if self.requests.add(&part, |to| read(payload, to)) == Err(Stuck::Full) {
                return;
            }
            assert!(self.requests.is_sound(), "after {part:?}: {}", self.requests.summary());
            if self.passed == 0 {
                self.psns.push_back(self.psn);
            }
            self.passed += u64::from(bytes);
            if self.passed >= total {
                (self.passed, self.posted) = (0, self.posted + 1);
                self.psn = psn_after(self.psn, packets);
            }
        }
    }

    /// Takes the completions, as the inbox and the requester do.
    fn complete(&mut self, now: Instant) {
        while let Some((psn, attempt, reply)) = self.requests.finished() {
            assert_eq!(attempt, self.attempt, "a reply to an abandoned attempt");
            assert_eq!(self.psns.front(), Some(&psn), "completions are in order");
            match reply {
                Reply::Done { original } => {
                    let (operation, length) = self.works[self.completed];
                    if operation.is_atomic() {
                        self.originals.push(original);
                    }
                    if matches!(operation, Operation::Read { .. }) {
                        assert_eq!(self.reading.len() as u64, length, "all data has arrived");
                        self.read.push(std::mem::take(&mut self.reading));
                    }
                    self.completed += 1;
                    self.psns.pop_front();
                }
                Reply::NotReady { .. } => {
                    self.attempt += 1;
                    (self.posted, self.passed, self.psn) = (self.completed, 0, psn);
                    self.psns.clear();
                    self.reading.clear();
                    self.not_before = now + Duration::from_micros(300);
                }
                Reply::Refused(refusal) => self.failure = Some(refusal),
                Reply::Silence | Reply::LocalFault | Reply::BadResponse => panic!("the connection gives no such reply"),
            }
        }
    }

    /// Handles the packets of a datagram.
    fn arrived(&mut self, packets: &[OnItsWay], now: Instant, is_ready: bool) {
        let mut run = Run::new();
        for OnItsWay { packet, payload, .. } in packets {
            if !run.may_continue(packet) {
                self.deliver(&mut run, now, is_ready);
            }
            let length = payload.len();
            let target = match packet.body {
                Body::Acknowledge(_) | Body::AtomicAcknowledge { .. } | Body::ReadResponse { .. } => {
                    let answer = self.requests.answered(packet, length, now);
                    assert!(self.requests.is_sound(), "after {packet:?}: {}", self.requests.summary());
                    let Answer::Data { psn, attempt, offset } = answer else {
                        self.deliver(&mut run, now, is_ready);
                        self.complete(now);
                        continue;
                    };
                    Target::Data { psn, attempt, offset, length: length as u32 }
                }
                _ => match self.responses.arrived(packet, length, now) {
                    Verdict::Nothing => continue,
                    Verdict::Part(part) => Target::Part(part),
                    Verdict::Again(part) => {
                        self.answers.push_back(Waiting::Read(part, 0));
                        continue;
                    }
                },
            };
            if !run.add(target, payload) {
                self.deliver(&mut run, now, is_ready);
                assert!(run.add(target, payload));
            }
        }
        self.deliver(&mut run, now, is_ready);
        self.responses.handled();
    }

    /// Handles a run, as a QP does.
    fn deliver(&mut self, run: &mut Run<'_>, now: Instant, is_ready: bool) {
        let mut payload = Vec::new();
        let target = run.deliver(|target, segments| {
            let length = segments.iter().map(Segment::len).sum();
            append_bytes(segments, length, &mut payload).unwrap();
            target
        });
        match target {
            None => {}
            Some(Target::Data { attempt, offset, .. }) => {
                assert_eq!((attempt, offset), (self.attempt, self.reading.len() as u64));
                self.reading.extend_from_slice(&payload);
                self.complete(now);
            }
            Some(Target::Part(part)) => {
                let Some(reply) = self.handle_in_order(&part, &payload, is_ready) else { return };
                self.is_refusing |= matches!(reply, Reply::NotReady { .. });
                self.answers.push_back(Waiting::Reply(part, reply));
                if self.answers.len() == 1 {
                    self.answer();
                }
            }
        }
    }

    fn reply(&mut self, part: &Part, kind: ResponseKind, payload: &[u8]) -> bool {
        let response = Response { number: 9, source_number: 9, psn: part.request.psn, attempt: 0, kind };
        self.responses.respond(&response, |to| read(payload, to)).is_ok()
    }

    /// Handles a part if it belongs to the message that is due.
    fn handle_in_order(&mut self, part: &Part, payload: &[u8], is_ready: bool) -> Option<Reply> {
        if self.is_refusing {
            return part.is_last().then_some(Reply::Silence);
        }
        if part.offset == 0 {
            assert_eq!(part.request.psn, self.expected, "a message has the PSN after the one before it");
            self.message = Some(part.request);
        }
        // The length of a write is known with its first part, and that of a send with its last one.
        let message = self.message.filter(|message| message.length != UNKNOWN_LENGTH).unwrap_or(part.request);
        let reply = self.handle(part, payload, is_ready);
        let is_read = matches!(part.request.operation, Operation::Read { .. });
        if is_read || matches!(reply, Some(Reply::Done { .. })) {
            self.expected = psn_after(message.psn, message.packets);
        }
        reply
    }

    /// Handles a part, as the responder of a QP does.
    fn handle(&mut self, part: &Part, payload: &[u8], is_ready: bool) -> Option<Reply> {
        const DONE: Option<Reply> = Some(Reply::Done { original: 0 });
        let needs_receive = match part.request.operation {
            Operation::Send | Operation::SendImmediate { .. } | Operation::SendInvalidate { .. } => !self.has_receive,
            Operation::WriteImmediate { .. } => true,
            _ => false,
        };
        if needs_receive && !is_ready {
            return Some(Reply::NotReady { timer: 1 });
        }
        let end = part.offset + u64::from(part.length);
        match part.request.operation {
            Operation::Send | Operation::SendImmediate { .. } | Operation::SendInvalidate { .. } => {
                assert_eq!(part.offset, self.arriving.len() as u64);
                self.has_receive = true;
                self.arriving.extend_from_slice(payload);
                if !part.is_last() {
                    return None;
                }
                self.has_receive = false;
                self.received.push(std::mem::take(&mut self.arriving));
                DONE
            }
            Operation::Write { address, .. } | Operation::WriteImmediate { address, .. } => {
                let start = (address - BASE + part.offset) as usize;
                self.memory[start..start + payload.len()].copy_from_slice(payload);
                if end < part.request.length {
                    return None;
                }
                if matches!(part.request.operation, Operation::WriteImmediate { .. }) {
                    self.received.push(Vec::new());
                }
                DONE
            }
            Operation::Read { rkey: RKEY, .. } => {
                self.answers.push_back(Waiting::Read(*part, 0));
                None
            }
            Operation::FetchAdd { add, .. } => {
                let original = self.word;
                self.word += add;
                Some(Reply::Done { original })
            }
            Operation::AtomicWrite { .. } => {
                self.word = u64::from_ne_bytes(payload.try_into().unwrap());
                DONE
            }
            Operation::Flush { .. } => DONE,
            _ => Some(Reply::Refused(Refusal::OperationError)),
        }
    }

    /// Sends replies and the data of reads, in order.
    fn answer(&mut self) {
        while let Some(waiting) = self.answers.pop_front() {
            let (part, sent) = match waiting {
                Waiting::Read(part, sent) if sent < part.request.length => (part, sent),
                Waiting::Read(part, _) => {
                    self.answers.push_front(Waiting::Reply(part, Reply::Done { original: 0 }));
                    continue;
                }
                Waiting::Reply(part, reply) if self.reply(&part, ResponseKind::Reply(reply), &[]) => {
                    self.is_refusing &= !matches!(reply, Reply::NotReady { .. });
                    continue;
                }
                Waiting::Reply(..) => return self.answers.push_front(waiting),
            };
            let Operation::Read { address, .. } = part.request.operation else { unreachable!() };
            let length = (part.request.length - sent).min(u64::from(MAX_PAYLOAD));
            let start = (address - BASE + sent) as usize;
            let payload = self.memory[start..start + length as usize].to_vec();
            let kind = ResponseKind::Data { offset: sent, length: length as u32 };
            if !self.reply(&part, kind, &payload) {
                return self.answers.push_front(Waiting::Read(part, sent));
            }
            self.answers.push_front(Waiting::Read(part, sent + length));
        }
    }
}

fn template_of(operation: Operation) -> Request {
    Request { operation, ..template(9) }
}

/// Runs both ends until all works have completed or failed, and returns the ends and the time that it took.
fn run(seed: u64, network: Network, mut ends: [End; 2], depth: usize, start: Instant) -> ([End; 2], Duration) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut way: Vec<OnItsWay> = Vec::new();
    let (mut now, mut order) = (start, 0);
    for step in 0.. {
        let mut is_any_late = false;
        if step > 200_000 {
            let last = way.iter().take(3).map(|packet| (packet.to, packet.packet));
            let states = ends.iter().map(|end| {
                let (requests, responses) = (end.requests.summary(), end.responses.summary());
                format!("{}/{} {requests}{responses}", end.completed, end.posted)
            });
            println!("{:?}\n{}", last.collect::<Vec<_>>(), states.collect::<String>());
            panic!("seed {seed}: the connection does not come to an end");
        }
        for (index, end) in ends.iter_mut().enumerate() {
            end.requests.expired(now);
            end.complete(now);
            end.post(now, depth);
            let is_late = rng.u32(0..1000) < network.late;
            is_any_late |= is_late;
            if !is_late {
                end.answer();
            }
            // The socket takes a limited number of packets at a time.
            let mut space = if is_late { rng.u32(0..4) } else { 40 };
            let mut emit = |packet: &Packet, payload: &[u8]| {
                if space == 0 {
                    return false;
                }
                space -= 1;
                let copies = match rng.u32(0..1000) {
                    chance if chance < network.loss => 0,
                    chance if chance < network.loss + network.repeat => 2,
                    _ => 1,
                };
                for _ in 0..copies {
                    order += 1;
                    let late =
                        if rng.u32(0..1000) < network.reorder { network.delay * rng.u32(1..4) } else { Duration::ZERO };
                    let at = now + network.delay + late;
                    way.push(OnItsWay { at, order, to: 1 - index, packet: *packet, payload: payload.to_vec() });
                }
                true
            };
            end.responses.send(&mut emit);
            end.requests.send(now, &mut emit);
        }
        let is_over = |end: &End| end.completed == end.works.len() || end.failure.is_some();
        if ends.iter().all(is_over) {
            return (ends, now - start);
        }
        // The next event: a packet, or a deadline of an end.
        let packet = way.iter().enumerate().min_by_key(|(_, packet)| (packet.at, packet.order)).map(|(place, _)| place);
        let deadlines = ends.iter().flat_map(|end| {
            let not_before = (end.posted < end.works.len() && end.not_before > now).then_some(end.not_before);
            [end.requests.deadline(), not_before]
        });
        let late = is_any_late.then_some(now + Duration::from_micros(1));
        let next = deadlines.flatten().chain(late).chain(packet.map(|place| way[place].at)).min();
        now = next.unwrap_or_else(|| panic!("seed {seed}: nothing happens any more")).max(now);
        if let Some(place) = packet.filter(|place| way[*place].at <= now) {
            let to = way[place].to;
            // The kernel may join packets that arrive at once.
            let count = rng.usize(1..6);
            let mut due: Vec<_> = way.extract_if(.., |packet| packet.to == to && packet.at <= now).collect();
            due.sort_by_key(|packet| (packet.at, packet.order));
            way.extend(due.split_off(count.min(due.len())));
            let is_ready = rng.u32(0..1000) >= network.unready;
            ends[to].arrived(&due, now, is_ready);
            if rng.u32(0..1000) < network.overflow {
                ends[to].responses.has_lost_packets(now);
            }
        }
    }
    unreachable!()
}
