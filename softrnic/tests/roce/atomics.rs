//! Atomics (section 9.4.5).

use crate::packet::*;
use crate::peer::Peer;

/// Returns the offset and the address of an aligned word, and stores its value.
fn word(peer: &mut Peer, value: u64) -> (usize, u64) {
    let place = peer.side.buffer.as_ptr().align_offset(8);
    peer.side.buffer[place..place + 8].copy_from_slice(&value.to_ne_bytes());
    (place, peer.side.address() + place as u64)
}

#[test]
fn original_value_is_in_the_byte_order_of_the_network() {
    let mut peer = Peer::new();
    let (place, address) = word(&mut peer, 0x0102_0304_0506_0708);
    peer.send(&packet(FETCH_ADD, 100).atomic(address, peer.side.rkey(), [0x10, 0]));
    let answer = peer.next();
    assert_eq!((answer.opcode, answer.psn), (ATOMIC_ACKNOWLEDGE, 100));
    assert_eq!(answer.headers, [0x1f, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(peer.side.buffer[place..place + 8], 0x0102_0304_0506_0718_u64.to_ne_bytes());
    peer.close();
}

#[test]
fn swap_requires_the_compared_value() {
    let mut peer = Peer::new();
    let ((place, address), rkey) = (word(&mut peer, 7), peer.side.rkey());
    let swap = |psn, operands| packet(COMPARE_SWAP, psn).atomic(address, rkey, operands);
    let answer = |psn, messages, value| packet(ATOMIC_ACKNOWLEDGE, psn).aeth(ACK, messages).original(value);
    peer.exchange(&[swap(100, [9, 8])], &[answer(100, 1, 7)]);
    assert_eq!(peer.side.buffer[place..place + 8], 7_u64.to_ne_bytes());
    peer.exchange(&[swap(101, [u64::MAX, 7])], &[answer(101, 2, 7)]);
    let add = packet(FETCH_ADD, 102).atomic(address, rkey, [2, 0]);
    peer.exchange(&[add], &[answer(102, 3, u64::MAX)]);
    assert_eq!(peer.side.buffer[place..place + 8], 1_u64.to_ne_bytes());
    peer.close();
}

#[test]
fn unaligned_address_is_invalid() {
    for (opcode, offset) in [(FETCH_ADD, 1), (FETCH_ADD, 4), (COMPARE_SWAP, 7), (ATOMIC_WRITE, 4)] {
        let mut peer = Peer::new();
        let (_, address) = word(&mut peer, 0);
        let (address, rkey) = (address + offset, peer.side.rkey());
        let request = match opcode {
            ATOMIC_WRITE => packet(opcode, 100).reth(address, rkey, 8).payload([1; 8]),
            opcode => packet(opcode, 100).atomic(address, rkey, [1, 0]),
        };
        peer.send(&request);
        assert_eq!(peer.next(), acknowledgement(100, INVALID_REQUEST, 0), "{opcode:x} {offset}");
        peer.fails();
    }
}
