//! Tests that a series of packets has few wake-ups, each of which is a system call of both processes.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{RecvFlags, SocketFlags};

use super::{host, part, response, until};
use crate::ipc::codec::{self, PART_WORDS, RESPONSE_WORDS};
use crate::ipc::ring::{CONTROL, Consumer, Producer, Ring};
use crate::ipc::session::{DATA, RING, SHARED};
use crate::ipc::shared::Shared;
use crate::ipc::{block, socket};
use crate::sys::descriptor::Descriptor;
use crate::wire::bytes::Segment;
use crate::wire::packet::{BLOCK, MAX_PAYLOAD, Packet, Part, Payload, Response};
use crate::wire::transport::{Carrier, Deliver, Routes};

/// Responds to each part.
#[derive(Debug)]
struct Responder {
    /// Whether the next part causes a panic.
    panics: AtomicBool,
}

impl Responder {
    fn new(panics: bool) -> &'static Self {
        Box::leak(Box::new(Self { panics: AtomicBool::new(panics) }))
    }
}

impl Deliver for Responder {
    fn part(&self, _: &Part, _: &[Segment], back: &Arc<dyn Carrier>) {
        back.put(&Packet::Response(response(7)), Payload::Bytes(&[])).unwrap();
        assert!(!self.panics.swap(false, Ordering::SeqCst), "a part of a test");
    }
    fn response(&self, _: &Response, _: &[Segment]) -> bool {
        true
    }
    fn is_settled(&self, _: u32) -> bool {
        true
    }
    fn lost(&self, _: &Arc<dyn Carrier>) {}
}

/// Returns the two rings of a session, for its requester.
fn rings(shared: Shared) -> (Ring, Ring) {
    let shared = Arc::new(shared);
    (Ring::new(Arc::clone(&shared), 0, DATA, RING), Ring::new(shared, CONTROL, DATA + RING, RING))
}

/// Connects to a process. Its requests are in the memory already.
fn connect(victim: u32, memory: impl AsFd) -> Descriptor {
    let client = socket::new().unwrap();
    rustix::net::connect(&client, &socket::address(&block::name(victim)).unwrap()).unwrap();
    socket::send_handshake(client.as_fd(), memory.as_fd(), RING as u32).unwrap();
    client
}

fn put(producer: &mut Producer, victim: u32) {
    let (words, count) = codec::encode(&Packet::Part(part(victim * BLOCK, 0)));
    producer.put(&words[..count], Payload::Bytes(&[]), 0, 0).unwrap();
}

/// Whether a wake-up has arrived.
fn is_woken(socket: &Descriptor) -> bool {
    rustix::net::recv(socket, &mut [0; 1], RecvFlags::DONTWAIT).is_ok_and(|(length, _)| length == 1)
}

/// A receiver that sleeps again after each packet, as one does that is faster than the sender.
#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn parts_of_a_message_share_wake_ups() {
    let here = host(Responder::new(false));
    here.claim().unwrap();
    let (block, listener) = block::claim().unwrap();
    let carrier = here.carrier(block * BLOCK).unwrap();
    let client = Descriptor::new(rustix::net::accept_with(&listener, SocketFlags::CLOEXEC).unwrap()).unwrap();
    let memory = socket::receive_handshake(client.as_fd(), RING as u32).unwrap().unwrap();
    let (parts, _) = rings(Shared::accept(&memory, SHARED).unwrap());
    let mut consumer = Consumer::new(parts.clone(), PART_WORDS);
    let mut woken = |packet: &Packet| {
        parts.park();
        let bytes = [0; MAX_PAYLOAD as usize];
        carrier.put(packet, Payload::Bytes(&bytes[..packet.length() as usize])).unwrap();
        while consumer.next().unwrap().is_some() {
            drop(consumer.take(packet.length()).unwrap());
        }
        consumer.free();
        is_woken(&client)
    };
    let whole = part(block * BLOCK, 10 * MAX_PAYLOAD);
    let mut send = |index: u32| {
        woken(&Packet::Part(Part { offset: u64::from(index * MAX_PAYLOAD), length: MAX_PAYLOAD, ..whole }))
    };
    let expected = [false, false, false, true, false, false, false, true, false, true];
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(&mut send), expected, "each 64 KiB, and the end");
    assert!(woken(&Packet::Part(part(block * BLOCK, 1))), "a message of one part");
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn replies_to_the_packets_that_are_received_together_share_a_wake_up() {
    let here = host(Responder::new(false));
    let victim = here.claim().unwrap();
    let (shared, memory) = Shared::create(SHARED).unwrap();
    let (parts, responses) = rings(shared);
    let (mut producer, mut consumer) = (Producer::new(parts), Consumer::new(responses.clone(), RESPONSE_WORDS));
    (0..10).for_each(|_| put(&mut producer, victim));
    responses.park();
    let client = connect(victim, memory);
    let mut count = 0;
    until(|| {
        while consumer.next().unwrap().is_some() {
            drop(consumer.take(0).unwrap());
            responses.park();
            count += 1;
        }
        count == 10
    });
    until(|| is_woken(&client));
    assert!(!is_woken(&client));
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn panic_of_the_receiver_loses_no_wake_up() {
    let here = host(Responder::new(true));
    let victim = here.claim().unwrap();
    let (shared, memory) = Shared::create(SHARED).unwrap();
    let (parts, responses) = rings(shared);
    let mut producer = Producer::new(parts);
    put(&mut producer, victim);
    responses.park();
    let client = connect(victim, memory);
    until(|| is_woken(&client));
    responses.park();
    put(&mut producer, victim);
    socket::send_wakeup(&client);
    until(|| is_woken(&client));
}
