//! Completion queues besides polling: resizing, moderation, constructors, fields, and counters.

use std::sync::Arc;
use std::thread;

use sideway::ibverbs::completion::{
    CompletionCounterType, CompletionModeration, CompletionQueue, CountedOperations,
    CreateCompletionQueueWorkCompletionFlags as Fields, GenericCompletionQueue, WorkCompletionFlags,
    WorkCompletionSource,
};
use sideway::ibverbs::device_context::DeviceClock;
use sideway::ibverbs::queue_pair::QueuePair;
use sideway_tests::recording::{Completion, Failure, Kind, Recording, World, connect};

/// A queue of either kind.
fn queues(recording: &Recording) -> [GenericCompletionQueue; 2] {
    let context = recording.open();
    let builder = context.create_cq_builder();
    [builder.build().expect("a basic queue").into(), builder.build_ex().expect("an extended queue").into()]
}

fn poll(cq: &mut GenericCompletionQueue) -> Vec<u64> {
    let mut taken = Vec::new();
    while let Ok(mut poller) = cq.start_poll() {
        while let Some(wc) = poller.next().expect("a working queue") {
            taken.push(wc.wr_id());
        }
    }
    taken
}

#[test]
fn resized_queue_keeps_its_completions() {
    let recording = Recording::new();
    for mut cq in queues(&recording) {
        for wr_id in 0..3 {
            recording.complete(&cq, Completion { wr_id, ..Completion::default() });
        }
        recording.calls();
        cq.resize(500).unwrap();
        let calls = recording.calls();
        assert_eq!(calls.len(), 1);
        assert_eq!((calls[0].verb, calls[0].argument("cqe")), ("resize_cq", 500));
        // SAFETY: only the address is read.
        assert_eq!(calls[0].argument("cq"), unsafe { cq.cq() }.addr().get() as u64);
        assert_eq!(cq.cqe(), 512, "the size that the device granted");
        assert_eq!(poll(&mut cq), [0, 1, 2]);
    }
}

#[test]
fn failed_resize_is_explained() {
    let recording = Recording::new();
    for mut cq in queues(&recording) {
        for _ in 0..9 {
            recording.complete(&cq, Completion::default());
        }
        let before = cq.cqe();
        let error = cq.resize(8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ibv_resize_cq: EINVAL (Invalid argument): the queue may hold more completions than that; poll it empty \
             first"
        );
        let error = cq.resize(5000).unwrap_err();
        assert!(error.hint().unwrap().contains("cqe is 5000; the device supports at most 4096"), "{error}");
        recording.calls();
        for cqe in [0, u32::MAX] {
            let error = cq.resize(cqe).unwrap_err();
            assert!(error.hint().unwrap().contains(&format!("cqe is {cqe}")), "{error}");
        }
        assert_eq!(recording.verbs(), [""; 0], "the library was called");
        for failure in [Failure::documented(libc::ENOSYS), Failure::negative(libc::EOPNOTSUPP)] {
            recording.fail("resize_cq", 0, failure);
            let error = cq.resize(16).unwrap_err();
            assert_eq!(error.errno().raw(), failure.errno());
            assert!(error.hint().unwrap().contains("cannot resize"), "{error}");
        }
        assert_eq!(cq.cqe(), before);
    }
}

#[test]
fn event_of_no_queue_is_an_error() {
    let recording = Recording::new();
    let context = recording.open();
    let channel = context.create_comp_channel().unwrap();
    recording.edit(|facts| facts.fills = false);
    let error = channel.try_get_cq_event().unwrap_err();
    assert_eq!(error.errno().raw(), libc::EIO);
    assert!(error.hint().unwrap().contains("without its queue"), "{error}");
}

#[test]
fn size_is_read_on_one_thread_while_another_resizes() {
    let recording = Recording::new();
    let context = recording.open();
    let channel = context.create_comp_channel().unwrap();
    let mut cq = context.create_cq_builder().setup_comp_channel(&channel, 0).setup_cqe(128).build().unwrap();
    cq.req_notify(false).unwrap();
    recording.complete(&cq, Completion::default());
    let event = channel.try_get_cq_event().unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                assert!([128, 256].contains(&event.cqe()));
            }
        });
        for _ in 0..50 {
            cq.resize(256).unwrap();
            cq.resize(128).unwrap();
        }
    });
}

