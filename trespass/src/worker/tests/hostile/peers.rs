//! Peers that speak the transport, and break the protocol above it.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::super::{ANSWER, LONG, READ, fields, send};
use crate::backend::verbs::{self, Verbs};
use crate::backend::{Backend, Ended, Established, Events, IncomingId, LinkId, ListenerId, Request};
use crate::memory::Buf;
use crate::proto::{FLOOR, Frame, FrameKind, Hello, Remote, Rng};
use crate::worker::Transport;

const LINK: LinkId = LinkId { index: 1, generation: 1 };

/// Returns a valid hello with random limits.
pub(super) fn hello(rng: &mut Rng) -> Vec<u8> {
    let limits = Hello { segment: 16 << 10, credits: 4 * FLOOR, message: 1 << 30, ..Hello::new(rng.next()) };
    let reads = if rng.one_in(2) { 16 } else { 0 };
    Hello { reads, rendezvous: 1 << rng.below(31), ..limits }.emit().to_vec()
}

/// A peer that sends what the test writes.
pub(super) enum Raw {
    Tcp(TcpStream),
    Rdma(Box<Side>),
}

/// A queue pair of its own.
pub(super) struct Side {
    verbs: Verbs,
    state: State,
    spare: Vec<Buf>,
}

#[derive(Default)]
struct State {
    is_established: bool,
    has_ended: bool,
}

impl Events for State {
    fn incoming(&mut self, _: ListenerId, _: IncomingId, _: SocketAddr, _: &[u8]) {}
    fn established(&mut self, _: LinkId, _: Established, _: &[u8]) {
        self.is_established = true;
    }
    fn received(&mut self, _: LinkId, _: Buf, _: usize) -> bool {
        true
    }
    fn returned(&mut self, _: Buf) {}
    fn sent(&mut self, _: LinkId, _: u32) {}
    fn read(&mut self, _: LinkId, _: u32, _: Buf, _: bool) {}
    fn wrote(&mut self, _: LinkId, _: usize) {}
    fn landed(&mut self, _: LinkId, _: u32, _: Buf) {}
    fn moved(&mut self, _: LinkId) {}
    fn probed(&mut self, _: LinkId) {}
    fn ended(&mut self, _: LinkId, _: Ended) {
        self.has_ended = true;
    }
}

impl Side {
    fn poll(&mut self) {
        self.verbs.poll(64, &mut self.state, &mut self.spare);
        self.spare.clear();
    }

    /// Posts SENDs until the link ends. The server may also stop to receive.
    fn post(&mut self, sends: impl Iterator<Item = Vec<u8>>) {
        let begun = Instant::now();
        for bytes in sends {
            let Some(mut message) = self.verbs.pool().alloc(bytes.len()) else { return };
            message.copy_from_slice(&bytes);
            let mut requests = VecDeque::from([Request::Send(message)]);
            while !requests.is_empty() {
                if self.state.has_ended || begun.elapsed() > Duration::from_millis(500) {
                    return;
                }
                self.verbs.post(LINK, &mut requests, &mut self.spare);
                self.poll();
            }
        }
    }
}

impl Raw {
    /// Requests a connection, and does not look at the answer. Returns `None` if the server is out of reach.
    pub(super) fn begin(transport: Transport, address: SocketAddr, hello: &[u8]) -> Option<Self> {
        if transport == Transport::Tcp {
            let mut socket = TcpStream::connect(address).ok()?;
            // The server may have closed the socket.
            _ = socket.write_all(&[&[1, hello.len() as u8], hello].concat());
            return Some(Self::Tcp(socket));
        }
        let options = verbs::Options { receives: 64, memory: 8 << 20, ..verbs::Options::default() };
        let mut verbs = Verbs::open(&options, Some(address)).unwrap();
        let mut buffers: Vec<Buf> = (0..64).map_while(|_| verbs.pool().segment()).collect();
        verbs.post_receives(&mut buffers);
        verbs.connect(LINK, address, hello).ok()?;
        Some(Self::Rdma(Box::new(Side { verbs, state: State::default(), spare: Vec::new() })))
    }

