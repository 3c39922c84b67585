//! Tests in which several threads use the same QPs.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const ROUNDS: u64 = if cfg!(miri) { 30 } else { 20_000 };

/// Sends and receives messages on one end, and posts as many receives as possible.
fn exchange(end: &End) {
    let (mut sent, mut received, mut posted) = (0, 0, 0);
    let limit = Instant::now() + Duration::from_secs(60);
    while sent < ROUNDS || received < ROUNDS {
        assert!(Instant::now() < limit, "{sent} sent and {received} received of {ROUNDS}");
        while posted < ROUNDS && posted < received + u64::from(SLOTS) {
            end.receive_bytes(posted, 64, 64);
            posted += 1;
        }
        if sent < ROUNDS {
            let mut batch = end.pair.batch();
            if let Ok(work) = batch.push() {
                (work.wr_id, work.is_signaled) = (sent, sent % 4 == 3 || sent + 1 == ROUNDS);
                work.pieces.push(end.bytes.piece(0, 64));
                sent += 1;
            }
            batch.complete();
        }
        while let Some(completion) = end.sends.pop() {
            assert_eq!(completion.status, SUCCESS);
        }
        while let Some(completion) = end.receives.pop() {
            assert_eq!((completion.wr_id, completion.status), (received, SUCCESS));
            received += 1;
        }
    }
}

#[test]
fn both_ends_post_concurrently() {
    let (a, b) = (End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    a.ready(&Attributes { rnr_retry: 7, ..attributes(b.pair.number()) });
    b.ready(&Attributes { rnr_retry: 7, ..attributes(a.pair.number()) });
    thread::scope(|scope| {
        scope.spawn(|| exchange(&a));
        scope.spawn(|| exchange(&b));
    });
}

#[test]
fn errors_and_closes_race_with_posts() {
    let rounds = if cfg!(miri) { 3 } else { 300 };
    for round in 0..rounds {
        let (a, b) = reliable();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for (from, to) in [(&a, &b), (&b, &a)] {
                let is_over = &is_over;
                scope.spawn(move || {
                    // This request does not use the memory that the peer reads.
                    let (address, rkey) = to.at(64);
                    let (mut posted, mut completed) = (0, 0);
                    let limit = Instant::now() + Duration::from_secs(60);
                    while !is_over.load(Ordering::Relaxed) || completed < posted {
                        assert!(Instant::now() < limit, "{completed} of {posted} completed");
                        let mut batch = from.pair.batch();
                        if !is_over.load(Ordering::Relaxed)
                            && let Ok(work) = batch.push()
                        {
                            work.operation = Operation::Write { address, rkey };
                            (work.wr_id, work.is_signaled) = (posted, true);
                            work.pieces.push(from.bytes.piece(0, 64));
                            posted += 1;
                        }
                        batch.complete();
                        // The requests complete in order, and each is either successful or flushed.
                        while let Some(completion) = from.sends.pop() {
                            assert_eq!(completion.wr_id, completed);
                            completed += 1;
                        }
                    }
                });
            }
            let (a, is_over) = (&a, &is_over);
            scope.spawn(move || {
                if round % 2 == 0 {
                    let _ = a.pair.change(State::ReadyToSend, State::Error, a.pair.attributes());
                } else {
                    Memory::of_process().deregister(&a.bytes.region).unwrap();
                }
                thread::yield_now();
                is_over.store(true, Ordering::Relaxed);
            });
        });
        assert_eq!((a.sent_statuses(), b.sent_statuses()), (vec![], vec![]));
    }
}

#[test]
fn thousands_of_qps_work() {
    let count = if cfg!(miri) { 10 } else { 2_000 };
    let shared = End::new(Service::ReliableConnection);
    let pairs: Vec<_> = (0..count)
        .map(|_| {
            let pair = QueuePair::new(Parts {
                reach: Reach::Registry,
                service: Service::ReliableConnection,
                domain: shared.domain.clone(),
                send_queue: Some(shared.sends.clone()),
                receive_queue: Some(shared.receives.clone()),
                receives: Arc::new(ReceiveQueue::new(1, 1)),
                is_shared: false,
                xrc_domain: None,
                max_send_wr: 1,
                max_send_sge: 1,
                max_inline: 0,
                max_message: limits::MAX_MSG_SIZE,
                signals_all: true,
                events: Box::new(EventLog::default()),
                condition: &HEALTHY,
            });
            pair.unwrap()
        })
        .collect();
    for (index, pair) in pairs.iter().enumerate() {
        let ours = attributes(pairs[index ^ 1].number());
        for (from, to) in [
            (State::Reset, State::Init),
            (State::Init, State::ReadyToReceive),
            (State::ReadyToReceive, State::ReadyToSend),
        ] {
            pair.change(from, to, ours).unwrap();
        }
    }
    let (address, rkey) = shared.at(0);
    for pair in &pairs {
        let mut batch = pair.batch();
        let work = batch.push().unwrap();
        work.operation = Operation::Write { address, rkey };
        work.pieces.push(shared.bytes.piece(64, 64));
        batch.complete();
        let completion = shared.sends.pop().unwrap();
        assert_eq!((completion.number, completion.status), (pair.number(), SUCCESS));
    }
    for pair in &pairs {
        pair.close();
    }
}

#[test]
fn failed_change_still_runs_deferred_work() {
    let a = End::new(Service::ReliableConnection);
    // There is no time-out, so the request waits forever for a peer that does not exist.
    a.ready(&Attributes { timeout: 0, ..attributes(0) });
    a.post_bytes(1, Operation::Send, 0, 4);
    let after = a.pair.attributes();
    thread::scope(|scope| {
        // This simulates a message that is being handled.
        let responder = a.pair.responder.lock().unwrap();
        let change = scope.spawn(|| a.pair.change(State::ReadyToSend, State::SendQueueDrain, after));
        while a.pair.requester.try_lock().is_ok() {
            thread::yield_now();
        }
        // The QP fails, and the holder of the requester's lock must flush.
        a.pair.fail();
        a.pair.run_requester();
        drop(responder);
        assert_eq!(change.join().unwrap(), Err(Errno::INVALID));
    });
    assert_eq!(a.sent_statuses(), [(1, FLUSHED)]);
}
