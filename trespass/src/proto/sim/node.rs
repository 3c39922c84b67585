//! The simulated world: two nodes, their programs, and the links between them.

use std::collections::VecDeque;
use std::io;

use crate::memory::{Buf, Ending, Pool};
use crate::proto::{Agreement, FLOOR, Failure, HEADER, Place, Protocol, Remote, Request, Settings, Stock};

use super::Plan;
use super::link::{Exposed, Link, READABLE, WRITABLE};
use super::log::Log;
use super::rng::Rng;

pub(super) const SEGMENT: usize = 512;
pub(super) const EAGER: usize = 2_000;
pub(super) struct World {
    pub(super) nodes: [Node; 2],
    pub(super) now: u64,
    /// The number of times that a request made progress.
    pub(super) moves: u64,
    pub(super) path: Path,
    /// Whether the last message that a program sent took the short path.
    pub(super) was_short: bool,
}

/// Which path the messages of a world take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// The short path where the connection permits it. The devices and the memory disturb the worker.
    Any,
    /// The short path where the connection permits it. This world is compared with one of `Long`.
    Short,
    /// Only the path for all cases. A message is posted at once if it took the short path in the other world.
    Long,
}

/// A worker with its memory, and its end of each pair of connections.
pub(super) struct Node {
    pub(super) stock: Stock,
    pub(super) posted: VecDeque<Buf>,
    pub(super) ends: Vec<End>,
    /// Buffers that the program keeps without using them.
    pub(super) hoard: Vec<Buf>,
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) connection: Protocol,
    pub(super) link: Link,
    /// The messages that this side's program sent and the peer's program received.
    pub(super) log: Log,
    pub(super) stream: bool,
    pub(super) down: bool,
    pub(super) closed: bool,
    pub(super) reached_end: bool,
    /// The last call that receives in a region.
    pub(super) call: Option<Place>,
    /// Whether the worker must process the connection.
    pub(super) dirty: bool,
}

impl End {
    /// Marks the connection for the worker if it needs a turn. Called after each event.
    pub(super) fn mark(&mut self, stock: &Stock) {
        self.dirty |= self.connection.needs_turn(stock);
    }
}

/// A pool with one chunk of each used size. Many worlds share it, because creating a pool takes longer than running a
/// world.
pub(super) fn pool() -> Pool {
    const SIZES: [usize; 4] = [4 << 10, 8 << 10, 16 << 10, 32 << 10];
    let pool = Pool::on_heap(SEGMENT, SIZES.len() * (2 << 20));
    assert!(SIZES.iter().all(|&size| pool.alloc(size).is_some()));
    pool
}

impl World {
    pub(super) fn new(plan: &Plan, pools: &[Pool], path: Path, rng: &mut Rng) -> World {
        let agreement = |version, credits, reads| Agreement {
            version,
            segment: SEGMENT as u32,
            credits,
            reads,
            rendezvous: 20_000,
            message: 100_000,
        };
        let streams: Vec<bool> = (0..plan.pairs).map(|_| rng.one_in(2)).collect();
        let versions: Vec<u8> = (0..plan.pairs).map(|_| if rng.one_in(4) { 1 } else { 2 }).collect();
        let mut node = |pool: &Pool| {
            let mut stock = Stock::new(pool.clone());
            let receives = plan.pairs as u32 * u32::from(FLOOR) + rng.below(100);
            assert_eq!(stock.add_receives(receives), receives);
            let ends = streams.iter().zip(&versions).map(|(&stream, &version)| {
                assert!(stock.ledger.open());
                let settings = Settings {
                    window: FLOOR + rng.below(60) as u16,
                    eager: EAGER,
                    send_high_water: 1 + rng.below(30_000) as usize,
                    read_ahead: 1 + rng.below(60_000) as usize,
                    keepalive: if rng.one_in(2) { 50 } else { 0 },
                    linger: 1 << 40,
                    ..Settings::default()
                };
                End {
                    connection: Protocol::new(settings, agreement(version, FLOOR, 1 + rng.below(4) as u16), FLOOR, 0),
                    link: Link {
                        depth: 1 + rng.below(20) as usize,
                        exposed: Exposed { pool: (!rng.one_in(4)).then(|| stock.pool.clone()), ..Exposed::default() },
                        ..Link::default()
                    },
                    log: Log::default(),
                    stream,
                    down: false,
                    closed: false,
                    reached_end: false,
                    call: None,
                    dirty: false,
                }
            });
            let ends = ends.collect();
            Node { posted: stock.receives.drain(..).collect(), stock, ends, hoard: Vec::new() }
        };
        World { nodes: [node(&pools[0]), node(&pools[1])], now: 0, moves: 0, path, was_short: false }
    }

