//! Requests that arrive again: the device executes none of them twice, and answers each (section 9.7.5).

use rdma_mummy_sys::*;

use crate::packet::*;
use crate::peer::Peer;

#[test]
fn duplicate_send_is_acknowledged_and_received_once() {
    let peer = Peer::new();
    peer.side.receive(1, &mut [peer.side.piece(0, 64)]);
    peer.side.receive(2, &mut [peer.side.piece(64, 64)]);
    let first = packet(SEND_ONLY, 100).payload(*b"first").asks();
    peer.exchange(std::slice::from_ref(&first), &[acknowledgement(100, ACK, 1)]);
    let second = packet(SEND_ONLY, 101).payload(*b"second").asks();
    peer.exchange(&[second], &[acknowledgement(101, ACK, 2)]);
    // The acknowledgement is the latest one.
    peer.exchange(&[first], &[acknowledgement(101, ACK, 2)]);
    assert_eq!((peer.side.done(1).byte_len, peer.side.done(2).byte_len), (5, 6));
    assert!(peer.side.poll().is_none());
    assert_eq!((&peer.side.buffer[..5], &peer.side.buffer[64..70]), (&b"first"[..], &b"second"[..]));
    peer.close();
}

#[test]
fn duplicate_write_is_acknowledged_and_changes_nothing() {
    let mut peer = Peer::new();
    let (address, rkey) = (peer.side.address(), peer.side.rkey());
    let write = packet(WRITE_ONLY, 100).reth(address, rkey, 4).payload(*b"data").asks();
    peer.exchange(std::slice::from_ref(&write), &[acknowledgement(100, ACK, 1)]);
    assert_eq!(&peer.side.buffer[..4], b"data");
    peer.side.buffer[..4].copy_from_slice(b"mine");
    peer.exchange(&[write], &[acknowledgement(100, ACK, 1)]);
    assert_eq!(&peer.side.buffer[..4], b"mine");
    peer.close();
}

#[test]
fn duplicate_read_returns_the_data_again() {
    let mut peer = Peer::new();
    let data: Vec<u8> = (0..2500_u32).map(|place| (place * 7 % 251) as u8).collect();
    peer.side.buffer[..2500].copy_from_slice(&data);
    let (address, rkey) = (peer.side.address(), peer.side.rkey());
    let read = packet(READ, 100).reth(address, rkey, 2500);
    let answers = [
        packet(READ_FIRST, 100).aeth(ACK, 1).payload(&data[..1024]),
        packet(READ_MIDDLE, 101).payload(&data[1024..2048]),
        packet(READ_LAST, 102).aeth(ACK, 1).payload(&data[2048..]),
    ];
    peer.exchange(std::slice::from_ref(&read), &answers);
    peer.exchange(&[read], &answers);
    // The peer lacks only the second packet, and the rest.
    let rest = packet(READ, 101).reth(address + 1024, rkey, 1476);
    let [_, _, last] = answers;
    peer.exchange(&[rest], &[packet(READ_FIRST, 101).aeth(ACK, 1).payload(&data[1024..2048]), last.clone()]);
    peer.exchange(&[packet(READ, 102).reth(address + 2048, rkey, 452)], &[Packet { opcode: READ_ONLY, ..last }]);
    peer.close();
}

#[test]
fn duplicate_read_of_other_memory_is_dropped() {
    let peer = Peer::new();
    let (address, rkey) = (peer.side.address(), peer.side.rkey());
    let small = packet(READ, 100).reth(address + 8, rkey, 8);
    let data = packet(READ_ONLY, 100).aeth(ACK, 1).payload([0; 8]);
    peer.exchange(std::slice::from_ref(&small), std::slice::from_ref(&data));
    for reth in [(address + 8, rkey, 9), (address, rkey, 8), (address + 9, rkey, 8), (address + 8, rkey ^ 1, 8)] {
        peer.send(&packet(READ, 100).reth(reth.0, reth.1, reth.2));
    }
    peer.exchange(&[small], &[data]);
    peer.close();
}

