//! Tests of peers in other processes: XRC, groups, limits, and peers that do not respond.

use rdma_mummy_sys::ibv_wc_status as Status;

use super::wire::{FLAG, Link, REQUESTS, RESPONSES, Wire};
use super::*;
use crate::qp::recv::responses_out::MAX_PENDING;
use crate::qp::registry::{SharedEntry, ToQueuePairs};
use crate::wire::message::{Reply, Request};
use crate::wire::packet::{MAX_PAYLOAD, MULTICAST_NUMBER, Packet, Payload, psn_after};
use crate::wire::transport::{Deliver, Stuck, Wake};

/// The carrier of datagrams of other hosts.
#[derive(Debug)]
struct Abroad;

impl Carrier for Abroad {
    fn put(&self, _packet: &Packet, _payload: Payload<'_>) -> Result<(), Stuck> {
        Ok(())
    }

    fn wake(&self, _pair: Weak<dyn Wake>) {}

    fn taken(&self) -> u64 {
        0
    }

    fn is_network(&self) -> bool {
        true
    }
}

#[test]
#[cfg_attr(miri, ignore = "waits for seconds, which take minutes in Miri")]
fn live_peer_without_response_times_out() {
    let link = Link::reliable();
    let (address, rkey) = link.b.at(0);
    for wr_id in 0..2 {
        link.a.post_bytes(wr_id, Operation::Write { address, rkey }, 0, 8);
    }
    let sent = poll(&link.a.sends);
    assert_eq!((sent.wr_id, sent.status), (0, Status::IBV_WC_RETRY_EXC_ERR));
    // Another thread may be flushing the queue, and completes this request later.
    let sent = poll(&link.a.sends);
    assert_eq!((sent.wr_id, sent.status), (1, FLUSHED));
    // A late response is ignored.
    link.settle();
    assert!(link.a.sends.is_empty());
}

/// A thread that posts all the time holds the requester's lock at most moments.
#[test]
fn qp_is_settled_although_another_thread_holds_the_send_queue_again() {
    let link = Link::reliable();
    let (address, rkey) = link.b.at(0);
    link.a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
    let held = link.a.pair.requester.lock().unwrap();
    link.settle();
    assert!(!link.a.pair.is_settled() && link.a.sends.is_empty());
    link.a.pair.unlock(held);
    let _held = link.a.pair.requester.lock().unwrap();
    assert!(link.a.pair.is_settled());
    assert_eq!(link.a.sends.pop().map(|sent| sent.wr_id), Some(1));
}

#[test]
fn peer_whose_process_receives_from_others_does_not_time_out() {
    let mut patience = Duration::from_millis(20);
    loop {
        let link = Link::reliable();
        let (address, rkey) = link.b.at(0);
        link.wires[REQUESTS].set_space(0);
        link.a.pair.requester.lock().unwrap().flight.min_timeout = patience;
        let mut last = Instant::now();
        link.a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            // Another QP uses all space.
            let before = Instant::now();
            assert!(link.wires[REQUESTS].pop().is_none());
            longest = longest.max(last.elapsed());
            last = before;
            thread::sleep(patience / 2);
        }
        let is_waiting = link.a.sends.is_empty();
        // If this thread did not run for so long, the peer may have timed out.
        if longest.max(last.elapsed()) < patience {
            assert!(is_waiting);
            assert_eq!(poll(&link.a.sends).status, Status::IBV_WC_RETRY_EXC_ERR);
            return;
        }
        patience *= 2;
    }
}

