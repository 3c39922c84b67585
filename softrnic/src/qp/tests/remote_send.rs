//! Tests of requests to peers in other processes.

use rdma_mummy_sys::ibv_wc_status as Status;

use super::wire::{FLAG, Link, REQUESTS, RESPONSES};
use super::*;
use crate::qp::Destination;
use crate::wire::message::Reply;
use crate::wire::packet::{MAX_PAYLOAD, ResponseKind, packet_count, psn_after};

const PART: usize = MAX_PAYLOAD as usize;
/// The length of a message that has several parts.
const LARGE: usize = if cfg!(miri) { 2 * PART + 100 } else { 100 << 10 };

fn sizes() -> Vec<usize> {
    if cfg!(miri) { vec![0, 1, PART + 1] } else { vec![0, 1, PART, PART + 1, LARGE] }
}

/// Registers memory for long messages at both ends.
fn memory(link: &Link, length: usize) -> (Bytes, Bytes) {
    let (ours, theirs) =
        (Bytes::new(&link.a.domain, length.max(8), ALL), Bytes::new(&link.b.domain, length.max(8), ALL));
    (ours, theirs)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8).collect()
}

#[test]
fn messages_of_any_length_are_complete() {
    for length in sizes() {
        for service in [Service::ReliableConnection, Service::UnreliableConnection] {
            let link = Link::with(service, |_| {});
            let (ours, theirs) = memory(&link, length);
            ours.set(0, &pattern(length));
            link.b.receive(7, &[theirs.piece(0, length)]);
            link.a.post(1, Operation::Send, |work| work.pieces.push(ours.piece(0, length)));
            assert_eq!(link.a.sends.is_empty(), service.is_reliable());
            link.settle();
            assert_eq!(link.a.sent_statuses(), [(1, SUCCESS)]);
            let received = link.b.received();
            assert_eq!((received.wr_id, received.status, received.byte_len), (7, SUCCESS, length as u32));
            assert!(theirs.get(0, length) == pattern(length));

            theirs.set(0, &vec![0; length]);
            link.b.receive(8, &[]);
            let operation = Operation::WriteImmediate { address: IOVA, rkey: theirs.key(), immediate: 5 };
            link.a.post(2, operation, |work| work.pieces.push(ours.piece(0, length)));
            link.settle();
            let received = link.b.received();
            assert_eq!((received.wr_id, received.byte_len, received.immediate), (8, length as u32, 5));
            assert_eq!(link.a.sent_statuses(), [(2, SUCCESS)]);
            assert!(theirs.get(0, length) == pattern(length));
        }
    }
}

#[test]
fn reads_of_any_length_are_complete() {
    for length in sizes() {
        let link = Link::reliable();
        let (ours, theirs) = memory(&link, length);
        theirs.set(0, &pattern(length));
        let half = length / 2;
        for wr_id in [1, 2] {
            ours.set(0, &vec![0; length]);
            link.a.post(wr_id, Operation::Read { address: IOVA, rkey: theirs.key() }, |work| {
                work.pieces.extend([ours.piece(0, half), ours.piece(half, length - half)]);
            });
            link.settle();
            let sent = link.a.sent();
            assert_eq!((sent.wr_id, sent.status, sent.byte_len), (wr_id, SUCCESS, length as u32));
            assert!(ours.get(0, length) == pattern(length));
        }
    }
}

#[test]
fn outstanding_reads_and_atomics_are_limited() {
    let link = Link::reliable();
    let (address, rkey) = link.b.at(0);
    link.b.bytes.set(0, &5_u64.to_ne_bytes());
    for wr_id in 0..3 {
        link.a.post_bytes(wr_id, Operation::FetchAdd { address, rkey, add: 1 }, 8 * wr_id as usize, 8);
    }
    link.a.post_bytes(3, Operation::Read { address, rkey }, 24, 8);
    assert_eq!(link.wires[REQUESTS].len(), 1);
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(0, SUCCESS), (1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]);
    for (place, value) in [5_u64, 6, 7, 8].into_iter().enumerate() {
        assert_eq!(link.a.bytes.get(8 * place, 8), value.to_ne_bytes());
    }
}

#[test]
fn fence_waits_for_earlier_reads() {
    let link = Link::reliable();
    let (address, rkey) = link.b.at(0);
    link.a.post_bytes(1, Operation::Read { address, rkey }, 0, 8);
    link.a.post_bytes(2, Operation::Write { address, rkey }, 64, 8);
    assert_eq!(link.wires[REQUESTS].len(), 2);
    link.a.post(3, Operation::Write { address, rkey }, |work| {
        work.is_fenced = true;
        work.pieces.push(link.a.bytes.piece(64, 8));
    });
    assert_eq!(link.wires[REQUESTS].len(), 2);
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]);
}

