//! A second lens in a process whose queue pairs the first one has seen.

use rdma_lens::{Format, What};
use sideway::ibverbs::completion::WorkCompletionStatus as Status;
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::loopback::{Give, Loopback, QueueKind};

use crate::completions::write;
use crate::support::Session;

type Pair = Loopback<BasicQueuePair>;

/// The first lens has ended before the program polls.
#[test]
fn requests_of_the_lens_before_are_forgotten() {
    let session = Session::new(Format::Json, |builder| builder);
    let mut pair = Pair::new(QueueKind::Basic);
    for _ in 0..3 {
        write(&mut pair, 1);
    }
    drop(session.end());
    for _ in 0..3 {
        pair.near.success();
    }
    let session = Session::new(Format::Json, |builder| builder);
    for _ in 0..2 {
        write(&mut pair, 1);
        pair.near.success();
    }
    let records = session.records();
    let left: Vec<u64> = records
        .iter()
        .filter_map(|record| match record.what {
            What::Completion { in_flight, .. } => Some(in_flight),
            _ => None,
        })
        .collect();
    assert_eq!(left, [0, 0]);
    drop(pair);
}

/// The queue pairs of a schedule are those that the program makes while it is in force.
#[test]
fn queue_pairs_before_the_schedule_have_no_place() {
    let session = Session::with_faults("after 600 posts on qp 1: disconnect");
    let mut old = Pair::new(QueueKind::Basic);
    drop(session.end());
    let session = Session::with_faults("each post on qp 1: fail with ENOMEM");
    let mut pair = Pair::new(QueueKind::Basic);
    write(&mut old, 1);
    old.near.success();
    let range = pair.near.range(0, 8);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(1, WorkRequestFlags::Signaled).setup_send().give(range);
    batch.post().unwrap_err();
    drop((pair, old, session));
}

/// No request has got the status before the first lens ended.
#[test]
fn status_of_the_schedule_before_is_forgotten() {
    let session = Session::with_faults("each post on qp 1: complete with RETRY_EXC");
    let mut pair = Pair::new(QueueKind::Basic);
    write(&mut pair, 1);
    drop(session.end());
    let session = Session::with_faults("after 600 posts: disconnect");
    assert_eq!(pair.near.completion().status, Status::WorkRequestFlushedError);
    let number = pair.near.qp.qp_number();
    drop(pair);
    let records = session.records();
    let found = records.iter().find_map(|record| match &record.what {
        What::Completion { qp, status, .. } if *qp == number => Some((status.clone(), record.injected)),
        _ => None,
    });
    assert_eq!(found, Some(("WR_FLUSH_ERR".to_owned(), false)));
}

/// The program polls when the next lens is there.
#[test]
fn completion_that_the_lens_before_held_back_comes() {
    let session = Session::with_faults("each completion on qp 1: delay 600 s");
    let mut pair = Pair::new(QueueKind::Basic);
    write(&mut pair, 1);
    assert_eq!(pair.near.poll(), None);
    drop(session.end());
    let session = Session::with_faults("after 600 posts: disconnect");
    assert_eq!(pair.near.success().wr_id, 1);
    drop((pair, session));
}