#[test]
fn blocked_request_is_not_sent_before_its_wakeup() {
    let link = Link::reliable();
    let (address, rkey) = link.b.at(0);
    link.wires[REQUESTS].set_space(1);
    for wr_id in 0..2 {
        link.a.post_bytes(wr_id, Operation::Write { address, rkey }, 0, 8);
    }
    assert_eq!(link.wires[REQUESTS].len(), 1);
    // The space that comes with the response belongs to QPs that have waited longer.
    let waiting = link.wires[REQUESTS].put_off();
    while link.deliver(REQUESTS) || link.deliver(RESPONSES) {}
    assert_eq!(poll(&link.a.sends).wr_id, 0);
    link.a.post_bytes(2, Operation::Write { address, rkey }, 0, 8);
    assert_eq!(link.wires[REQUESTS].len(), 0);
    link.wires[REQUESTS].put_back(waiting);
    link.wires[REQUESTS].set_space(8);
    assert_eq!(link.wires[REQUESTS].len(), 2);
    for wr_id in 1..3 {
        assert_eq!(link.poll(&link.a.sends).wr_id, wr_id);
    }
}

#[test]
fn blocked_response_is_not_sent_before_its_wakeup() {
    let link = Link::with(Service::ReliableConnection, |attributes| {
        (attributes.max_rd_atomic, attributes.max_dest_rd_atomic) = (4, 4);
    });
    let (address, rkey) = link.b.at(0);
    link.wires[RESPONSES].set_space(0);
    for wr_id in 0..2 {
        link.a.post_bytes(wr_id, Operation::Read { address, rkey }, 0, 8);
    }
    assert!(link.deliver(REQUESTS));
    // If there is no wake-up, the space belongs to other QPs.
    link.wires[RESPONSES].set_space_quietly(8);
    assert!(link.deliver(REQUESTS));
    assert_eq!(link.wires[RESPONSES].len(), 0);
    link.wires[RESPONSES].call();
    for wr_id in 0..2 {
        assert_eq!(link.poll(&link.a.sends).wr_id, wr_id);
    }
}