#[test]
fn local_error_waits_for_earlier_requests() {
    let link = Link::reliable();
    let (address, rkey) = link.b.at(0);
    link.a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
    link.a.post_bytes(2, Operation::Write { address, rkey }, LENGTH, 8);
    link.a.post_bytes(3, Operation::Write { address, rkey }, 0, 8);
    assert!(link.a.sends.is_empty());
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(1, SUCCESS), (2, Status::IBV_WC_LOC_PROT_ERR), (3, FLUSHED)]);
}

#[test]
fn requests_after_an_rnr_nak_are_repeated() {
    for length in [4, LARGE] {
        let link = Link::with(Service::ReliableConnection, |ours| ours.rnr_retry = 7);
        let (ours, theirs) = memory(&link, length);
        ours.set(0, &pattern(length));
        link.b.receive(0, &[theirs.piece(0, length)]);
        for wr_id in 0..3 {
            link.a.post(wr_id, Operation::Send, |work| work.pieces.push(ours.piece(0, length)));
        }
        link.settle();
        assert_eq!(link.a.sent_statuses(), [(0, SUCCESS)]);
        link.b.receive(1, &[theirs.piece(0, length)]);
        link.b.receive(2, &[theirs.piece(0, length)]);
        for wr_id in 1..3 {
            let sent = link.poll(&link.a.sends);
            assert_eq!((sent.wr_id, sent.status), (wr_id, SUCCESS));
        }
        assert_eq!(link.b.received_statuses(), [(0, SUCCESS), (1, SUCCESS), (2, SUCCESS)]);
        assert!(theirs.get(0, length) == pattern(length));
    }
}

#[test]
fn missing_receive_exhausts_rnr_retries() {
    let link = Link::reliable();
    for wr_id in 0..3 {
        link.a.post_bytes(wr_id, Operation::Send, 0, 8);
    }
    let sent = link.poll(&link.a.sends);
    assert_eq!((sent.wr_id, sent.status), (0, Status::IBV_WC_RNR_RETRY_EXC_ERR));
    // Another thread may still be flushing the queue.
    for wr_id in 1..3 {
        let sent = link.poll(&link.a.sends);
        assert_eq!((sent.wr_id, sent.status), (wr_id, FLUSHED));
    }
}

#[test]
fn refusal_ends_both_qps_and_flushes_later_requests() {
    for length in [8, LARGE] {
        let link = Link::reliable();
        let (ours, theirs) = memory(&link, length);
        let write = |wr_id, address, rkey| {
            link.a.post(wr_id, Operation::Write { address, rkey }, |work| work.pieces.push(ours.piece(0, length)));
        };
        write(0, IOVA, theirs.key());
        write(1, IOVA + 1, theirs.key());
        write(2, IOVA, theirs.key());
        link.settle();
        assert_eq!(link.a.sent_statuses(), [(0, SUCCESS), (1, Status::IBV_WC_REM_ACCESS_ERR), (2, FLUSHED)]);
        assert_eq!((link.a.pair.state(), link.b.pair.state()), (State::Error, State::Error));
        assert_eq!(link.b.log.events(), [PairEvent::AccessError]);
    }
}

#[test]
fn read_before_a_refused_request_is_complete() {
    let link = Link::with(Service::ReliableConnection, |ours| (ours.max_rd_atomic, ours.max_dest_rd_atomic) = (4, 4));
    let (ours, theirs) = memory(&link, LARGE);
    theirs.set(0, &pattern(LARGE));
    link.wires[RESPONSES].set_space(1);
    let (address, rkey) = (IOVA, theirs.key());
    link.a.post(1, Operation::Read { address, rkey }, |work| work.pieces.push(ours.piece(0, LARGE)));
    link.a.post_bytes(2, Operation::FetchAdd { address, rkey: rkey ^ 1, add: 1 }, 0, 8);
    // The peer handles the two requests before it sends more than one part of the response.
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(1, SUCCESS), (2, Status::IBV_WC_REM_ACCESS_ERR)]);
    assert!(ours.get(0, LARGE) == pattern(LARGE));
}

