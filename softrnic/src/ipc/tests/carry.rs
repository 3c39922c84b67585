//! From one end to the other and back.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::{RecvFlags, SendFlags};

use super::{HERE, answer, end, part, until};
use crate::ipc::incoming::Waiting;
use crate::ipc::ring::{Producer, Ring};
use crate::ipc::session::{RING, SHARED};
use crate::ipc::shared::Shared;
use crate::ipc::{block, codec, socket};
use crate::sys::descriptor::Descriptor;
use crate::wire::packet::{BLOCK, MAX_PAYLOAD, Packet, Payload};
use crate::wire::transport::{Stuck, Transport};

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn a_part_comes_and_its_answer_goes_back() {
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let number = block * BLOCK + 17;
    let way = here.host.carrier(HERE, number).unwrap();
    let bytes: Vec<u8> = (0..10_000).map(|index| index as u8).collect();
    way.put(&Packet::Part(part(number, 10_000)), Payload::Bytes(&bytes)).unwrap();
    until(|| !there.seen.parts.lock().unwrap().is_empty());
    let (came, payload) = there.seen.parts.lock().unwrap().remove(0);
    assert_eq!((came.number, came.request.source_number, came.attempt), (number, 7, 3));
    assert!(payload == bytes);
    let back = there.seen.back.lock().unwrap().take().unwrap();
    back.put(&Packet::Answer(answer(7)), Payload::Bytes(&[])).unwrap();
    until(|| !here.seen.answers.lock().unwrap().is_empty());
    assert_eq!(here.seen.answers.lock().unwrap()[0].0, answer(7));
    assert_eq!(here.seen.lost.load(Ordering::SeqCst), 0);
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn what_is_put_in_before_the_other_end_looks_is_not_lost() {
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let way = here.host.carrier(HERE, block * BLOCK).unwrap();
    for length in 0..100 {
        way.put(&Packet::Part(part(block * BLOCK, length)), Payload::Bytes(&[1; 100][..length as usize])).unwrap();
    }
    until(|| there.seen.parts.lock().unwrap().len() == 100);
    let parts = there.seen.parts.lock().unwrap();
    assert!(
        parts.iter().zip(0..).all(|((part, bytes), length)| part.length == length && bytes.len() == length as usize)
    );
    let again = here.host.carrier(HERE, block * BLOCK + 1).unwrap();
    assert!(Arc::ptr_eq(&way, &again), "one session for the block");
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn nobody_is_no_way_and_neither_is_this_process() {
    let here = end();
    let own = here.host.claim().unwrap();
    assert!(here.host.carrier(HERE, own * BLOCK + 3).is_none());
    // A block that was somebody's.
    let (gone, listener) = block::claim().unwrap();
    drop(listener);
    for _ in 0..1000 {
        assert!(here.host.carrier(HERE, gone * BLOCK).is_none());
    }
    assert!(here.host.carrier(HERE, u32::MAX).is_none());
    assert!(here.host.carrier(HERE, 0).is_none());
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn what_goes_the_wrong_way_is_refused() {
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let way = here.host.carrier(HERE, block * BLOCK).unwrap();
    assert_eq!(way.put(&Packet::Answer(answer(7)), Payload::Bytes(&[])), Err(Stuck::Gone));
    let mut long = part(block * BLOCK, MAX_PAYLOAD + 1);
    assert_eq!(way.put(&Packet::Part(long), Payload::Bytes(&[0; MAX_PAYLOAD as usize + 1])), Err(Stuck::Gone));
    long.length = 1;
    assert_eq!(way.put(&Packet::Part(long), Payload::Bytes(&[0])), Ok(()));
}

/// A client that connects as `ipc` does, and then does as it likes.
fn guest(block: u32) -> (Descriptor, Shared) {
    let socket = socket::new().unwrap();
    rustix::net::connect(&socket, &socket::address(&block::name(block)).unwrap()).unwrap();
    let (shared, memory) = Shared::create(SHARED).unwrap();
    socket::greet(socket.as_fd(), memory.as_fd(), RING as u32).unwrap();
    (socket, shared)
}

fn has_gone(socket: &Descriptor) -> bool {
    rustix::net::recv(socket, &mut [0; 1], RecvFlags::DONTWAIT).is_ok_and(|(length, _)| length == 0)
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn who_sends_garbage_is_sent_away_and_others_are_not() {
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let way = here.host.carrier(HERE, block * BLOCK).unwrap();
    // A tail that cannot be; a record that is none; half of one.
    for (tail, first) in [(1 << 40, 0), (128, u64::MAX), (64, 0)] {
        let (socket, shared) = guest(block);
        shared.store(4096, first, Ordering::Relaxed);
        shared.store(0, tail, Ordering::Release);
        socket::send_wakeup(&socket);
        until(|| has_gone(&socket));
    }
    until(|| there.seen.lost.load(Ordering::SeqCst) == 3);
    assert!(there.seen.parts.lock().unwrap().is_empty());
    way.put(&Packet::Part(part(block * BLOCK, 1)), Payload::Bytes(&[1])).unwrap();
    until(|| there.seen.parts.lock().unwrap().len() == 1);
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn who_greets_with_something_else_is_sent_away() {
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
    socket::greet(other.as_fd(), memory.as_fd(), RING as u32).unwrap();
    let (_, memory) = Shared::create(SHARED).unwrap();
    let another = connected();
    socket::greet(another.as_fd(), memory.as_fd(), RING as u32 / 2).unwrap();
    for socket in [&wordy, &empty_handed, &other, &another] {
        until(|| has_gone(socket));
    }
    assert!(!has_gone(&silent), "it has time");
    assert_eq!(there.seen.lost.load(Ordering::SeqCst), 0, "none was a session");
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn who_connects_in_crowds_is_taken_some_at_a_time() {
    let there = end();
    // Nobody but the test takes them.
    let (block, listener) = block::claim().unwrap();
    there.host.claim().unwrap();
    let connect = |_| {
        let socket = socket::new().unwrap();
        rustix::net::connect(&socket, &socket::address(&block::name(block)).unwrap()).unwrap();
        socket
    };
    let guests: Vec<_> = (0..100).map(connect).collect();
    let mut waiting = Waiting::default();
    for expected in [64, 100] {
        waiting.accept(there.host.0.get(), &listener).unwrap();
        assert_eq!(waiting.len(), expected);
    }
    drop(guests);
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn when_the_other_end_goes_what_it_had_put_in_still_comes() {
    let there = end();
    let block = there.host.claim().unwrap();
    let (socket, shared) = guest(block);
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
    assert_eq!(back.put(&Packet::Answer(answer(7)), Payload::Bytes(&[])), Err(Stuck::Gone));
}
