//! A malicious process, which opens valid sessions and then writes and sends arbitrary data.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastrand::Rng;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags};

use crate::ipc::codec::{self, PART_WORDS, RESPONSE_WORDS};
use crate::ipc::ring::{CONTROL, Consumer, Producer, Ring};
use crate::ipc::session::{RING, SHARED};
use crate::ipc::shared::Shared;
use crate::ipc::{block, socket};
use crate::sys::descriptor::Descriptor;
use crate::wire::address::Gid;
use crate::wire::bytes::{Fault, read_bytes};
use crate::wire::message::{Refusal, Reply, Request};
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{BLOCK, MAX_PAYLOAD, MULTICAST_NUMBER, Packet, Part, Payload, Response, ResponseKind};

/// The value of each byte in memory that no peer may read or change.
pub(super) const SECRET: u8 = 0xc5;
/// The data that the malicious peer sends.
const SENT: [u8; MAX_PAYLOAD as usize] = [0x11; MAX_PAYLOAD as usize];
const DATA: usize = 4096;

/// A QP that the malicious peer attacks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) number: u32,
    /// The QP number to which the target is connected. It is in the block of the malicious peer.
    pub(super) peer: u32,
    pub(super) service: Service,
    /// The key of the memory that the target has granted.
    pub(super) rkey: u32,
    pub(super) start: u64,
    pub(super) length: u64,
}

/// Everything that the malicious peer attacks.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    pub(super) targets: Vec<Target>,
    /// The keys of memory that must not change. They were never granted.
    pub(super) keys: Vec<u32>,
    pub(super) places: Vec<u64>,
    /// The QPs of the victim's process that are connected to a well-behaved process.
    pub(super) others: Vec<u32>,
    /// The QPs of the well-behaved process.
    pub(super) elsewhere: Vec<u32>,
    pub(super) gid: Gid,
    pub(super) qkey: u32,
}

/// A session of the malicious peer.
struct Session {
    socket: Descriptor,
    shared: Arc<Shared>,
    producer: Producer,
    consumer: Consumer,
    /// Whether the malicious peer sends the requests of the session.
    is_requester: bool,
}

impl Session {
    fn new(socket: Descriptor, shared: Shared, is_requester: bool) -> Self {
        let shared = Arc::new(shared);
        let parts = Ring::new(Arc::clone(&shared), 0, DATA, RING);
        let responses = Ring::new(Arc::clone(&shared), CONTROL, DATA + RING, RING);
        let (producer, consumer) = if is_requester {
            (Producer::new(parts), Consumer::new(responses, RESPONSE_WORDS))
        } else {
            (Producer::new(responses), Consumer::new(parts, PART_WORDS))
        };
        Self { socket, shared, producer, consumer, is_requester }
    }

    fn is_closed(&self) -> bool {
        rustix::net::recv(&self.socket, &mut [0; 1], RecvFlags::DONTWAIT).is_ok_and(|(length, _)| length == 0)
    }
}

/// The malicious peer.
pub(super) struct MaliciousPeer {
    targets: Targets,
    victim: u32,
    pub(super) block: u32,
    listener: Descriptor,
    sessions: Vec<Session>,
    /// A session whose responses the malicious peer never reads.
    unread: Option<Session>,
    random: Rng,
    /// The function that returns the PSN that a target expects.
    expected: fn(u32) -> u32,
    /// These fields count what the malicious peer has done.
    pub(super) sessions_made: u64,
    pub(super) packets: u64,
    pub(super) words: u64,
}

impl MaliciousPeer {
    pub(super) fn new(victim: u32, seed: u64, expected: fn(u32) -> u32) -> Self {
        let (block, listener) = block::claim().unwrap();
        let targets = Targets {
            targets: Vec::new(),
            keys: Vec::new(),
            places: Vec::new(),
            others: Vec::new(),
            elsewhere: Vec::new(),
            gid: Gid([0; 16]),
            qkey: 0,
        };
        let random = Rng::with_seed(seed);
        let (sessions, unread) = (Vec::new(), None);
        let (sessions_made, packets, words) = (0, 0, 0);
        Self { targets, victim, block, listener, sessions, unread, random, expected, sessions_made, packets, words }
    }

