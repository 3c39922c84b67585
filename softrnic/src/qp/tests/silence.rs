//! Tests of peers in other processes that do not respond.

use rdma_mummy_sys::ibv_wc_status as Status;

use super::wire::{FLAG, Link, Wire};
use super::*;
use crate::wire::condition::Condition;
use crate::wire::packet::ResponseKind;

#[test]
fn unknown_and_silent_peers_exhaust_retries() {
    for is_gone in [true, false] {
        let link = Link::reliable();
        let (address, rkey) = link.b.at(0);
        if is_gone {
            link.b.pair.close();
        } else {
            link.b.pair.change(State::ReadyToSend, State::Error, link.b.pair.attributes()).unwrap();
        }
        for wr_id in 0..3 {
            link.a.post_bytes(wr_id, Operation::Write { address, rkey }, 0, 8);
        }
        let sent = link.poll(&link.a.sends);
        assert_eq!((sent.wr_id, sent.status), (0, Status::IBV_WC_RETRY_EXC_ERR));
        // Another thread may still be flushing the queue.
        for wr_id in 1..3 {
            let sent = link.poll(&link.a.sends);
            assert_eq!((sent.wr_id, sent.status), (wr_id, FLUSHED));
        }
    }
}

/// A time-out that was set before a reset has no effect after it.
#[test]
#[cfg_attr(miri, ignore = "waits for seconds, which take minutes in Miri")]
fn silent_peer_times_out_by_the_current_attributes() {
    let link = Link::between(End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    let peer = link.b.pair.number() ^ FLAG;
    let (address, rkey) = link.b.at(0);
    // This time-out takes several hours.
    link.a.ready(&Attributes { timeout: 31, ..attributes(peer) });
    link.a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
    link.a.pair.change(State::ReadyToSend, State::Reset, Attributes::new()).unwrap();
    link.a.ready(&attributes(peer));
    link.a.post_bytes(2, Operation::Write { address, rkey }, 0, 8);
    // No packet is delivered to the peer, so it does not respond.
    let sent = poll(&link.a.sends);
    assert_eq!((sent.wr_id, sent.status), (2, Status::IBV_WC_RETRY_EXC_ERR));
}

#[test]
fn unlimited_timeout_retries_only_with_the_next_request() {
    let link = Link::between(End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    link.a.ready(&Attributes { timeout: 0, ..attributes(link.b.pair.number() ^ FLAG) });
    let (address, rkey) = link.b.at(0);
    link.a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
    assert_eq!(link.settle(), 2);
    link.b.ready(&attributes(link.a.pair.number() ^ FLAG));
    link.a.post_bytes(2, Operation::Write { address, rkey }, 0, 8);
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS)]);
}

/// Returns an end whose connection does not lead to a peer.
fn connection() -> (End, Arc<Wire>) {
    let end = End::with(Service::ReliableConnection, |parts| {
        (parts.reach, parts.max_send_wr) = (Reach::Connection, limits::MAX_QP_WR);
    });
    let wire = Wire::new();
    end.pair.set_connection(wire.clone()).unwrap();
    end.ready(&attributes(9));
    (end, wire)
}

#[test]
#[cfg_attr(miri, ignore = "waits for seconds, which take minutes in Miri")]
fn further_requests_do_not_prevent_the_timeout_of_a_connection() {
    let (end, _wire) = connection();
    end.pair.requester.lock().unwrap().flight.min_timeout = Duration::from_millis(200);
    let (address, rkey) = end.at(0);
    for wr_id in 0..limits::MAX_QP_WR.into() {
        end.post_bytes(wr_id, Operation::Write { address, rkey }, 0, 8);
        if let Some(sent) = end.sends.pop() {
            assert_eq!((sent.wr_id, sent.status), (0, Status::IBV_WC_RETRY_EXC_ERR));
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the peer has not timed out");
}

#[test]
fn connection_whose_packets_are_acknowledged_does_not_time_out() {
    let mut patience = Duration::from_millis(20);
    loop {
        let (end, wire) = connection();
        end.pair.requester.lock().unwrap().flight.min_timeout = patience;
        let (address, rkey) = end.at(0);
        let mut last = Instant::now();
        end.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let before = Instant::now();
            _ = wire.pop();
            longest = longest.max(last.elapsed());
            last = before;
            thread::sleep(patience / 2);
        }
        let is_waiting = end.sends.is_empty();
        // If this thread did not run for so long, the peer may have timed out.
        if longest.max(last.elapsed()) < patience {
            assert!(is_waiting);
            assert_eq!(poll(&end.sends).status, Status::IBV_WC_RETRY_EXC_ERR);
            return;
        }
        patience *= 2;
    }
}

/// The connection drops packets while the port is down. It has acknowledged those before the ones that it delivers.
#[test]
fn connection_delivers_the_rest_of_a_message_although_the_port_is_down() {
    static CONDITION: Condition = Condition::new();
    let end = End::with(Service::ReliableConnection, |parts| {
        (parts.reach, parts.condition) = (Reach::Connection, &CONDITION);
    });
    let wire = Wire::new();
    end.pair.set_connection(wire.clone()).unwrap();
    end.ready(&attributes(9));
    let (address, rkey) = end.at(0);
    let request = Request {
        service: Service::ReliableConnection,
        operation: Operation::Write { address, rkey },
        length: 16,
        is_solicited: false,
        psn: end.pair.attributes().rq_psn,
        packets: 2,
        source_number: 9,
        source: HERE,
        destination: HERE,
        key: 0,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        service_level: 0,
        srq_number: 0,
    };
    let back: Arc<dyn Carrier> = wire.clone();
    let mut bytes = *b"one part";
    // SAFETY: the bytes live until the end of this function, and nothing else uses them.
    let payload = [unsafe { Segment::of_raw(bytes.as_mut_ptr(), bytes.len()) }];
    for offset in [0, 8] {
        let part = Part { number: end.pair.number(), request, offset, length: 8, attempt: 0 };
        end.pair.part_arrived(&part, &payload, &back);
        CONDITION.set_down(true);
        end.pair.condition_changed();
    }
    let replies = std::iter::from_fn(|| wire.pop()).map(|(packet, _)| match packet {
        Packet::Response(Response { kind: ResponseKind::Reply(reply), .. }) => reply,
        other => panic!("{other:?}"),
    });
    assert_eq!(replies.collect::<Vec<_>>(), [Reply::Done { original: 0 }]);
    assert_eq!(end.bytes.get(0, 16), b"one partone part");
}
