//! Operations on the list of tags.

use sideway::ibverbs::completion::{BasicCompletionQueue, CompletionQueue, WorkCompletionOperationType};
use sideway::ibverbs::queue_pair::SetScatterGatherEntry;
use sideway::ibverbs::shared_receive_queue::{
    SharedReceiveQueue, SharedReceiveQueueType, TagMatchingOperationFlags as Flags,
};
use sideway::ibverbs::work_request::{PostErrorKind, ScatterGatherEntry};
use sideway_tests::recording::{Bad, Call, Failure, World};

/// A queue of 3 tags and 4 operations of up to 2 entries, and its completion queue.
fn queue(world: &World) -> (SharedReceiveQueue, BasicCompletionQueue) {
    world.recording.edit(|facts| {
        facts.device.tm_caps.max_num_tags = 8;
        facts.device.tm_caps.max_ops = 16;
        facts.device.tm_caps.max_sge = 2;
    });
    let cq = world.context.create_cq_builder().build().unwrap();
    let queue = world.pd.create_srq_builder().setup_tag_matching(&cq, 3, 4).build_ex().unwrap();
    (queue, cq)
}

fn operations(world: &World) -> Vec<Call> {
    let mut calls = world.recording.calls();
    calls.retain(|call| call.verb == "tag_operation");
    calls
}

#[test]
fn tag_matching_queue_has_the_requested_attributes() {
    let world = World::new();
    let (queue, cq) = queue(&world);
    let calls = world.recording.calls();
    let call = calls.iter().find(|call| call.verb == "create_srq_ex").unwrap();
    // TYPE, PD, CQ and TM.
    assert_eq!((call.argument("comp_mask"), call.argument("srq_type")), (0b11011, 2));
    assert_eq!((call.argument("max_num_tags"), call.argument("max_ops")), (3, 4));
    // SAFETY: the pointer is compared while the queue is alive.
    assert_eq!(call.argument("cq"), unsafe { cq.cq() }.as_ptr().addr() as u64);
    assert_eq!(queue.srq_type(), SharedReceiveQueueType::TagMatching);

    world.recording.fail_always("create_srq_ex", Failure::documented(libc::EINVAL));
    let mut builder = world.pd.create_srq_builder();
    let error = builder.setup_tag_matching(&cq, 9, 1).build_ex().unwrap_err();
    assert!(error.to_string().ends_with("9 tags exceed the device's limit of 8; request less"), "{error}");
    let error = builder.setup_tag_matching(&cq, 8, 17).build_ex().unwrap_err();
    assert!(error.to_string().ends_with("17 operations exceed the device's limit of 16; request less"), "{error}");
    let error = builder.setup_tag_matching(&cq, 8, u32::MAX).build_ex().unwrap_err();
    assert!(error.to_string().contains("4294967295 operations"), "{error}");
    drop((queue, cq, builder));
    world.end();
}

