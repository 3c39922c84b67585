//! Work queues, tables of them, and RSS queue pairs.

use std::sync::Arc;

use rdma_mummy_sys as ffi;
use sideway::ibverbs::async_event::{AsyncEventElement, AsyncEventType};
use sideway::ibverbs::device_context::{RxHashFields, RxHashFunctions};
use sideway::ibverbs::flow::{FlowRule, FlowType};
use sideway::ibverbs::queue_pair::{QueuePairAttribute, QueuePairState, QueuePairType};
use sideway::ibverbs::work_queue::{WorkQueue, WorkQueueAttribute, WorkQueueFlags, WorkQueueState};
use sideway::ibverbs::work_request::{PostErrorKind, ScatterGatherEntry};
use sideway_tests::recording::{Bad, Failure, Kind, Raised, Recording, World};

fn work_queue(world: &World) -> WorkQueue {
    let mut builder = world.pd.create_wq_builder();
    builder.setup_cq(&world.recv_cq).setup_max_wr(4).setup_max_sge(2).build().unwrap()
}

#[test]
fn work_queue_has_the_requested_attributes() {
    let world = World::new();
    let mut builder = world.pd.create_wq_builder();
    builder.setup_cq(&world.recv_cq).setup_max_wr(100).setup_max_sge(3);
    let plain = builder.build().unwrap();
    builder.setup_create_flags(WorkQueueFlags::CvlanStripping | WorkQueueFlags::DelayDrop);
    let flagged = builder.build().unwrap();
    let calls = world.recording.calls();
    use sideway::ibverbs::completion::CompletionQueue;
    // SAFETY: neither pointer is dereferenced.
    let (pd, cq) = unsafe { (world.pd.pd().as_ptr().addr() as u64, world.recv_cq.cq().as_ptr().addr() as u64) };
    let expected = |comp_mask, create_flags| {
        [
            ("wq_context", 0),
            ("wq_type", u64::from(ffi::ibv_wq_type::IBV_WQT_RQ.0)),
            ("max_wr", 100),
            ("max_sge", 3),
            ("pd", pd),
            ("cq", cq),
            ("comp_mask", comp_mask),
            ("create_flags", create_flags),
        ]
    };
    assert_eq!(calls[0].arguments, expected(0, 0));
    assert_eq!(calls[1].arguments, expected(1, 0b101));
    assert_ne!(plain.wq_number(), flagged.wq_number());
    assert!(Arc::ptr_eq(plain.device_context(), &world.context));
    plain.close().unwrap();
    drop((flagged, builder));
    assert_eq!(world.recording.verbs(), ["destroy_wq", "destroy_wq"]);
    world.end();
}

#[test]
fn states_and_flags_arrive_with_their_mask() {
    let world = World::new();
    let mut queue = work_queue(&world);
    world.recording.calls();
    assert_eq!(queue.state(), WorkQueueState::Reset);
    let mut attribute = WorkQueueAttribute::new();
    attribute.setup_state(WorkQueueState::Ready).setup_current_state(WorkQueueState::Reset);
    queue.modify(&attribute).unwrap();
    assert_eq!(queue.state(), WorkQueueState::Ready);
    let mut flags = WorkQueueAttribute::new();
    flags.setup_flags(WorkQueueFlags::CvlanStripping, WorkQueueFlags::CvlanStripping | WorkQueueFlags::ScatterFcs);
    queue.modify(&flags).unwrap();
    let calls = world.recording.calls();
    assert_eq!(
        calls[0].arguments,
        [("attr_mask", 3), ("wq_state", 1), ("curr_wq_state", 0), ("flags", 0), ("flags_mask", 0)]
    );
    assert_eq!(
        calls[1].arguments,
        [("attr_mask", 4), ("wq_state", 0), ("curr_wq_state", 0), ("flags", 1), ("flags_mask", 3)]
    );
    // The queue is in Ready, not in Reset.
    let error = queue.modify(&attribute).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ibv_modify_wq: EINVAL (Invalid argument): cannot move the queue from Ready to Ready; go through Reset"
    );
    assert_eq!(format!("{:?}", WorkQueueState::from_raw(9)), "WorkQueueState(9)");
}

