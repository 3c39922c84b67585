//! Requests for memory that the device does not grant: NAK remote access error, and the QP fails (section 9.7.4.1.5).

use rdma_mummy_sys::*;

use crate::common::ACCESS;
use crate::packet::*;
use crate::peer::{Options, Peer};

/// The length of the registered memory.
const LENGTH: u64 = 8192;

fn options() -> Options {
    Options { bytes: LENGTH as usize, ..Options::default() }
}

/// Returns the requests for eight bytes.
fn requests(address: u64, rkey: u32) -> [Packet; 5] {
    [
        packet(WRITE_ONLY, 100).reth(address, rkey, 8).payload([1; 8]),
        packet(READ, 100).reth(address, rkey, 8),
        packet(FETCH_ADD, 100).atomic(address, rkey, [1, 0]),
        packet(COMPARE_SWAP, 100).atomic(address, rkey, [1, 0]),
        packet(ATOMIC_WRITE, 100).reth(address, rkey, 8).payload([1; 8]),
    ]
}

#[test]
fn access_outside_the_memory_of_a_key_is_refused() {
    for number in 0..requests(0, 0).len() {
        for (case, offset, wrong) in [
            ("wrong key", 0, 0x100),
            ("after the end", LENGTH, 0),
            ("before the start", 8_u64.wrapping_neg(), 0),
            ("across the end of addresses", u64::MAX, 0),
        ] {
            let peer = Peer::with(options());
            let start = peer.side.address().next_multiple_of(8);
            let address = if offset == u64::MAX { 8_u64.wrapping_neg() } else { start.wrapping_add(offset) };
            let request = requests(address, peer.side.rkey() ^ wrong)[number].clone();
            peer.send(&request);
            assert_eq!(peer.next(), acknowledgement(100, REMOTE_ACCESS, 0), "{case}: {request:x?}");
            peer.fails();
        }
    }
}

#[test]
fn access_that_exceeds_the_memory_by_one_byte_is_refused() {
    for is_write in [true, false] {
        let peer = Peer::with(options());
        let (end, rkey) = (peer.side.address() + LENGTH, peer.side.rkey());
        // All of the memory, up to its last byte.
        let (write, read) = (packet(WRITE_ONLY, 100).payload([7; 8]), packet(READ, 101));
        peer.exchange(&[write.reth(end - 8, rkey, 8).asks()], &[acknowledgement(100, ACK, 1)]);
        peer.exchange(&[read.reth(end - 8, rkey, 8)], &[packet(READ_ONLY, 101).aeth(ACK, 2).payload([7; 8])]);
        let request = match is_write {
            true => packet(WRITE_ONLY, 102).reth(end - 8, rkey, 9).payload([7; 9]),
            false => packet(READ, 102).reth(end - 8, rkey, 9),
        };
        peer.exchange(&[request], &[acknowledgement(102, REMOTE_ACCESS, 2)]);
        peer.fails();
    }
}

#[test]
fn long_write_to_too_little_memory_is_refused_at_its_first_packet() {
    let peer = Peer::with(options());
    let (address, rkey) = (peer.side.address(), peer.side.rkey());
    let first = packet(WRITE_FIRST, 100).reth(address, rkey, LENGTH as u32 + 1).payload([9; 1024]);
    peer.exchange(&[first], &[acknowledgement(100, REMOTE_ACCESS, 0)]);
    assert_eq!(peer.side.buffer, [0; LENGTH as usize]);
    peer.fails();
}

#[test]
fn access_that_the_memory_does_not_allow_is_refused() {
    use ibv_access_flags as flag;
    let atomic = flag::IBV_ACCESS_REMOTE_ATOMIC.0;
    let flags = [flag::IBV_ACCESS_REMOTE_WRITE.0, flag::IBV_ACCESS_REMOTE_READ.0, atomic, atomic];
    for (number, missing) in flags.into_iter().enumerate() {
        let peer = Peer::with(Options { access: ACCESS & !missing, ..options() });
        let address = peer.side.address().next_multiple_of(8);
        let request = requests(address, peer.side.rkey())[number].clone();
        peer.exchange(&[request], &[acknowledgement(100, REMOTE_ACCESS, 0)]);
        peer.fails();
    }
}

#[test]
fn operation_that_the_qp_does_not_allow_is_invalid() {
    let peer = || Peer::with(Options { qp_access: ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0, ..options() });
    for number in 0..requests(0, 0).len() {
        let peer = peer();
        let address = peer.side.address().next_multiple_of(8);
        let request = requests(address, peer.side.rkey())[number].clone();
        peer.exchange(&[request], &[acknowledgement(100, INVALID_REQUEST, 0)]);
        peer.fails();
    }
}

#[test]
fn refusal_is_sent_again_if_it_was_lost() {
    let peer = Peer::with(options());
    peer.side.receive(1, &mut [peer.side.piece(0, 64)]);
    let address = peer.side.address();
    let send = packet(SEND_ONLY, 100).payload(*b"data");
    let write = packet(WRITE_ONLY, 101).reth(address, 0, 4).payload(*b"data").asks();
    peer.exchange(&[send, write.clone()], &[acknowledgement(101, REMOTE_ACCESS, 1)]);
    assert_eq!(peer.side.done(1).byte_len, 4);
    peer.exchange(&[write], &[acknowledgement(101, REMOTE_ACCESS, 1)]);
    peer.fails();
}