#[test]
fn operations_reach_the_device_unchanged() {
    let world = World::new();
    let (mut queue, mut cq) = queue(&world);
    let mut guard = queue.start_post_ops();
    let add = guard.construct_op(1, Flags::Signaled | Flags::Synchronize).setup_unexpected_count(9);
    // SAFETY: the recording device touches no memory.
    unsafe { add.setup_add(100, 0xabcd, 0xffff).setup_sge(3, 30, 300) };
    guard.construct_op(2, Flags::empty()).setup_add(101, 1 << 40, u64::MAX).setup_no_data();
    guard.construct_op(3, Flags::Signaled).setup_unexpected_count(11).setup_synchronize();
    drop(guard.construct_op(4, Flags::empty()));
    guard.post().unwrap();

    let calls = operations(&world);
    let of = |call: &Call, names: &[&str]| names.iter().map(|name| call.argument(name)).collect::<Vec<_>>();
    let names = ["wr_id", "opcode", "flags", "unexpected_cnt", "recv_wr_id", "tag", "mask", "num_sge"];
    assert_eq!(of(&calls[0], &names), [1, 0, 3, 9, 100, 0xabcd, 0xffff, 1]);
    assert_eq!(of(&calls[0], &["lkey", "addr", "length"]), [3, 30, 300]);
    assert_eq!(of(&calls[1], &names), [2, 0, 0, 0, 101, 1 << 40, u64::MAX, 0]);
    assert_eq!(of(&calls[2], &names[..4]), [3, 2, 1, 11]);
    assert_eq!(calls.len(), 3);

    let tags = [queue.posted_tag(0).unwrap(), queue.posted_tag(1).unwrap()];
    assert_ne!(tags[0], tags[1]);
    assert_eq!((queue.posted_tag(2), queue.posted_tag(3), queue.posted_tag(usize::MAX)), (None, None, None));

    let mut guard = queue.start_post_ops();
    // SAFETY: the tag is in the list.
    unsafe { guard.construct_op(5, Flags::empty()).setup_delete(tags[1]) };
    guard.post().unwrap();
    // Operations are always signaled, because the driver frees the slot with the completion.
    assert_eq!(of(&operations(&world)[0], &["wr_id", "opcode", "handle", "flags"]), [5, 1, 1, 1]);
    assert_eq!(queue.posted_tag(0), None, "a deletion adds no tag");

    let mut seen = Vec::new();
    let mut poller = cq.start_poll().unwrap();
    while let Some(completion) = poller.next().unwrap() {
        seen.push((completion.wr_id(), completion.opcode()));
    }
    use WorkCompletionOperationType as Type;
    assert_eq!(seen, [(1, Type::TagMatchingAdd), (3, Type::TagMatchingSync), (5, Type::TagMatchingDelete)]);
}

#[test]
fn empty_buffer_replaces_the_previous_batchs() {
    let world = World::new();
    let (mut queue, _cq) = queue(&world);
    let mut guard = queue.start_post_ops();
    // SAFETY: the recording device touches no memory.
    unsafe { guard.construct_op(1, Flags::empty()).setup_add(1, 1, 1).setup_sge(3, 30, 300) };
    guard.post().unwrap();
    let mut guard = queue.start_post_ops();
    guard.construct_op(2, Flags::empty()).setup_add(2, 2, 2).setup_no_data();
    guard.post().unwrap();
    let calls = operations(&world);
    assert_eq!((calls[0].argument("addr"), calls[0].argument("length")), (30, 300));
    assert_eq!((calls[1].argument("addr"), calls[1].argument("length"), calls[1].argument("lkey")), (0, 0, 0));
}

#[test]
fn failed_batch_names_its_operation_and_keeps_earlier_tags() {
    let world = World::new();
    let (mut queue, _cq) = queue(&world);
    let mut guard = queue.start_post_ops();
    (10..14).for_each(|wr_id| guard.construct_op(wr_id, Flags::empty()).setup_add(0, wr_id, 0xff).setup_no_data());
    let error = guard.post().unwrap_err();
    // The list has space for three.
    assert_eq!((error.kind(), error.posted()), (PostErrorKind::NotEnoughResources, Some(3)));
    let failed = error.failed_request().unwrap();
    assert_eq!((failed.index, failed.wr_id), (Some(3), 13));
    assert!(error.to_string().starts_with("ibv_post_srq_ops: ENOMEM"), "{error}");
    let third = queue.posted_tag(2).unwrap();
    assert_eq!(queue.posted_tag(3), None);

    // The same tag twice: the second deletion finds no tag.
    let mut guard = queue.start_post_ops();
    for wr_id in [20, 21] {
        // SAFETY: the recording device checks its list.
        unsafe { guard.construct_op(wr_id, Flags::empty()).setup_delete(third) };
    }
    let error = guard.post().unwrap_err();
    assert_eq!((error.verb_error().errno().raw(), error.posted()), (libc::ENOENT, Some(1)));

    // If the driver does not report which operations it posted, none counts as a tag.
    world.recording.refuse_requests(Bad::Null, Failure::documented(libc::EIO));
    let mut guard = queue.start_post_ops();
    (30..32).for_each(|wr_id| guard.construct_op(wr_id, Flags::empty()).setup_add(0, wr_id, 0xff).setup_no_data());
    assert_eq!(guard.post().unwrap_err().posted(), None);
    assert_eq!(queue.posted_tag(0), None);
}

