//! Tests of peers that are not ready or do not respond.

use rdma_mummy_sys::ibv_wc_status as Status;

use super::wire::{FLAG, Link, REQUESTS};
use super::*;
use crate::qp::send::retry::silence_time;
use crate::qp::timer;

fn pair_with(change: impl FnOnce(&mut Attributes)) -> (End, End) {
    let (a, b) = (End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    let mut ours = attributes(b.pair.number());
    change(&mut ours);
    a.ready(&ours);
    b.connect(a.pair.number());
    (a, b)
}

#[test]
fn late_receive_is_waited_for() {
    let (a, b) = pair_with(|ours| ours.rnr_retry = 7);
    a.bytes.set(0, b"late and later");
    a.post_bytes(1, Operation::Send, 0, 4);
    a.post_bytes(2, Operation::Send, 9, 5);
    assert!(a.sends.pop().is_none());
    thread::sleep(Duration::from_millis(5));
    assert!(a.sends.pop().is_none());
    b.receive_bytes(1, 0, 64);
    b.receive_bytes(2, 64, 64);
    for wr_id in [1, 2] {
        let (sent, received) = (poll(&a.sends), poll(&b.receives));
        assert_eq!((sent.wr_id, sent.status), (wr_id, SUCCESS));
        assert_eq!((received.wr_id, received.status), (wr_id, SUCCESS));
    }
    assert_eq!((b.bytes.get(0, 4), b.bytes.get(64, 5)), (b"late".to_vec(), b"later".to_vec()));
}

#[test]
fn local_missing_receive_exhausts_rnr_retries() {
    for rnr_retry in [0, 3] {
        let (a, b) = pair_with(|ours| ours.rnr_retry = rnr_retry);
        a.post_bytes(1, Operation::Send, 0, 4);
        a.post_bytes(2, Operation::Send, 0, 4);
        let sent = poll(&a.sends);
        assert_eq!((sent.wr_id, sent.status), (1, Status::IBV_WC_RNR_RETRY_EXC_ERR));
        assert_eq!(poll(&a.sends).status, FLUSHED);
        assert_eq!((a.pair.state(), b.pair.state()), (State::Error, State::ReadyToSend));
    }
}

#[test]
fn write_with_immediate_without_receive_is_not_written() {
    let (a, b) = pair_with(|ours| ours.rnr_retry = 0);
    let (address, rkey) = b.at(0);
    a.bytes.set(0, b"written");
    a.post_bytes(1, Operation::WriteImmediate { address, rkey, immediate: 0 }, 0, 7);
    assert_eq!(a.sent().status, Status::IBV_WC_RNR_RETRY_EXC_ERR);
    assert_eq!(b.bytes.get(0, 7), [0; 7]);
}

#[test]
fn peer_without_response_exhausts_retries() {
    // The peers are a QP of another service, an unknown number, a QP in RESET, a QP in the error state, a QP that is
    // connected to another peer, and a QP that expects another PSN.
    let reset = End::new(Service::ReliableConnection);
    let failed = End::new(Service::ReliableConnection);
    failed.pair.change(State::Reset, State::Error, Attributes::new()).unwrap();
    let other = End::new(Service::ReliableConnection);
    other.connect(5);
    let unreliable = End::new(Service::UnreliableConnection);
    let ahead = End::new(Service::ReliableConnection);
    let elsewhere = End::new(Service::ReliableConnection);
    let gone = End::new(Service::ReliableConnection).pair.number();
    for number in [reset.pair.number(), failed.pair.number(), other.pair.number(), unreliable.pair.number(), gone]
        .into_iter()
        .chain([ahead.pair.number(), elsewhere.pair.number()])
    {
        let a = End::new(Service::ReliableConnection);
        if number == unreliable.pair.number() {
            unreliable.connect(a.pair.number());
        } else if number == ahead.pair.number() {
            ahead.ready(&Attributes { rq_psn: 1, ..attributes(a.pair.number()) });
        } else if number == elsewhere.pair.number() {
            let mut there = HERE;
            there.0[15] = 2;
            elsewhere.ready(&Attributes { path: Some(path(there)), ..attributes(a.pair.number()) });
        }
        a.connect(number);
        a.post_bytes(1, Operation::Write { address: 0, rkey: 0 }, 0, 0);
        a.post_bytes(2, Operation::Send, 0, 4);
        let sent = poll(&a.sends);
        assert_eq!((sent.wr_id, sent.status), (1, Status::IBV_WC_RETRY_EXC_ERR));
        assert_eq!(poll(&a.sends).status, FLUSHED);
    }
}

#[test]
fn peer_that_is_ready_in_time_responds() {
    let (a, b) = (End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    // The sender retries for some time.
    a.ready(&Attributes { timeout: 16, retry_count: 7, ..attributes(b.pair.number()) });
    let (address, rkey) = b.at(0);
    a.bytes.set(0, b"patience");
    a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
    assert!(a.sends.pop().is_none());
    b.connect(a.pair.number());
    assert_eq!(poll(&a.sends).status, SUCCESS);
    assert_eq!(b.bytes.get(0, 8), b"patience");
}

#[test]
fn unlimited_timeout_retries_with_the_next_request() {
    let (a, b) = (End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    a.ready(&Attributes { timeout: 0, ..attributes(b.pair.number()) });
    let (address, rkey) = b.at(0);
    a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
    a.post_bytes(2, Operation::Write { address, rkey }, 0, 8);
    assert!(a.sends.pop().is_none());
    b.connect(a.pair.number());
    a.post_bytes(3, Operation::Write { address, rkey }, 0, 8);
    assert_eq!(a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]);
}

#[test]
fn data_before_rts_raises_an_event() {
    let (a, b) = (End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    a.connect(b.pair.number());
    let theirs = attributes(a.pair.number());
    b.ready_to_receive(&theirs);
    let (address, rkey) = b.at(0);
    for wr_id in [1, 2] {
        a.post_bytes(wr_id, Operation::Write { address, rkey }, 0, 8);
        assert_eq!(a.sent().status, SUCCESS);
    }
    assert_eq!(b.log.events(), [PairEvent::Established]);
}

#[test]
fn waiting_requests_are_dropped_with_the_qp() {
    let (a, b) = pair_with(|ours| ours.rnr_retry = 7);
    a.post_bytes(1, Operation::Send, 0, 4);
    a.pair.close();
    b.receive_bytes(1, 0, 64);
    thread::sleep(Duration::from_millis(2));
    assert_eq!((a.sent_statuses(), b.received_statuses()), (vec![], vec![]));
}

#[test]
fn repeated_resets_leave_few_alarms() {
    let link = Link::reliable();
    // The three peers are one in another process that does not respond, an unknown number, and one that has posted no
    // receive.
    let silent = Attributes { timeout: 20, ..attributes(link.b.pair.number() ^ FLAG) };
    let nowhere = Attributes { destination_number: 1, ..silent };
    let (a, b) = reliable();
    let not_ready = Attributes { min_rnr_timer: 0, ..attributes(a.pair.number()) };
    b.pair.change(State::ReadyToSend, State::Reset, not_ready).unwrap();
    b.ready(&not_ready);
    for (end, ours) in [(&link.a, silent), (&link.a, nowhere), (&a, attributes(b.pair.number()))] {
        for _ in 0..1000 {
            end.pair.change(State::ReadyToSend, State::Reset, Attributes::new()).unwrap();
            end.ready(&ours);
            end.post_bytes(1, Operation::Send, 0, 8);
            link.wires[REQUESTS].clear();
        }
        let pending = timer::pending(&end.pair);
        assert!((1..10).contains(&pending), "{pending}");
    }
}

#[test]
fn alarm_before_a_reset_does_not_change_later_timeouts() {
    for timeouts in [[24, 1], [10, 14]] {
        let (a, _b) = reliable();
        let start = Instant::now();
        for timeout in timeouts {
            a.pair.change(State::ReadyToSend, State::Reset, Attributes::new()).unwrap();
            a.ready(&Attributes { timeout, retry_count: 1, ..attributes(1) });
            a.post_bytes(1, Operation::Send, 0, 8);
        }
        assert_eq!(poll(&a.sends).status, Status::IBV_WC_RETRY_EXC_ERR);
        assert!(start.elapsed() >= silence_time(timeouts[1]).unwrap());
    }
}