    /// Connects. Returns `None` if the server refuses the peer.
    pub(super) fn connect(transport: Transport, address: SocketAddr, hello: &[u8]) -> Option<Self> {
        let mut peer = Self::begin(transport, address, hello)?;
        match &mut peer {
            Self::Tcp(socket) => {
                socket.set_read_timeout(Some(LONG)).unwrap();
                socket.read_exact(&mut vec![0; 2 + hello.len()]).ok()?;
                socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            }
            Self::Rdma(side) => {
                let begun = Instant::now();
                while !side.state.is_established {
                    side.poll();
                    if side.state.has_ended {
                        return None;
                    }
                    assert!(begun.elapsed() < LONG, "no answer");
                }
            }
        }
        Some(peer)
    }

    /// Sends some random records. The server may end the connection, or stop to read, at any of them.
    pub(super) fn misbehave(&mut self, rng: &mut Rng) {
        for _ in 0..1 + rng.below(8) {
            let count = [1, 2, 10, 3_000][rng.below(4) as usize];
            match self {
                Self::Tcp(socket) => {
                    let record = record(rng);
                    let count = count.min(1 + (4 << 20) / record.len().max(1));
                    if socket.write_all(&record.repeat(count)).is_err() {
                        return;
                    }
                }
                Self::Rdma(side) => {
                    let bytes = frames(rng);
                    side.post((0..count).map(|_| bytes.clone()));
                }
            }
        }
    }
}

/// Returns a random record of the TCP backend.
fn record(rng: &mut Rng) -> Vec<u8> {
    let length = [0, 1, 4, 100, 16 << 10, 1 << 20, u32::MAX][rng.below(7) as usize];
    let sent = (rng.next() % 2_000) as usize;
    match rng.below(8) {
        0 => fields(&[READ, number(rng)]),
        1 => [fields(&[ANSWER, number(rng), 1]), vec![7]].concat(),
        2 => [fields(&[ANSWER, number(rng), length]), vec![7; sent]].concat(),
        3 => [fields(&[length]), vec![rng.next() as u8; sent]].concat(),
        _ => {
            let bytes = frames(rng);
            [fields(&[bytes.len() as u32]), bytes].concat()
        }
    }
}

/// Returns the frames of a SEND: mostly well-formed ones, in an order that may be wrong.
fn frames(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let most = if rng.one_in(3) { 100 } else { 3 };
    for _ in 0..1 + rng.below(most) {
        let kind = FrameKind(if rng.one_in(20) { rng.next() as u8 } else { 1 + rng.below(13) as u8 });
        let remote = Remote { address: u64::from(rng.below(3)), key: number(rng) }.emit();
        let payload = match rng.below(4) {
            _ if kind == FrameKind::RTS => remote.to_vec(),
            // The first buffers have the number 0.
            0..3 if kind == FrameKind::BUFFERS => [&remote[..], &number(rng).to_le_bytes()].concat(),
            0 => Vec::new(),
            1 => vec![1],
            2 => vec![2; 8],
            _ => vec![3; rng.below(200) as usize],
        };
        let flags = if rng.one_in(2) { 1 } else { rng.below(4) as u8 | (rng.below(2) as u8) << 7 };
        let frame = Frame { flags, credits: rng.below(100) as u16, a: number(rng), b: number(rng), ..Frame::new(kind) };
        // Without the length that precedes a SEND over TCP.
        bytes.extend_from_slice(&send(frame, &payload)[4..]);
    }
    if rng.one_in(20) {
        bytes.truncate(rng.below(bytes.len() as u32) as usize);
    }
    bytes.truncate(4_096);
    bytes
}

fn number(rng: &mut Rng) -> u32 {
    [0, 1, 2, 8, 100, 5_000, 100_000, 1 << 30, u32::MAX, rng.next() as u32][rng.below(10) as usize]
}
