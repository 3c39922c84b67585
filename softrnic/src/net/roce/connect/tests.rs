use super::*;
use crate::net::roce::cm_message::{Ece, PrimaryPath, TransportService};
use crate::net::roce::connect::received::{confirmation, rejection, unknown_request};
use crate::wire::address::Gid;

pub(super) const GUID: u64 = 0x0200_0000_0000_0001;
pub(super) const REQ: Req = Req {
    local_id: 0x101,
    ece: Ece { vendor: 0, options: 0 },
    service: 0x0106_1234,
    guid: GUID,
    qkey: 0,
    qp_number: 0x11,
    responder_resources: 1,
    initiator_depth: 2,
    remote_response_timeout: 20,
    local_response_timeout: 20,
    service_type: TransportService::Reliable,
    has_flow_control: false,
    starting_psn: 5,
    retry_count: 7,
    rnr_retry_count: 7,
    partition: 0xffff,
    mtu: 3,
    max_cm_retries: 15,
    has_srq: false,
    path: PrimaryPath {
        local: Gid::ZERO,
        remote: Gid::ZERO,
        flow_label: 0,
        packet_rate: 3,
        traffic_class: 0,
        hop_limit: 64,
        service_level: 0,
        is_subnet_local: false,
        ack_timeout: 14,
    },
    private: [1; Req::PRIVATE],
};
pub(super) const REP: Rep = Rep {
    ids: Ids { local: 0, remote: 0 },
    ece: Ece { vendor: 0, options: 0 },
    qkey: 0,
    qp_number: 0x22,
    starting_psn: 6,
    responder_resources: 2,
    initiator_depth: 1,
    ack_delay: 15,
    failover: 0,
    has_flow_control: false,
    rnr_retry_count: 7,
    has_srq: false,
    guid: GUID,
    private: [2; Rep::PRIVATE],
};
pub(super) const OTHER_ID: u32 = 0x202;
const TRANSACTION: u64 = 9;

fn messages(end: &mut Connection) -> Vec<(u64, Message)> {
    std::iter::from_fn(|| end.next_message()).collect()
}

fn events(end: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| end.next_event()).collect()
}

/// Passes all messages of an end to the other one.
fn pass(from: &mut Connection, to: &mut Connection, now: Instant) -> usize {
    let messages = messages(from);
    messages.iter().for_each(|(transaction, message)| to.received(*transaction, message, now));
    messages.len()
}

fn requested(now: Instant) -> [Connection; 2] {
    let mut one = Connection::request(REQ, TRANSACTION, Duration::ZERO, now);
    assert_eq!(messages(&mut one), [(TRANSACTION, Message::Req(REQ))]);
    [one, Connection::requested(OTHER_ID, TRANSACTION, &REQ, GUID, now)]
}

fn connected(now: Instant) -> [Connection; 2] {
    let [mut one, mut other] = requested(now);
    other.accept(REP, now);
    pass(&mut other, &mut one, now);
    let ids = Ids { local: OTHER_ID, remote: REQ.local_id };
    assert_eq!(events(&mut one), [Event::Replied(Box::new(Rep { ids, ..REP }))]);
    one.ready(now);
    pass(&mut one, &mut other, now);
    assert_eq!(events(&mut other), [Event::Established]);
    [one, other]
}

#[test]
fn request_is_repeated_until_it_times_out() {
    let start = Instant::now();
    let [mut one, _] = requested(start);
    let (mut now, mut count) = (start, 0);
    while let Some(deadline) = one.deadline() {
        one.expired(deadline - Duration::from_nanos(1));
        assert!(messages(&mut one).is_empty());
        now = deadline;
        one.expired(now);
        count += messages(&mut one).len();
    }
    assert!(now >= start + TIMEOUT && now <= start + TIMEOUT + MAX_INTERVAL, "{:?}", now - start);
    assert!((15..25).contains(&count), "{count}");
    assert_eq!(events(&mut one), [Event::TimedOut]);
    assert!(one.is_closed());
}

