//! A QP whose peer in another process sends arbitrary valid packets.
//!
//! A script cannot contain the numbers and keys that are random, so small numbers stand for them.

use std::sync::Arc;

use super::world::{Own, PEER, World};
use crate::fuzz::Input;
use crate::ipc::codec::{PART_WORDS, RESPONSE_WORDS, Words, decode_part, decode_response};
use crate::qp::registry::ToQueuePairs;
use crate::wire::bytes::Segment;
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{MAX_PAYLOAD, MULTICAST_NUMBER, Packet};
use crate::wire::transport::{Carrier, Deliver, Wake};

/// Runs a script. Its first byte selects the service. Packets of the peer and actions of this side follow. Returns
/// whether any request has completed and the QP still works.
///
/// # Panics
///
/// Panics if a packet accesses memory that was not granted, if a request completes that was not posted, or if a request
/// completes twice.
pub fn messages(input: &[u8]) -> bool {
    let mut input = Input(input);
    let services =
        [Service::ReliableConnection, Service::UnreliableConnection, Service::UnreliableDatagram, Service::XrcReceive];
    let choice = input.byte();
    let mut world = World::new(services[usize::from(choice % 4)], choice & 4 != 0);
    while !input.is_empty() {
        step(&mut world, &mut input);
        world.poll();
    }
    let is_working = world.close();
    world.check(&world.carrier.payload());
    is_working
}

fn step(world: &mut World, input: &mut Input<'_>) {
    match input.byte() % 8 {
        0 | 1 => part(world, input),
        2 => response(world, input),
        3 => world.receive(input.short()),
        4 => post(world, input),
        5 => world.carrier.set_space(usize::from(input.byte())),
        6 => world.pair.wake(),
        _ => {
            let carrier: Arc<dyn Carrier> = world.carrier.clone();
            ToQueuePairs.lost(&carrier);
            world.connect();
        }
    }
}

/// Replaces a small key by a key of the memory.
fn key(world: &World, key: u32) -> u32 {
    match key {
        1 => world.key(Own::Granted),
        2 => world.key(Own::Kept),
        3 => world.key(Own::Others),
        other => other,
    }
}

/// Returns the word with another upper half.
fn with_high(word: u64, high: u32) -> u64 {
    word & u64::from(u32::MAX) | u64::from(high) << 32
}

fn part(world: &World, input: &mut Input<'_>) {
    let mut words: Words = input.words::<PART_WORDS, PART_WORDS>();
    let number = match (words[0] >> 32) as u32 {
        1 => world.pair.number(),
        2 => MULTICAST_NUMBER,
        other => other,
    };
    words[0] = with_high(words[0], number);
    words[11] = with_high(words[11], key(world, (words[11] >> 32) as u32));
    if words[9] as u32 == 1 {
        words[9] = words[9] & !u64::from(u32::MAX) | u64::from(world.shared_number());
    }
    let Ok(part) = decode_part(&words) else { return };
    let carrier: Arc<dyn Carrier> = world.carrier.clone();
    with_payload(part.length, |payload| ToQueuePairs.part(&part, payload, &carrier));
}

fn response(world: &World, input: &mut Input<'_>) {
    let mut words: Words = input.words::<RESPONSE_WORDS, PART_WORDS>();
    if (words[0] >> 32) as u32 == 1 {
        words[0] = with_high(words[0], world.pair.number());
    }
    // The response gets the PSN and the attempt of one of the first parts.
    if let Some((psn, attempt)) = world.carrier.sent(words[2] as u32 as usize) {
        words[1] = with_high(words[1], if words[1] >> 32 == 0 { psn } else { (words[1] >> 32) as u32 });
        words[2] = words[2] & !u64::from(u32::MAX) | u64::from(attempt);
    }
    let Ok(response) = decode_response(&words) else { return };
    let length = Packet::Response(response).length();
    with_payload(length, |payload| assert!(ToQueuePairs.response(&response, payload), "no other thread holds the QP"));
}

/// Calls `call` with `length` bytes that the peer has sent. They contain no secret.
fn with_payload(length: u32, call: impl FnOnce(&[Segment])) {
    assert!(length <= MAX_PAYLOAD, "{length}");
    let mut bytes = vec![0x11_u8; length as usize];
    // SAFETY: the bytes live until the end of this function, and nothing else uses them.
    let payload = unsafe { Segment::of_raw(bytes.as_mut_ptr(), bytes.len()) };
    call(&[payload]);
}

fn post(world: &mut World, input: &mut Input<'_>) {
    let (choice, length) = (input.byte(), input.short());
    let (address, rkey) = (0x1000, 7);
    let operation = match choice % 8 {
        0 => Operation::Send,
        1 => Operation::SendImmediate { immediate: 1 },
        2 => Operation::Write { address, rkey },
        3 => Operation::WriteImmediate { address, rkey, immediate: 2 },
        4 | 5 => Operation::Read { address, rkey },
        6 => Operation::FetchAdd { address, rkey, add: 1 },
        _ => Operation::CompareSwap { address, rkey, compare: 0, swap: 1 },
    };
    let length = if operation.is_atomic() { 8 } else { length };
    world.post(operation, length, PEER);
}
