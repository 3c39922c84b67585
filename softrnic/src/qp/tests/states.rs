//! Tests of the effects that state transitions have on queued requests.

use super::*;

fn go(end: &End, from: State, to: State) {
    end.pair.change(from, to, end.pair.attributes()).unwrap();
}

/// Creates two ends, of which the first has a request that waits until a receive is posted.
fn waiting() -> (End, End) {
    let (a, b) = (End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    a.ready(&Attributes { rnr_retry: 7, drain_notify: true, ..attributes(b.pair.number()) });
    b.connect(a.pair.number());
    a.post_bytes(1, Operation::Send, 0, 4);
    (a, b)
}

#[test]
fn change_from_an_unexpected_state_is_refused() {
    let (a, _b) = reliable();
    assert_eq!(a.pair.change(State::Init, State::Error, a.pair.attributes()), Err(Errno::INVALID));
    assert_eq!(a.pair.state(), State::ReadyToSend);
}

#[test]
fn error_state_flushes_in_order() {
    let (a, _b) = waiting();
    a.post_bytes(2, Operation::Send, 0, 4);
    a.receive_bytes(11, 0, 4);
    go(&a, State::ReadyToSend, State::Error);
    assert_eq!(a.sent_statuses(), [(1, FLUSHED), (2, FLUSHED)]);
    assert_eq!(a.received_statuses(), [(11, FLUSHED)]);
}

#[test]
fn reset_clears_all_queues() {
    let (a, b) = waiting();
    a.receive_bytes(11, 0, 4);
    let (address, rkey) = b.at(0);
    for wr_id in 2..=u64::from(SLOTS) {
        a.post_bytes(wr_id, Operation::Write { address, rkey }, 0, 4);
    }
    assert_eq!(a.pair.batch().push().map(drop), Err(Errno::NO_MEMORY));
    go(&a, State::ReadyToSend, State::Reset);
    assert_eq!((a.sent_statuses(), a.received_statuses()), (vec![], vec![]));
    assert_eq!((a.pair.attributes().sq_psn, a.pair.attributes().destination_number), (0, 0));
    // The QP starts over, and all its slots are free.
    go(&b, State::ReadyToSend, State::Reset);
    a.connect(b.pair.number());
    b.connect(a.pair.number());
    for wr_id in 1..=u64::from(SLOTS) {
        a.post_bytes(wr_id, Operation::Write { address, rkey }, 0, 4);
    }
    assert_eq!(a.sent_statuses().len(), SLOTS as usize);
    b.post_bytes(1, Operation::Send, 0, 4);
    assert!(a.receives.pop().is_none());
}

#[test]
fn completions_from_before_a_reset_release_no_slots() {
    let (a, b) = reliable();
    let (address, rkey) = b.at(0);
    a.post_bytes(1, Operation::Write { address, rkey }, 0, 4);
    // The completion was added before the reset, and is polled after it.
    go(&a, State::ReadyToSend, State::Reset);
    assert!(a.sends.pop().is_none());
    go(&b, State::ReadyToSend, State::Reset);
    a.connect(b.pair.number());
    b.connect(a.pair.number());
    let mut batch = a.pair.batch();
    for _ in 0..SLOTS {
        batch.push().unwrap();
    }
    assert_eq!(batch.push().map(drop), Err(Errno::NO_MEMORY));
}

#[test]
fn drained_send_queue_begins_nothing() {
    let (a, b) = waiting();
    a.post_bytes(2, Operation::Send, 0, 4);
    go(&a, State::ReadyToSend, State::SendQueueDrain);
    assert!(a.pair.is_draining());
    assert_eq!(a.log.events(), []);
    b.receive_bytes(11, 0, 4);
    b.receive_bytes(12, 0, 4);
    assert_eq!(poll(&a.sends).wr_id, 1);
    a.post_bytes(3, Operation::Write { address: 0, rkey: 0 }, 0, 0);
    assert!(!a.pair.is_draining());
    assert_eq!(a.log.events(), [PairEvent::SendQueueDrained]);
    assert_eq!(a.sent_statuses(), []);
    go(&a, State::SendQueueDrain, State::ReadyToSend);
    assert_eq!(a.sent_statuses(), [(2, SUCCESS), (3, SUCCESS)]);
    // The send queue is empty, so one event is raised. If `drain_notify` is not set, no event is raised.
    go(&a, State::ReadyToSend, State::SendQueueDrain);
    go(&a, State::SendQueueDrain, State::SendQueueDrain);
    assert_eq!(a.log.events(), [PairEvent::SendQueueDrained]);
    go(&a, State::SendQueueDrain, State::ReadyToSend);
    let quiet = Attributes { drain_notify: false, ..a.pair.attributes() };
    a.pair.change(State::ReadyToSend, State::SendQueueDrain, quiet).unwrap();
    assert_eq!(a.log.events(), []);
}

#[test]
fn change_keeps_advanced_psns() {
    let (a, b) = reliable();
    let (before, theirs) = (a.pair.attributes(), b.pair.attributes());
    let (address, rkey) = b.at(0);
    a.post_bytes(1, Operation::Write { address, rkey }, 0, 4096);
    b.pair.change(State::ReadyToSend, State::ReadyToSend, Attributes { min_rnr_timer: 3, ..theirs }).unwrap();
    a.pair.change(State::ReadyToSend, State::ReadyToSend, before).unwrap();
    a.post_bytes(2, Operation::Write { address, rkey }, 0, 4096);
    assert_eq!(a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS)]);
    assert_eq!(b.pair.attributes().min_rnr_timer, 3);
}

#[test]
fn peer_error_during_an_open_batch_flushes_it() {
    let (a, b) = reliable();
    let mut batch = b.pair.batch();
    (batch.push().unwrap().wr_id, batch.push().unwrap().wr_id) = (1, 2);
    let (address, rkey) = b.at(0);
    a.post_bytes(1, Operation::Write { address, rkey: rkey ^ 1 }, 0, 8);
    assert_eq!(b.pair.state(), State::Error);
    assert_eq!(b.pair.attributes().destination_number, a.pair.number());
    assert_eq!(b.sent_statuses(), []);
    batch.complete();
    assert_eq!(b.sent_statuses(), [(1, FLUSHED), (2, FLUSHED)]);
}

#[test]
fn closed_qp_completes_nothing() {
    let (a, b) = reliable();
    let (address, rkey) = b.at(0);
    a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
    a.pair.close();
    assert_eq!(a.sent_statuses(), [(1, SUCCESS)], "earlier completions stay");
    assert_eq!(a.pair.change(State::ReadyToSend, State::Error, a.pair.attributes()), Err(Errno::INVALID));
    assert!(QpRegistry::of_process().find(a.pair.number()).is_none());
    // The peer no longer finds the closed QP, even if it found it before.
    b.post_bytes(1, Operation::Send, 0, 8);
    assert_eq!(poll(&b.sends).status, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
}
