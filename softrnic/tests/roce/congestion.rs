//! Marks of routers (ECN), and congestion notifications (annex A17.9.3).

use crate::packet::*;
use crate::peer::Peer;

#[test]
fn marked_packet_is_answered_by_a_notification() {
    let peer = Peer::new();
    peer.send_marked(&packet(WRITE_ONLY, 100).reth(0, 0, 0).asks());
    let mut answers = [peer.next(), peer.next()];
    answers.sort_by_key(|packet| packet.opcode);
    assert_eq!(answers[0], acknowledgement(100, ACK, 1));
    assert_eq!((answers[1].opcode, &answers[1].payload[..]), (CONGESTION, &[0; 16][..]));
    peer.exchange(&[packet(WRITE_ONLY, 101).reth(0, 0, 0).asks()], &[acknowledgement(101, ACK, 2)]);
    peer.close();
}

/// Without this announcement, routers drop packets instead of marking them.
#[test]
fn packets_announce_that_the_sender_responds_to_marks() {
    let peer = Peer::new();
    peer.send(&packet(WRITE_ONLY, 100).reth(0, 0, 0).asks());
    assert_eq!(peer.next_type_of_service(), 2);
    peer.close();
}