#[test]
fn too_small_receive_is_reported_at_the_first_part() {
    let link = Link::reliable();
    let (ours, theirs) = memory(&link, LARGE);
    link.b.receive(7, &[theirs.piece(0, LARGE - 1)]);
    link.a.post(1, Operation::Send, |work| work.pieces.push(ours.piece(0, LARGE)));
    assert!(link.deliver(REQUESTS));
    assert_eq!(link.replies().len(), 1);
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(1, Status::IBV_WC_REM_INV_REQ_ERR)]);
    assert_eq!(link.b.received_statuses(), [(7, Status::IBV_WC_LOC_LEN_ERR)]);
}

#[test]
fn memory_deregistered_during_a_message_ends_it() {
    // In each case another memory is deregistered: that of the receive, the target of a write, the target of a read,
    // and that of the sender.
    for case in 0..4 {
        let link = Link::reliable();
        let (ours, theirs) = memory(&link, LARGE);
        link.wires[if case == 2 { RESPONSES } else { REQUESTS }].set_space(1);
        link.b.receive(7, &[theirs.piece(0, LARGE)]);
        let (address, rkey) = (IOVA, theirs.key());
        let operation = match case {
            1 => Operation::Write { address, rkey },
            2 => Operation::Read { address, rkey },
            _ => Operation::Send,
        };
        link.a.post(1, operation, |work| work.pieces.push(ours.piece(0, LARGE)));
        assert!(link.deliver(REQUESTS));
        let gone = if case == 3 { &ours } else { &theirs };
        Memory::of_process().deregister(&gone.region).unwrap();
        link.settle();
        let expected = match case {
            0 => Status::IBV_WC_REM_OP_ERR,
            3 => Status::IBV_WC_LOC_PROT_ERR,
            _ => Status::IBV_WC_REM_ACCESS_ERR,
        };
        assert_eq!(link.a.sent_statuses(), [(1, expected)], "{case}");
    }
}

#[test]
fn wire_with_space_for_one_packet_suffices() {
    let link = Link::reliable();
    let (ours, theirs) = memory(&link, LARGE);
    link.wires.iter().for_each(|wire| wire.set_space(1));
    ours.set(0, &pattern(LARGE));
    let (address, rkey) = (IOVA, theirs.key());
    link.a.post(1, Operation::Write { address, rkey }, |work| work.pieces.push(ours.piece(0, LARGE)));
    link.a.post_bytes(2, Operation::Read { address, rkey }, 0, LENGTH);
    link.a.post(3, Operation::Write { address, rkey }, |work| work.pieces.push(ours.piece(0, 8)));
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]);
    assert!(theirs.get(0, LARGE) == pattern(LARGE) && link.a.bytes.get(0, LENGTH) == pattern(LENGTH));
}

#[test]
fn blocked_unreliable_message_is_lost() {
    let link = Link::with(Service::UnreliableConnection, |_| {});
    link.wires[REQUESTS].set_space(1);
    let (ours, theirs) = memory(&link, LARGE);
    link.b.receive(7, &[theirs.piece(0, LARGE)]);
    link.a.post(1, Operation::Send, |work| work.pieces.push(ours.piece(0, LARGE)));
    assert!(link.a.sends.is_empty());
    assert_eq!(poll(&link.a.sends).status, SUCCESS);
    // The next message uses the receive of the message that was abandoned.
    link.wires[REQUESTS].set_space(100);
    link.settle();
    assert!(link.b.receives.is_empty());
    link.a.post(2, Operation::Send, |work| work.pieces.push(ours.piece(0, 8)));
    link.settle();
    assert_eq!((link.a.sent_statuses(), link.b.received_statuses()), (vec![(2, SUCCESS)], vec![(7, SUCCESS)]));
}

#[test]
fn unreliable_message_on_a_lost_carrier_counts_its_packets_once() {
    let link = Link::with(Service::UnreliableConnection, |_| {});
    link.wires[REQUESTS].set_space(1);
    let (ours, _) = memory(&link, LARGE);
    let first = link.a.pair.attributes().sq_psn;
    link.a.post(1, Operation::Send, |work| work.pieces.push(ours.piece(0, LARGE)));
    assert!(link.a.sends.is_empty());
    link.lose();
    assert_eq!(poll(&link.a.sends).status, SUCCESS);
    let packets = packet_count(LARGE as u64, 1024);
    assert_eq!(link.a.pair.attributes().sq_psn, psn_after(first, packets));
}

