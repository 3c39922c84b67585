//! Tests of completion queues that overrun. Every QP that loses a completion fails.

use rdma_mummy_sys::ibv_wc_status as Status;

use super::*;

/// Creates a completion queue with one entry.
fn small() -> Arc<CompletionQueue> {
    #[derive(Debug)]
    struct IgnoreEvents;

    impl CompletionEvents for IgnoreEvents {
        fn completed(&self) {}
        fn overrun(&self) {}
    }

    Arc::new(CompletionQueue::new(1, false, Box::new(IgnoreEvents)))
}

#[test]
fn lost_send_completion_ends_the_qp() {
    for service in [Service::ReliableConnection, Service::UnreliableConnection] {
        let sends = small();
        let a = End::with(service, |parts| parts.send_queue = Some(sends.clone()));
        let b = End::new(service);
        a.connect(b.pair.number());
        b.connect(a.pair.number());
        a.receive_bytes(11, 0, 8);
        let (address, rkey) = b.at(0);
        a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
        assert_eq!((a.pair.state(), a.log.events()), (State::ReadyToSend, vec![]));
        a.post_bytes(2, Operation::Write { address, rkey }, 0, 8);
        assert_eq!((a.pair.state(), a.log.events()), (State::Error, vec![PairEvent::Fatal]), "{service:?}");
        assert_eq!((statuses(&sends), a.received_statuses()), (vec![(1, SUCCESS)], vec![(11, FLUSHED)]));
        // The overrun is reported only once, and the peer is not affected.
        a.post_bytes(3, Operation::Write { address, rkey }, 0, 8);
        assert_eq!((a.log.events(), b.log.events(), b.pair.state()), (vec![], vec![], State::ReadyToSend));
    }
}

#[test]
fn lost_receive_completion_ends_the_qp() {
    for service in [Service::ReliableConnection, Service::UnreliableConnection] {
        let (a, receives) = (End::new(service), small());
        let b = End::with(service, |parts| parts.receive_queue = Some(receives.clone()));
        a.connect(b.pair.number());
        b.ready(&Attributes { rnr_retry: 7, ..attributes(a.pair.number()) });
        b.receive_bytes(21, 0, 8);
        b.receive_bytes(22, 0, 8);
        // The request waits until a receive is posted, and is then flushed.
        if service.is_reliable() {
            b.post(1, Operation::Send, |_| {});
        }
        a.post_bytes(1, Operation::Send, 0, 8);
        assert_eq!((a.sent_statuses(), b.pair.state()), (vec![(1, SUCCESS)], State::ReadyToSend));
        a.post_bytes(2, Operation::Send, 0, 8);
        assert_eq!((b.pair.state(), b.log.events()), (State::Error, vec![PairEvent::Fatal]), "{service:?}");
        assert_eq!(statuses(&receives), [(21, SUCCESS)]);
        // The sender gets no response.
        let ended = poll(&a.sends);
        if service.is_reliable() {
            assert_eq!((ended.wr_id, ended.status), (2, Status::IBV_WC_RETRY_EXC_ERR));
            assert_eq!(b.sent_statuses(), [(1, FLUSHED)]);
        } else {
            assert_eq!((ended.wr_id, ended.status), (2, SUCCESS));
        }
    }
}

#[test]
fn overrun_in_error_state_raises_no_event() {
    let sends = small();
    let a = End::with(Service::ReliableConnection, |parts| parts.send_queue = Some(sends.clone()));
    a.ready(&Attributes { rnr_retry: 7, min_rnr_timer: 0, ..attributes(a.pair.number()) });
    // The program does not poll these completions.
    (0..3).for_each(|wr_id| a.post(wr_id, Operation::Send, |_| {}));
    a.pair.change(State::ReadyToSend, State::Error, a.pair.attributes()).unwrap();
    assert_eq!((statuses(&sends), a.log.events()), (vec![(0, FLUSHED)], vec![]));
}

#[test]
fn both_sides_can_lose_completions_concurrently() {
    const ROUNDS: usize = if cfg!(miri) { 2 } else { 200 };
    for _ in 0..ROUNDS {
        // On each side, sends and receives have the same completion queue.
        let end = || {
            let queue = small();
            End::with(Service::ReliableConnection, |parts| {
                (parts.send_queue, parts.receive_queue) = (Some(queue.clone()), Some(queue));
            })
        };
        let (a, b) = (end(), end());
        for (end, peer) in [(&a, &b), (&b, &a)] {
            end.connect(peer.pair.number());
            (0..4).for_each(|wr_id| end.receive_bytes(wr_id, 64, 8));
        }
        thread::scope(|scope| {
            for end in [&a, &b] {
                scope.spawn(move || (0..4).for_each(|wr_id| end.post_bytes(wr_id, Operation::Send, 0, 8)));
            }
        });
        // Requests that get no response time out, and each side reports at most one event.
        let limit = Instant::now() + Duration::from_secs(60);
        while [&a, &b].iter().any(|end| end.pair.state() != State::Error) {
            assert!(Instant::now() < limit, "timed out waiting for the error state");
            thread::yield_now();
        }
        let log = [a.log.events(), b.log.events()];
        assert!(log.iter().all(|events| events.len() <= 1 && events.iter().all(|event| *event == PairEvent::Fatal)));
        assert_ne!(log, [const { Vec::new() }; 2]);
    }
}