#[test]
fn unposted_batch_has_no_tags() {
    let world = World::new();
    let (mut queue, _cq) = queue(&world);
    let mut guard = queue.start_post_ops();
    guard.construct_op(1, Flags::empty()).setup_add(1, 1, 1).setup_no_data();
    guard.post().unwrap();
    assert!(queue.posted_tag(0).is_some());
    queue.start_post_ops().construct_op(1, Flags::empty()).setup_add(1, 1, 1).setup_no_data();
    assert_eq!(queue.posted_tag(0), None);
}

#[test]
fn tag_of_another_queue_does_not_reach_the_driver() {
    let world = World::new();
    let ((mut first, _cq), (mut second, _other)) = (queue(&world), queue(&world));
    let mut guard = first.start_post_ops();
    guard.construct_op(1, Flags::empty()).setup_add(1, 1, 1).setup_no_data();
    guard.post().unwrap();
    let tag = first.posted_tag(0).unwrap();
    // This also holds for a tag of a destroyed queue, whose address a new queue has.
    drop(first);
    world.recording.calls();
    let mut guard = second.start_post_ops();
    guard.construct_op(8, Flags::empty()).setup_synchronize();
    // SAFETY: the device refuses the operation.
    unsafe { guard.construct_op(9, Flags::empty()).setup_delete(tag) };
    let error = guard.post().unwrap_err();
    assert_eq!(
        error.to_string(),
        "ibv_post_srq_ops: EINVAL (Invalid argument): the tag belongs to another shared receive queue; request 1 (wr_id 9); \
         nothing of the batch was posted"
    );
    assert_eq!(world.recording.verbs(), [""; 0]);
}

#[test]
fn oversized_request_is_refused_before_the_call() {
    let world = World::new();
    let (mut queue, _cq) = queue(&world);
    world.recording.calls();
    let mut guard = queue.start_post_ops();
    (0..5).for_each(|wr_id| guard.construct_op(wr_id, Flags::empty()).setup_synchronize());
    let error = guard.post().unwrap_err();
    assert_eq!((error.kind(), error.failed_request().unwrap().wr_id), (PostErrorKind::NotEnoughResources, 4));
    let mut guard = queue.start_post_ops();
    let entries = [ScatterGatherEntry::new(1.into(), 2, 3); 3];
    // SAFETY: the recording device touches no memory.
    unsafe { guard.construct_op(7, Flags::empty()).setup_add(1, 1, 1).setup_sge_list(&entries) };
    let error = guard.post().unwrap_err();
    assert!(error.to_string().contains("3 entries") && error.to_string().contains("for 2"), "{error}");
    assert_eq!(world.recording.verbs(), [""; 0]);
}

#[test]
fn queue_without_tag_matching_refuses_operations() {
    let world = World::new();
    let (mut with, _cq) = queue(&world);
    let mut guard = with.start_post_ops();
    guard.construct_op(1, Flags::empty()).setup_add(1, 1, 1).setup_no_data();
    guard.post().unwrap();
    let tag = with.posted_tag(0).unwrap();
    let mut without = world.pd.create_srq_builder().build().unwrap();
    world.recording.calls();
    for step in 0..3 {
        let mut guard = without.start_post_ops();
        let operation = guard.construct_op(5, Flags::empty());
        match step {
            0 => operation.setup_synchronize(),
            // SAFETY: the device refuses the operation.
            1 => unsafe { operation.setup_delete(tag) },
            _ => operation.setup_add(1, 1, 1).setup_no_data(),
        }
        let error = guard.post().unwrap_err();
        assert_eq!(error.kind(), PostErrorKind::InvalidWorkRequest);
        assert!(error.to_string().contains("the queue has no tag matching"), "{error}");
    }
    assert_eq!(world.recording.verbs(), [""; 0]);
}

#[test]
fn driver_without_the_function_is_an_error() {
    let world = World::new();
    world.recording.without("post_srq_ops");
    let context = world.recording.open();
    let cq = context.create_cq_builder().build().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut queue = pd.create_srq_builder().setup_tag_matching(&cq, 1, 1).build_ex().unwrap();
    let mut guard = queue.start_post_ops();
    guard.construct_op(1, Flags::empty()).setup_synchronize();
    let error = guard.post().unwrap_err();
    assert_eq!((error.verb_error().errno().raw(), error.posted()), (libc::EOPNOTSUPP, Some(0)));
}