/// The peer has all data, and its program has allowed this one to end the access. A packet that was late must not end the
/// connection.
#[test]
fn duplicate_read_of_memory_that_is_gone_is_dropped() {
    let mut peer = Peer::new();
    peer.side.receive(1, &mut [peer.side.piece(0, 64)]);
    let address = peer.side.address() + 100;
    // SAFETY: the buffer outlives the region, and nothing else uses these bytes.
    let region = unsafe {
        let place = peer.side.buffer.as_mut_ptr().add(100).cast();
        ibv_reg_mr(peer.side.pd, place, 8, ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 as i32)
    };
    assert!(!region.is_null());
    // SAFETY: the region exists.
    let read = packet(READ, 100).reth(address, unsafe { (*region).rkey }, 8);
    peer.exchange(std::slice::from_ref(&read), &[packet(READ_ONLY, 100).aeth(ACK, 1).payload([0; 8])]);
    // SAFETY: nothing else uses the region.
    assert_eq!(unsafe { ibv_dereg_mr(region) }, 0);
    let send = packet(SEND_ONLY, 101).payload(*b"later").asks();
    peer.exchange(&[read, send], &[acknowledgement(101, ACK, 2)]);
    assert_eq!(peer.side.done(1).byte_len, 5);
    peer.close();
}

#[test]
fn duplicate_atomic_returns_the_saved_result() {
    let mut peer = Peer::new();
    let place = peer.side.buffer.as_ptr().align_offset(8);
    peer.side.buffer[place..place + 8].copy_from_slice(&5_u64.to_ne_bytes());
    let (address, rkey) = (peer.side.address() + place as u64, peer.side.rkey());
    let add = packet(FETCH_ADD, 100).atomic(address, rkey, [3, 0]);
    let swap = packet(COMPARE_SWAP, 101).atomic(address, rkey, [77, 8]);
    let answers = [
        packet(ATOMIC_ACKNOWLEDGE, 100).aeth(ACK, 1).original(5),
        packet(ATOMIC_ACKNOWLEDGE, 101).aeth(ACK, 2).original(8),
    ];
    peer.exchange(&[add.clone(), swap.clone()], &answers);
    // The MSN is that of the last message.
    let again = [answers[1].clone(), packet(ATOMIC_ACKNOWLEDGE, 100).aeth(ACK, 2).original(5)];
    peer.exchange(&[swap, add], &again);
    assert_eq!(peer.side.buffer[place..place + 8], 77_u64.to_ne_bytes());
    peer.close();
}

#[test]
fn duplicate_atomic_write_is_not_executed_again() {
    let mut peer = Peer::new();
    let place = peer.side.buffer.as_ptr().align_offset(8);
    let (address, rkey) = (peer.side.address() + place as u64, peer.side.rkey());
    let write = packet(ATOMIC_WRITE, 100).reth(address, rkey, 8).payload(*b"original");
    let done = packet(READ_ONLY, 100).aeth(ACK, 1);
    peer.exchange(std::slice::from_ref(&write), std::slice::from_ref(&done));
    assert_eq!(&peer.side.buffer[place..place + 8], b"original");
    peer.side.buffer[place] = 0;
    peer.exchange(&[write], &[done]);
    assert_eq!(peer.side.buffer[place], 0);
    peer.close();
}

#[test]
fn forgotten_atomic_is_dropped() {
    let mut peer = Peer::new();
    let place = peer.side.buffer.as_ptr().align_offset(8);
    let (address, rkey) = (peer.side.address() + place as u64, peer.side.rkey());
    // The device keeps the results of four requests.
    for number in 0..5 {
        let answer = packet(ATOMIC_ACKNOWLEDGE, 100 + number).aeth(ACK, number + 1).original(number.into());
        peer.exchange(&[packet(FETCH_ADD, 100 + number).atomic(address, rkey, [1, 0])], &[answer]);
    }
    peer.send(&packet(FETCH_ADD, 100).atomic(address, rkey, [1, 0]));
    let saved = packet(ATOMIC_ACKNOWLEDGE, 101).aeth(ACK, 5).original(1);
    peer.exchange(&[packet(FETCH_ADD, 101).atomic(address, rkey, [1, 0])], &[saved]);
    assert_eq!(peer.side.buffer[place..place + 8], 5_u64.to_ne_bytes());
    peer.side.buffer.fill(0);
    peer.close();
}
