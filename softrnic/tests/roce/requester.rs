//! The requests of the device, and what the answers of the peer mean for its completions (section 9.9.2).

use std::time::Duration;

use rdma_mummy_sys::*;

use crate::packet::*;
use crate::peer::{Options, Peer};

/// Posts a request to the memory 0x1000 with the key 7.
fn post(peer: &Peer, opcode: ibv_wr_opcode, wr_id: u64, length: u32) {
    peer.side.send(opcode, wr_id, &mut [peer.side.piece(0, length)], |wr| {
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: 0x1000, rkey: 7 };
    });
}

#[test]
fn requests_have_the_headers_of_their_operation() {
    let mut peer = Peer::new();
    peer.side.buffer.fill(5);
    post(&peer, ibv_wr_opcode::IBV_WR_RDMA_WRITE, 1, 2049);
    assert_eq!(
        [200, 201, 202].map(|psn| peer.request(psn)).map(|packet| Packet { asks: false, ..packet }),
        [
            packet(WRITE_FIRST, 200).reth(0x1000, 7, 2049).payload([5; 1024]),
            packet(WRITE_MIDDLE, 201).payload([5; 1024]),
            packet(WRITE_LAST, 202).payload([5]),
        ]
    );
    peer.send(&acknowledgement(202, ACK, 1));
    peer.side.done(1);
    post(&peer, ibv_wr_opcode::IBV_WR_SEND, 2, 3);
    assert_eq!(peer.request(203), packet(SEND_ONLY, 203).payload([5; 3]).asks());
    peer.send(&acknowledgement(203, ACK, 2));
    peer.side.done(2);
    post(&peer, ibv_wr_opcode::IBV_WR_SEND, 3, 1025);
    let parts = [204, 205].map(|psn| peer.request(psn)).map(|packet| (packet.opcode, packet.psn, packet.payload.len()));
    assert_eq!(parts, [(SEND_FIRST, 204, 1024), (SEND_LAST, 205, 1)]);
    peer.send(&acknowledgement(205, ACK, 3));
    peer.side.done(3);
    peer.close();
}

#[test]
fn read_completes_with_the_data_of_its_responses() {
    let peer = Peer::new();
    post(&peer, ibv_wr_opcode::IBV_WR_RDMA_READ, 1, 2049);
    let read = peer.request(200);
    assert_eq!(Packet { asks: false, ..read }, packet(READ, 200).reth(0x1000, 7, 2049));
    peer.send(&packet(READ_FIRST, 200).aeth(ACK, 1).payload([1; 1024]));
    peer.send(&packet(READ_MIDDLE, 201).payload([2; 1024]));
    peer.send(&packet(READ_LAST, 202).aeth(ACK, 1).payload([3]));
    assert_eq!(peer.side.done(1).byte_len, 2049);
    assert_eq!((peer.side.buffer[0], peer.side.buffer[1024], peer.side.buffer[2048]), (1, 2, 3));
    peer.close();
}

#[test]
fn repeated_response_to_a_read_is_ignored() {
    let peer = Peer::new();
    post(&peer, ibv_wr_opcode::IBV_WR_RDMA_READ, 1, 2049);
    peer.request(200);
    for value in [1, 9] {
        peer.send(&packet(READ_FIRST, 200).aeth(ACK, 1).payload([value; 1024]));
    }
    peer.send(&packet(READ_MIDDLE, 201).payload([2; 1024]));
    peer.send(&packet(READ_LAST, 202).aeth(ACK, 1).payload([3]));
    peer.send(&packet(READ_LAST, 202).aeth(ACK, 1).payload([9]));
    peer.side.done(1);
    peer.exchange(&[packet(WRITE_ONLY, 100).reth(0, 0, 0).asks()], &[acknowledgement(100, ACK, 1)]);
    assert_eq!((peer.side.buffer[0], peer.side.buffer[1024], peer.side.buffer[2048]), (1, 2, 3));
    assert!(peer.side.poll().is_none());
    peer.close();
}

#[test]
fn refusal_within_a_read_fails_it() {
    let peer = Peer::new();
    post(&peer, ibv_wr_opcode::IBV_WR_RDMA_READ, 1, 2049);
    peer.request(200);
    peer.send(&packet(READ_FIRST, 200).aeth(ACK, 1).payload([1; 1024]));
    peer.send(&acknowledgement(201, REMOTE_ACCESS, 1));
    let failed = peer.side.wait();
    assert_eq!((failed.wr_id, failed.status), (1, ibv_wc_status::IBV_WC_REM_ACCESS_ERR));
    peer.fails();
}

