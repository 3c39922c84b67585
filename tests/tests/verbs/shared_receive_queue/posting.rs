//! Receives, and the queue pairs that consume them.

use sideway::ibverbs::completion::BasicCompletionQueue;
use sideway::ibverbs::queue_pair::{GenericQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::ibverbs::work_request::{PostErrorKind, ScatterGatherEntry, WorkRequestFlags};
use sideway_tests::recording::{Bad, Failure, World};

fn queue(world: &World) -> SharedReceiveQueue {
    let queue = world.pd.create_srq_builder().setup_max_wr(4).setup_max_sge(2).build().unwrap();
    world.recording.calls();
    queue
}

#[test]
fn receives_reach_the_device_unchanged() {
    let world = World::new();
    let mut queue = queue(&world);
    let mut guard = queue.start_post_recv();
    let entries = [ScatterGatherEntry::new(1.into(), 10, 100), ScatterGatherEntry::new(2.into(), 20, 200)];
    // SAFETY: the recording device touches no memory.
    unsafe {
        guard.construct_wr(5).setup_sge(3, 30, 300);
        guard.construct_wr(6).setup_sge_list(&entries);
    }
    guard.construct_wr(7).setup_no_data();
    drop(guard.construct_wr(8));
    guard.post().unwrap();
    // SAFETY: the pointer is compared while the queue is alive.
    let srq = unsafe { queue.srq() }.as_ptr().addr();
    let calls = world.recording.calls();
    assert_eq!((calls.len(), calls[0].verb, calls[0].argument("srq")), (1, "post_srq_recv", srq as u64));
    let posted: Vec<_> = world.recording.posted().into_iter().map(|posted| (posted.wr_id, posted.entries)).collect();
    assert_eq!(posted, [(5, vec![(3, 30, 300)]), (6, vec![(1, 10, 100), (2, 20, 200)]), (7, vec![])]);

    // Empty and dropped batches cause no call.
    queue.start_post_recv().post().unwrap();
    queue.start_post_recv().construct_wr(9).setup_no_data();
    assert_eq!(world.recording.verbs(), [""; 0]);
}

#[test]
fn failed_batch_names_its_request() {
    let world = World::new();
    let mut queue = queue(&world);
    for (at, failure) in [
        (0, Failure::documented(libc::EINVAL)),
        (1, Failure::negative(libc::EINVAL)),
        (2, Failure::minus_one(libc::EINVAL)),
    ] {
        world.recording.refuse_requests(Bad::At(at), failure);
        let mut guard = queue.start_post_recv();
        (40..43).for_each(|wr_id| guard.construct_wr(wr_id).setup_no_data());
        let error = guard.post().unwrap_err();
        let failed = error.failed_request().unwrap();
        assert_eq!((failed.index, failed.wr_id, error.posted()), (Some(at), 40 + at as u64, Some(at)));
        assert_eq!(error.kind(), PostErrorKind::InvalidWorkRequest);
        assert!(error.to_string().starts_with("ibv_post_srq_recv: EINVAL (Invalid argument)"), "{error}");
        assert!(error.to_string().contains(&format!("request {at} (wr_id {})", 40 + at)), "{error}");
        assert_eq!(world.recording.posted().len(), at);
    }
    // Three receives are posted. Of two more, the second finds the queue full.
    let mut guard = queue.start_post_recv();
    (50..52).for_each(|wr_id| guard.construct_wr(wr_id).setup_no_data());
    let error = guard.post().unwrap_err();
    assert_eq!((error.kind(), error.posted()), (PostErrorKind::NotEnoughResources, Some(1)));
    assert_eq!(error.failed_request().unwrap().wr_id, 51);
}

#[test]
fn missing_bad_wr_is_tolerated() {
    let world = World::new();
    let mut queue = queue(&world);
    for bad in [Bad::Null, Bad::Foreign, Bad::Behind] {
        world.recording.refuse_requests(bad, Failure::documented(libc::EINVAL));
        let mut guard = queue.start_post_recv();
        guard.construct_wr(1).setup_no_data();
        let error = guard.post().unwrap_err();
        assert_eq!((error.failed_request(), error.posted()), (None, None), "{error}");
    }
}

#[test]
fn oversized_request_is_refused_before_the_call() {
    let world = World::new();
    let mut queue = queue(&world);
    let mut guard = queue.start_post_recv();
    (3..9).for_each(|wr_id| guard.construct_wr(wr_id).setup_no_data());
    assert_eq!(
        guard.post().unwrap_err().to_string(),
        "ibv_post_srq_recv: ENOMEM (Cannot allocate memory): the batch exceeds the 4 requests that the queue was \
         built for; post fewer at once; request 4 (wr_id 7); nothing of the batch was posted"
    );
    let mut guard = queue.start_post_recv();
    // SAFETY: the recording device touches no memory.
    unsafe { guard.construct_wr(7).setup_sge_list(&[ScatterGatherEntry::new(1.into(), 2, 3); 3]) };
    assert_eq!(
        guard.post().unwrap_err().to_string(),
        "ibv_post_srq_recv: EINVAL (Invalid argument): the list has 3 entries, but the queue was built for 2; use fewer, or raise the builder's limit; request 0 \
         (wr_id 7); nothing of the batch was posted"
    );
    assert_eq!(world.recording.verbs(), [""; 0]);
}

#[test]
fn queue_pair_with_a_shared_queue_refuses_receives_of_its_own() {
    let world = World::new();
    let queue = queue(&world);
    let mut builder = world.qp_builder();
    builder.setup_srq(&queue);
    let pairs: [GenericQueuePair; 2] = [builder.build().unwrap().into(), builder.build_ex().unwrap().into()];
    for mut qp in pairs {
        world.recording.calls();
        let mut guard = qp.start_post_recv();
        guard.construct_wr(3).setup_no_data();
        let error = guard.post().unwrap_err();
        assert_eq!(
            error.to_string(),
            "ibv_post_recv: EINVAL (Invalid argument): the queue pair has a shared receive queue; \
             post receives there; request 0 (wr_id 3); nothing of the batch was posted"
        );
        qp.start_post_recv().post().unwrap();
        assert_eq!(world.recording.verbs(), [""; 0]);
    }
}

#[test]
fn queue_pairs_take_the_oldest_receive_of_the_shared_queue() {
    let world = World::new();
    let mut queue = queue(&world);
    let mut cq: BasicCompletionQueue = world.context.create_cq_builder().build().unwrap();
    let mut builder = world.qp_builder();
    builder.setup_srq(&queue).setup_recv_cq(&cq);
    let mut pairs: [GenericQueuePair; 2] = [builder.build().unwrap().into(), builder.build_ex().unwrap().into()];
    let mut guard = queue.start_post_recv();
    (70..74).for_each(|wr_id| guard.construct_wr(wr_id).setup_no_data());
    guard.post().unwrap();
    for (at, byte) in [(0, b'a'), (1, b'b'), (1, b'c'), (0, b'd')] {
        let mut guard = pairs[at].start_post_send();
        guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_inline_data(&[byte]);
        guard.post().unwrap();
    }
    let mut taken = Vec::new();
    let mut poller = cq.start_poll().unwrap();
    while let Some(completion) = poller.next().unwrap() {
        taken.push((completion.wr_id(), completion.qp_num()));
    }
    let numbers = [pairs[0].qp_number(), pairs[1].qp_number()];
    assert_eq!(taken, [(70, numbers[0]), (71, numbers[1]), (72, numbers[1]), (73, numbers[0])]);
    // The queue has space again.
    let mut guard = queue.start_post_recv();
    (80..84).for_each(|wr_id| guard.construct_wr(wr_id).setup_no_data());
    guard.post().unwrap();
}