    /// Performs a random step.
    pub(super) fn step(&mut self, plan: &Plan, rng: &mut Rng) {
        let (side, pair) = (rng.below(2) as usize, rng.below(plan.pairs as u32) as usize);
        match rng.below(21) {
            0..4 => self.send(side, pair, rng),
            4..7 if plan.deaf != Some(side) => _ = self.receive(side, pair, rng),
            7..10 => self.turn(side, pair),
            10..14 => self.execute(side, pair, rng),
            14..17 => self.complete(side, pair, 1 + rng.below(4) as usize),
            17 if rng.one_in(4) => self.pause(),
            17 => self.pass_time(u64::from(rng.below(2_000))),
            18 if self.path != Path::Any => {}
            18 if rng.one_in(3) => self.nodes[side].hoard(rng),
            18 => self.nodes[side].hoard.clear(),
            19 if plan.deaths != 0 && rng.one_in(plan.deaths / 20) => self.kill(side, pair),
            19 if plan.closes && rng.one_in(4) => self.shut(side, pair, rng),
            20 => self.flush(side, pair),
            _ => {}
        }
    }

    /// Runs one turn of the worker.
    pub(super) fn turn(&mut self, side: usize, pair: usize) {
        let node = &mut self.nodes[side];
        let now = self.now;
        node.stock.turn += 1;
        node.posted.extend(node.stock.receives.drain(..));
        let end = &mut node.ends[pair];
        if end.down || !std::mem::take(&mut end.dirty) {
            return;
        }
        node.stock.starved = false;
        let End { connection, link, .. } = end;
        connection.whole().transmit(&mut node.stock, |buffer| link.open(buffer, WRITABLE));
        while end.link.posted.len() + end.link.executed.len() < end.link.depth
            && let Some(request) = end.connection.whole().requests.pop_front()
        {
            end.link.posted.push_back(request);
            self.moves += 1;
        }
        end.dirty = !end.connection.requests.is_empty() || node.stock.starved;
        node.stock.trim();
        if end.connection.wants_disconnect(now) {
            self.take_down(side, pair, None);
        }
    }

    /// Executes a request, as the device does.
    pub(super) fn execute(&mut self, side: usize, pair: usize, rng: &mut Rng) {
        let [left, right] = &mut self.nodes;
        let (node, peer) = if side == 0 { (left, right) } else { (right, left) };
        if node.ends[pair].down || peer.ends[pair].down {
            return;
        }
        let (end, to) = (&mut node.ends[pair], &mut peer.ends[pair]);
        let Some(mut request) = end.link.posted.pop_front() else { return };
        match &mut request {
            Request::Send(send) => {
                let mut receive = peer.posted.pop_front().expect("a SEND finds a receive");
                assert_eq!(receive.len(), SEGMENT);
                receive[..send.len()].copy_from_slice(send);
                let is_quick = rng.one_in(2);
                let received = match self.path {
                    Path::Long => Err(receive),
                    Path::Any | Path::Short => to.connection.received_alone(receive, send.len(), is_quick),
                };
                match received {
                    Ok(()) => assert!(
                        to.dirty || peer.stock.starved || !to.connection.has_work(&peer.stock),
                        "a SEND that leads to no turn leaves work"
                    ),
                    Err(receive) => {
                        to.connection.whole().received(receive, send.len(), &mut peer.stock).expect("a valid SEND");
                        to.mark(&peer.stock);
                    }
                }
            }
            Request::Read { into, from, .. } => {
                assert_eq!(from.key, READABLE);
                let source = to.link.exposed.buffers.get(&from.address).expect("a READ finds its memory");
                into.copy_from_slice(source);
            }
            Request::Write { from, to: buffer } => {
                assert_eq!(buffer.key, WRITABLE);
                let buffer = to.link.exposed.buffers.get_mut(&buffer.address).expect("a WRITE finds its memory");
                buffer[..from.len()].copy_from_slice(from);
            }
            Request::Transfer(transfer) => {
                let (address, key) = transfer.remote;
                assert_eq!(key, READABLE);
                transfer.store(to.link.exposed.buffers.get(&address).expect("a READ finds its memory"));
            }
            // The peer may write until the key is invalid, so what it writes later is not part of the message.
            Request::Land { .. } | Request::Conceal(_) | Request::Probe | Request::Revoke(_) | Request::Bind => {}
        }
        end.link.executed.push_back(request);
        self.moves += 1;
    }

