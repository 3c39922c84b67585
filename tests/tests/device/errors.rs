//! Failing requests: the statuses of completions and the errors of posting, without harm to other queue pairs.

use sideway::ibverbs::completion::WorkCompletionStatus as Status;
use sideway::ibverbs::memory_region::RemoteKey;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairAttributeMask as Mask,
    QueuePairState as State, SendOperationFlags,
};
use sideway::ibverbs::work_request::{PostErrorKind, WorkRequestFlags};
use sideway_tests::loopback::{Give, Kind, Loopback, Named, QueueKind, REQUESTS};
use sideway_tests::{device, on_all_kinds};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

#[test]
fn send_without_a_receive_fails_and_the_peer_is_unharmed() {
    on_all_kinds!(no_receive);
}

fn no_receive<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    pair.reconnect(1);
    let range = pair.near.range(0, 10);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(10, SIGNALED).setup_send().give(range);
    batch.construct_wr(11, SIGNALED).setup_send().give(range);
    batch.post().expect("sends can be posted");
    let failed = pair.near.completion();
    assert_eq!((failed.wr_id, failed.status), (10, Status::ResponderNotReadyRetryCounterExceededError));
    assert_eq!(failed.status.to_string(), "RNR retry counter exceeded");
    let flushed = pair.near.completion();
    assert_eq!((flushed.wr_id, flushed.status), (11, Status::WorkRequestFlushedError));

    let (attribute, _) = pair.near.qp.query(Mask::State).expect("a queue pair can be queried");
    assert_eq!(attribute.state(), State::Error, "the sender is in the error state");
    let (attribute, _) = pair.far.qp.query(Mask::State).expect("a queue pair can be queried");
    assert_eq!(attribute.state(), State::ReadyToSend, "the receiver is not");
    pair.far.silence();
    pair.reconnect(7);
    pair.works();
}

#[test]
fn wrong_key_fails_and_the_peers_memory_is_unharmed() {
    on_all_kinds!(wrong_key);
}

fn wrong_key<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let range = pair.near.range(0, 64);
    let (rkey, addr) = pair.far.remote(0);
    pair.near.memory.write(0, &[0xff; 64]);
    let wrong = RemoteKey::from_raw(rkey.raw() ^ 0x55);
    let mut runs = 0;
    // One request has an invalid key, one an address before the memory.
    for (rkey, addr) in [(wrong, addr), (rkey, addr - 64)] {
        for read in [false, true] {
            let mut batch = pair.near.qp.start_post_send();
            let request = batch.construct_wr(20, SIGNALED);
            if read {
                request.setup_read(rkey, addr).give(range)
            } else {
                request.setup_write(rkey, addr).give(range)
            }
            batch.post().expect("the key is looked at by the peer alone");
            let failed = pair.near.completion();
            assert_eq!((failed.wr_id, failed.status), (20, Status::RemoteAccessError), "read: {read}");
            assert_eq!(failed.opcode, None);
            assert_eq!(pair.far.bytes(0, 64), [0; 64]);
            pair.reconnect(7);
            runs += 1;
        }
    }
    assert_eq!(runs, 4);
    pair.works();
}

#[test]
fn short_receive_fails_on_both_sides() {
    on_all_kinds!(too_short);
}

fn too_short<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    pair.far.post_receive(30, 0, 10);
    let range = pair.near.range(0, 100);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(31, SIGNALED).setup_send().give(range);
    batch.post().expect("a send can be posted");
    let sent = pair.near.completion();
    assert_eq!(sent.wr_id, 31);
    // The specification requires the first status of each pair; soft-RoCE returns the second.
    assert!([Status::RemoteInvalidRequestError, Status::RemoteOperationError].contains(&sent.status), "{sent:?}");
    let received = pair.far.completion();
    assert_eq!(received.wr_id, 30);
    assert!(
        [Status::LocalLengthError, Status::LocalQueuePairOperationError].contains(&received.status),
        "{received:?}"
    );
    if device::is_soft_nic(&pair.context) {
        assert_eq!((sent.status, received.status), (Status::RemoteInvalidRequestError, Status::LocalLengthError));
    }
    pair.reconnect(7);
    pair.works();
}

