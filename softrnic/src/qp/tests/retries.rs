//! Peers that are not ready, or do not answer.

use rdma_mummy_sys::ibv_wc_status as Status;

use super::wire::{ASKS, FLAG, Link};
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
fn a_receive_that_comes_late_is_waited_for() {
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
fn a_receive_that_does_not_come_is_given_up() {
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
fn a_write_without_its_receive_is_not_written() {
    let (a, b) = pair_with(|ours| ours.rnr_retry = 0);
    let (address, rkey) = b.at(0);
    a.bytes.set(0, b"written");
    a.post_bytes(1, Operation::WriteImmediate { address, rkey, immediate: 0 }, 0, 7);
    assert_eq!(a.sent().status, Status::IBV_WC_RNR_RETRY_EXC_ERR);
    assert_eq!(b.bytes.get(0, 7), [0; 7]);
}

#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    // Of another service, not there, in RESET, in the error state, of another peer, at another packet.
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
fn a_peer_that_comes_in_time_answers() {
    let (a, b) = (End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    // Tries for a while.
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
fn without_a_time_out_the_next_request_tries_again() {
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
fn data_before_rts_is_told_of() {
    let (a, b) = (End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    a.connect(b.pair.number());
    let theirs = attributes(a.pair.number());
    b.ready_to_receive(&theirs);
    let (address, rkey) = b.at(0);
    for wr_id in [1, 2] {
        a.post_bytes(wr_id, Operation::Write { address, rkey }, 0, 8);
        assert_eq!(a.sent().status, SUCCESS);
    }
    assert_eq!(b.told.events(), [PairEvent::Established]);
}

#[test]
fn what_waits_is_forgotten_with_its_queue_pair() {
    let (a, b) = pair_with(|ours| ours.rnr_retry = 7);
    a.post_bytes(1, Operation::Send, 0, 4);
    a.pair.close();
    b.receive_bytes(1, 0, 64);
    thread::sleep(Duration::from_millis(2));
    assert_eq!((a.sent_statuses(), b.received_statuses()), (vec![], vec![]));
}

#[test]
fn a_queue_pair_that_begins_anew_again_and_again_has_few_alarms() {
    let link = Link::reliable();
    // Of those who do not answer, in another process and nowhere; and of one who has no receive.
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
            link.wires[ASKS].clear();
        }
        let pending = timer::pending(&end.pair);
        assert!((1..10).contains(&pending), "{pending}");
    }
}

#[test]
fn what_waits_shorter_or_longer_than_one_before_a_reset_is_tried_in_its_time() {
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