#[test]
fn receives_are_posted_to_a_work_queue() {
    let world = World::new();
    let mut queue = work_queue(&world);
    let list = [ScatterGatherEntry::new(5.into(), 50, 7), ScatterGatherEntry::new(6.into(), 60, 8)];
    world.recording.calls();
    let mut guard = queue.start_post_recv();
    // SAFETY: the recording device touches no memory.
    unsafe { guard.construct_wr(1).setup_sge_list(&list) };
    guard.construct_wr(2).setup_no_data();
    guard.post().unwrap();
    assert_eq!(world.recording.verbs(), ["post_wq_recv"]);
    let posted = world.recording.posted();
    assert_eq!(posted.iter().map(|request| request.wr_id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((&posted[0].entries[..], posted[0].length), (&[(5, 50, 7), (6, 60, 8)][..], 15));

    // Too many receives, too long a list, and a receive that the driver refuses.
    let mut guard = queue.start_post_recv();
    (0..5).for_each(|wr_id| guard.construct_wr(wr_id).setup_no_data());
    let error = guard.post().unwrap_err();
    assert_eq!((error.kind(), error.failed_request().unwrap().wr_id), (PostErrorKind::NotEnoughResources, 4));
    let mut guard = queue.start_post_recv();
    // SAFETY: as above.
    unsafe { guard.construct_wr(7).setup_sge_list(&[list[0]; 3]) };
    assert_eq!(guard.post().unwrap_err().kind(), PostErrorKind::InvalidWorkRequest);
    assert_eq!(world.recording.verbs(), [""; 0], "C was not asked");
    world.recording.refuse_requests(Bad::At(1), Failure::documented(libc::ENOMEM));
    let mut guard = queue.start_post_recv();
    (10..13).for_each(|wr_id| guard.construct_wr(wr_id).setup_no_data());
    let error = guard.post().unwrap_err();
    assert!(error.to_string().starts_with("ibv_post_wq_recv"), "{error}");
    assert_eq!((error.posted(), error.failed_request().unwrap().wr_id), (Some(1), 11));
    assert_eq!(world.recording.posted().len(), 1);
}

#[test]
fn work_queue_without_the_function_is_refused() {
    let world = World::new();
    world.recording.without("wq_post_recv");
    let error = world.pd.create_wq_builder().setup_cq(&world.recv_cq).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "ibv_create_wq: EOPNOTSUPP (Operation not supported): the driver created the work queue without the function \
         post_recv"
    );
    assert_eq!(world.recording.verbs(), ["create_wq", "destroy_wq"]);
    world.end();
}

#[test]
fn invalid_arguments_are_refused_before_the_call() {
    let (world, other) = (World::new(), World::new());
    let text = |builder: &sideway::ibverbs::work_queue::WorkQueueBuilder| builder.build().unwrap_err().to_string();
    let mut builder = world.pd.create_wq_builder();
    assert!(text(&builder).ends_with("no completion queue is set; call setup_cq"));
    assert!(text(builder.setup_cq(&other.recv_cq)).contains("another device context"));
    assert!(text(builder.setup_cq(&world.recv_cq).setup_max_wr(u32::MAX)).contains(&u32::MAX.to_string()));
    assert!(text(builder.setup_max_wr(1).setup_max_sge(u32::MAX)).contains(&u32::MAX.to_string()));

    let (queue, foreign) = (work_queue(&world), work_queue(&other));
    world.recording.calls();
    let refusal = |queues: &[&WorkQueue]| world.context.create_rwq_ind_table(queues).unwrap_err().to_string();
    assert!(refusal(&[]).contains("0 work queues are not a power of two"));
    assert!(refusal(&[&queue; 3]).contains("3 work queues are not a power of two"));
    assert!(refusal(&[&queue, &foreign]).contains("a work queue belongs to another device context"));

    let foreign = other.context.create_rwq_ind_table(&[&foreign]).unwrap();
    let mut builder = world.pd.create_rss_qp_builder();
    assert!(builder.build().unwrap_err().to_string().contains("call setup_table"));
    builder.setup_table(&foreign);
    assert!(builder.build().unwrap_err().to_string().contains("table belongs to another device context"));
    assert_eq!(world.recording.verbs(), [""; 0]);
    let table = world.context.create_rwq_ind_table(&[&queue]).unwrap();
    builder.setup_table(&table).setup_qp_type(QueuePairType::ReliableConnection);
    assert!(
        builder
            .build()
            .unwrap_err()
            .to_string()
            .contains("type ReliableConnection do not support receive side scaling")
    );
    builder.setup_qp_type(QueuePairType::RawPacket).setup_hash_key(&[0; 256]);
    assert!(builder.build().unwrap_err().to_string().contains("256 bytes; use at most 255"));
    assert_eq!(world.recording.verbs(), ["create_rwq_ind_table"]);
}

#[test]
fn event_names_the_work_queue_and_holds_it() {
    let world = World::new();
    let (queue, other) = (work_queue(&world), work_queue(&world));
    let events = world.context.async_events().unwrap();
    // SAFETY: the pointer becomes a number.
    let raw = unsafe { queue.wq() }.as_ptr();
    world.recording.raise(&world.context, Raised::of_object(AsyncEventType::WorkQueueFatal.raw(), raw));
    let event = events.get_async_event(None).unwrap();
    assert_eq!(event.to_string(), format!("WQ fatal error: WQ {}", queue.wq_number()));
    let AsyncEventElement::WorkQueue(named) = event.element() else { panic!("{event:?}") };
    assert!(named.is_of(&queue) && !named.is_of(&other));
    assert_eq!(named.wq_number(), queue.wq_number());
    assert!(Arc::ptr_eq(named.device_context(), &world.context));
    let error = queue.close().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_destroy_wq", libc::EBUSY));
    world.recording.calls();
    drop(event);
    assert_eq!(world.recording.verbs(), ["destroy_wq"]);
    drop((other, events));
    world.end();
}

#[test]
fn rwq_table_keeps_its_queues_in_order() {
    let world = World::new();
    let (first, second) = (work_queue(&world), work_queue(&world));
    // SAFETY: neither pointer is dereferenced.
    let (a, b) = unsafe { (first.wq().as_ptr().addr() as u64, second.wq().as_ptr().addr() as u64) };
    world.recording.calls();
    let table = world.context.create_rwq_ind_table(&[&second, &first, &first, &second]).unwrap();
    assert_eq!(
        world.recording.calls()[0].arguments,
        [("log_ind_tbl_size", 2), ("comp_mask", 0), ("wq", b), ("wq", a), ("wq", a), ("wq", b)]
    );
    assert_eq!(table.len(), 4);
    let error = first.close().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_destroy_wq", libc::EBUSY));
    drop(second);
    assert_eq!(world.recording.verbs(), [""; 0]);
    Arc::into_inner(table).unwrap().close().unwrap();
    assert_eq!(world.recording.verbs(), ["destroy_rwq_ind_table", "destroy_wq", "destroy_wq"]);
    world.end();
}

#[test]
fn rss_queue_pair_has_the_requested_attributes_and_keeps_its_table() {
    let world = World::new();
    let queue = work_queue(&world);
    let table = world.context.create_rwq_ind_table(&[&queue]).unwrap();
    let key: Vec<u8> = (1..=40).collect();
    let mut builder = world.pd.create_rss_qp_builder();
    builder.setup_table(&table).setup_hash_key(&key);
    world.recording.calls();
    let raw = builder.build().unwrap();
    let fields = RxHashFields::SourcePortUdp | RxHashFields::Inner;
    builder.setup_qp_type(QueuePairType::UnreliableDatagram).setup_hash_fields(fields);
    let datagram = builder.setup_hash_function(RxHashFunctions::from_bits_retain(4)).build().unwrap();
    // SAFETY: neither pointer is dereferenced.
    let (pd, tbl) = unsafe { (world.pd.pd().as_ptr().addr() as u64, table.rwq_ind_table().as_ptr().addr() as u64) };
    let calls = world.recording.calls();
    for (call, (qp_type, function, fields)) in calls
        .iter()
        .zip([(ffi::ibv_qp_type::IBV_QPT_RAW_PACKET, 1, 0b11), (ffi::ibv_qp_type::IBV_QPT_UD, 4, 0x40 | 0x8000_0000)])
    {
        let mut expected = vec![
            ("comp_mask", 0b11_0001),
            ("qp_type", u64::from(qp_type.0)),
            ("pd", pd),
            ("rwq_ind_tbl", tbl),
            ("rx_hash_function", function),
            ("rx_hash_key_len", 40),
            ("rx_hash_fields_mask", fields),
        ];
        expected.extend(key.iter().map(|&byte| ("key", u64::from(byte))));
        assert_eq!(call.arguments, expected);
    }
    assert_eq!((raw.qp_type(), datagram.qp_type()), (QueuePairType::RawPacket, QueuePairType::UnreliableDatagram));
    assert_ne!(raw.qp_number(), datagram.qp_number());
    let mut init = QueuePairAttribute::new();
    raw.modify(init.setup_state(QueuePairState::Init).setup_port(1)).unwrap();
    assert_eq!(raw.state(), QueuePairState::Init);

    let flow = raw.create_flow(&FlowRule::new(FlowType::AllDefault, 1)).unwrap();
    drop((builder, table, queue, datagram));
    world.recording.calls();
    drop(raw);
    assert_eq!(world.recording.verbs(), [""; 0]);
    drop(flow);
    assert_eq!(world.recording.verbs(), ["destroy_flow", "destroy_qp", "destroy_rwq_ind_table", "destroy_wq"]);
    world.end();
}

#[test]
fn driver_refusal_is_explained() {
    let world = World::new();
    let queue = work_queue(&world);
    let no = Failure::documented(libc::EOPNOTSUPP);
    let invalid = Failure::documented(libc::EINVAL);
    world.recording.fail_always("create_wq", no);
    let mut wq_builder = world.pd.create_wq_builder();
    let error = wq_builder.setup_cq(&world.recv_cq).build().unwrap_err();
    assert!(error.to_string().ends_with("the device or its driver does not support work queues"), "{error}");
    let error = wq_builder.setup_create_flags(WorkQueueFlags::ScatterFcs).build().unwrap_err();
    assert!(error.hint().unwrap().contains("ScatterFcs"), "{error}");
    world.recording.succeed("create_wq").fail("create_wq", 0, invalid);
    assert!(
        wq_builder.setup_max_wr(0).build().unwrap_err().hint().unwrap().contains("may not support an empty work queue")
    );

    world.recording.fail("create_rwq_ind_table", 0, no);
    let error = world.context.create_rwq_ind_table(&[&queue]).unwrap_err();
    assert!(error.hint().unwrap().contains("does not support indirection tables"), "{error}");
    world.recording.edit(|facts| facts.device.rss_caps.max_rwq_indirection_table_size = 1);
    world.recording.fail("create_rwq_ind_table", 0, invalid);
    let error = world.context.create_rwq_ind_table(&[&queue, &queue]).unwrap_err();
    assert!(error.hint().unwrap().contains("2 work queues exceed the device's limit of 1"), "{error}");

    let table = world.context.create_rwq_ind_table(&[&queue]).unwrap();
    let mut builder = world.pd.create_rss_qp_builder();
    builder.setup_table(&table).setup_hash_key(&[0; 16]);
    for (errno, words) in [
        (libc::EPERM, "CAP_NET_RAW"),
        (libc::EOPNOTSUPP, "does not support receive side scaling"),
        (libc::EINVAL, "the hash key has 16 bytes; Toeplitz needs 40"),
    ] {
        world.recording.fail("create_qp_ex", 0, Failure::documented(errno));
        let error = builder.build().unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_qp_ex", errno));
        assert!(error.hint().unwrap().contains(words), "{error}");
    }
    drop((builder, table, queue, wq_builder));
    world.end();
}

#[test]
fn each_missing_verb_is_an_error_with_its_name() {
    let recording = Recording::new();
    let verbs = ["create_wq", "create_rwq_ind_table", "create_flow", "create_counters", "create_flow_action_esp"];
    verbs.iter().for_each(|verb| _ = recording.without(verb));
    let context = recording.open();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq_builder().build().unwrap();
    recording.calls();
    let error = pd.create_wq_builder().setup_cq(&cq).build().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_wq", libc::EOPNOTSUPP));
    let error = context.create_counters().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_counters", libc::EOPNOTSUPP));
    assert_eq!(recording.verbs(), [""; 0]);
    drop((pd, cq, context));
    assert_eq!(recording.live(), [] as [Kind; 0]);
}