#[test]
fn reads_beyond_the_peers_limit_are_refused() {
    let link = Link::between(End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    link.a.ready(&Attributes { max_rd_atomic: 3, ..attributes(link.b.pair.number() ^ FLAG) });
    link.b.ready(&Attributes { max_dest_rd_atomic: 1, ..attributes(link.a.pair.number() ^ FLAG) });
    let (address, rkey) = link.b.at(0);
    // There is no space for responses, so the first read is unfinished when the second one arrives.
    link.wires[RESPONSES].set_space(0);
    for wr_id in 0..3 {
        link.a.post_bytes(wr_id, Operation::Read { address, rkey }, 0, 8);
    }
    while link.deliver(REQUESTS) {}
    assert_eq!(link.b.pair.state(), State::Error);
    assert_eq!(link.b.log.events(), [PairEvent::RequestError]);
    link.wires[RESPONSES].set_space(10);
    let statuses: Vec<_> = (0..3).map(|_| link.poll(&link.a.sends).status).collect();
    // The responses have the order of the requests, so the read completes before the refusal.
    assert_eq!(statuses, [SUCCESS, Status::IBV_WC_REM_INV_REQ_ERR, FLUSHED]);
}

#[test]
fn repeated_read_does_not_count_as_one_of_the_peer() {
    let link = Link::reliable();
    let (address, rkey) = link.b.at(0);
    link.wires[RESPONSES].set_space(0);
    link.a.post_bytes(1, Operation::Read { address, rkey }, 0, 8);
    let Some((Packet::Part(mut part), _)) = link.wires[REQUESTS].pop() else { panic!("the packet was not sent") };
    part.number ^= FLAG;
    part.request.source_number ^= FLAG;
    let back: Arc<dyn Carrier> = link.wires[RESPONSES].clone();
    let reads = || link.b.pair.responder.lock().unwrap().responses.reads();
    ToQueuePairs.again(&part, &back);
    assert_eq!(reads(), 0);
    // The response waits for space.
    link.b.pair.change(State::ReadyToSend, State::Error, link.b.pair.attributes()).unwrap();
    assert_eq!(reads(), 0);
    link.wires[RESPONSES].set_space(usize::MAX);
    assert_eq!(link.replies(), [Reply::Silence]);
    ToQueuePairs.again(&part, &back);
    assert_eq!(link.replies(), [Reply::Silence; 2]);
}

struct Shared {
    number: u32,
    queue: Arc<ReceiveQueue>,
    completions: Arc<CompletionQueue>,
    bytes: Bytes,
}

impl Shared {
    fn new(xrc_domain: &Arc<Domain>) -> Self {
        let (domain, completions) = (Arc::new(Domain::new()), queue());
        let queue = Arc::new(ReceiveQueue::shared(domain.clone(), 8, 4, Box::new(IgnoreEvents)));
        let entry =
            SharedEntry { queue: queue.clone(), completions: completions.clone(), xrc_domain: xrc_domain.clone() };
        let number = QpRegistry::of_process().enter_shared(entry).unwrap();
        Self { number, queue, completions, bytes: Bytes::new(&domain, 3 * MAX_PAYLOAD as usize, ALL) }
    }

    fn receive(&self, wr_id: u64) {
        let piece = self.bytes.piece(0, 3 * MAX_PAYLOAD as usize);
        let fill = |work: &mut crate::srq::ReceiveWork| {
            (work.wr_id, work.pieces) = (wr_id, [piece].into());
            Ok(())
        };
        self.queue.post(fill).unwrap();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        QpRegistry::of_process().leave_shared(self.number, &self.queue);
    }
}

/// Returns an XRC initiator and a target in this XRC domain.
fn xrc_link(xrc_domain: &Arc<Domain>) -> Link {
    let initiator = End::with(Service::XrcSend, |parts| parts.receive_queue = None);
    let target = End::with(Service::XrcReceive, |parts| {
        (parts.send_queue, parts.receive_queue) = (None, None);
        parts.max_send_wr = 0;
        parts.xrc_domain = Some(xrc_domain.clone());
    });
    let link = Link::between(initiator, target);
    link.ready(|_| {});
    link
}

#[test]
fn taken_receive_stays_with_its_shared_queue() {
    let xrc_domain = Arc::new(Domain::new());
    let link = xrc_link(&xrc_domain);
    let (one, other) = (Shared::new(&xrc_domain), Shared::new(&xrc_domain));
    one.receive(1);
    other.receive(2);
    let ours = Bytes::new(&link.a.domain, 3 * MAX_PAYLOAD as usize, ALL);
    let post = |wr_id, shared: &Shared, length| {
        link.a.post(wr_id, Operation::Send, |work| {
            work.srq_number = shared.number;
            work.pieces.push(ours.piece(0, length));
        });
    };
    // A part of the message has arrived. The sender then starts over with another message.
    let parts = 2 * MAX_PAYLOAD as usize;
    post(1, &one, parts);
    assert!(link.deliver(REQUESTS));
    link.wires[REQUESTS].clear();
    link.a.pair.change(State::ReadyToSend, State::Reset, Attributes::new()).unwrap();
    link.a.ready(&attributes(link.b.pair.number() ^ FLAG));
    post(2, &other, 8);
    post(3, &one, parts);
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(2, SUCCESS), (3, SUCCESS)]);
    assert_eq!((statuses(&other.completions), statuses(&one.completions)), (vec![(2, SUCCESS)], vec![(1, SUCCESS)]));
}

