//! `build_generic`: extended if possible, otherwise basic, and an error if something else is wrong.

use sideway::ibverbs::completion::{CreateCompletionQueueWorkCompletionFlags as Fields, GenericCompletionQueue};
use sideway::ibverbs::queue_pair::{GenericSendQueue, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::recording::{Failure, Recording, World, connect};

#[test]
fn generic_completion_queue_prefers_the_extended_kind() {
    let recording = Recording::new();
    let context = recording.open();
    assert!(matches!(context.create_cq_builder().build_generic().unwrap(), GenericCompletionQueue::Extended(_)));
    for errno in [libc::EOPNOTSUPP, libc::ENOSYS] {
        recording.fail_always("create_cq_ex", Failure::documented(errno)).calls();
        assert!(matches!(context.create_cq_builder().build_generic().unwrap(), GenericCompletionQueue::Basic(_)));
        assert!(recording.verbs().contains(&"create_cq"));
        recording.succeed("create_cq_ex");
    }
    recording.fail("create_cq_ex", 0, Failure::documented(libc::ENOMEM)).calls();
    let error = context.create_cq_builder().build_generic().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_cq_ex", libc::ENOMEM));
    assert_eq!(recording.verbs(), ["create_cq_ex"]);
}

#[test]
fn device_without_the_verbs_has_basic_queues() {
    let recording = Recording::new();
    recording.without("create_cq_ex").without("create_qp_ex");
    let context = recording.open();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq_builder().build_generic().unwrap();
    assert!(matches!(cq, GenericCompletionQueue::Basic(_)));
    let error = context.create_cq_builder().build_ex().unwrap_err();
    assert_eq!(error.errno().raw(), libc::EOPNOTSUPP);
    assert!(error.hint().unwrap().contains("build_generic"), "{error}");
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    assert!(matches!(builder.build_generic().unwrap().queues().0, GenericSendQueue::Basic(_)));
    let error = builder.build_ex().unwrap_err();
    assert!(error.hint().unwrap().contains("build_generic"), "{error}");
}

#[test]
fn unsupported_fields_are_named() {
    let recording = Recording::new();
    let context = recording.open();
    recording.fail_always("create_cq_ex", Failure::documented(libc::EOPNOTSUPP));
    let mut builder = context.create_cq_builder();
    let error = builder.setup_wc_flags(Fields::CompletionTimestamp).build_ex().unwrap_err();
    assert!(error.hint().unwrap().contains("CompletionTimestamp"), "{error}");
}

#[test]
fn generic_queue_pair_prefers_the_extended_kind() {
    let world = World::new();
    assert!(matches!(world.qp_builder().build_generic().unwrap().queues().0, GenericSendQueue::Extended(_)));
    for errno in [libc::EOPNOTSUPP, libc::ENOSYS] {
        // The creation is tried with atomics, and again without.
        world.recording.fail_always("create_qp_ex", Failure::documented(errno));
        assert!(matches!(world.qp_builder().build_generic().unwrap().queues().0, GenericSendQueue::Basic(_)));
        world.recording.succeed("create_qp_ex");
    }
    world.end();

    let world = World::new();
    world.recording.fail("create_qp_ex", 0, Failure::documented(libc::ENOMEM));
    let error = world.qp_builder().build_generic().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_qp_ex", libc::ENOMEM));
    assert!(!world.recording.verbs().contains(&"create_qp"));
}

#[test]
fn second_try_without_atomics_reports_its_own_reason() {
    let world = World::new();
    let no = Failure::documented;
    for (first, second) in [(libc::EOPNOTSUPP, libc::ENOMEM), (libc::EINVAL, libc::EOPNOTSUPP)] {
        world.recording.fail("create_qp_ex", 0, no(first)).fail("create_qp_ex", 0, no(second));
        let error = world.qp_builder().build_ex().unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_qp_ex", second));
    }
    world.end();
}

#[test]
fn either_kind_sends_and_receives() {
    let mut world = World::new();
    for mut qp in world.queue_pairs() {
        connect(&qp).unwrap();
        let mut guard = qp.start_post_recv();
        guard.construct_wr(1).setup_no_data();
        guard.post().unwrap();
        let mut guard = qp.start_post_send();
        guard.construct_wr(2, WorkRequestFlags::Signaled).setup_send_imm(3).setup_inline_data(b"ping");
        guard.post().unwrap();
        let mut poller = world.send_cq.start_poll().unwrap();
        assert_eq!(poller.next().unwrap().unwrap().wr_id(), 2);
        drop(poller);
        let mut poller = world.recv_cq.start_poll().unwrap();
        let wc = poller.next().unwrap().unwrap();
        assert_eq!((wc.wr_id(), wc.imm_data(), wc.byte_len()), (1, 3, 4));
        assert_eq!(wc.qp_num(), qp.qp_number());
        assert!(wc.completion_timestamp().is_err());
    }
}

#[test]
fn poll_takes_no_more_than_its_batch() {
    let recording = Recording::new();
    let context = recording.open();
    let mut cq = context.create_cq_builder().build().unwrap();
    let drain = |cq: &mut sideway::ibverbs::completion::BasicCompletionQueue| {
        let mut poller = cq.start_poll().unwrap();
        let mut taken = 0;
        while poller.next().unwrap().is_some() {
            taken += 1;
        }
        taken
    };
    let add = |cq: &_| (0..40).for_each(|_| _ = recording.complete(cq, Default::default()));
    add(&cq);
    assert_eq!((drain(&mut cq), drain(&mut cq)), (32, 8));
    for (batch, expected) in [(0, 1), (1, 1), (39, 39), (100, 40)] {
        cq.setup_poll_batch(batch);
        add(&cq);
        assert_eq!(drain(&mut cq), expected);
        while cq.start_poll().is_ok() {}
    }
}
