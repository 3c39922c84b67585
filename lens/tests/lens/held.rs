//! Completions that are held back: what they wait for, and what must not be lost with them.

use std::time::Duration;
use std::{mem, ptr, thread};

use rdma_mummy_sys as ffi;
use sideway::ibverbs::completion::WorkCompletionStatus as Status;
use sideway::ibverbs::queue_pair::{BasicQueuePair, ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairState};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::loopback::{Give, Kind, Loopback, QueueKind, to};

use crate::completions::{Events, with_channel, write};
use crate::support::Session;

/// The near side's receive is flushed, although no request completes with the status of the fault.
fn is_flushed<Q: Kind>(pair: &mut Loopback<Q>, wr_id: u64) {
    for _ in 0..1000 {
        if let Some(found) = pair.near.poll() {
            assert_eq!((found.wr_id, found.status), (wr_id, Status::WorkRequestFlushedError));
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the receive waits for a request that does not fail");
}

/// Posts a request that the driver refuses.
fn refused<Q: Kind>(pair: &mut Loopback<Q>) {
    // SAFETY: the queue pair is live, and the driver refuses the number of segments.
    unsafe {
        let mut request: ffi::ibv_send_wr = mem::zeroed();
        request.num_sge = 1 << 20;
        let mut bad = ptr::null_mut();
        assert_ne!(ffi::ibv_post_send(pair.near.qp.qp().as_ptr(), &raw mut request, &raw mut bad), 0);
    }
}

#[test]
fn receives_do_not_wait_after_a_post_without_requests() {
    let session = Session::with_faults("each post on qp 1: complete with RETRY_EXC");
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    pair.near.post_receive(7, 0, 8);
    // SAFETY: the queue pair is live, and the list is empty.
    unsafe { ffi::ibv_post_send(pair.near.qp.qp().as_ptr(), ptr::null_mut(), &mut ptr::null_mut()) };
    is_flushed(&mut pair, 7);
    drop((pair, session));
}

#[test]
fn receives_do_not_wait_for_a_batch_that_is_aborted() {
    let session = Session::with_faults("each post on qp 1: complete with RETRY_EXC");
    let mut pair = Loopback::<ExtendedQueuePair>::new(QueueKind::Extended);
    pair.near.post_receive(7, 0, 8);
    let range = pair.near.range(0, 8);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(1, WorkRequestFlags::Signaled).setup_send().give(range);
    drop(batch);
    is_flushed(&mut pair, 7);
    drop((pair, session));
}

/// The lens does not see that the device has done the first request, which reports nothing.
#[test]
fn receives_do_not_wait_for_unsignaled_requests() {
    let session = Session::with_faults("after 2 posts on qp 1: complete with RETRY_EXC");
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    write(&mut pair, 1);
    assert_eq!(pair.near.success().wr_id, 1);
    pair.far.post_receive(1, 64, 8);
    let range = pair.near.range(0, 8);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(2, WorkRequestFlags::empty()).setup_send().give(range);
    batch.post().unwrap();
    pair.far.success();
    pair.near.post_receive(7, 0, 8);
    // The acknowledgement arrives.
    thread::sleep(Duration::from_millis(100));
    refused(&mut pair);
    is_flushed(&mut pair, 7);
    drop((pair, session));
}

/// A failure does not name its operation, and a request and a receive have the same `wr_id`.
#[test]
fn failure_of_either_queue_does_not_overtake() {
    let session = Session::with_faults("after 0 completions on qp 1: delay 600 s");
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    pair.near.post_receive(5, 64, 64);
    pair.far.post_send(1, 0, 8);
    pair.far.success();
    assert_eq!(pair.near.poll(), None);
    pair.near.post_receive(7, 64, 64);
    pair.near.qp.modify(&to(QueuePairState::Error)).unwrap();
    let range = pair.near.range(0, 8);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(7, WorkRequestFlags::Signaled).setup_send().give(range);
    batch.post().unwrap();
    thread::sleep(Duration::from_millis(50));
    assert_eq!(pair.near.poll(), None, "the flushed receive overtook an earlier one");
    let turn = session.end();
    let found = [(); 3].map(|()| pair.near.completion().wr_id);
    assert_eq!(found, [5, 7, 7]);
    drop((pair, turn));
}

/// Queue pairs use the completion queue, so that it cannot be destroyed. An event that the program has not taken stays.
#[test]
fn event_stays_if_the_queue_is_not_destroyed() {
    let session = Session::with_faults("each completion on qp 1: delay 20 ms");
    let mut pair = with_channel(QueueKind::Basic);
    let events = Events::of(&pair);
    events.arm();
    write(&mut pair, 1);
    events.wait();
    assert_eq!(pair.near.poll(), None);
    events.arm();
    // The event of the completion, which the program does not take.
    events.ready();
    // SAFETY: the queue is live, and stays so.
    assert_ne!(unsafe { ffi::ibv_destroy_cq(events.0) }, 0);
    events.wait();
    assert_eq!(pair.near.success().wr_id, 1);
    drop((pair, session));
}
