//! When the device acknowledges, and which acknowledgements of the peer it accepts (section 9.7.5).

use rdma_mummy_sys::*;

use crate::packet::*;
use crate::peer::Peer;

#[test]
fn one_acknowledgement_covers_the_requests_before_it() {
    let peer = Peer::new();
    (0..8).for_each(|wr_id| peer.side.receive(wr_id, &mut [peer.side.piece(0, 64)]));
    let send = |psn| packet(SEND_ONLY, psn).payload(*b"data");
    peer.exchange(&[send(100), send(101), send(102), send(103).asks()], &[acknowledgement(103, ACK, 4)]);
    peer.done(0..4);
    peer.close();
}

#[test]
fn request_for_an_acknowledgement_within_a_message_is_answered() {
    let peer = Peer::new();
    peer.side.receive(1, &mut [peer.side.piece(0, 4096)]);
    let part = |opcode, psn| packet(opcode, psn).payload([1; 1024]).asks();
    peer.exchange(&[part(SEND_FIRST, 100)], &[acknowledgement(100, ACK, 0)]);
    peer.exchange(&[part(SEND_MIDDLE, 101)], &[acknowledgement(101, ACK, 0)]);
    peer.exchange(&[part(SEND_MIDDLE, 101)], &[acknowledgement(101, ACK, 0)]);
    peer.exchange(&[part(SEND_LAST, 102)], &[acknowledgement(102, ACK, 1)]);
    assert_eq!(peer.side.done(1).byte_len, 3072);
    peer.close();
}

/// Posts two sends of the device, and waits for their packets.
fn with_two_sends() -> Peer {
    let peer = Peer::new();
    for (wr_id, psn) in [(1, 200), (2, 201)] {
        peer.side.send(ibv_wr_opcode::IBV_WR_SEND, wr_id, &mut [peer.side.piece(0, 4)], |_| {});
        let sent = peer.request(psn);
        assert_eq!((sent.opcode, sent.psn, sent.payload.len()), (SEND_ONLY, psn, 4));
    }
    peer
}

/// Waits until the device has handled the packets so far.
fn settle(peer: &Peer, psn: u32) {
    peer.exchange(&[packet(WRITE_ONLY, psn).reth(0, 0, 0).asks()], &[acknowledgement(psn, ACK, psn - 99)]);
}

#[test]
fn acknowledgement_completes_what_precedes_it() {
    let peer = with_two_sends();
    peer.send(&acknowledgement(200, ACK, 1));
    peer.side.done(1);
    settle(&peer, 100);
    assert!(peer.side.poll().is_none());
    peer.send(&acknowledgement(201, ACK, 2));
    peer.side.done(2);
    for wr_id in [3, 4] {
        peer.side.send(ibv_wr_opcode::IBV_WR_SEND, wr_id, &mut [peer.side.piece(0, 4)], |_| {});
    }
    peer.request(203);
    peer.send(&acknowledgement(203, ACK, 4));
    peer.done([3, 4]);
    peer.close();
}

#[test]
fn acknowledgement_of_packets_that_were_not_sent_is_ignored() {
    let peer = with_two_sends();
    for psn in [202, 203, 300, 199 + (1 << 23), 0x7f_ffff] {
        for syndrome in [ACK, SEQUENCE, INVALID_REQUEST, REMOTE_ACCESS, REMOTE_OPERATION, NOT_READY | 1] {
            peer.send(&acknowledgement(psn, syndrome, 2));
        }
    }
    settle(&peer, 100);
    assert!(peer.side.poll().is_none());
    peer.send(&acknowledgement(201, ACK, 2));
    peer.done([1, 2]);
    peer.close();
}

#[test]
fn acknowledgement_of_packets_that_are_acknowledged_is_ignored() {
    let peer = with_two_sends();
    peer.send(&acknowledgement(200, ACK, 1));
    peer.side.done(1);
    for psn in [200, 199, 150, 0xff_ffff] {
        for syndrome in [ACK, SEQUENCE, INVALID_REQUEST, REMOTE_ACCESS, REMOTE_OPERATION, NOT_READY | 1] {
            peer.send(&acknowledgement(psn, syndrome, 1));
        }
    }
    settle(&peer, 100);
    assert!(peer.side.poll().is_none());
    peer.send(&acknowledgement(201, ACK, 2));
    peer.side.done(2);
    peer.close();
}

#[test]
fn reserved_syndromes_are_ignored() {
    let peer = with_two_sends();
    for syndrome in [0x40, 0x5f, 0x65, 0x7f, 0x80, 0xff] {
        peer.send(&acknowledgement(201, syndrome, 2));
    }
    settle(&peer, 100);
    assert!(peer.side.poll().is_none());
    peer.send(&acknowledgement(201, 0, 2));
    peer.done([1, 2]);
    peer.close();
}

#[test]
fn sequence_error_repeats_the_packets_from_its_psn() {
    let peer = with_two_sends();
    peer.send(&acknowledgement(201, SEQUENCE, 1));
    peer.request(201);
    peer.side.done(1);
    assert!(peer.side.poll().is_none());
    peer.send(&acknowledgement(201, ACK, 2));
    peer.side.done(2);
    peer.close();
}