#[test]
fn bad_request_of_a_basic_batch_is_named() {
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let range = pair.near.range(0, 8);
    let (rkey, addr) = pair.far.remote(0);
    let ends = if device::is_soft_roce(&pair.context) { 2 } else { 0 };
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(40, SIGNALED).setup_write(rkey, addr).give(range);
    batch.construct_wr(41, SIGNALED).setup_write(rkey, addr + 8).give(range);
    // Soft-RoCE's driver checks the alignment.
    batch.construct_wr(42, SIGNALED).setup_atomic_fetch_add(rkey, addr + 1, 1).give(range);
    batch.construct_wr(43, SIGNALED).setup_write(rkey, addr + 16).give(range);
    let posted = batch.post();
    if device::is_soft_nic(&pair.context) {
        posted.expect("an invalid address of an atomic is reported by the peer");
        assert_eq!([pair.near.success().wr_id, pair.near.success().wr_id], [40, 41]);
        let (refused, flushed) = (pair.near.completion(), pair.near.completion());
        assert_eq!((refused.wr_id, refused.status), (42, Status::RemoteInvalidRequestError));
        assert_eq!((flushed.wr_id, flushed.status), (43, Status::WorkRequestFlushedError));
        assert_eq!(pair.far.bytes(16, 8), [0; 8]);
        pair.reconnect(7);
        return pair.works();
    }
    if ends == 0 {
        println!("the device accepts an atomic on an odd address, or leaves the check to the peer: {posted:?}");
        return;
    }
    let error = posted.expect_err("the third request is wrong");
    assert_eq!(error.kind(), PostErrorKind::InvalidWorkRequest);
    let failed = error.failed_request().expect("the driver reports which");
    assert_eq!((failed.index, failed.wr_id, error.posted()), (Some(2), 42, Some(2)));
    assert_eq!(
        error.to_string(),
        "ibv_post_send: EINVAL (Invalid argument); request 2 (wr_id 42); the 2 requests before it were posted"
    );
    assert_eq!([pair.near.success().wr_id, pair.near.success().wr_id], [40, 41]);
    pair.near.silence();
    pair.works();
}

#[test]
fn full_queue_reports_how_many_were_posted() {
    on_all_kinds!(full);
}

fn full<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let range = pair.near.range(0, 8);
    // No receive is posted, so sends are retried and stay in the queue.
    let mut posted = 0;
    let error = loop {
        let mut batch = pair.near.qp.start_post_send();
        for at in 0..3 {
            batch.construct_wr(posted + at, SIGNALED).setup_send().give(range);
        }
        match batch.post() {
            Ok(()) => posted += 3,
            Err(error) => break error,
        }
        assert!(posted < 10_000, "the queue has no end");
    };
    assert_eq!(error.kind(), PostErrorKind::NotEnoughResources, "{error}");
    assert!(error.to_string().contains("the queue is full"), "{error}");
    // The extended verbs do not report this number. soft-RoCE posts all requests of a batch or none, as the receives
    // below show.
    let of_batch = error.posted().unwrap_or(0);
    if let Some(failed) = error.failed_request() {
        assert_eq!((failed.index, failed.wr_id), (Some(of_batch), posted + of_batch as u64));
    }
    posted += of_batch as u64;
    // If a batch is posted as a whole, at most two more requests fit after the last.
    assert!(posted + 2 >= u64::from(REQUESTS), "{posted} requests fit and {REQUESTS} were asked for");

    // Once receives are posted, the posted requests arrive, and the queue pair still works.
    for wr_id in 0..posted {
        pair.far.post_receive(wr_id, 0, 8);
        assert_eq!(pair.far.success().wr_id, wr_id);
    }
    for wr_id in 0..posted {
        assert_eq!(pair.near.success().wr_id, wr_id);
    }
    pair.near.silence();
    pair.works();
}

#[test]
fn unsupported_request_is_refused_before_the_post() {
    on_all_kinds!(too_much);
}

fn too_much<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::with(queue, None, |builder| {
        builder.setup_max_inline_data(16).setup_max_send_sge(2).setup_max_recv_sge(2).setup_max_recv_wr(4);
    });
    let ranges = [pair.near.range(0, 8); 3];
    if Q::NAME == <BasicQueuePair>::NAME {
        let mut batch = pair.near.qp.start_post_send();
        batch.construct_wr(50, SIGNALED).setup_send().give(ranges[0]);
        batch.construct_wr(51, SIGNALED).setup_send().give_list(&ranges);
        let error = batch.post().expect_err("three entries where two were asked for");
        assert_eq!(error.kind(), PostErrorKind::InvalidWorkRequest);
        assert_eq!(error.failed_request().map(|failed| (failed.index, failed.wr_id)), Some((Some(1), 51)));
        assert_eq!(error.posted(), Some(0));
        let mut batch = pair.near.qp.start_post_send();
        for wr_id in 0..=u64::from(REQUESTS) {
            batch.construct_wr(wr_id, SIGNALED).setup_send().give(ranges[0]);
        }
        let error = batch.post().expect_err("one request more than was asked for");
        assert_eq!(error.kind(), PostErrorKind::NotEnoughResources);
        assert_eq!(error.failed_request().map(|failed| failed.wr_id), Some(u64::from(REQUESTS)));
    }
    let mut receives = pair.far.qp.start_post_recv();
    receives.construct_wr(52).give(ranges[0]);
    receives.construct_wr(53).give_list(&ranges);
    let error = receives.post().expect_err("three entries where two were asked for");
    assert_eq!(error.failed_request().map(|failed| (failed.index, failed.wr_id)), Some((Some(1), 53)));
    assert_eq!(
        error.to_string(),
        "ibv_post_recv: EINVAL (Invalid argument): the list has 3 entries, but the queue was built for 2; use fewer, or raise the builder's limit; \
         request 1 (wr_id 53); nothing of the batch was posted"
    );
    let mut receives = pair.far.qp.start_post_recv();
    for wr_id in 0..5 {
        receives.construct_wr(wr_id).give(ranges[0]);
    }
    let error = receives.post().expect_err("one request more than was asked for");
    assert_eq!((error.kind(), error.posted()), (PostErrorKind::NotEnoughResources, Some(0)));
    pair.near.silence();
    pair.works();
}

