//! Packets that belong to no connection, or were damaged or forged: the device drops them, and connections go on.

use crate::packet::*;
use crate::peer::{NUMBER, Peer};

/// Checks that no packet was answered, and that the connection works.
#[track_caller]
fn is_unharmed(peer: Peer) {
    peer.side.receive(77, &mut [peer.side.piece(0, 64)]);
    peer.exchange(&[packet(SEND_ONLY, 100).payload(*b"good").asks()], &[acknowledgement(100, ACK, 1)]);
    assert_eq!(peer.side.done(77).byte_len, 4);
    assert!(peer.side.poll().is_none());
    peer.close();
}

fn write(peer: &Peer) -> Packet {
    packet(WRITE_ONLY, 100).reth(peer.side.address(), peer.side.rkey(), 4).payload(*b"evil").asks()
}

#[test]
fn damaged_packet_is_dropped() {
    let peer = Peer::new();
    let bytes = write(&peer).bytes(peer.side.number());
    for damage in [[0; 4], [0xff; 4], [1, 2, 3, 4]] {
        peer.send_datagram(&[&bytes[..], &damage].concat());
    }
    assert_eq!(peer.side.buffer[..4], [0; 4]);
    is_unharmed(peer);
}

#[test]
fn truncated_packet_is_dropped() {
    let peer = Peer::new();
    let requests = [
        write(&peer),
        packet(READ, 100).reth(peer.side.address(), peer.side.rkey(), 4),
        packet(FETCH_ADD, 100).atomic(peer.side.address(), peer.side.rkey(), [1, 0]),
        packet(COMPARE_SWAP, 100).atomic(peer.side.address(), peer.side.rkey(), [1, 0]),
        packet(ATOMIC_WRITE, 100).reth(peer.side.address(), peer.side.rkey(), 8).payload([1; 8]),
        acknowledgement(200, ACK, 1),
        packet(ATOMIC_ACKNOWLEDGE, 200).aeth(ACK, 1).original(1),
        packet(READ_ONLY, 200).aeth(ACK, 1),
        packet(CONGESTION, 0).payload([0; 16]),
    ];
    for request in requests {
        let bytes = request.bytes(peer.side.number());
        let headers = 12 + request.headers.len() + if request.opcode == ATOMIC_WRITE { 8 } else { 0 };
        // Also with a right ICRC.
        (0..headers).for_each(|length| peer.send_bytes(&bytes[..length]));
        (0..bytes.len()).for_each(|length| peer.send_datagram(&bytes[..length]));
    }
    assert_eq!(peer.side.buffer[..8], [0; 8]);
    is_unharmed(peer);
}

#[test]
fn packet_from_another_address_is_dropped() {
    let peer = Peer::new();
    peer.send_elsewhere(&write(&peer));
    peer.send_elsewhere(&packet(SEND_ONLY, 105).asks());
    peer.send_elsewhere(&packet(CONGESTION, 0).payload([0; 16]));
    assert_eq!(peer.side.buffer[..4], [0; 4]);
    is_unharmed(peer);
}

#[test]
fn packet_for_another_qp_is_dropped() {
    let peer = Peer::new();
    for number in [0, 1, 2, NUMBER, 0xff_fffe, 0xff_ffff, peer.side.number() + 1, peer.side.number() ^ 0x80_0000] {
        peer.send_bytes(&write(&peer).bytes(number));
    }
    is_unharmed(peer);
}

#[test]
fn packet_with_another_header_is_dropped() {
    let peer = Peer::new();
    let good = write(&peer).bytes(peer.side.number());
    let with = |place: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[place] = value;
        peer.send_bytes(&bytes);
    };
    // The opcodes of the other services, reserved ones, and those that no requester sends.
    for opcode in [0x2a, 0x4a, 0x6a, 0x8a, 0xaa, 0xca, 0xea, 0x15, 0x18, 0x1e, 0x1f, 0x12, 0x0f, 0x10, 0x80] {
        with(0, opcode);
    }
    (1..16).for_each(|version| with(1, good[1] | version));
    // Only the default partition exists.
    for (place, value) in [(2, 0x00), (2, 0xfe), (3, 0x00), (3, 0xfe)] {
        with(place, value);
    }
    assert_eq!(peer.side.buffer[..4], [0; 4]);
    is_unharmed(peer);
}

#[test]
fn padding_that_exceeds_the_payload_is_dropped() {
    let peer = Peer::new();
    for padding in 1..4 {
        let mut bytes = packet(SEND_ONLY, 100).bytes(peer.side.number());
        bytes[1] |= padding << 4;
        peer.send_bytes(&bytes);
    }
    is_unharmed(peer);
}

#[test]
fn reserved_bits_are_ignored() {
    let peer = Peer::new();
    let mut bytes = packet(WRITE_ONLY, 100).reth(0, 0, 0).asks().bytes(peer.side.number());
    // MigReq is clear, and FECN, BECN and the reserved bits are set.
    (bytes[1], bytes[4], bytes[8]) = (0, 0xff, 0xff);
    peer.send_bytes(&bytes);
    assert_eq!(peer.next(), acknowledgement(100, ACK, 1));
    peer.close();
}

#[test]
fn psn_far_from_the_expected_one_is_not_executed() {
    let peer = Peer::new();
    let evil = write(&peer);
    // The largest PSN that counts as a later one, and the smallest one that counts as a duplicate.
    let (late, early) = (100 + (1 << 23) - 1, 100 + (1 << 23));
    peer.exchange(&[Packet { psn: late, ..evil.clone() }], &[acknowledgement(100, SEQUENCE, 0)]);
    peer.exchange(&[Packet { psn: early, ..evil }], &[acknowledgement(99, ACK, 0)]);
    peer.send(&packet(READ, early).reth(peer.side.address(), peer.side.rkey(), 4));
    assert_eq!(peer.side.buffer[..4], [0; 4]);
    is_unharmed(peer);
}

#[test]
fn response_without_a_request_is_dropped() {
    let peer = Peer::new();
    for psn in [199, 200, 201] {
        peer.send(&acknowledgement(psn, INVALID_REQUEST, 1));
        peer.send(&acknowledgement(psn, ACK, 1));
        peer.send(&packet(READ_ONLY, psn).aeth(ACK, 1).payload([1; 4]));
        peer.send(&packet(ATOMIC_ACKNOWLEDGE, psn).aeth(ACK, 1).original(1));
    }
    is_unharmed(peer);
}