#[test]
fn late_responses_are_ignored() {
    let link = Link::reliable();
    let (address, rkey) = link.b.at(0);
    link.b.bytes.set(0, b"late");
    link.a.post_bytes(1, Operation::Read { address, rkey }, 0, 8);
    assert!(link.deliver(REQUESTS));
    link.a.pair.change(State::ReadyToSend, State::Reset, Attributes::new()).unwrap();
    link.a.ready(&attributes(link.b.pair.number() ^ FLAG));
    // The same PSN is sent again, to a peer that does not expect this PSN.
    link.a.post_bytes(2, Operation::Read { address, rkey }, 8, 8);
    while link.deliver(RESPONSES) {}
    assert!(link.a.sends.is_empty());
    assert_eq!(link.a.bytes.get(0, 16), [0; 16]);
    let sent = link.poll(&link.a.sends);
    assert_eq!((sent.wr_id, sent.status), (2, Status::IBV_WC_RETRY_EXC_ERR));
}

#[test]
fn send_queue_drains_after_all_responses() {
    let link = Link::reliable();
    let (address, rkey) = link.b.at(0);
    link.a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
    let ours = Attributes { drain_notify: true, ..link.a.pair.attributes() };
    link.a.pair.change(State::ReadyToSend, State::SendQueueDrain, ours).unwrap();
    link.a.post_bytes(2, Operation::Write { address, rkey }, 0, 8);
    assert!(link.a.pair.is_draining());
    assert_eq!((link.a.log.events(), link.wires[REQUESTS].len()), (vec![], 1));
    link.settle();
    assert_eq!((link.a.sent_statuses(), link.a.pair.is_draining()), (vec![(1, SUCCESS)], false));
    assert_eq!(link.a.log.events(), [PairEvent::SendQueueDrained]);
    link.a.pair.change(State::SendQueueDrain, State::ReadyToSend, ours).unwrap();
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(2, SUCCESS)]);
}

#[test]
fn malformed_responses_complete_nothing() {
    let link = Link::reliable();
    let (address, rkey) = link.b.at(0);
    link.a.post_bytes(1, Operation::Read { address, rkey }, 0, 8);
    let attempt = link.a.pair.requester.lock().unwrap().flight.attempt();
    let (number, source_number) = (link.a.pair.number(), link.b.pair.number() ^ FLAG);
    let bytes = [Segment::null(64)];
    let kind = ResponseKind::Data { offset: 0, length: 8 };
    for (psn, kind) in [
        (0xff_fff0, ResponseKind::Data { offset: 1, length: 7 }),
        (0xff_fff0, ResponseKind::Data { offset: 0, length: 9 }),
        (0xff_fff1, kind),
        (0xff_fff1, ResponseKind::Reply(Reply::Done { original: 0 })),
    ] {
        link.a.pair.response_arrived(&Response { number, source_number, psn, attempt, kind }, &bytes);
    }
    let wrong = Response { number, source_number, psn: 0xff_fff0, attempt: attempt.wrapping_add(1), kind };
    link.a.pair.response_arrived(&wrong, &bytes);
    assert!(link.a.sends.is_empty());
    let kind = ResponseKind::Reply(Reply::Done { original: 0 });
    link.a.pair.response_arrived(&Response { kind, attempt, ..wrong }, &bytes);
    assert_eq!(link.a.sent_statuses(), [(1, Status::IBV_WC_BAD_RESP_ERR)]);
}

/// The size of the memory of a scenario in bytes.
const SCENARIO_BYTES: usize = 6 * PART + 8;

/// Posts a request of each operation. The messages are long.
fn scenario(link: &Link, ours: &Bytes, theirs: &Bytes) {
    let (address, rkey) = (IOVA, theirs.key());
    // The operations use different memory, because Miri rejects atomic stores of different sizes to the same memory.
    link.b.receive(10, &[theirs.piece(0, 2 * PART)]);
    link.b.receive(11, &[theirs.piece(2 * PART, 64)]);
    let (write, word) = (address + 3 * PART as u64, address + 6 * PART as u64);
    for (wr_id, operation, length) in [
        (0, Operation::Send, PART + 1),
        (1, Operation::Write { address: write, rkey }, PART * 2),
        (2, Operation::Read { address, rkey }, PART + 5),
        (3, Operation::FetchAdd { address: word, rkey, add: 1 }, 8),
        (4, Operation::SendImmediate { immediate: 1 }, 4),
    ] {
        link.a.post(wr_id, operation, |work| work.pieces.push(ours.piece(0, length)));
    }
}