#[test]
fn unrequested_operation_is_a_typed_error_and_the_queue_pair_still_works() {
    if !device::has_extended_queue_pairs() {
        return;
    }
    let mut runs = 0;
    for queue in QueueKind::ALL {
        let mut pair = Loopback::<ExtendedQueuePair>::with(queue, None, |builder| {
            builder.setup_send_ops_flags(SendOperationFlags::Send);
        });
        let range = pair.near.range(0, 8);
        let (rkey, addr) = pair.far.remote(0);
        for (operation, flag) in [
            SendOperationFlags::Write,
            SendOperationFlags::WriteWithImmediate,
            SendOperationFlags::Read,
            SendOperationFlags::SendWithImmediate,
            SendOperationFlags::AtomicCompareAndSwap,
            SendOperationFlags::AtomicFetchAndAdd,
        ]
        .into_iter()
        .enumerate()
        {
            pair.far.post_receive(60, 100, 8);
            let mut batch = pair.near.qp.start_post_send();
            batch.construct_wr(61, SIGNALED).setup_send().give(range);
            let request = batch.construct_wr(62, SIGNALED);
            match operation {
                0 => request.setup_write(rkey, addr).give(range),
                1 => request.setup_write_imm(rkey, addr, 1).give(range),
                2 => request.setup_read(rkey, addr).give(range),
                3 => request.setup_send_imm(1).give(range),
                4 => request.setup_atomic_compare_swap(rkey, addr, 0, 1).give(range),
                _ => request.setup_atomic_fetch_add(rkey, addr, 1).give(range),
            }
            batch.construct_wr(63, SIGNALED).setup_send().give(range);
            let error = batch.post().expect_err("the queue pair was built for sends");
            assert_eq!(error.kind(), PostErrorKind::OperationNotEnabled(flag));
            assert_eq!(error.failed_request().map(|failed| failed.wr_id), Some(62));
            assert!(error.to_string().contains("setup_send_ops_flags"), "{error}");
            pair.near.silence();
            // The receive is still posted: it takes the next message.
            let mut batch = pair.near.qp.start_post_send();
            batch.construct_wr(64, SIGNALED).setup_send().give(range);
            batch.post().expect("a send can be posted");
            assert_eq!((pair.near.success().wr_id, pair.far.success().wr_id), (64, 60));
            runs += 1;
        }
        pair.works();
    }
    assert_eq!(runs, 18);
}

#[test]
fn dropped_requests_are_not_posted() {
    on_all_kinds!(dropped);
}

fn dropped<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let range = pair.near.range(0, 8);
    let (rkey, addr) = pair.far.remote(0);
    pair.near.memory.write(0, &[0xaa; 8]);

    // An empty batch, and one that is dropped.
    pair.near.qp.start_post_send().post().expect("an empty batch is no error");
    drop(pair.near.qp.start_post_send());
    pair.near.qp.start_post_recv().post().expect("an empty batch is no error");
    let _ = pair.near.qp.start_post_recv();
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(70, SIGNALED).setup_write(rkey, addr).give(range);
    batch.construct_wr(71, SIGNALED).setup_send().give(range);
    drop(batch);
    {
        let mut receives = pair.far.qp.start_post_recv();
        receives.construct_wr(72).give(range);
    }

    // Handles that are dropped half-way, alone and among others.
    let mut batch = pair.near.qp.start_post_send();
    let _ = batch.construct_wr(73, SIGNALED);
    batch.post().expect("what was dropped leaves no trace");
    let mut batch = pair.near.qp.start_post_send();
    let _ = batch.construct_wr(74, SIGNALED).setup_write(rkey, addr);
    batch.construct_wr(75, SIGNALED).setup_write(rkey, addr + 8).give(range);
    let _ = batch.construct_wr(76, SIGNALED).setup_atomic_fetch_add(rkey, addr, 1);
    batch.post().expect("the one that was finished is posted");
    let mut receives = pair.far.qp.start_post_recv();
    let _ = receives.construct_wr(77);
    receives.post().expect("what was dropped leaves no trace");

    assert_eq!(pair.near.success().wr_id, 75);
    pair.near.silence();
    pair.far.silence();
    assert_eq!(pair.far.bytes(0, 16), [[0; 8], [0xaa; 8]].concat());
    pair.works();
}