    /// Passes completions to the connection, as if they had arrived.
    pub(super) fn complete(&mut self, side: usize, pair: usize, most: usize) {
        let Node { stock, ends, .. } = &mut self.nodes[side];
        let end = &mut ends[pair];
        for _ in 0..most {
            let completed = end.link.executed.pop_front();
            end.dirty |= !matches!(completed, None | Some(Request::Send(_)));
            self.moves += u64::from(completed.is_some());
            match completed {
                None => return,
                Some(Request::Send(send)) => {
                    stock.give(send);
                    end.connection.sent(1);
                    end.mark(stock);
                }
                Some(Request::Read { token, into, .. }) => end.connection.whole().read_done(token, into, true),
                Some(Request::Conceal(remote)) => {
                    stock.give(end.link.exposed.buffers.remove(&remote.address).expect("an exposed buffer"));
                }
                Some(Request::Probe) => end.connection.whole().probed(),
                Some(Request::Write { from, .. }) => {
                    end.connection.whole().wrote(from.len());
                    stock.give(from);
                }
                Some(Request::Land { token, remote, length }) => land(end, stock, token, remote, length),
                Some(Request::Transfer(transfer)) => {
                    transfer.end(Ending::Done);
                    end.connection.whole().moved();
                }
                Some(Request::Revoke(_) | Request::Bind) => {}
            }
        }
    }

    pub(super) fn pass_time(&mut self, by: u64) {
        self.now += by;
        for node in &mut self.nodes {
            for end in &mut node.ends {
                end.connection.whole().tick(self.now, &mut node.stock);
                end.dirty = true;
            }
        }
    }

    /// Breaks the link at one side; the peer detects this later.
    fn kill(&mut self, side: usize, pair: usize) {
        if !self.nodes[side].ends[pair].down {
            self.take_down(side, pair, Some(Failure::new(io::ErrorKind::TimedOut, "killed")));
        }
    }

    /// Ends the link at one side, and flushes its requests. Data that has arrived stays valid.
    pub(super) fn take_down(&mut self, side: usize, pair: usize, failure: Option<Failure>) {
        let Node { stock, ends, .. } = &mut self.nodes[side];
        let end = &mut ends[pair];
        let requests: Vec<Request> = end.link.executed.drain(..).chain(end.link.posted.drain(..)).collect();
        for request in requests {
            match request {
                Request::Send(send) => stock.give(send),
                Request::Read { token, into, .. } => end.connection.whole().read_done(token, into, false),
                Request::Write { from, .. } => stock.give(from),
                Request::Land { token, remote, length } => land(end, stock, token, remote, length),
                Request::Conceal(_) | Request::Probe | Request::Transfer(_) | Request::Revoke(_) | Request::Bind => {}
            }
        }
        for (_, buffer) in std::mem::take(&mut end.link.exposed.buffers) {
            stock.give(buffer);
        }
        end.connection.whole().ended(failure, stock);
        end.down = true;
    }
}

impl World {
    /// Returns what the peers, the programs and the device observe, as one line for each side of a pair.
    pub(super) fn observed(&self) -> Vec<String> {
        let text = |request: &Request| match request {
            Request::Send(send) => format!("SEND {:02x?}", &send[..send.len().min(2 * HEADER)]),
            Request::Read { token, into, from } => format!("READ {token} {} {from:?}", into.len()),
            Request::Write { from, to } => format!("WRITE {} {to:?}", from.len()),
            other => format!("{other:?}"),
        };
        let ends = self.nodes.iter().flat_map(|node| &node.ends);
        ends.map(|End { connection, link, log, down, closed, reached_end, dirty, .. }| {
            let requests = [&connection.requests, &link.posted, &link.executed]
                .map(|list| list.iter().map(text).collect::<Vec<_>>());
            let counts = (connection.counters(), connection.lease(), connection.held());
            let program = (log.sent, log.received, down, closed, reached_end);
            format!("{counts:?} {program:?} dirty {dirty} {requests:?}")
        })
        .collect()
    }
}

impl Node {
    /// Takes all or nearly all free buffers of a size from the pool.
    fn hoard(&mut self, rng: &mut Rng) {
        let size = (4 << 10) << rng.below(4);
        while let Some(buffer) = self.stock.pool.alloc(size) {
            self.hoard.push(buffer);
        }
        self.hoard.truncate(self.hoard.len() - rng.below(3) as usize);
    }

    pub(super) fn release(&mut self) {
        self.hoard.clear();
    }
}

/// Passes a message that the peer has written to the connection.
fn land(end: &mut End, stock: &mut Stock, token: u32, remote: Remote, length: u32) {
    let mut message = end.link.exposed.buffers.remove(&remote.address).expect("an announced buffer");
    message.truncate(length as usize);
    end.connection.whole().landed(token, message, stock);
}
