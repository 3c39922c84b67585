//! One process: requests without a response.

use std::time::Duration;

use sideway::ibverbs::completion::{CompletionRecord, WorkCompletionStatus as Status};
use sideway::ibverbs::queue_pair::teardown::{DrainError, Drained, ResetReason};
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, Pair, PostSendGuard, QueuePair, QueuePairAttributeMask as Mask, QueuePairState as State, SendQueue,
};
use sideway::ibverbs::work_request::{PostErrorKind, WorkRequestFlags};
use sideway_tests::loopback::{Give, Kind, Loopback, QueueKind, REQUESTS};
use sideway_tests::on_all_kinds;

/// How long flushing may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The kinds of queue pair in this file, by their types.
trait Whole: Kind {
    type Send: SendQueue;

    fn pair(self) -> Pair<Self::Send>;
}

impl<S: SendQueue> Whole for Pair<S>
where
    Pair<S>: Kind,
{
    type Send = S;

    fn pair(self) -> Pair<S> {
        self
    }
}

/// The numbers and statuses of completions, in their order.
fn summary(records: &[CompletionRecord]) -> Vec<(u64, Status)> {
    records.iter().map(|record| (record.wr_id, record.status)).collect()
}

#[test]
fn outstanding_requests_are_flushed_and_returned() {
    on_all_kinds!(flushed);
}

fn flushed<Q: Whole>(queue: QueueKind) {
    let Loopback { mut near, far, pd: _pd, context: _context } = Loopback::<Q>::new(queue);
    let range = near.range(0, 100);
    (0..5).for_each(|number| near.post_receive(number, 0, 10));
    // No receive is posted, so the sends are retried without limit. Unsignaled sends also have a flush completion.
    let mut batch = near.qp.start_post_send();
    for number in 10..13 {
        batch.construct_wr(number, WorkRequestFlags::empty()).setup_send().give(range);
    }
    batch.post().expect("sends can be posted");

    let mut pair = near.qp.pair();
    let mut records = Vec::new();
    let drained = pair.drain(&mut [&mut near.cq], PATIENCE, |record| records.push(*record));
    assert_eq!(drained, Ok(Drained::Flushed));
    let mut seen = summary(&records);
    seen.sort_by_key(|(number, _)| *number);
    let all = (0..5).chain(10..13).map(|number| (number, Status::WorkRequestFlushedError));
    assert_eq!(seen, all.collect::<Vec<_>>());
    assert!(records.iter().all(|record| record.qp_num == pair.qp_number()));
    assert_eq!(pair.query(Mask::State).expect("a queue pair can be queried").0.state(), State::Error);

    // A second drain finds no request.
    records.clear();
    assert_eq!(pair.drain(&mut [&mut near.cq], PATIENCE, |record| records.push(*record)), Ok(Drained::Flushed));
    assert_eq!(records, []);
    pair.close().expect("a drained queue pair can be destroyed");
    drop(far);
}

#[test]
fn full_queues_are_flushed_too() {
    on_all_kinds!(full);
}