#[test]
fn duplicate_request_is_deferred_and_then_gets_the_reply_again() {
    let now = Instant::now();
    let [mut one, mut other] = requested(now);
    other.received(TRANSACTION, &Message::Req(REQ), now);
    assert_eq!(pass(&mut other, &mut one, now), 1);
    assert!(one.deadline().is_some_and(|deadline| deadline > now + Duration::from_secs(8)), "the peer is late");
    other.accept(REP, now);
    assert_eq!(messages(&mut other).len(), 1);
    other.received(TRANSACTION, &Message::Req(REQ), now);
    assert!(matches!(messages(&mut other)[..], [(TRANSACTION, Message::Rep(_))]));
}

#[test]
fn duplicate_reply_gets_the_confirmation_again() {
    let now = Instant::now();
    let [mut one, mut other] = requested(now);
    other.accept(REP, now);
    pass(&mut other, &mut one, now);
    one.ready(now);
    assert_eq!(messages(&mut one).len(), 1, "RTU is lost");
    let repeated = other.deadline().unwrap();
    other.expired(repeated);
    pass(&mut other, &mut one, repeated);
    pass(&mut one, &mut other, repeated);
    assert_eq!(events(&mut other), [Event::Established]);
}

#[test]
fn reply_is_not_repeated_after_the_peer_has_sent_on_the_connection() {
    let now = Instant::now();
    let [mut one, mut other] = requested(now);
    other.accept(REP, now);
    pass(&mut other, &mut one, now);
    one.ready(now);
    assert_eq!(messages(&mut one).len(), 1, "RTU is lost");
    other.has_communicated(now);
    assert_eq!(messages(&mut other), []);
    assert!(other.deadline().is_some_and(|deadline| deadline > now + MAX_INTERVAL));
    one.disconnect(now);
    pass(&mut one, &mut other, now);
    assert_eq!(events(&mut other), [Event::Disconnected]);
}

#[test]
fn request_without_listener_is_repeated_for_a_short_time() {
    let now = Instant::now();
    let mut one = Connection::request(REQ, TRANSACTION, Duration::from_millis(100), now);
    messages(&mut one);
    let refused = rejection(REQ.local_id, reason::NO_LISTENER);
    one.received(TRANSACTION, &refused, now);
    assert_eq!(one.deadline(), Some(now + RETRY_INTERVAL));
    one.expired(now + RETRY_INTERVAL);
    assert_eq!(messages(&mut one).len(), 1);
    one.received(TRANSACTION, &refused, now + Duration::from_millis(100));
    assert!(matches!(events(&mut one)[..], [Event::Rejected(ref rej)] if rej.reason == reason::NO_LISTENER));
}

#[test]
fn rejection_has_the_data_of_the_program_and_is_repeated() {
    let now = Instant::now();
    let [mut one, mut other] = requested(now);
    other.reject(28, b"no", now);
    assert_eq!(messages(&mut other).len(), 1, "REJ is lost");
    other.received(TRANSACTION, &Message::Req(REQ), now);
    pass(&mut other, &mut one, now);
    let event = events(&mut one);
    assert!(matches!(event[..], [Event::Rejected(ref rej)] if rej.reason == 28 && rej.private.starts_with(b"no\0")));
    other.expired(other.deadline().unwrap());
    assert!(one.is_closed() && other.is_closed());
}

#[test]
fn withdrawn_request_is_found_without_the_id_of_the_peer() {
    let now = Instant::now();
    let [mut one, mut other] = requested(now);
    one.reject(reason::TIMEOUT, &[], now);
    pass(&mut one, &mut other, now);
    assert!(matches!(events(&mut other)[..], [Event::Rejected(_)]));
}

