//! Many connections between two hosts, whose receive buffers they share. A host takes a time for each packet.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{End, OnItsWay, Packet};
use crate::net::roce::window::{Share, Window};
use crate::wire::operation::Operation;

/// The receive buffer of a process without privileges, and what a packet of 1 KiB takes of it.
const BUFFER: usize = 425_984 / 2304;
/// The time that a packet takes at its sender and at its receiver, and how many are received at once.
const COST: Duration = Duration::from_micros(20);
const BATCH: usize = 64;
const CONNECTIONS: usize = if cfg!(miri) { 20 } else { 100 };
/// The messages of each connection, and their lengths.
const MESSAGES: usize = 4;
const LENGTH: u64 = 16 << 10;
const MTU: u32 = 1024;

struct Host {
    ends: Vec<End>,
    window: Arc<Mutex<Window>>,
    /// Packets on the cable or in the buffer, with the number of their connection.
    arriving: VecDeque<(Instant, usize, Packet, Vec<u8>)>,
    buffer: VecDeque<(usize, Packet, Vec<u8>)>,
    has_dropped: bool,
    free_at: Instant,
}

impl Host {
    fn new(start: Instant) -> Self {
        let window = Window::new();
        let end = |number| {
            let mut end = End::new(MTU, 7, 7, 1, vec![(Operation::Send, LENGTH); MESSAGES], start);
            end.requests.window = Share::new(&window, number as u32, MTU);
            end
        };
        let ends = (0..CONNECTIONS).map(end).collect();
        let (arriving, buffer) = (VecDeque::new(), VecDeque::new());
        Self { ends, window, arriving, buffer, has_dropped: false, free_at: start }
    }

    /// Receives, and returns what this host sends. Later packets find the buffer full.
    fn run(&mut self, now: Instant) -> Vec<(usize, Packet, Vec<u8>)> {
        while self.arriving.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, connection, packet, payload)) = self.arriving.pop_front() else { break };
            match self.buffer.len() < BUFFER {
                true => self.buffer.push_back((connection, packet, payload)),
                false => self.has_dropped = true,
            }
        }
        let count = self.buffer.len().min(BATCH);
        let mut touched = BTreeSet::new();
        for (connection, packet, payload) in self.buffer.drain(..count) {
            let datagram = OnItsWay { at: now, order: 0, to: connection, packet, payload };
            self.ends[connection].arrived(&[datagram], now, true);
            touched.insert(connection);
        }
        if self.buffer.is_empty() && std::mem::take(&mut self.has_dropped) {
            for (connection, end) in self.ends.iter_mut().enumerate() {
                end.responses.has_lost_packets(now);
                touched.insert(connection);
            }
        }
        let is_due = |end: &End| end.requests.deadline().is_some_and(|at| at <= now) || end.posted == 0;
        touched.extend((0..CONNECTIONS).filter(|connection| is_due(&self.ends[*connection])));
        let mut out = Vec::new();
        for connection in touched {
            let end = &mut self.ends[connection];
            end.requests.expired(now);
            end.complete(now);
            end.post(now, 1);
            end.answer();
            send(end, connection, now, &mut out);
        }
        loop {
            let Some(next) = self.window.lock().unwrap().next_turn().map(|next| next as usize) else { break };
            self.ends[next].requests.window.begin_turn();
            send(&mut self.ends[next], next, now, &mut out);
        }
        self.free_at = now + COST * (count + out.len()).max(1) as u32;
        out
    }

    fn next(&self, now: Instant) -> Option<Instant> {
        let deadlines = self.ends.iter().filter_map(|end| end.requests.deadline());
        let arrivals = self.arriving.front().map(|(at, ..)| *at);
        let buffered = (!self.buffer.is_empty()).then_some(now);
        deadlines.chain(arrivals).chain(buffered).min().map(|at| at.max(self.free_at))
    }
}

fn send(end: &mut End, connection: usize, now: Instant, out: &mut Vec<(usize, Packet, Vec<u8>)>) {
    let mut emit = |packet: &Packet, payload: &[u8]| {
        out.push((connection, *packet, payload.to_vec()));
        true
    };
    end.responses.send(&mut emit);
    end.requests.send(now, &mut emit);
}

/// Runs both hosts until all messages have completed, with a cable that loses `loss` of 1000 packets. Returns how many
/// packets were sent again, in thousandths, the longest time without a message that was completed, and the whole time.
fn run(loss: u32, delay: Duration) -> (usize, Duration, Duration) {
    let mut rng = fastrand::Rng::with_seed(1);
    let start = Instant::now();
    let mut hosts = [Host::new(start), Host::new(start)];
    let (mut now, mut last, mut longest, mut completed) = (start, start, Duration::ZERO, 0);
    loop {
        for index in [0, 1] {
            if hosts[index].free_at > now {
                continue;
            }
            let out = hosts[index].run(now);
            let at = hosts[index].free_at + delay;
            let arriving = out.into_iter().filter(|_| rng.u32(..1000) >= loss);
            hosts[1 - index].arriving.extend(arriving.map(|(to, packet, payload)| (at, to, packet, payload)));
        }
        let done = hosts.iter().flat_map(|host| &host.ends).map(|end| end.completed).sum();
        if done > completed {
            (longest, last, completed) = (longest.max(now - last), now, done);
        }
        if completed == 2 * CONNECTIONS * MESSAGES {
            break;
        }
        let next = hosts.iter().filter_map(|host| host.next(now)).min();
        now = next.expect("something happens").max(now + Duration::from_micros(1));
        assert!(now - start < Duration::from_secs(600), "the connections do not come to an end");
    }
    let again: u64 = hosts.iter().flat_map(|host| &host.ends).map(|end| end.requests.counters.retransmits).sum();
    let packets = 2 * CONNECTIONS * MESSAGES * (LENGTH / u64::from(MTU)) as usize;
    (again as usize * 1000 / packets, longest, now - start)
}

/// With a window of its own for each, they would drop most packets, and fail after seconds without an acknowledgement.
#[test]
fn connections_of_a_host_do_not_overrun_the_buffer_of_another() {
    let (again, longest, _) = run(0, Duration::ZERO);
    assert!(again < 100, "{again} of 1000 packets were sent again");
    assert!(longest < Duration::from_millis(200), "{longest:?} without a message");
}

/// A window that shrinks with each loss of a connection would leave little to a hundred of them.
#[test]
fn connections_of_a_host_share_a_lossy_network() {
    let (again, _, whole) = run(10, Duration::from_millis(5));
    assert!(again < 500, "{again} of 1000 packets were sent again");
    assert!(whole < Duration::from_millis(1500), "{whole:?}");
}