#[test]
fn shared_queue_can_be_destroyed_during_a_message() {
    // The cases are a message that has partly arrived, such a message whose sender's process ends, and a read that
    // waits for space.
    for case in 0..3 {
        let xrc_domain = Arc::new(Domain::new());
        let link = xrc_link(&xrc_domain);
        let shared = Shared::new(&xrc_domain);
        shared.receive(1);
        let length = 2 * MAX_PAYLOAD as usize;
        let ours = Bytes::new(&link.a.domain, length, ALL);
        link.wires[RESPONSES].set_space(usize::from(case != 2));
        let read = Operation::Read { address: IOVA, rkey: shared.bytes.key() };
        link.a.post(1, if case == 2 { read } else { Operation::Send }, |work| {
            work.srq_number = shared.number;
            work.pieces.push(ours.piece(0, length));
        });
        assert!(link.deliver(REQUESTS));
        if case == 1 {
            link.lose();
        }
        assert!(Arc::strong_count(&shared.queue) > 2, "{case}");
        QpRegistry::of_process().leave_shared(shared.number, &shared.queue);
        assert_eq!(Arc::strong_count(&shared.queue), 1);
        assert!(shared.completions.is_empty());
        // The send is repeated and then refused, because the queue no longer exists. The read gets no response.
        let expected = [Status::IBV_WC_REM_INV_REQ_ERR, Status::IBV_WC_RETRY_EXC_ERR, Status::IBV_WC_RETRY_EXC_ERR];
        link.wires[RESPONSES].set_space(usize::MAX);
        assert_eq!(link.poll(&link.a.sends).status, expected[case]);
    }
}

#[test]
fn taken_receive_returns_to_the_shared_queue_when_the_qp_ends() {
    // The cases are that the QP is reset or destroyed, each during a message or after a message that was abandoned.
    for case in 0..4 {
        let domain = Arc::new(Domain::new());
        let shared = Arc::new(ReceiveQueue::shared(domain.clone(), 8, 4, Box::new(IgnoreEvents)));
        let (receives, a) = (shared.clone(), End::new(Service::ReliableConnection));
        let b = End::with(Service::ReliableConnection, |parts| {
            (parts.receives, parts.is_shared, parts.domain) = (receives, true, domain);
        });
        let link = Link::between(a, b);
        link.ready(|_| {});
        let length = 2 * MAX_PAYLOAD as usize;
        let (ours, theirs) = (Bytes::new(&link.a.domain, length, ALL), Bytes::new(&link.b.domain, length, ALL));
        for wr_id in 1..3 {
            link.b.receive(wr_id, &[theirs.piece(0, length)]);
        }
        link.a.post(1, Operation::Send, |work| work.pieces.push(ours.piece(0, length)));
        assert!(link.deliver(REQUESTS));
        if case % 2 == 1 {
            link.lose();
        }
        if case < 2 {
            link.b.pair.change(State::ReadyToSend, State::Reset, Attributes::new()).unwrap();
        } else {
            link.b.pair.close();
        }
        assert_eq!([shared.take(), shared.take()].map(|work| work.map(|work| work.wr_id)), [Some(1), Some(2)]);
        assert!(shared.take().is_none() && link.b.receives.is_empty());
    }
}

#[test]
fn group_datagram_from_another_process_reaches_each_member() {
    let group = Gid::from_ipv4([224, 0, 7, 9]);
    let members = [End::new(Service::UnreliableDatagram), End::new(Service::UnreliableDatagram)];
    for member in &members {
        member.ready(&attributes(0));
        member.receive_bytes(7, 0, 64);
        QpRegistry::of_process().attach(group, &member.pair).unwrap();
    }
    // No response is sent, so any carrier can be used.
    let link = Link::reliable();
    let back: Arc<dyn Carrier> = link.wires[RESPONSES].clone();
    let request = Request {
        service: Service::UnreliableDatagram,
        operation: Operation::Send,
        length: 5,
        is_solicited: false,
        psn: 0,
        packets: 1,
        source_number: 9,
        source: HERE,
        destination: group,
        key: 0x1234,
        traffic_class: 0,
        hop_limit: 1,
        flow_label: 0,
        service_level: 0,
        srq_number: 0,
    };
    let part = Part { number: MULTICAST_NUMBER, request, offset: 0, length: 5, attempt: 0 };
    let mut bytes = *b"group";
    // SAFETY: the bytes exist until the end of the test, and nothing else uses them.
    let payload = [unsafe { Segment::of_raw(bytes.as_mut_ptr(), bytes.len()) }];
    // Any program on another host can send datagrams to a RoCEv2 device, but not to this one.
    let abroad: Arc<dyn Carrier> = Arc::new(Abroad);
    ToQueuePairs.part(&part, &payload, &abroad);
    for member in &members {
        ToQueuePairs.part(&Part { number: member.pair.number(), ..part }, &payload, &abroad);
        assert_eq!(member.received_statuses(), []);
    }
    ToQueuePairs.part(&part, &payload, &back);
    for member in &members {
        assert_eq!((member.received().byte_len, member.bytes.get(40, 5)), (45, b"group".to_vec()));
        QpRegistry::of_process().detach(group, &member.pair).unwrap();
    }
    assert!(link.replies().is_empty());
}