#[test]
fn events_are_moderated() {
    let recording = Recording::new();
    recording.edit(|facts| {
        facts.device.cq_mod_caps.max_cq_count = 100;
        facts.device.cq_mod_caps.max_cq_period = 50;
    });
    for cq in queues(&recording) {
        recording.calls();
        cq.modify(CompletionModeration { count: 100, period_us: 50 }).unwrap();
        let call = recording.calls().remove(0);
        assert_eq!((call.verb, call.argument("mask")), ("modify_cq", 1));
        assert_eq!((call.argument("count"), call.argument("period")), (100, 50));
        let error = cq.modify(CompletionModeration { count: 101, period_us: 7 }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ibv_modify_cq: EINVAL (Invalid argument): 101 completions and 7 us exceed the device's limits; use at most 100 and \
             50 us"
        );
    }
    recording.without("modify_cq");
    let [cq, _] = queues(&recording);
    let error = cq.modify(CompletionModeration::default()).unwrap_err();
    assert_eq!(error.errno().raw(), libc::EOPNOTSUPP);
    assert!(error.hint().unwrap().contains("does not support event moderation"), "{error}");
}

#[test]
fn queue_has_the_requested_attributes() {
    let recording = Recording::new();
    let context = recording.open();
    let made = |ignore_overrun| {
        recording.calls();
        context.create_cq_builder().setup_ignore_overrun(ignore_overrun).build_ex().unwrap();
        let calls = recording.calls();
        let call = calls.iter().find(|call| call.verb == "create_cq_ex").unwrap();
        (call.argument("comp_mask"), call.argument("flags"), call.argument("parent_domain"))
    };
    assert_eq!(made(false), (0, 0, 0));
    assert_eq!(made(true), (1, 2, 0));
    let error = context.create_cq_builder().setup_ignore_overrun(true).build().unwrap_err();
    assert!(error.hint().unwrap().contains("call build_ex"), "{error}");
    recording.fail_always("create_cq_ex", Failure::documented(libc::EOPNOTSUPP));
    let mut builder = context.create_cq_builder();
    let error = builder.setup_ignore_overrun(true).build_generic().unwrap_err();
    assert!(error.hint().unwrap().contains("ignoring an overrun"), "{error}");
    builder.setup_ignore_overrun(false).setup_wc_flags(Fields::FlowTag);
    let error = builder.build_ex().unwrap_err();
    assert!(error.hint().unwrap().contains("or the fields") && error.to_string().contains("FlowTag"), "{error}");
}

#[test]
fn missing_reader_is_detected_at_build_time() {
    let recording = Recording::new();
    let context = recording.open();
    recording.without("read_tm_info");
    context.create_cq_builder().build_ex().unwrap();
    let error = context.create_cq_builder().setup_wc_flags(Fields::TagMatchingInformation).build_ex().unwrap_err();
    assert!(error.hint().unwrap().contains("read_tm_info"), "{error}");
    drop(context);
    assert_eq!(recording.live(), []);
}

#[test]
fn missing_fields_are_errors_of_every_kind_of_queue() {
    let recording = Recording::new();
    for mut cq in queues(&recording) {
        recording.complete(&cq, Completion::default()).calls();
        let mut poller = cq.start_poll().unwrap();
        let wc = poller.next().unwrap().unwrap();
        let missing = [
            wc.completion_timestamp().unwrap_err(),
            wc.completion_wallclock_ns().unwrap_err(),
            wc.cvlan().unwrap_err(),
            wc.flow_tag().unwrap_err(),
            wc.tag_matching_info().unwrap_err(),
        ];
        let fields = [
            Fields::CompletionTimestamp,
            Fields::CompletionTimestampWallclock,
            Fields::CustomerVlan,
            Fields::FlowTag,
            Fields::TagMatchingInformation,
        ];
        assert_eq!(missing.map(|error| error.field()), fields);
        for error in missing {
            assert!(error.to_string().contains("CompletionQueueBuilder::setup_wc_flags"), "{error}");
        }
        drop(poller);
        assert!(!recording.verbs().iter().any(|verb| verb.starts_with("read_")), "no reader was called");
    }
}

#[test]
fn every_kind_of_completion_names_its_queue() {
    let recording = Recording::new();
    for mut cq in queues(&recording) {
        let completion =
            Completion { src_qp: 7, slid: 0x1234, sl: 3, dlid_path_bits: 1, wc_flags: 1, ..Completion::default() };
        recording.complete(&cq, completion);
        let mut poller = cq.start_poll().unwrap();
        let source = poller.next().unwrap().unwrap().source();
        let wc_flags = WorkCompletionFlags::GlobalRoutingHeader;
        assert_eq!(source, WorkCompletionSource { src_qp: 7, slid: 0x1234, sl: 3, dlid_path_bits: 1, wc_flags });
    }
}

#[test]
fn clock_is_that_of_the_device() {
    let recording = Recording::new();
    let context = recording.open();
    assert_eq!(context.query_device().unwrap().device_clock(), None);
    recording.edit(|facts| facts.device.hca_core_clock = 156_250);
    assert_eq!(context.query_device().unwrap().device_clock(), DeviceClock::new(156_250, u64::MAX));
    recording.edit(|facts| facts.device.completion_timestamp_mask = 0xffff);
    let clock = context.query_device().unwrap().device_clock().unwrap();
    assert_eq!((clock.khz(), clock.mask(), clock.between(0xffff, 4).as_nanos()), (156_250, 0xffff, 32));
}