    pub(super) fn set_targets(&mut self, targets: Targets) {
        self.targets = targets;
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.random.u64(..many) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.usize(..from.len())]
    }

    /// Performs a random action.
    pub(super) fn step(&mut self) {
        self.open_sessions();
        self.flood();
        if self.sessions.is_empty() {
            return;
        }
        let place = self.random.usize(..self.sessions.len());
        let mut session = self.sessions.swap_remove(place);
        let is_over = match self.random.u64(..64) {
            0..40 if session.is_requester => self.send_requests(&mut session),
            0..40 => self.respond(&mut session),
            40..60 => self.read_responses(&mut session),
            60..63 => {
                self.scribble(&session);
                false
            }
            _ => self.disturb_socket(&session),
        };
        if self.one_in(2) {
            socket::send_wakeup(&session.socket);
        }
        if !is_over && !session.is_closed() {
            self.sessions.push(session);
        }
    }

    /// Accepts connections from the victim, and connects to the victim.
    fn open_sessions(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        while let Ok(client) = rustix::net::accept_with(&self.listener, flags) {
            let client = Descriptor::new(client).unwrap();
            if let Ok(Some(memory)) = socket::receive_handshake(client.as_fd(), RING as u32) {
                let shared = Shared::accept(&memory, SHARED).unwrap();
                self.sessions.push(Session::new(client, shared, false));
                self.sessions_made += 1;
            }
        }
        if self.sessions.iter().filter(|session| session.is_requester).count() < 2 {
            let session = self.connect(self.victim);
            self.sessions.extend(session);
        }
    }

    fn connect(&mut self, block: u32) -> Option<Session> {
        let own = socket::new().unwrap();
        rustix::net::connect(&own, &socket::address(&block::name(block)).unwrap()).ok()?;
        let (shared, memory) = Shared::create(SHARED).unwrap();
        socket::send_handshake(own.as_fd(), memory.as_fd(), RING as u32).ok()?;
        self.sessions_made += 1;
        Some(Session::new(own, shared, true))
    }

    /// Floods QPs that are connected to other processes with requests, and never reads the responses.
    fn flood(&mut self) {
        let Some(&first) = self.targets.elsewhere.first() else { return };
        let known = self.unread.take().filter(|session| !session.is_closed());
        let Some(mut session) = known.or_else(|| self.connect(first / BLOCK)) else { return };
        for number in self.targets.elsewhere.clone().into_iter().cycle().take(64) {
            let (service, operation) = (Service::ReliableConnection, Operation::Write { address: 0, rkey: 0 });
            let request = Request { service, operation, length: 0, source_number: 1, ..self.part().request };
            let part = Part { number, request, offset: 0, length: 0, attempt: 0 };
            let (words, count) = codec::encode(&Packet::Part(part));
            if session.producer.put(&words[..count], Payload::Bytes(&[]), 0, 0).is_err() {
                break;
            }
            self.packets += 1;
        }
        socket::send_wakeup(&session.socket);
        self.unread = Some(session);
    }

    /// Writes random words anywhere in the shared memory.
    fn scribble(&mut self, session: &Session) {
        for _ in 0..=self.random.u64(..64) {
            let control = [0, 128, 256, 384, 512, 640, 768, 896];
            let offset = match self.random.u64(..16) {
                0 => self.pick(&control),
                1 => self.random.usize(..DATA / 8) * 8,
                _ => DATA + self.random.usize(..(SHARED - DATA) / 8) * 8,
            };
            let (before, random) = (session.shared.load(offset, Ordering::Relaxed), self.random.u64(..));
            let near = self.random.u64(..4096).wrapping_sub(2048);
            let values = [0, 1, 64, RING as u64, u64::MAX, random, before.wrapping_add(near), before.wrapping_add(64)];
            let value = self.pick(&values);
            session.shared.store(offset, value, Ordering::Release);
            self.words += 1;
        }
    }

    /// Sends malformed data on the socket. Returns whether the malicious peer closed the socket.
    fn disturb_socket(&mut self, session: &Session) -> bool {
        match self.random.u64(..8) {
            0 => {
                let _ = rustix::net::shutdown(&session.socket, Shutdown::Write);
                self.one_in(2)
            }
            1 => {
                let _ = socket::send_handshake(session.socket.as_fd(), session.socket.as_fd(), 7);
                false
            }
            2 => true,
            _ => {
                for _ in 0..self.random.u64(..300) {
                    let length = self.random.usize(..200);
                    let _ =
                        rustix::net::send(&session.socket, &SENT[..length], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                }
                false
            }
        }
    }

    /// Writes a packet, occasionally with a wrong length.
    fn put(&mut self, session: &mut Session, packet: &Packet) -> bool {
        let (words, count) = codec::encode(packet);
        let length = if self.one_in(200) { self.random.u32(..MAX_PAYLOAD) } else { packet.length().min(MAX_PAYLOAD) };
        self.packets += 1;
        session.producer.put(&words[..count], Payload::Bytes(&SENT[..length as usize]), length, 0).is_ok()
    }

    /// Sends requests, some of which are invalid.
    fn send_requests(&mut self, session: &mut Session) -> bool {
        for _ in 0..=self.random.u64(..16) {
            let part = self.part();
            let mut offset = part.offset;
            loop {
                // Either all parts of the message are sent, or only this one.
                if !self.put(session, &Packet::Part(Part { offset, ..part })) {
                    return false;
                }
                offset = offset.saturating_add(u64::from(part.length));
                let goes_on = part.length > 0 && part.request.length < 1 << 20 && offset < part.request.length;
                if !goes_on || self.one_in(20) {
                    break;
                }
            }
        }
        false
    }

    fn part(&mut self) -> Part {
        let all = self.targets.clone();
        let target = self.pick(&all.targets);
        let random = self.random.u64(..);
        let (own, start) = (target.rkey, target.start);
        let rkey = match self.random.u64(..4) {
            0 | 1 => own,
            2 => self.pick(&all.keys),
            _ => self.pick(&[0, u32::MAX, own ^ 1, own.wrapping_add(256), random as u32]),
        };
        let address = match self.random.u64(..4) {
            0 | 1 => start + self.random.u64(..64) * 8,
            2 => self.pick(&all.places),
            _ => {
                let end = start + target.length;
                self.pick(&[0, u64::MAX, u64::MAX - 7, start - 8, start - 1, end - 4, end, end - 8, start + 1, random])
            }
        };
        let (immediate, whole) = (random as u32, self.random.u64(..));
        let operations = [
            Operation::Send,
            Operation::SendImmediate { immediate },
            Operation::SendInvalidate { rkey },
            Operation::Write { address, rkey },
            Operation::WriteImmediate { address, rkey, immediate },
            Operation::Read { address, rkey },
            Operation::CompareSwap { address, rkey, compare: 0, swap: whole },
            Operation::FetchAdd { address, rkey, add: whole },
            Operation::AtomicWrite { address, rkey },
            Operation::Flush { address, rkey, length: whole, placement: immediate as u8, level: 1 },
            Operation::LocalInvalidate { rkey },
            Operation::Bind,
        ];
        let operation = if self.one_in(4) { self.pick(&operations) } else { self.pick(&operations[..8]) };
        let lengths = [0, 1, 8, 8, 100, 16_384, 16_385, 65_536, 65_537, 1 << 31, u64::from(u32::MAX), u64::MAX];
        let length = if self.one_in(8) { self.pick(&lengths) } else { self.pick(&lengths[..8]) };
        let offset = if self.one_in(30) { self.pick(&[1, 16_384, length, u64::MAX, random]) } else { 0 };
        let has_data = operation.has_data();
        let sound = if has_data { length.saturating_sub(offset).min(u64::from(MAX_PAYLOAD)) as u32 } else { 0 };
        let part_length = if self.one_in(100) { self.random.u32(..1 << 17) } else { sound };
        let psn = if self.one_in(4) { random as u32 & 0xff_ffff } else { (self.expected)(target.number) };
        let services = [Service::ReliableConnection, Service::UnreliableConnection, Service::UnreliableDatagram];
        let service = if self.one_in(20) { self.pick(&services) } else { target.service };
        let number = match self.random.u64(..30) {
            0 => MULTICAST_NUMBER,
            1 => self.pick(&all.others),
            2 => random as u32 & 0xff_ffff,
            _ => target.number,
        };
        let source_number = if self.one_in(30) { random as u32 } else { target.peer };
        let source = if self.one_in(30) { Gid(u128::from(random).to_ne_bytes()) } else { all.gid };
        let request = Request {
            service,
            operation,
            length,
            is_solicited: self.one_in(2),
            psn,
            packets: if self.one_in(4) { random as u32 } else { (length / 1024) as u32 },
            source_number,
            source,
            destination: all.gid,
            key: if self.one_in(10) { random as u32 } else { all.qkey },
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            service_level: 0,
            srq_number: random as u32,
        };
        Part { number, request, offset, length: part_length, attempt: random as u32 }
    }

    /// Reads the responses of the victim, which must not contain data that was not granted. Returns whether the session
    /// can no longer be used.
    fn read_responses(&mut self, session: &mut Session) -> bool {
        if !session.is_requester {
            return false;
        }
        for _ in 0..256 {
            let Ok(Some(words)) = session.consumer.next() else { break };
            let Ok(response) = codec::decode_response(&words) else { return true };
            let Ok(pieces) = session.consumer.take(Packet::Response(response).length()) else { return true };
            let mut bytes = vec![0; pieces.as_slice().iter().map(crate::wire::bytes::Segment::len).sum()];
            read_bytes(pieces.as_slice(), &mut bytes).unwrap();
            if let ResponseKind::Reply(Reply::Done { original }) = response.kind {
                bytes = original.to_ne_bytes().to_vec();
            }
            assert!(!bytes.windows(8).any(|bytes| bytes == [SECRET; 8]), "ungranted memory was read: {response:?}");
        }
        session.consumer.free();
        false
    }

    /// Responds to requests of the victim. Some of the responses are invalid.
    fn respond(&mut self, session: &mut Session) -> bool {
        for _ in 0..=self.random.u64(..32) {
            let Ok(Some(words)) = session.consumer.next() else { break };
            let Ok(part) = codec::decode_part(&words) else { return true };
            if session.consumer.take(part.length).is_err() {
                return true;
            }
            for _ in 0..self.random.u64(..4) {
                let response = self.response_to(&part);
                if !self.put(session, &Packet::Response(response)) {
                    return false;
                }
            }
        }
        session.consumer.free();
        false
    }

    fn response_to(&mut self, part: &Part) -> Response {
        let request = &part.request;
        let random = self.random.u64(..);
        let others = self.targets.others.clone();
        let offset = self.pick(&[0, 0, 0, 16_384, 1, request.length, random % (1 << 31)]);
        let length = self.pick(&[0, 1, 8, 100, request.length.min(16_384) as u32, MAX_PAYLOAD]);
        let refusals = [Refusal::InvalidRequest, Refusal::AccessError(Fault::Key), Refusal::OperationError];
        let kind = match self.random.u64(..16) {
            0..6 => ResponseKind::Reply(Reply::Done { original: random }),
            6..12 => ResponseKind::Data { offset, length },
            12 => ResponseKind::Reply(Reply::NotReady { timer: 1 }),
            13 => ResponseKind::Reply(Reply::Refused(self.pick(&refusals))),
            14 => ResponseKind::Reply(Reply::Silence),
            _ => ResponseKind::Reply(Reply::LocalFault),
        };
        let number = if self.one_in(20) { self.pick(&others) } else { request.source_number };
        let source_number = if self.one_in(20) { self.block * BLOCK } else { part.number };
        let psn = if self.one_in(10) { request.psn.wrapping_add(1) & 0xff_ffff } else { request.psn };
        let attempt = if self.one_in(20) { random as u32 } else { part.attempt };
        Response { number, source_number, psn, attempt, kind }
    }
}
