//! Tests of packets that go from one end to the other and back.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::{RecvFlags, SendFlags};

use super::{end, part, response, until};
use crate::ipc::incoming::Waiting;
use crate::ipc::ring::{Producer, Ring};
use crate::ipc::session::{RING, SHARED};
use crate::ipc::shared::Shared;
use crate::ipc::{block, codec, socket};
use crate::sys::descriptor::Descriptor;
use crate::wire::packet::{BLOCK, MAX_PAYLOAD, Packet, Payload};
use crate::wire::transport::{Routes, Stuck};

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn part_arrives_and_its_response_returns() {
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let number = block * BLOCK + 17;
    let carrier = here.host.carrier(number).unwrap();
    let bytes: Vec<u8> = (0..10_000).map(|index| index as u8).collect();
    carrier.put(&Packet::Part(part(number, 10_000)), Payload::Bytes(&bytes)).unwrap();
    until(|| !there.seen.parts.lock().unwrap().is_empty());
    let (came, payload) = there.seen.parts.lock().unwrap().remove(0);
    assert_eq!((came.number, came.request.source_number, came.attempt), (number, 7, 3));
    assert!(payload == bytes);
    let back = there.seen.back.lock().unwrap().take().unwrap();
    back.put(&Packet::Response(response(7)), Payload::Bytes(&[])).unwrap();
    until(|| !here.seen.responses.lock().unwrap().is_empty());
    assert_eq!(here.seen.responses.lock().unwrap()[0].0, response(7));
    assert_eq!(here.seen.lost.load(Ordering::SeqCst), 0);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn packets_before_the_handshake_are_not_lost() {
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let carrier = here.host.carrier(block * BLOCK).unwrap();
    for length in 0..100 {
        carrier.put(&Packet::Part(part(block * BLOCK, length)), Payload::Bytes(&[1; 100][..length as usize])).unwrap();
    }
    until(|| there.seen.parts.lock().unwrap().len() == 100);
    let parts = there.seen.parts.lock().unwrap();
    assert!(
        parts.iter().zip(0..).all(|((part, bytes), length)| part.length == length && bytes.len() == length as usize)
    );
    let again = here.host.carrier(block * BLOCK + 1).unwrap();
    assert!(Arc::ptr_eq(&carrier, &again), "one session for the block");
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn unknown_block_and_own_block_have_no_carrier() {
    let here = end();
    let own = here.host.claim().unwrap();
    assert!(here.host.carrier(own * BLOCK + 3).is_none());
    // This block belonged to another process before.
    let (gone, listener) = block::claim().unwrap();
    drop(listener);
    for _ in 0..1000 {
        assert!(here.host.carrier(gone * BLOCK).is_none());
    }
    assert!(here.host.carrier(u32::MAX).is_none());
    assert!(here.host.carrier(0).is_none());
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn packet_that_does_not_match_the_role_is_refused() {
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let carrier = here.host.carrier(block * BLOCK).unwrap();
    assert_eq!(carrier.put(&Packet::Response(response(7)), Payload::Bytes(&[])), Err(Stuck::Lost));
    let mut long = part(block * BLOCK, MAX_PAYLOAD + 1);
    assert_eq!(carrier.put(&Packet::Part(long), Payload::Bytes(&[0; MAX_PAYLOAD as usize + 1])), Err(Stuck::Lost));
    long.length = 1;
    assert_eq!(carrier.put(&Packet::Part(long), Payload::Bytes(&[0])), Ok(()));
}

/// Connects as a client of `ipc` does, so that a test can then violate the protocol.
fn client(block: u32) -> (Descriptor, Shared) {
    let socket = socket::new().unwrap();
    rustix::net::connect(&socket, &socket::address(&block::name(block)).unwrap()).unwrap();
    let (shared, memory) = Shared::create(SHARED).unwrap();
    socket::send_handshake(socket.as_fd(), memory.as_fd(), RING as u32).unwrap();
    (socket, shared)
}

fn is_closed(socket: &Descriptor) -> bool {
    rustix::net::recv(socket, &mut [0; 1], RecvFlags::DONTWAIT).is_ok_and(|(length, _)| length == 0)
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn protocol_violation_ends_only_its_own_session() {
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let carrier = here.host.carrier(block * BLOCK).unwrap();
    // The violations are an invalid tail, an invalid record, and an incomplete record.
    for (tail, first) in [(1 << 40, 0), (128, u64::MAX), (64, 0)] {
        let (socket, shared) = client(block);
        shared.store(4096, first, Ordering::Relaxed);
        shared.store(0, tail, Ordering::Release);
        socket::send_wakeup(&socket);
        until(|| is_closed(&socket));
    }
    until(|| there.seen.lost.load(Ordering::SeqCst) == 3);
    assert!(there.seen.parts.lock().unwrap().is_empty());
    carrier.put(&Packet::Part(part(block * BLOCK, 1)), Payload::Bytes(&[1])).unwrap();
    until(|| there.seen.parts.lock().unwrap().len() == 1);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn invalid_handshake_is_rejected() {
    let there = end();
    let block = there.host.claim().unwrap();
    let connected = || {
        let socket = socket::new().unwrap();
        rustix::net::connect(&socket, &socket::address(&block::name(block)).unwrap()).unwrap();
        socket
    };
    let silent = connected();
    let wordy = connected();
    rustix::net::send(&wordy, &[0; 100], SendFlags::NOSIGNAL).unwrap();
    let empty_handed = connected();
    rustix::net::send(&empty_handed, b"softrnic\x01\0\0\0\0\0\x08\0", SendFlags::NOSIGNAL).unwrap();
    let other = connected();
    let (_, memory) = Shared::create(SHARED + 4096).unwrap();
    socket::send_handshake(other.as_fd(), memory.as_fd(), RING as u32).unwrap();
    let (_, memory) = Shared::create(SHARED).unwrap();
    let another = connected();
    socket::send_handshake(another.as_fd(), memory.as_fd(), RING as u32 / 2).unwrap();
    for socket in [&wordy, &empty_handed, &other, &another] {
        until(|| is_closed(socket));
    }
    assert!(!is_closed(&silent), "the handshake has not timed out");
    assert_eq!(there.seen.lost.load(Ordering::SeqCst), 0, "no session began");
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn connection_flood_is_accepted_in_batches() {
    let there = end();
    // Only this test accepts the connections to the block.
    let (block, listener) = block::claim().unwrap();
    there.host.claim().unwrap();
    let connect = |_| {
        let socket = socket::new().unwrap();
        rustix::net::connect(&socket, &socket::address(&block::name(block)).unwrap()).unwrap();
        socket
    };
    let guests: Vec<_> = (0..100).map(connect).collect();
    let (mut waiting, peers) = (Waiting::default(), there.host.0.get());
    for expected in [64, 100] {
        waiting.accept(peers, peers.sockets.get().unwrap().place, &listener).unwrap();
        assert_eq!(waiting.len(), expected);
    }
    drop(guests);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn packets_sent_before_the_end_are_delivered() {
    let there = end();
    let block = there.host.claim().unwrap();
    let (socket, shared) = client(block);
    let shared = Arc::new(shared);
    let mut producer = Producer::new(Ring::new(shared, 0, 4096, RING));
    for number in 0..500 {
        let (words, _) = codec::encode(&Packet::Part(part(number, 0)));
        producer.put(&words, Payload::Bytes(&[]), 0, 0).unwrap();
    }
    drop(socket);
    until(|| there.seen.lost.load(Ordering::SeqCst) == 1);
    assert_eq!(there.seen.parts.lock().unwrap().len(), 500);
    let back = there.seen.back.lock().unwrap().take().unwrap();
    assert_eq!(back.put(&Packet::Response(response(7)), Payload::Bytes(&[])), Err(Stuck::Lost));
}