#[test]
fn request_without_an_answer_is_sent_again() {
    let peer = Peer::new();
    post(&peer, ibv_wr_opcode::IBV_WR_SEND, 1, 4);
    assert_eq!(peer.request(200), peer.request(200));
    peer.send(&acknowledgement(200, ACK, 1));
    peer.side.done(1);
    peer.close();
}

#[test]
fn reads_in_flight_do_not_exceed_the_depth() {
    let peer = Peer::new();
    (1..6).for_each(|wr_id| post(&peer, ibv_wr_opcode::IBV_WR_RDMA_READ, wr_id, 4));
    let mut seen = [200, 201, 202, 203].map(|psn| peer.request(psn).opcode).to_vec();
    // Requests may be sent again, but the fifth one waits.
    peer.send(&packet(WRITE_ONLY, 100).reth(0, 0, 0).asks());
    loop {
        let packet = peer.next();
        if !packet.is_request() {
            break;
        }
        assert!(packet.psn < 204);
        seen.push(packet.opcode);
    }
    assert!(seen.iter().all(|opcode| *opcode == READ));
    peer.send(&packet(READ_ONLY, 200).aeth(ACK, 1).payload([1; 4]));
    peer.request(204);
    (201..205).for_each(|psn| peer.send(&packet(READ_ONLY, psn).aeth(ACK, 5).payload([1; 4])));
    peer.done(1..6);
    peer.close();
}

#[test]
fn depth_that_was_lowered_also_limits_the_packets_of_a_read() {
    let peer = Peer::new();
    let mask = ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC;
    assert_eq!(peer.change_drained(mask, |attr| attr.max_rd_atomic = 1), 0);
    post(&peer, ibv_wr_opcode::IBV_WR_RDMA_READ, 1, 32 * 1024);
    peer.request(200);
    assert!(peer.late_requests().iter().all(|request| (request.opcode, request.psn) == (READ, 200)));
    peer.close();
}

#[test]
fn path_of_a_connection_stays() {
    let peer = Peer::new();
    let mask = ibv_qp_attr_mask::IBV_QP_AV;
    let change = |hop_limit| {
        peer.change_drained(mask, |attr| {
            attr.ah_attr = peer.path();
            attr.ah_attr.grh.hop_limit = hop_limit;
        })
    };
    assert_eq!((change(64), change(65)), (0, libc::EOPNOTSUPP));
    peer.exchange(&[packet(WRITE_ONLY, 100).reth(0, 0, 0).asks()], &[acknowledgement(100, ACK, 1)]);
    peer.close();
}

#[test]
fn missing_response_to_a_read_is_requested_again() {
    let peer = Peer::new();
    post(&peer, ibv_wr_opcode::IBV_WR_RDMA_READ, 1, 2049);
    peer.request(200);
    peer.send(&packet(READ_FIRST, 200).aeth(ACK, 1).payload([1; 1024]));
    peer.send(&packet(READ_LAST, 202).aeth(ACK, 1).payload([3]));
    let again = peer.request(201);
    assert_eq!(Packet { asks: false, ..again }, packet(READ, 201).reth(0x1400, 7, 1025));
    peer.send(&packet(READ_FIRST, 201).aeth(ACK, 1).payload([2; 1024]));
    peer.send(&packet(READ_LAST, 202).aeth(ACK, 1).payload([3]));
    peer.side.done(1);
    assert_eq!((peer.side.buffer[0], peer.side.buffer[1024], peer.side.buffer[2048]), (1, 2, 3));
    peer.close();
}

#[test]
fn later_acknowledgement_does_not_complete_a_read() {
    let peer = Peer::new();
    post(&peer, ibv_wr_opcode::IBV_WR_RDMA_READ, 1, 4);
    post(&peer, ibv_wr_opcode::IBV_WR_SEND, 2, 4);
    peer.request(200);
    peer.request(201);
    peer.send(&acknowledgement(201, ACK, 2));
    // The response to the read was lost.
    assert_eq!([200, 201].map(|psn| peer.request(psn).opcode), [READ, SEND_ONLY]);
    assert!(peer.side.poll().is_none());
    peer.send(&packet(READ_ONLY, 200).aeth(ACK, 2).payload([1; 4]));
    peer.send(&acknowledgement(201, ACK, 2));
    peer.done([1, 2]);
    peer.close();
}

