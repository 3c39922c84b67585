//! Requested sizes, granted sizes, and refusals.

use sideway::ibverbs::completion::CompletionQueue;
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::queue_pair::QueuePair;
use sideway::ibverbs::shared_receive_queue::{SharedReceiveQueueBuilder, SharedReceiveQueueType};
use sideway::ibverbs::xrc_domain::XrcDomainFlags;
use sideway_tests::recording::{Failure, Kind, Recording, World};

#[test]
fn basic_queue_has_the_requested_attributes() {
    let world = World::new();
    let mut builder = world.pd.create_srq_builder();
    builder.setup_max_wr(100).setup_max_sge(3).setup_limit(7).setup_srq_context(77);
    for build in [SharedReceiveQueueBuilder::build, SharedReceiveQueueBuilder::build_ex] {
        let queue = build(&builder).unwrap();
        // A basic queue of the extended verb is created by the library: the header's inline function ensures that.
        let call = world.recording.calls().remove(0);
        assert_eq!(call.verb, "create_srq");
        let asked = ["max_wr", "max_sge", "srq_limit"].map(|name| call.argument(name));
        assert_eq!(asked, [100, 3, 7]);
        assert_eq!((queue.max_wr(), queue.max_sge()), (100, 3));
        assert_eq!((queue.srq_type(), queue.srq_context()), (SharedReceiveQueueType::Basic, 77));
        assert_eq!(queue.device_context().name(), world.recording.name());
        // SAFETY: the queue is alive.
        assert_eq!(unsafe { (*queue.srq().as_ptr()).srq_context }.addr(), 77);
        drop(queue);
        world.recording.calls();
    }
    drop(builder);
    world.end();
}

#[test]
fn granted_sizes_are_used() {
    let world = World::new();
    world.recording.edit(|facts| facts.srq = Some((127, 4)));
    let mut queue = world.pd.create_srq_builder().setup_max_wr(100).setup_max_sge(2).build().unwrap();
    assert_eq!((queue.max_wr(), queue.max_sge()), (127, 4));
    let mut guard = queue.start_post_recv();
    (0..127).for_each(|wr_id| guard.construct_wr(wr_id).setup_no_data());
    guard.post().unwrap();
    assert_eq!(world.recording.posted().len(), 127);
    drop(queue);

    // Values beyond all memory are an error, and no queue is leaked.
    world.recording.edit(|facts| facts.srq = Some((u32::MAX, u32::MAX)));
    let error = world.pd.create_srq_builder().build().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_srq", libc::ENOMEM));
    assert!(!world.recording.live().contains(&Kind::SharedReceiveQueue));
    world.end();
}

#[test]
fn errors_of_the_verb_are_explained() {
    let world = World::new();
    let invalid = Failure::documented(libc::EINVAL);
    let mut builder = world.pd.create_srq_builder();
    let error = builder.setup_max_wr(10).setup_limit(11).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "ibv_create_srq: EINVAL (Invalid argument): the limit 11 exceeds the queue's 10 receives; use a smaller limit"
    );
    assert_eq!(world.recording.verbs(), [""; 0], "C was not asked");
    builder.setup_limit(0).setup_max_wr(513);
    world.recording.fail_always("create_srq", invalid);
    let error = builder.build().unwrap_err();
    assert!(error.to_string().ends_with("513 receives exceed the device's limit of 512; request less"), "{error}");
    let error = builder.setup_max_wr(1).setup_max_sge(5).build_ex().unwrap_err();
    assert!(error.to_string().ends_with("5 entries exceed the device's limit of 4; request less"), "{error}");
    let error = builder.setup_max_wr(0).setup_max_sge(1).build().unwrap_err();
    assert!(error.to_string().ends_with("use at least 1"), "{error}");
    let error = builder.setup_max_wr(u32::MAX).build().unwrap_err();
    assert!(error.to_string().contains("4294967295 receives"), "{error}");
    world.recording.edit(|facts| facts.device.orig_attr.max_srq = 0);
    let error = builder.setup_max_wr(1).build().unwrap_err();
    assert!(error.to_string().ends_with("the device does not support shared receive queues"), "{error}");
    world.recording.succeed("create_srq").fail("create_srq", 0, Failure::documented(libc::ENOSYS));
    let error = builder.build().unwrap_err();
    assert_eq!(error.errno().raw(), libc::ENOSYS);
    assert!(error.hint().unwrap().contains("does not support shared receive queues"), "{error}");
    world.recording.fail("create_srq", 0, Failure::documented(libc::EACCES));
    assert_eq!(builder.build().unwrap_err().to_string(), "ibv_create_srq: EACCES (Permission denied)");
    drop(builder);
    world.end();
}

#[test]
fn driver_without_a_post_function_is_refused() {
    let recording = Recording::new();
    recording.without("post_srq_recv");
    let pd = recording.open().alloc_pd().unwrap();
    recording.calls();
    for error in [pd.create_srq_builder().build().unwrap_err(), pd.create_srq_builder().build_ex().unwrap_err()] {
        assert_eq!(error.errno().raw(), libc::EOPNOTSUPP);
        assert!(error.hint().unwrap().contains("post_srq_recv"), "{error}");
    }
    assert_eq!(recording.verbs(), [""; 0]);
}