#[test]
fn counter_counts_for_its_queue_pairs() {
    let world = World::new();
    let recording = &world.recording;
    let caps = world.context.query_comp_cntr_caps().unwrap();
    assert_eq!((caps.max_value, caps.max_counters), (1 << 40, 8));
    assert_eq!(caps.supported_operations, CountedOperations::Send | CountedOperations::Receive);
    let counter = world.context.create_comp_cntr(CompletionCounterType::Bytes).unwrap();
    counter.set(5).unwrap();
    counter.inc(2).unwrap();
    counter.set_err(8).unwrap();
    counter.inc_err(1).unwrap();
    assert_eq!((counter.read().unwrap(), counter.read_err().unwrap()), (7, 9));
    let calls = recording.calls();
    let called: Vec<_> = calls.iter().map(|call| call.verb).collect();
    assert_eq!(
        called,
        [
            "query_comp_cntr_caps",
            "create_comp_cntr",
            "set_comp_cntr",
            "inc_comp_cntr",
            "set_err_comp_cntr",
            "inc_err_comp_cntr",
            "read_comp_cntr",
            "read_err_comp_cntr"
        ]
    );
    assert_eq!((calls[1].argument("type_"), calls[4].argument("argument")), (1, 8));

    let [qp, connected] = world.queue_pairs();
    counter.attach(&qp, CountedOperations::Send | CountedOperations::Write).unwrap();
    let call = recording.calls().remove(0);
    assert_eq!((call.argument("qp_num"), call.argument("op_mask")), (qp.qp_number().into(), 0b10001));
    connect(&connected).unwrap();
    let error = counter.attach(&connected, CountedOperations::Send).unwrap_err();
    assert!(error.hint().unwrap().contains("is in ReadyToSend;"), "{error}");
    // The queue pair keeps the counter alive.
    let weak = Arc::downgrade(&counter);
    drop(counter);
    assert!(weak.upgrade().is_some());
    recording.calls();
    drop((qp, connected));
    assert_eq!(recording.verbs(), ["destroy_qp", "destroy_comp_cntr", "destroy_qp"]);
    world.end();
}

#[test]
fn counter_failures_have_a_reason() {
    let world = World::new();
    let counter = world.context.create_comp_cntr(CompletionCounterType::WorkRequests).unwrap();
    let no = Failure::documented(libc::EIO);
    for verb in [
        "query_comp_cntr_caps",
        "create_comp_cntr",
        "set_comp_cntr",
        "set_err_comp_cntr",
        "inc_comp_cntr",
        "inc_err_comp_cntr",
        "read_comp_cntr",
        "read_err_comp_cntr",
        "qp_attach_comp_cntr",
    ] {
        world.recording.fail(verb, 0, no);
    }
    let [qp, _] = world.queue_pairs();
    let errors = [
        world.context.query_comp_cntr_caps().unwrap_err(),
        world.context.create_comp_cntr(CompletionCounterType::Bytes).unwrap_err(),
        counter.set(1).unwrap_err(),
        counter.set_err(1).unwrap_err(),
        counter.inc(1).unwrap_err(),
        counter.inc_err(1).unwrap_err(),
        counter.read().unwrap_err(),
        counter.read_err().unwrap_err(),
        counter.attach(&qp, CountedOperations::Send).unwrap_err(),
    ];
    for error in &errors {
        assert_eq!(error.to_string(), format!("{}: EIO (Input/output error)", error.verb()));
    }
    assert_eq!(errors.map(|error| error.verb().len()), [24, 20, 17, 21, 17, 21, 18, 22, 23]);
    drop(qp);
    // A counter that was not attached is not kept alive.
    assert_eq!(Arc::into_inner(counter).unwrap().close(), Ok(()));
    world.end();
}

#[test]
fn counter_of_another_context_is_not_attached() {
    let world = World::new();
    let other = world.recording.open();
    let counter = other.create_comp_cntr(CompletionCounterType::WorkRequests).unwrap();
    let [qp, _] = world.queue_pairs();
    world.recording.calls();
    let error = counter.attach(&qp, CountedOperations::Send).unwrap_err();
    assert!(error.hint().unwrap().contains("another device context"), "{error}");
    assert_eq!(world.recording.verbs(), [""; 0]);
    world.recording.fail("destroy_comp_cntr", 0, Failure::documented(libc::EBUSY));
    assert_eq!(Arc::into_inner(counter).unwrap().close().unwrap_err().errno().raw(), libc::EBUSY);
    assert!(world.recording.live().contains(&Kind::CompletionCounter), "the counter is not leaked");
}