/// Messages without the id of the peer may not reach the process that has the connection.
#[test]
fn reply_to_a_withdrawn_request_is_rejected_with_the_id_of_the_peer() {
    let now = Instant::now();
    let [mut one, mut other] = requested(now);
    one.reject(reason::TIMEOUT, &[], now);
    assert_eq!(messages(&mut one).len(), 1, "REJ is lost");
    other.accept(REP, now);
    pass(&mut other, &mut one, now);
    let rejection = messages(&mut one);
    let ids = Ids { local: REQ.local_id, remote: OTHER_ID };
    assert!(matches!(rejection[..], [(_, Message::Rej(rej))] if rej.ids == ids && rej.reason == reason::TIMEOUT));
    other.received(rejection[0].0, &rejection[0].1, now);
    assert!(matches!(events(&mut other)[..], [Event::Rejected(_)]) && other.is_closed());
}

#[test]
fn reply_to_an_unknown_request_ends_the_connection() {
    let now = Instant::now();
    let [_, mut other] = requested(now);
    other.accept(REP, now);
    let [(transaction, Message::Rep(rep))] = messages(&mut other)[..] else { panic!("no reply") };
    other.received(transaction, &unknown_request(&rep), now);
    assert!(matches!(events(&mut other)[..], [Event::Rejected(ref rej)] if rej.reason == reason::INVALID_ID));
}

#[test]
fn established_connection_ends_when_the_peer_has_lost_it() {
    let now = Instant::now();
    let [mut one, mut other] = connected(now);
    let first = one.deadline().unwrap();
    assert!(one.is_waiting());
    one.expired(first);
    let check = messages(&mut one);
    let [(transaction, Message::Dreq(dreq)), (_, Message::Dreq(unknown))] = check[..] else { panic!("{check:?}") };
    assert!(!one.is_waiting() && dreq.remote_qp_number != REP.qp_number);
    // Any process confirms this one.
    one.received(transaction, &confirmation(&unknown), first);
    assert_eq!((unknown.ids.remote, events(&mut one)), (0, vec![]));
    other.received(transaction, &Message::Dreq(dreq), first);
    assert_eq!((messages(&mut other), events(&mut other)), (vec![], vec![]), "the peer has the connection");
    // The confirmation of a peer that does not. One with another transaction id is forged.
    let confirmed = confirmation(&dreq);
    one.received(transaction + 1, &confirmed, first);
    assert_eq!(events(&mut one), []);
    one.received(transaction, &confirmed, first);
    assert_eq!(events(&mut one), [Event::Disconnected]);
    // Otherwise, the next check follows.
    let end = other.deadline().unwrap();
    other.expired(end);
    assert_eq!(messages(&mut other).len(), 2);
    other.expired(end + CHECK_TIMEOUT);
    assert_eq!((messages(&mut other), other.deadline()), (vec![], Some(end + CHECK_TIMEOUT + CHECK_INTERVAL)));
}

#[test]
fn disconnection_is_confirmed_when_the_program_disconnects_and_again() {
    let now = Instant::now();
    let [mut one, mut other] = connected(now);
    one.disconnect(now);
    let dreq = messages(&mut one);
    for _ in 0..2 {
        other.received(dreq[0].0, &dreq[0].1, now);
        assert_eq!((messages(&mut other), other.deadline()), (vec![], None));
    }
    other.disconnect(now);
    assert!(matches!(messages(&mut other)[..], [(transaction, Message::Drep(_))] if transaction == dreq[0].0));
    for _ in 0..2 {
        other.received(dreq[0].0, &dreq[0].1, now);
        assert!(matches!(messages(&mut other)[..], [(transaction, Message::Drep(_))] if transaction == dreq[0].0));
    }
    other.received(dreq[0].0, &dreq[0].1, now);
    pass(&mut other, &mut one, now);
    assert_eq!((events(&mut one), events(&mut other)), (vec![Event::Disconnected], vec![Event::Disconnected]));
    // The ids are those of an earlier connection.
    other.received(TRANSACTION, &Message::Req(REQ), now);
    assert!(matches!(messages(&mut other)[..], [(_, Message::Rej(rej))] if rej.reason == reason::STALE));
}