#[test]
fn xrc_queue_has_a_domain_and_a_completion_queue() {
    let world = World::new();
    let xrcd = world.context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
    let mut builder = world.pd.create_srq_builder();
    builder.setup_xrc(&xrcd, &world.recv_cq);
    let error = builder.build().unwrap_err();
    assert!(error.hint().unwrap().contains("call build_ex"), "{error}");
    world.recording.calls();
    let queue = builder.build_ex().unwrap();
    let call = world.recording.calls().remove(0);
    assert_eq!(call.verb, "create_srq_ex");
    // TYPE, PD, XRCD and CQ.
    assert_eq!((call.argument("comp_mask"), call.argument("srq_type")), (0b1111, 1));
    // SAFETY: the pointers are compared while the objects are alive.
    let (cq, domain) = unsafe { (world.recv_cq.cq().as_ptr().addr(), xrcd.xrcd().as_ptr().addr()) };
    assert_eq!((call.argument("cq"), call.argument("xrcd")), (cq as u64, domain as u64));
    assert_eq!(queue.srq_type(), SharedReceiveQueueType::ReliableConnectionExtended);
    assert!(queue.srq_number().unwrap() > 0);

    // No queue pair can be created with an XRC queue.
    for error in [
        world.qp_builder().setup_srq(&queue).build().unwrap_err(),
        world.qp_builder().setup_srq(&queue).build_ex().unwrap_err(),
    ] {
        assert!(error.hint().unwrap().contains("senders name by its number"), "{error}");
    }
    drop((queue, builder, xrcd));
    world.end();
}

#[test]
fn device_without_a_queue_type_is_an_error() {
    let recording = Recording::new();
    recording.without("create_srq_ex");
    let context = recording.open();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq_builder().build().unwrap();
    let xrcd = context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
    let mut builder = pd.create_srq_builder();
    assert_eq!(
        builder.setup_xrc(&xrcd, &cq).build_ex().unwrap_err().to_string(),
        "ibv_create_srq_ex: EOPNOTSUPP (Operation not supported): the device or its driver does not support XRC"
    );
    assert_eq!(
        builder.setup_tag_matching(&cq, 1, 1).build_ex().unwrap_err().to_string(),
        "ibv_create_srq_ex: EOPNOTSUPP (Operation not supported): the device or its driver does not support tag matching"
    );
}

#[test]
fn objects_of_another_context_are_refused_before_the_call() {
    let world = World::new();
    // Objects of another device, and of the same device opened again.
    let other = Recording::new();
    for context in [other.open(), world.recording.open()] {
        let cq = context.create_cq_builder().build().unwrap();
        let xrcd = context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
        let own = world.context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
        let foreign = context.alloc_pd().unwrap().create_srq_builder().build().unwrap();
        world.recording.calls();
        let mut builder = world.pd.create_srq_builder();
        for (error, what) in [
            (builder.setup_xrc(&xrcd, &world.recv_cq).build_ex().unwrap_err(), "XRC domain"),
            (builder.setup_xrc(&own, &cq).build_ex().unwrap_err(), "completion queue"),
            (builder.setup_tag_matching(&cq, 1, 1).build_ex().unwrap_err(), "completion queue"),
            (world.qp_builder().setup_srq(&foreign).build().unwrap_err(), "setup_srq"),
            (world.qp_builder().setup_srq(&foreign).build_ex().unwrap_err(), "setup_srq"),
            (world.qp_builder().setup_srq(&foreign).build_generic().unwrap_err(), "setup_srq"),
        ] {
            assert_eq!(error.errno().raw(), libc::EINVAL);
            assert!(error.hint().unwrap().contains("another device context"), "{error}");
            assert!(error.hint().unwrap().contains(what), "{error}");
        }
        assert_eq!(world.recording.verbs(), [""; 0]);
    }
}

#[test]
fn queue_pair_is_created_with_the_shared_queue() {
    let world = World::new();
    let queue = world.pd.create_srq_builder().build().unwrap();
    let mut builder = world.qp_builder();
    builder.setup_srq(&queue);
    // SAFETY: the pointers are compared while the objects are alive.
    unsafe {
        let srq = queue.srq().as_ptr();
        assert_eq!((*builder.build().unwrap().qp().as_ptr()).srq, srq);
        assert_eq!((*builder.build_ex().unwrap().qp().as_ptr()).srq, srq);
        assert_eq!((*builder.build_generic().unwrap().qp().as_ptr()).srq, srq);
        assert!((*world.qp_builder().build().unwrap().qp().as_ptr()).srq.is_null());
    }
}

#[test]
fn initiator_of_an_xrc_connection_has_no_shared_queue() {
    let world = World::new();
    let queue = world.pd.create_srq_builder().build().unwrap();
    world.recording.calls();
    let mut builder = world.pd.create_xrc_send_qp_builder();
    builder.setup_send_cq(&world.send_cq).setup_srq(&queue);
    let error = builder.build_ex().unwrap_err();
    assert!(error.to_string().ends_with("omit setup_srq"), "{error}");
    assert_eq!(world.recording.verbs(), [""; 0]);
}