#[test]
fn data_before_rts_raises_an_event_at_its_last_part() {
    let link = Link::between(End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    link.a.connect(link.b.pair.number() ^ FLAG);
    link.b.ready_to_receive(&attributes(link.a.pair.number() ^ FLAG));
    let length = MAX_PAYLOAD as usize + 1;
    let (ours, theirs) = (Bytes::new(&link.a.domain, length, ALL), Bytes::new(&link.b.domain, length, ALL));
    link.a.post(1, Operation::Write { address: IOVA, rkey: theirs.key() }, |work| {
        work.pieces.push(ours.piece(0, length))
    });
    assert!(link.deliver(REQUESTS));
    assert_eq!(link.b.log.events(), []);
    link.settle();
    assert_eq!(link.b.log.events(), [PairEvent::Established]);
    assert_eq!(link.a.sent_statuses(), [(1, SUCCESS)]);
}

#[test]
fn responses_wait_for_space_in_order() {
    let link = Link::with(Service::ReliableConnection, |ours| (ours.max_rd_atomic, ours.max_dest_rd_atomic) = (4, 4));
    let (address, rkey) = link.b.at(0);
    link.wires[RESPONSES].set_space(0);
    link.b.bytes.set(0, b"in order");
    link.a.post_bytes(1, Operation::Write { address: address + 64, rkey }, 64, 8);
    link.a.post_bytes(2, Operation::Read { address, rkey }, 0, 8);
    link.a.post_bytes(3, Operation::FetchAdd { address: address + 128, rkey, add: 1 }, 128, 8);
    link.settle();
    assert!(link.a.sends.is_empty());
    link.wires[RESPONSES].set_space(1);
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]);
    assert_eq!(link.a.bytes.get(0, 8), b"in order");
}

#[test]
#[cfg_attr(miri, ignore = "sends many messages, which takes minutes in Miri")]
fn peer_that_receives_no_responses_ends_the_qp() {
    // The time-out is unlimited, because the messages may take longer than any other.
    let link = Link::with(Service::ReliableConnection, |ours| (ours.max_dest_rd_atomic, ours.timeout) = (2, 0));
    let (address, rkey) = link.b.at(0);
    link.wires[RESPONSES].set_space(0);
    link.b.receive_bytes(7, 0, 8);
    link.b.post_bytes(8, Operation::Send, 0, 8);
    link.a.post_bytes(1, Operation::Read { address, rkey }, 0, 8);
    let Some((Packet::Part(mut part), _)) = link.wires[REQUESTS].pop() else { panic!("the packet was not sent") };
    part.number ^= FLAG;
    part.request.source_number ^= FLAG;
    let back: Arc<dyn Carrier> = link.wires[RESPONSES].clone();
    ToQueuePairs.part(&part, &[], &back);
    part.request.operation = Operation::Write { address, rkey };
    (part.request.length, part.length) = (0, 0);
    let mut next = || {
        part.request.psn = psn_after(part.request.psn, 1);
        ToQueuePairs.part(&part, &[], &back);
    };
    // The read is the first pending response.
    for _ in 1..MAX_PENDING {
        next();
    }
    assert_eq!((link.b.pair.state(), link.b.log.events()), (State::ReadyToSend, vec![]));
    next();
    assert_eq!((link.b.pair.state(), link.b.log.events()), (State::Error, vec![PairEvent::RequestError]));
    assert_eq!((link.b.received_statuses(), link.b.sent_statuses()), (vec![(7, FLUSHED)], vec![(8, FLUSHED)]));
    // The pending responses were dropped. A later message gets a reply again.
    link.wires[RESPONSES].set_space(usize::MAX);
    assert_eq!(link.wires[RESPONSES].len(), 0);
    ToQueuePairs.part(&part, &[], &back);
    assert_eq!(link.replies(), [Reply::Silence]);
}

