//! Reads, and requests without data (sections 9.4.4 and 9.7.4.1).

use rdma_mummy_sys::*;

use crate::packet::*;
use crate::peer::{Options, Peer};

/// The payload of each response to a read except for the last one.
const MTU: usize = 1024;

/// Returns the responses to a read.
fn responses(psn: u32, messages: u32, data: &[u8]) -> Vec<Packet> {
    let last = data.len().div_ceil(MTU) as u32 - 1;
    let response = |(number, data): (u32, &[u8])| {
        let opcode = match number {
            0 if last == 0 => READ_ONLY,
            0 => READ_FIRST,
            number if number == last => READ_LAST,
            _ => READ_MIDDLE,
        };
        let response = packet(opcode, (psn + number) & 0xff_ffff).payload(data);
        if opcode == READ_MIDDLE { response } else { response.aeth(ACK, messages) }
    };
    (0..).zip(data.chunks(MTU)).map(response).collect()
}

#[test]
fn read_of_no_bytes_ignores_its_key() {
    let peer = Peer::new();
    peer.exchange(&[packet(READ, 100).reth(0, 0, 0)], &[packet(READ_ONLY, 100).aeth(ACK, 1)]);
    peer.exchange(&[packet(READ, 101).reth(u64::MAX, 5, 0)], &[packet(READ_ONLY, 101).aeth(ACK, 2)]);
    peer.exchange(&[packet(READ, 100).reth(0, 0, 0)], &[packet(READ_ONLY, 100).aeth(ACK, 2)]);
    peer.close();
}

#[test]
fn write_of_no_bytes_ignores_its_key() {
    let peer = Peer::new();
    peer.exchange(&[packet(WRITE_ONLY, 100).reth(0, 0, 0).asks()], &[acknowledgement(100, ACK, 1)]);
    peer.exchange(&[packet(WRITE_ONLY, 101).reth(u64::MAX, 5, 0).asks()], &[acknowledgement(101, ACK, 2)]);
    peer.close();
}

#[test]
fn send_of_no_bytes_consumes_a_receive() {
    let peer = Peer::new();
    peer.side.receive(1, &mut []);
    peer.exchange(&[packet(SEND_ONLY, 100).asks()], &[acknowledgement(100, ACK, 1)]);
    assert_eq!(peer.side.done(1).byte_len, 0);
    peer.close();
}

#[test]
fn read_takes_a_psn_for_each_response() {
    let mut peer = Peer::with(Options { psn: 0xff_fffe, ..Options::default() });
    peer.side.receive(1, &mut [peer.side.piece(60_000, 64)]);
    peer.side.buffer.iter_mut().zip((0..=250).cycle()).for_each(|(byte, value)| *byte = value);
    let (address, rkey) = (peer.side.address(), peer.side.rkey());
    let read = packet(READ, 0xff_fffe).reth(address, rkey, 4 * 1024);
    peer.exchange(&[read], &responses(0xff_fffe, 1, &peer.side.buffer[..4096]));
    peer.exchange(&[packet(SEND_ONLY, 2).payload(*b"next").asks()], &[acknowledgement(2, ACK, 2)]);
    peer.close();
}

#[test]
fn reads_in_flight_are_all_answered_completely() {
    const LENGTH: usize = 64 << 10;
    let mut peer = Peer::with(Options { depth: 8, bytes: 8 * LENGTH, ..Options::default() });
    for (place, word) in peer.side.buffer.as_chunks_mut().0.iter_mut().enumerate() {
        *word = (place as u32).to_be_bytes();
    }
    let (address, rkey) = (peer.side.address(), peer.side.rkey());
    for number in 0..8 {
        let (psn, offset) = (100 + number * 64, u64::from(number) * LENGTH as u64);
        peer.send(&packet(READ, psn).reth(address + offset, rkey, LENGTH as u32));
    }
    for (place, data) in peer.side.buffer.chunks(MTU).enumerate() {
        let response = peer.next();
        assert_eq!((response.psn, response.payload == data), (100 + place as u32, true), "{place}");
        let opcode = match place % 64 {
            0 => READ_FIRST,
            63 => READ_LAST,
            _ => READ_MIDDLE,
        };
        assert_eq!(response.opcode, opcode);
    }
    peer.exchange(&[packet(WRITE_ONLY, 612).reth(0, 0, 0).asks()], &[acknowledgement(612, ACK, 9)]);
    peer.close();
}

#[test]
fn long_read_has_one_msn_in_all_responses() {
    let peer = Peer::with(Options { bytes: 1 << 20, ..Options::default() });
    let read = packet(READ, 100).reth(peer.side.address(), peer.side.rkey(), 600 << 10);
    peer.exchange(&[read], &responses(100, 1, &peer.side.buffer[..600 << 10]));
    peer.close();
}

#[test]
fn reads_that_the_qp_does_not_take_are_invalid() {
    let peer = Peer::with(Options { depth: 0, ..Options::default() });
    let read = packet(READ, 100).reth(peer.side.address(), peer.side.rkey(), 8);
    peer.exchange(&[read], &[acknowledgement(100, INVALID_REQUEST, 0)]);
    peer.close();
}

#[test]
fn reads_beyond_the_depth_are_answered_in_turn() {
    let peer = Peer::with(Options { depth: 1, ..Options::default() });
    let reads = [100, 101, 102].map(|psn| packet(READ, psn).reth(peer.side.address(), peer.side.rkey(), 8));
    // The device needs resources only for answers that wait, as rdma_rxe does.
    peer.exchange(&reads, &[1, 2, 3].map(|number| packet(READ_ONLY, 99 + number).aeth(ACK, number).payload([0; 8])));
    // It keeps the last of them.
    peer.exchange(&reads, &[packet(READ_ONLY, 102).aeth(ACK, 3).payload([0; 8])]);
    peer.close();
}

#[test]
fn responses_precede_the_acknowledgement_of_later_requests() {
    let peer = Peer::new();
    peer.side.receive(1, &mut [peer.side.piece(0, 64)]);
    let (address, rkey) = (peer.side.address(), peer.side.rkey());
    let requests = [
        packet(READ, 100).reth(address, rkey, 4096),
        packet(WRITE_ONLY, 104).reth(address, rkey, 4).payload(*b"data"),
        packet(SEND_ONLY, 105).payload(*b"more").asks(),
    ];
    requests.iter().for_each(|request| peer.send(request));
    for psn in 100..104 {
        let response = peer.next();
        assert_eq!((response.psn, response.payload.len()), (psn, 1024));
    }
    assert_eq!(peer.next(), acknowledgement(105, ACK, 3));
    assert_eq!(peer.side.done(1).opcode, ibv_wc_opcode::IBV_WC_RECV);
    peer.close();
}