fn full<Q: Whole>(queue: QueueKind) {
    let Loopback { mut near, far, pd: _pd, context: _context } = Loopback::<Q>::new(queue);
    let range = near.range(0, 100);
    // Posts until the driver accepts no more, because it may have rounded the size up.
    let mut sends = 0;
    loop {
        let mut batch = near.qp.start_post_send();
        batch.construct_wr(1000 + sends, WorkRequestFlags::Signaled).setup_send().give(range);
        match batch.post() {
            Ok(()) => sends += 1,
            Err(error) if error.kind() == PostErrorKind::NotEnoughResources => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sends >= REQUESTS.into(), "{sends}");
    let mut pair = near.qp.pair();
    let mut records = Vec::new();
    let drained = pair.drain(&mut [&mut near.cq], PATIENCE, |record| records.push(*record));
    assert_eq!(drained, Ok(Drained::Flushed));
    let expected: Vec<_> = (1000..1000 + sends).map(|number| (number, Status::WorkRequestFlushedError)).collect();
    assert_eq!(summary(&records), expected);
    drop((pair, far));
}

#[test]
fn earlier_completions_are_returned_unchanged() {
    on_all_kinds!(completed);
}

fn completed<Q: Whole>(queue: QueueKind) {
    let Loopback { mut near, mut far, pd: _pd, context: _context } = Loopback::<Q>::new(queue);
    far.post_receive(1, 0, 10);
    near.post_receive(3, 0, 10);
    near.post_send(2, 0, 10);
    far.success();
    // A message that arrives does not show that its acknowledgement has arrived, but it precedes this message.
    far.post_send(4, 0, 10);
    far.success();
    let mut pair = near.qp.pair();
    let mut records = Vec::new();
    assert_eq!(pair.drain(&mut [&mut near.cq], PATIENCE, |record| records.push(*record)), Ok(Drained::Flushed));
    let mut found = summary(&records);
    // A send and a receive have no order.
    found.sort_by_key(|(wr_id, _)| *wr_id);
    assert_eq!(found, [(2, Status::Success), (3, Status::Success)]);
}

#[test]
fn buffers_are_returned_when_unused() {
    on_all_kinds!(torn_down);
}

fn torn_down<Q: Whole>(queue: QueueKind) {
    let Loopback { mut near, far, pd, context } = Loopback::<Q>::new(queue);
    near.post_receive(7, 0, 10);
    let memory = near.memory;
    let address = memory.addr();
    let mut records = Vec::new();
    let torn_down = near.qp.pair().tear_down(&mut [&mut near.cq], PATIENCE, memory, |record| records.push(*record));
    let torn_down = torn_down.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((torn_down.drained, torn_down.destroyed), (Drained::Flushed, Ok(())));
    assert_eq!(torn_down.buffers.addr(), address);
    assert_eq!(summary(&records), [(7, Status::WorkRequestFlushedError)]);
    drop((far, torn_down.buffers, near.cq, pd));
    let context = std::sync::Arc::into_inner(context).expect("only the context of the device is left");
    context.close().expect("the device can be closed");
}

#[test]
fn missing_completion_queue_is_named_and_buffers_stay() {
    let Loopback { near, mut far, pd: _pd, context: _context } = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let error = near.qp.tear_down(&mut [&mut far.cq], PATIENCE, near.memory, |_| {}).map(drop).unwrap_err();
    assert_eq!(error.drain_error(), &DrainError::QueueMissing { which: "sends" });
    assert_eq!(
        error.to_string(),
        "the completion queue of the sends is missing; pass all completion queues of the queue pair"
    );
    let (pair, memory) = error.into_parts();
    assert_eq!(pair.state(), State::ReadyToSend, "nothing was done");
    let mut cq = near.cq;
    let torn_down = pair.tear_down(&mut [&mut far.cq, &mut cq], PATIENCE, memory, |_| {});
    assert!(torn_down.is_ok_and(|torn_down| torn_down.drained == Drained::Flushed));
}

#[test]
fn drain_without_a_deadline_ends_with_a_reset() {
    let Loopback { mut near, far: _far, pd: _pd, context: _context } =
        Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    near.post_receive(7, 0, 10);
    let mut records = Vec::new();
    match near.qp.drain(&mut [&mut near.cq], Duration::ZERO, |record| records.push(*record)) {
        // Fast devices flush before the first clock reading.
        Ok(Drained::Flushed) => assert_eq!(summary(&records), [(7, Status::WorkRequestFlushedError)]),
        Ok(Drained::Reset(reason)) => {
            assert_eq!(reason, ResetReason::TimedOut);
            assert_eq!(near.qp.query(Mask::State).expect("a queue pair can be queried").0.state(), State::Reset);
        }
        other => panic!("{other:?}"),
    }
}
