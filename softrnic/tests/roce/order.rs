//! Packets that are missing or not ready to be executed (section 9.7.5).

use crate::packet::*;
use crate::peer::{Options, Peer};

fn send(psn: u32) -> Packet {
    packet(SEND_ONLY, psn).payload(*b"data")
}

#[test]
fn gap_is_reported_once_until_it_is_filled() {
    let peer = Peer::new();
    (0..8).for_each(|wr_id| peer.side.receive(wr_id, &mut [peer.side.piece(0, 64)]));
    peer.exchange(&[send(101), send(102), send(103)], &[acknowledgement(100, SEQUENCE, 0)]);
    peer.exchange(&[send(100), send(101), send(102), send(103).asks()], &[acknowledgement(103, ACK, 4)]);
    peer.done(0..4);
    assert!(peer.side.poll().is_none());
    // A later gap is another one.
    peer.exchange(&[send(106), send(107)], &[acknowledgement(104, SEQUENCE, 4)]);
    peer.exchange(&[send(104).asks()], &[acknowledgement(104, ACK, 5)]);
    peer.exchange(&[send(106)], &[acknowledgement(105, SEQUENCE, 5)]);
    peer.exchange(&[send(105), send(106).asks()], &[acknowledgement(106, ACK, 7)]);
    peer.close();
}

#[test]
fn gap_in_a_message_keeps_its_first_packets() {
    let peer = Peer::new();
    peer.side.receive(1, &mut [peer.side.piece(0, 4096)]);
    let parts = [
        packet(SEND_FIRST, 100).payload([1; 1024]),
        packet(SEND_MIDDLE, 101).payload([2; 1024]),
        packet(SEND_LAST, 102).payload([3; 10]).asks(),
    ];
    peer.exchange(&[parts[0].clone(), parts[2].clone()], &[acknowledgement(101, SEQUENCE, 0)]);
    peer.exchange(&parts[1..], &[acknowledgement(102, ACK, 1)]);
    assert_eq!(peer.side.done(1).byte_len, 2058);
    assert_eq!((peer.side.buffer[1023], peer.side.buffer[2047], peer.side.buffer[2057]), (1, 2, 3));
    peer.close();
}

#[test]
fn psn_wraps_from_its_maximum_to_zero() {
    let peer = Peer::with(Options { psn: 0xff_ffff, ..Options::default() });
    (0..3).for_each(|wr_id| peer.side.receive(wr_id, &mut [peer.side.piece(0, 64)]));
    peer.exchange(&[send(1)], &[acknowledgement(0xff_ffff, SEQUENCE, 0)]);
    peer.exchange(&[send(0xff_ffff).asks()], &[acknowledgement(0xff_ffff, ACK, 1)]);
    peer.exchange(&[send(0), send(1).asks()], &[acknowledgement(1, ACK, 3)]);
    peer.exchange(&[send(0xff_ffff).asks()], &[acknowledgement(1, ACK, 3)]);
    peer.close();
}

#[test]
fn send_without_a_receive_is_repeated_after_an_rnr_nak() {
    let peer = Peer::new();
    // The packets after it are dropped, because they are sent again too.
    peer.exchange(&[send(100).asks(), send(101), send(102)], &[acknowledgement(100, NOT_READY | 13, 0)]);
    peer.exchange(&[send(100).asks()], &[acknowledgement(100, NOT_READY | 13, 0)]);
    peer.side.receive(1, &mut [peer.side.piece(0, 64)]);
    peer.exchange(&[send(100).asks()], &[acknowledgement(100, ACK, 1)]);
    assert_eq!(peer.side.done(1).byte_len, 4);
    peer.exchange(&[send(101)], &[acknowledgement(101, NOT_READY | 13, 1)]);
    peer.close();
}

#[test]
fn long_send_without_a_receive_is_repeated_from_its_first_packet() {
    let peer = Peer::new();
    let parts = [packet(SEND_FIRST, 100).payload([1; 1024]), packet(SEND_LAST, 101).payload([2; 4]).asks()];
    peer.exchange(&parts, &[acknowledgement(100, NOT_READY | 13, 0)]);
    peer.side.receive(1, &mut [peer.side.piece(0, 2048)]);
    peer.exchange(&parts, &[acknowledgement(101, ACK, 1)]);
    assert_eq!(peer.side.done(1).byte_len, 1028);
    peer.close();
}

#[test]
fn write_with_immediate_without_a_receive_repeats_its_last_packet() {
    let peer = Peer::new();
    let (address, rkey) = (peer.side.address(), peer.side.rkey());
    let last = packet(WRITE_LAST_IMMEDIATE, 101).immediate(0x0102_0304).payload([2; 4]).asks();
    peer.send(&packet(WRITE_FIRST, 100).reth(address, rkey, 1028).payload([1; 1024]));
    peer.exchange(std::slice::from_ref(&last), &[acknowledgement(101, NOT_READY | 13, 0)]);
    peer.side.receive(1, &mut []);
    peer.exchange(&[last], &[acknowledgement(101, ACK, 1)]);
    let received = peer.side.done(1);
    // SAFETY: the completion has immediate data.
    assert_eq!((received.byte_len, unsafe { received.__bindgen_anon_1.imm_data }), (1028, 0x0102_0304_u32.to_be()));
    peer.close();
}