#[test]
fn forged_messages_are_ignored() {
    let now = Instant::now();
    let [_, mut other] = connected(now);
    let ids = Ids { local: REQ.local_id, remote: OTHER_ID };
    let dreq = |ids, remote_qp_number| Message::Dreq(Dreq { ids, remote_qp_number, private: [0; Dreq::PRIVATE] });
    for forged in [
        dreq(ids, REP.qp_number + 1),
        dreq(Ids { local: ids.local + 1, ..ids }, REP.qp_number),
        dreq(Ids { remote: ids.remote + 1, ..ids }, REP.qp_number),
        Message::Rej(Rej {
            ids: Ids { local: 1, remote: OTHER_ID },
            subject: Subject::Rep,
            reason: 28,
            information: Information::NONE,
            private: [0; Rej::PRIVATE],
        }),
        Message::Rep(Rep { ids, ..REP }),
    ] {
        other.received(TRANSACTION, &forged, now);
        assert_eq!((events(&mut other), messages(&mut other)), (vec![], vec![]), "{forged:?}");
    }
    other.received(TRANSACTION, &dreq(ids, REP.qp_number), now);
    assert_eq!(events(&mut other), [Event::Disconnected]);
}

#[test]
fn disconnection_without_response_ends() {
    let now = Instant::now();
    let [mut one, _] = connected(now);
    one.disconnect(now);
    while !one.is_closed() {
        one.expired(one.deadline().unwrap());
    }
    assert_eq!(events(&mut one), [Event::Disconnected]);
}

#[test]
fn host_without_roce_refuses_what_waits_for_it() {
    let now = Instant::now();
    let [mut one, mut other] = requested(now);
    assert!(one.is_waiting() && !other.is_waiting());
    one.refused(now);
    assert_eq!(events(&mut one), [Event::Refused]);
    other.accept(REP, now);
    other.refused(now);
    assert_eq!(events(&mut other), [Event::TimedOut]);
    let [mut one, mut other] = connected(now);
    other.refused(now);
    assert_eq!(events(&mut other), [Event::Disconnected]);
    one.disconnect(now);
    one.refused(now);
    assert_eq!(events(&mut one), [Event::Disconnected]);
    let mut patient = Connection::request(REQ, TRANSACTION, Duration::from_secs(1), now);
    patient.refused(now);
    assert!(events(&mut patient).is_empty() && patient.is_waiting());
}

#[test]
fn process_that_ends_notifies_its_peers() {
    let now = Instant::now();
    let [mut one, mut other] = connected(now);
    one.leave(now);
    pass(&mut one, &mut other, now);
    assert_eq!(events(&mut other), [Event::Disconnected]);
    for index in 0..2 {
        let mut ends = requested(now);
        ends[index].leave(now);
        let [one, other] = &mut ends;
        pass(one, other, now);
        pass(other, one, now);
        assert!(matches!(events(&mut ends[1 - index])[..], [Event::Rejected(_)]), "{index}");
    }
}

#[test]
fn service_is_resolved_despite_losses() {
    let now = Instant::now();
    let req = SidrReq { request_id: 7, partition: 0xffff, service: 1, private: [3; SidrReq::PRIVATE] };
    let mut one = Connection::resolve(req, TRANSACTION, now);
    let mut other = Connection::asked(OTHER_ID, TRANSACTION, &req, now);
    messages(&mut one);
    let rep = SidrRep {
        request_id: 0,
        status: 0,
        ece: Ece { vendor: 0, options: 0 },
        qp_number: 3,
        service: 1,
        qkey: 4,
        information: Information::NONE,
        private: [5; SidrRep::PRIVATE],
    };
    other.answer(rep, now);
    messages(&mut other);
    let again = one.deadline().unwrap();
    one.expired(again);
    pass(&mut one, &mut other, again);
    pass(&mut other, &mut one, again);
    assert_eq!(events(&mut one), [Event::Resolved(Box::new(SidrRep { request_id: 7, ..rep }))]);
    assert!(one.is_closed());
}