#[test]
fn negative_acknowledgements_have_their_status() {
    use ibv_wc_status as status;
    for (syndrome, expected) in [
        (INVALID_REQUEST, status::IBV_WC_REM_INV_REQ_ERR),
        (REMOTE_ACCESS, status::IBV_WC_REM_ACCESS_ERR),
        (REMOTE_OPERATION, status::IBV_WC_REM_OP_ERR),
    ] {
        for opcode in [ibv_wr_opcode::IBV_WR_SEND, ibv_wr_opcode::IBV_WR_RDMA_WRITE, ibv_wr_opcode::IBV_WR_RDMA_READ] {
            let peer = Peer::new();
            (1..4).for_each(|wr_id| post(&peer, ibv_wr_opcode::IBV_WR_SEND, wr_id, 4));
            post(&peer, opcode, 4, 4);
            post(&peer, ibv_wr_opcode::IBV_WR_SEND, 5, 4);
            peer.request(204);
            // It acknowledges the requests before it.
            peer.send(&acknowledgement(203, syndrome, 3));
            peer.done(1..4);
            let failed = peer.side.wait();
            assert_eq!((failed.wr_id, failed.status), (4, expected));
            let flushed = peer.side.wait();
            assert_eq!((flushed.wr_id, flushed.status), (5, status::IBV_WC_WR_FLUSH_ERR));
            peer.fails();
        }
    }
}

#[test]
fn requests_of_a_qp_that_has_refused_one_are_not_repeated() {
    let peer = Peer::new();
    post(&peer, ibv_wr_opcode::IBV_WR_SEND, 1, 4);
    peer.request(200);
    peer.exchange(&[packet(SEND_MIDDLE, 100).payload([1; 1024])], &[acknowledgement(100, INVALID_REQUEST, 0)]);
    assert_eq!(peer.side.wait().status, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
    assert_eq!(peer.late_requests(), []);
    peer.fails();
}

#[test]
fn rnr_nak_is_retried_until_the_retries_are_exhausted() {
    let peer = Peer::with(Options { rnr_retry: 2, ..Options::default() });
    post(&peer, ibv_wr_opcode::IBV_WR_SEND, 1, 4);
    let (failed, packets) = peer.answer_until_done(&acknowledgement(200, NOT_READY | 1, 0));
    assert!(packets >= 3);
    assert_eq!((failed.wr_id, failed.status), (1, ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR));
    peer.close();
}

#[test]
fn rnr_nak_is_followed_by_a_success() {
    let peer = Peer::new();
    post(&peer, ibv_wr_opcode::IBV_WR_SEND, 1, 4);
    post(&peer, ibv_wr_opcode::IBV_WR_SEND, 2, 4);
    peer.request(200);
    peer.request(201);
    peer.send(&acknowledgement(201, NOT_READY | 1, 1));
    peer.side.done(1);
    let (done, _) = peer.answer_until_done(&acknowledgement(201, ACK, 2));
    assert_eq!((done.wr_id, done.status), (2, ibv_wc_status::IBV_WC_SUCCESS));
    peer.close();
}

#[test]
fn silent_peer_exhausts_the_retries() {
    let peer = Peer::with(Options { timeout: 8, retry_cnt: 2, ..Options::default() });
    post(&peer, ibv_wr_opcode::IBV_WR_SEND, 1, 4);
    let failed = peer.side.wait();
    assert_eq!((failed.wr_id, failed.status), (1, ibv_wc_status::IBV_WC_RETRY_EXC_ERR));
    peer.close();
}

/// On a slow path, a long message may take longer than all time-outs.
#[test]
fn peer_that_acknowledges_packets_does_not_exhaust_the_retries() {
    let peer = Peer::with(Options { timeout: 8, retry_cnt: 0, ..Options::default() });
    post(&peer, ibv_wr_opcode::IBV_WR_SEND, 1, 30 * 1024);
    for psn in 200..230 {
        assert!(peer.side.poll().is_none());
        std::thread::sleep(Duration::from_millis(200));
        peer.send(&acknowledgement(psn, ACK, u32::from(psn == 229)));
    }
    peer.side.done(1);
    peer.close();
}

#[test]
fn response_that_does_not_fit_its_request_fails_it() {
    for (response, opcode) in [
        (packet(READ_ONLY, 200).aeth(ACK, 1).payload([1; 5]), ibv_wr_opcode::IBV_WR_RDMA_READ),
        (packet(READ_ONLY, 200).aeth(ACK, 1).payload([1; 3]), ibv_wr_opcode::IBV_WR_RDMA_READ),
        (packet(ATOMIC_ACKNOWLEDGE, 200).aeth(ACK, 1).original(0), ibv_wr_opcode::IBV_WR_RDMA_READ),
        (packet(READ_ONLY, 200).aeth(ACK, 1).payload([1; 8]), ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD),
    ] {
        let peer = Peer::new();
        let length = if opcode == ibv_wr_opcode::IBV_WR_RDMA_READ { 4 } else { 8 };
        post(&peer, opcode, 1, length);
        peer.request(200);
        peer.send(&response);
        let failed = peer.side.wait();
        assert_eq!((failed.wr_id, failed.status), (1, ibv_wc_status::IBV_WC_BAD_RESP_ERR));
        assert_eq!(peer.side.buffer[..8], [0; 8]);
        peer.close();
    }
}
