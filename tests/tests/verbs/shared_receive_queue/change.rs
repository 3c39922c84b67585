//! Modifying and querying.

use sideway::ibverbs::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueAttribute};
use sideway::ibverbs::work_request::PostErrorKind;
use sideway_tests::recording::{Failure, World};

fn queue(world: &World) -> SharedReceiveQueue {
    let queue = world.pd.create_srq_builder().setup_max_wr(4).setup_max_sge(2).build().unwrap();
    world.recording.calls();
    queue
}

/// Posts N receives at once.
fn post(queue: &mut SharedReceiveQueue, count: u64) -> Result<(), PostErrorKind> {
    let mut guard = queue.start_post_recv();
    (0..count).for_each(|wr_id| guard.construct_wr(wr_id).setup_no_data());
    guard.post().map_err(|error| error.kind())
}

#[test]
fn limit_is_armed_and_read_back() {
    let world = World::new();
    let mut queue = queue(&world);
    queue.arm_limit(3).unwrap();
    let call = world.recording.calls().remove(0);
    assert_eq!((call.verb, call.argument("mask"), call.argument("srq_limit")), ("modify_srq", 2, 3));
    let found = queue.query().unwrap();
    assert_eq!((found.max_wr(), found.max_sge(), found.limit()), (4, 2, 3));
    queue.modify(SharedReceiveQueueAttribute::new().setup_limit(0)).unwrap();
    assert_eq!(queue.query().unwrap().limit(), 0);
    assert_eq!(world.recording.verbs(), ["query_srq", "modify_srq", "query_srq"]);
}

#[test]
fn resize_changes_the_batch_limit() {
    let world = World::new();
    let mut queue = queue(&world);
    assert_eq!(post(&mut queue, 5), Err(PostErrorKind::NotEnoughResources));
    queue.modify(SharedReceiveQueueAttribute::new().setup_max_wr(6).setup_limit(5)).unwrap();
    let call = world.recording.calls().pop().unwrap();
    let asked = ["mask", "max_wr", "srq_limit"].map(|name| call.argument(name));
    assert_eq!(asked, [3, 6, 5]);
    assert_eq!(queue.max_wr(), 6);
    post(&mut queue, 6).unwrap();
    assert_eq!(world.recording.posted().len(), 6);

    // Smaller than the number of outstanding receives.
    let error = queue.modify(SharedReceiveQueueAttribute::new().setup_max_wr(5)).unwrap_err();
    assert_eq!(error.errno().raw(), libc::EINVAL);
    assert_eq!(queue.max_wr(), 6);
}

#[test]
fn failed_resize_leaves_the_queue_unchanged() {
    let world = World::new();
    let mut queue = queue(&world);
    for failure in
        [Failure::documented(libc::ENOMEM), Failure::negative(libc::ENOMEM), Failure::minus_one(libc::ENOMEM)]
    {
        world.recording.fail("modify_srq", 0, failure);
        let error = queue.modify(SharedReceiveQueueAttribute::new().setup_max_wr(6)).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_modify_srq", libc::ENOMEM));
        assert_eq!(queue.max_wr(), 4);
        assert_eq!(post(&mut queue, 5), Err(PostErrorKind::NotEnoughResources));
    }
    // Values that the device does not support, or that memory does not suffice for, do not reach C.
    world.recording.calls();
    for (has, errno, words) in [
        (512, libc::EINVAL, "4294967295 receives exceed the device's limit of 512; request less"),
        (u32::MAX >> 1, libc::EINVAL, "the device's limit of 2147483647; request less"),
    ] {
        world.recording.edit(|facts| facts.device.orig_attr.max_srq_wr = has as i32);
        let error = queue.modify(SharedReceiveQueueAttribute::new().setup_max_wr(u32::MAX)).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_modify_srq", errno));
        assert!(error.to_string().ends_with(words), "{error}");
    }
    let error = queue.modify(SharedReceiveQueueAttribute::new().setup_max_wr(1 << 30)).unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_modify_srq", libc::ENOMEM));
    assert!(
        error.hint().unwrap().contains("1073741824 requests of 2 entries, which this library allocates"),
        "{error}"
    );
    assert!(!world.recording.verbs().contains(&"modify_srq"));
    post(&mut queue, 4).unwrap();
}

#[test]
fn failed_modify_is_explained() {
    let world = World::new();
    let mut queue = queue(&world);
    assert_eq!(
        queue.arm_limit(5).unwrap_err().to_string(),
        "ibv_modify_srq: EINVAL (Invalid argument): the limit 5 exceeds the queue's 4 receives; use a smaller limit"
    );
    let mut attribute = SharedReceiveQueueAttribute::new();
    let error = queue.modify(attribute.setup_max_wr(600)).unwrap_err();
    assert!(error.to_string().ends_with("600 receives exceed the device's limit of 512; request less"), "{error}");
    world.recording.fail_always("modify_srq", Failure::documented(libc::EINVAL));
    let error = queue.modify(attribute.setup_max_wr(6)).unwrap_err();
    assert!(error.to_string().contains("cannot resize shared receive queues"), "{error}");
    // IBV_DEVICE_SRQ_RESIZE.
    world.recording.edit(|facts| facts.device.orig_attr.device_cap_flags = 1 << 13);
    let error = queue.modify(attribute.setup_limit(7)).unwrap_err();
    assert!(error.to_string().ends_with("the limit 7 exceeds the queue's 6 receives; use a smaller limit"), "{error}");
    let error = queue.modify(attribute.setup_limit(1)).unwrap_err();
    assert!(error.to_string().contains("may not hold all outstanding receives"), "{error}");
}

#[test]
fn failed_and_empty_queries_are_handled() {
    let world = World::new();
    let queue = queue(&world);
    world.recording.fail("query_srq", 0, Failure::negative(libc::EIO));
    assert_eq!(queue.query().unwrap_err().to_string(), "ibv_query_srq: EIO (Input/output error)");
    world.recording.edit(|facts| facts.fills = false);
    assert_eq!(queue.query().unwrap().max_wr(), 0);
}

#[test]
fn queue_number_is_read() {
    let world = World::new();
    let queues = [queue(&world), queue(&world)];
    let numbers = [queues[0].srq_number().unwrap(), queues[1].srq_number().unwrap()];
    assert_ne!(numbers[0], numbers[1]);
    assert_eq!(world.recording.verbs().last(), Some(&"get_srq_num"));
    world.recording.fail("get_srq_num", 0, Failure::documented(libc::EINVAL));
    assert_eq!(queues[0].srq_number().unwrap_err().to_string(), "ibv_get_srq_num: EINVAL (Invalid argument)");

    let world = World::new();
    world.recording.without("get_srq_num");
    let pd = world.recording.open().alloc_pd().unwrap();
    let error = pd.create_srq_builder().build().unwrap().srq_number().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_get_srq_num", libc::EOPNOTSUPP));
    assert!(error.hint().unwrap().contains("XRC"), "{error}");
}
