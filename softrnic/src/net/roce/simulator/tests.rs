//! Random works on random networks.

use std::time::{Duration, Instant};

use super::{BASE, End, MEMORY, Network, PERFECT, RKEY, data, run};
use crate::net::roce::line::Line;
use crate::net::roce::packet::{Acknowledgement, Body, Nak, Packet, Place, SendEnd, Syndrome};
use crate::net::roce::requests::Requests;
use crate::net::roce::responses::{Responses, Verdict};
use crate::net::roce::window::Share;
use crate::wire::message::Request;
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{Part, packet_count};

/// Returns random works, whose effects do not depend on those of the other end.
fn works(rng: &mut fastrand::Rng, count: usize) -> Vec<(Operation, u64)> {
    let mut at = 0;
    let work = |_| {
        let length = match rng.u32(0..4) {
            0 => 0,
            1 => rng.u64(1..64),
            2 => rng.u64(1..5000),
            _ => rng.u64(1..40_000),
        };
        // Each write has its own memory. Reads read what no write changes.
        let address = BASE + at % 100_000;
        match rng.u32(0..9) {
            0 => (Operation::Send, length),
            1 => (Operation::SendImmediate { immediate: 5 }, length),
            2 => (Operation::SendInvalidate { rkey: 5 }, length),
            3 | 4 => {
                at += length;
                (Operation::Write { address, rkey: RKEY }, length)
            }
            5 => {
                at += length;
                (Operation::WriteImmediate { address, rkey: RKEY, immediate: 3 }, length)
            }
            6 => (Operation::Read { address: BASE + 200_000, rkey: RKEY }, length),
            7 => (Operation::FetchAdd { address: BASE, rkey: RKEY, add: 1 }, 8),
            _ => (Operation::Flush { address: BASE, rkey: RKEY, length: 8, placement: 1, level: 0 }, 0),
        }
    };
    (0..count).map(work).collect()
}

/// Checks that the peer has seen each work of this end exactly once, in order.
fn check(seed: u64, from: &End, to: &End) {
    assert_eq!(from.failure, None, "seed {seed}");
    let mut memory = (0..MEMORY).map(|at| ((at * 7) >> 2) as u8).collect::<Vec<_>>();
    let (mut received, mut read, mut adds) = (Vec::new(), Vec::new(), 0);
    for (index, (operation, length)) in from.works.iter().enumerate() {
        match *operation {
            Operation::Send | Operation::SendImmediate { .. } | Operation::SendInvalidate { .. } => {
                received.push(data(index, *length));
            }
            Operation::Write { address, .. } | Operation::WriteImmediate { address, .. } => {
                let start = (address - BASE) as usize;
                memory[start..start + *length as usize].copy_from_slice(&data(index, *length));
                if matches!(operation, Operation::WriteImmediate { .. }) {
                    received.push(Vec::new());
                }
            }
            Operation::Read { address, .. } => {
                let start = (address - BASE) as usize;
                read.push(memory[start..start + *length as usize].to_vec());
            }
            Operation::FetchAdd { .. } => adds += 1,
            _ => {}
        }
    }
    assert!(to.received == received, "seed {seed}: messages differ");
    assert!(from.read == read, "seed {seed}: reads differ");
    assert!(to.memory == memory, "seed {seed}: memory differs");
    assert_eq!(from.originals, (0..adds).collect::<Vec<u64>>(), "seed {seed}");
    assert_eq!(to.word, adds, "seed {seed}");
}

const SEEDS: u64 = if cfg!(miri) { 3 } else { 60 };

fn tried(network: Network, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let mtu = 256 << rng.u32(0..5);
        let depth = rng.usize(1..5);
        let psns = [rng.u32(0..1 << 24), 0xff_fff0];
        let now = Instant::now();
        let ends = [0, 1].map(|index: usize| {
            let works = works(&mut rng, 40);
            End::new(mtu, psns[index], psns[1 - index], depth, works, now)
        });
        let ([first, second], _) = run(seed, network, ends, depth, now);
        check(seed, &first, &second);
        check(seed, &second, &first);
    }
}

#[test]
fn every_operation_passes_a_perfect_network() {
    tried(PERFECT, 0..SEEDS / 3);
}

#[test]
fn lost_packets_are_sent_again() {
    tried(Network { loss: 50, ..PERFECT }, 0..SEEDS);
}

#[test]
fn repeated_and_reordered_packets_have_no_effect() {
    tried(Network { repeat: 100, reorder: 50, ..PERFECT }, 0..SEEDS);
}

#[test]
fn missing_receives_are_awaited() {
    tried(Network { unready: 300, ..PERFECT }, 0..SEEDS);
}

#[test]
fn everything_at_once() {
    let delay = Duration::from_millis(2);
    let network = Network { loss: 30, repeat: 30, reorder: 30, unready: 200, overflow: 50, late: 300, delay };
    tried(network, 0..SEEDS);
}

/// It takes half of all PSNs.
#[test]
fn longest_read_with_the_smallest_mtu_is_sent() {
    let line = Line { mtu: 256, service: Service::ReliableConnection, destination: 9 };
    let mut requests = Requests::new(line, 1, Share::alone(256));
    let operation = Operation::Read { address: BASE, rkey: RKEY };
    let template = super::template_of(operation);
    let request = Request { length: 1 << 31, psn: 0xff_fff0, packets: packet_count(1 << 31, 256), ..template };
    let part = Part { number: 9, request, offset: 0, length: 0, attempt: 0 };
    assert_eq!(requests.add(&part, |_| Ok(())), Ok(()));
    let mut sent = Vec::new();
    requests.send(Instant::now(), &mut |packet: &Packet, _: &[u8]| {
        sent.push((packet.psn, matches!(packet.body, Body::Read(_))));
        true
    });
    assert_eq!(sent, [(0xff_fff0, true)]);
}

/// The kernel's soft-RoCE waits for seconds before it sends the end of a message again.
#[test]
fn the_end_of_a_message_that_was_dropped_is_asked_for() {
    let (now, line) = (Instant::now(), Line { mtu: 256, service: Service::ReliableConnection, destination: 9 });
    let mut responses = Responses::new(line, 70, 1, 8, super::template_of(Operation::Send));
    let sent = |responses: &mut Responses| {
        let mut sent = Vec::new();
        responses.send(&mut |packet: &Packet, _: &[u8]| {
            sent.push((packet.psn, packet.body));
            true
        });
        sent
    };
    assert!(!responses.has_lost_packets(now), "the peer has sent nothing");
    let first = Body::Send { place: Place::First, end: SendEnd::Nothing };
    assert!(matches!(responses.arrived(&line.packet(first, 0, 70), 256, now), Verdict::Part(_)));
    responses.handled();
    assert_eq!(sent(&mut responses), []);
    assert!(responses.has_lost_packets(now));
    let syndrome = Syndrome::Nak(Nak::Sequence);
    assert_eq!(sent(&mut responses), [(71, Body::Acknowledge(Acknowledgement { syndrome, messages: 0 }))]);
    assert!(!responses.has_lost_packets(now), "the packet was asked for");
    let last = Body::Send { place: Place::Last, end: SendEnd::Nothing };
    assert!(matches!(responses.arrived(&line.packet(last, 0, 71), 9, now), Verdict::Part(_)));
    assert!(!responses.has_lost_packets(now + Duration::from_secs(1)), "the peer is silent for a long time");
}