#[test]
fn lost_carrier_ends_requests_in_flight() {
    let count = {
        let link = Link::reliable();
        let (ours, theirs) = memory(&link, SCENARIO_BYTES);
        scenario(&link, &ours, &theirs);
        let count = link.settle();
        assert_eq!(link.a.sent_statuses().len(), 5);
        count
    };
    for index in (0..count).step_by(if cfg!(miri) { 5 } else { 1 }) {
        let link = Link::reliable();
        let (ours, theirs) = memory(&link, SCENARIO_BYTES);
        scenario(&link, &ours, &theirs);
        for _ in 0..index {
            assert!((0..4).any(|wire| link.deliver(wire)));
        }
        link.lose();
        let statuses: Vec<_> = (0..5).map(|_| poll(&link.a.sends)).map(|sent| (sent.wr_id, sent.status)).collect();
        let done = statuses.iter().take_while(|(_, status)| *status == SUCCESS).count();
        assert!(done < 5, "{index}");
        for (place, (wr_id, status)) in statuses.into_iter().enumerate() {
            assert_eq!(wr_id, place as u64);
            match place.cmp(&done) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => assert_eq!(status, Status::IBV_WC_RETRY_EXC_ERR, "{index}"),
                std::cmp::Ordering::Greater => assert_eq!(status, FLUSHED, "{index}"),
            }
        }
        assert_eq!(link.b.pair.state(), State::ReadyToSend);
        // All messages that were received are complete, and a message that had partly arrived has released its receive.
        let before = link.b.received_statuses();
        assert!(before.iter().all(|(_, status)| *status == SUCCESS), "{index}");
        link.b.pair.change(State::ReadyToSend, State::Error, link.b.pair.attributes()).unwrap();
        assert_eq!(before.len() + link.b.received_statuses().len(), 2, "{index}");
    }
}

#[test]
fn closed_qp_accesses_no_memory() {
    for index in 0..if cfg!(miri) { 3 } else { 12 } {
        for is_requester in [true, false] {
            let link = Link::reliable();
            let (ours, theirs) = memory(&link, SCENARIO_BYTES);
            scenario(&link, &ours, &theirs);
            for _ in 0..index {
                assert!((0..4).any(|wire| link.deliver(wire)));
            }
            let (end, bytes) = if is_requester { (&link.a, &ours) } else { (&link.b, &theirs) };
            end.pair.close();
            for queue in [&end.sends, &end.receives] {
                while queue.pop().is_some() {}
            }
            bytes.set(0, &vec![0xaa; SCENARIO_BYTES]);
            let before = bytes.get(0, SCENARIO_BYTES);
            link.settle();
            assert!(bytes.get(0, SCENARIO_BYTES) == before);
            assert!(end.sends.is_empty() && end.receives.is_empty());
        }
    }
}

#[test]
fn two_qps_on_one_wire_do_not_mix() {
    // Delivers on all four wires in turn, because both directions of the link are used.
    let link = Link::reliable();
    let (ours, theirs) = memory(&link, 4 * PART);
    link.wires.iter().for_each(|wire| wire.set_space(2));
    for (from, to, own, other) in [(&link.a, &link.b, &ours, &theirs), (&link.b, &link.a, &theirs, &ours)] {
        own.set(0, &pattern(PART * 2));
        to.receive(7, &[other.piece(PART * 2, PART * 2)]);
        from.post(1, Operation::Send, |work| work.pieces.push(own.piece(0, PART * 2)));
    }
    let mut is_moving = true;
    while is_moving {
        is_moving = false;
        for wire in 0..4 {
            is_moving |= link.deliver(wire);
        }
    }
    for (end, bytes) in [(&link.a, &ours), (&link.b, &theirs)] {
        assert_eq!((end.sent_statuses(), end.received_statuses()), (vec![(1, SUCCESS)], vec![(7, SUCCESS)]));
        assert!(bytes.get(PART * 2, PART * 2) == pattern(PART * 2));
    }
}

#[test]
fn datagrams_reach_other_processes() {
    let link = Link::between(End::new(Service::UnreliableDatagram), End::new(Service::UnreliableDatagram));
    link.ready(|_| {});
    link.a.bytes.set(0, b"datagram");
    link.b.receive_bytes(7, 0, 64);
    link.a.post(1, Operation::Send, |work| {
        let number = link.b.pair.number() ^ FLAG;
        work.destination = Some(Destination { path: path(HERE), number, key: 0x1234 });
        work.pieces.push(link.a.bytes.piece(0, 8));
    });
    assert_eq!(link.a.sent_statuses(), [(1, SUCCESS)]);
    link.settle();
    let received = link.b.received();
    assert_eq!((received.byte_len, received.source_number), (48, link.a.pair.number() ^ FLAG));
    assert_eq!(link.b.bytes.get(40, 8), b"datagram");
}