#[test]
#[cfg_attr(miri, ignore = "sends many messages, which takes minutes in Miri")]
fn process_that_receives_no_responses_delays_no_peer() {
    // The time-out is unlimited, because the messages may take longer than any other.
    let link = Link::with(Service::ReliableConnection, |ours| ours.timeout = 0);
    let (address, rkey) = link.b.at(0);
    link.a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
    let Some((Packet::Part(sound), _)) = link.wires[REQUESTS].pop() else { panic!("the packet was not sent") };
    let unrelated = Wire::new();
    unrelated.set_space(0);
    let back: Arc<dyn Carrier> = unrelated.clone();
    let mut part = Part { number: link.b.pair.number(), ..sound };
    for number in 0..2 * MAX_PENDING as u32 {
        part.request.source_number = number % 7;
        (part.offset, part.attempt) = if number % 2 == 0 { (0, number) } else { (u64::from(part.length), number) };
        ToQueuePairs.part(&part, &[], &back);
    }
    assert_eq!((link.b.pair.state(), link.b.log.events()), (State::ReadyToSend, vec![]));
    // The test has removed one packet. The requests of all other packets succeed.
    link.a.pair.change(State::ReadyToSend, State::Reset, Attributes::new()).unwrap();
    link.a.ready(&Attributes { timeout: 0, ..attributes(link.b.pair.number() ^ FLAG) });
    link.a.post_bytes(2, Operation::Write { address, rkey }, 0, 8);
    link.a.post_bytes(3, Operation::Read { address, rkey }, 0, 8);
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(2, SUCCESS), (3, SUCCESS)]);
    // When the carrier to the process has space, the process gets replies, but not one for each message.
    unrelated.set_space(usize::MAX);
    assert!((1..1000).contains(&unrelated.len()), "{}", unrelated.len());
}

#[test]
fn unsupported_operation_is_ignored() {
    for service in [Service::UnreliableDatagram, Service::UnreliableConnection] {
        let link = Link::with(service, |_| {});
        let (address, rkey) = link.b.at(0);
        link.b.receive(7, &[link.b.bytes.piece(0, 100)]);
        let attributes = link.b.pair.attributes();
        let operations = [
            Operation::SendInvalidate { rkey },
            Operation::FetchAdd { address, rkey, add: 1 },
            Operation::Read { address, rkey },
            Operation::Bind,
        ];
        let skipped = usize::from(service == Service::UnreliableConnection);
        for operation in operations.into_iter().skip(skipped) {
            let path = attributes.path.unwrap();
            let request = Request {
                service,
                operation,
                length: 0,
                is_solicited: false,
                psn: attributes.rq_psn,
                packets: 1,
                source_number: attributes.destination_number,
                source: path.destination,
                destination: path.source,
                key: attributes.key,
                traffic_class: 0,
                hop_limit: 64,
                flow_label: 0,
                service_level: 0,
                srq_number: 0,
            };
            let part = Part { number: link.b.pair.number(), request, offset: 0, length: 0, attempt: 1 };
            let back: Arc<dyn Carrier> = link.wires[RESPONSES].clone();
            ToQueuePairs.part(&part, &[], &back);
            assert_eq!(link.b.pair.state(), State::ReadyToSend, "{service:?} {operation:?}");
        }
        assert_eq!(link.b.bytes.get(0, 8), [0; 8]);
        assert!(link.b.receives.is_empty());
    }
}
