//! Tests of unicast and multicast datagrams.

use rdma_mummy_sys::{ibv_wc_flags, ibv_wc_status as Status};

use super::*;
use crate::qp::Destination;
use crate::qp::registry::QpRegistry;
use crate::wire::packet::MULTICAST_NUMBER;

fn end() -> End {
    let end = End::new(Service::UnreliableDatagram);
    end.ready(&attributes(0));
    end
}

fn to(gid: Gid, number: u32, key: u32) -> Option<Destination> {
    Some(Destination { path: path(gid), number, key })
}

fn send(from: &End, wr_id: u64, destination: Option<Destination>, length: usize) {
    from.post(wr_id, Operation::Send, |work| {
        work.destination = destination;
        work.pieces.push(from.bytes.piece(0, length));
    });
}

#[test]
fn datagram_follows_its_header() {
    let (a, b) = (end(), end());
    a.bytes.set(0, b"datagram");
    b.receive(1, &[b.bytes.piece(0, 30), b.bytes.piece(100, 100)]);
    send(&a, 1, to(HERE, b.pair.number(), 0x1234), 8);
    assert_eq!(a.sent().status, SUCCESS);
    let received = b.received();
    assert_eq!((received.status, received.byte_len), (SUCCESS, 48));
    assert_eq!(received.flags, ibv_wc_flags::IBV_WC_GRH.0);
    assert_eq!((received.number, received.source_number), (b.pair.number(), a.pair.number()));
    assert_eq!(b.bytes.get(110, 9), b"datagram\0");
    // The IPv4 header is in the last twenty bytes of the header, and the addresses are at its end.
    assert_eq!(b.bytes.get(20, 1), [0x45]);
    assert_eq!(b.bytes.get(102, 8), [127, 0, 0, 1, 127, 0, 0, 1]);
}

#[test]
fn datagram_before_rts_raises_no_event() {
    let (a, b) = (end(), End::new(Service::UnreliableDatagram));
    b.ready_to_receive(&attributes(0));
    b.receive_bytes(1, 0, 64);
    send(&a, 1, to(HERE, b.pair.number(), 0x1234), 8);
    assert_eq!((b.received_statuses(), b.log.events()), (vec![(1, SUCCESS)], vec![]));
}

#[test]
fn datagram_requires_the_qkey() {
    let (a, b) = (end(), end());
    let number = b.pair.number();
    b.receive_bytes(1, 0, 64);
    send(&a, 1, to(HERE, number, 0x1235), 1);
    assert_eq!(b.received_statuses(), []);
    // If the high bit of the Q_Key in the request is set, the datagram carries the Q_Key of the sender's QP.
    send(&a, 2, to(HERE, number, 0x8000_0000), 1);
    assert_eq!(b.received_statuses(), [(1, SUCCESS)]);
    assert_eq!(a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS)]);
}

#[test]
fn datagram_to_unknown_qp_is_lost() {
    let (a, b) = (end(), End::new(Service::ReliableConnection));
    b.connect(a.pair.number());
    b.receive_bytes(1, 0, 64);
    let elsewhere = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
    send(&a, 1, to(HERE, b.pair.number(), 0x1234), 1);
    send(&a, 2, to(HERE, 1, 0x1234), 1);
    let c = end();
    // The receiver has posted no receive.
    send(&a, 3, to(HERE, c.pair.number(), 0x1234), 1);
    c.receive_bytes(1, 0, 64);
    send(&a, 4, to(elsewhere, c.pair.number(), 0x1234), 1);
    assert_eq!(a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS), (4, SUCCESS)]);
    assert_eq!((b.received_statuses(), c.received_statuses()), (vec![], vec![]));
}

#[test]
fn receive_too_small_for_the_header_stays() {
    let (a, b) = (end(), end());
    b.receive_bytes(1, 0, 47);
    send(&a, 1, to(HERE, b.pair.number(), 0x1234), 8);
    assert_eq!(b.received_statuses(), []);
    send(&a, 2, to(HERE, b.pair.number(), 0x1234), 7);
    assert_eq!(b.received_statuses(), [(1, SUCCESS)]);
    // If the queue is shared, a receive that is too small completes in error instead.
    let domain = Arc::new(Domain::new());
    let shared = Arc::new(ReceiveQueue::shared(domain.clone(), 8, 4, Box::new(IgnoreEvents)));
    let c = End::with(Service::UnreliableDatagram, |parts| (parts.receives, parts.is_shared) = (shared.clone(), true));
    c.ready(&attributes(0));
    let bytes = Bytes::new(&domain, 64, LOCAL_WRITE);
    c.receive(1, &[bytes.piece(0, 40)]);
    c.receive(2, &[bytes.piece(0, 41)]);
    for wr_id in [3, 4] {
        send(&a, wr_id, to(HERE, c.pair.number(), 0x1234), 1);
    }
    assert_eq!(c.received_statuses(), [(1, Status::IBV_WC_LOC_LEN_ERR), (2, SUCCESS)]);
    assert_eq!(c.pair.state(), State::ReadyToSend);
}

#[test]
fn datagram_requires_one_packet_and_a_destination() {
    for (destination, length, status) in [
        (to(HERE, 5, 0), 4097, Status::IBV_WC_LOC_LEN_ERR),
        (None, 1, Status::IBV_WC_LOC_QP_OP_ERR),
        (to(HERE, 5, 0), 4096, SUCCESS),
    ] {
        let a = end();
        send(&a, 1, destination, length);
        assert_eq!(a.sent_statuses(), [(1, status)]);
        let state = if status == SUCCESS { State::ReadyToSend } else { State::SendQueueError };
        assert_eq!(a.pair.state(), state);
    }
}

#[test]
fn group_members_receive_once_including_the_sender() {
    let group = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3]);
    let network = QpRegistry::of_process();
    let ends: Vec<_> = (0..4).map(|_| end()).collect();
    for end in &ends[..3] {
        network.attach(group, &end.pair).unwrap();
        network.attach(group, &end.pair).unwrap();
        assert!(network.is_attached(end.pair.number()));
    }
    for end in &ends {
        for wr_id in [1, 2] {
            end.receive_bytes(wr_id, 64, 64);
        }
    }
    ends[0].bytes.set(0, b"many");
    send(&ends[0], 1, to(group, MULTICAST_NUMBER, 0x1234), 4);
    assert_eq!(ends[0].sent().status, SUCCESS);
    for end in &ends[..3] {
        assert_eq!(end.received_statuses(), [(1, SUCCESS)]);
        assert_eq!(end.bytes.get(104, 4), b"many");
    }
    assert_eq!(ends[3].received_statuses(), []);
    for end in &ends[..3] {
        network.detach(group, &end.pair).unwrap();
        assert_eq!(network.detach(group, &end.pair), Err(Errno::INVALID));
        assert!(!network.is_attached(end.pair.number()));
    }
    send(&ends[0], 2, to(group, MULTICAST_NUMBER, 0x1234), 4);
    assert_eq!(ends[1].received_statuses(), []);
}
