//! The conventions by which C functions report errors, and the errors that the program receives.

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{CompletionQueue, PollCompletionQueueError};
use sideway::ibverbs::device::{DeviceList, GetDeviceListError};
use sideway::ibverbs::queue_pair::{ModifyQueuePairError, QueuePair, QueuePairAttributeMask};
use sideway_tests::recording::{Completion, Failure, Recording, World, connect};

/// Failures in each convention of returning an `errno`.
fn ways(errno: i32) -> [Failure; 3] {
    [Failure::documented(errno), Failure::negative(errno), Failure::minus_one(errno)]
}

#[test]
fn errno_is_the_same_for_every_return_convention() {
    let world = World::new();
    let channel = world.context.create_comp_channel().unwrap();
    let cq = world.context.create_cq_builder().setup_comp_channel(&channel, 0).build().unwrap();
    let [qp, _] = world.queue_pairs();
    for failure in ways(libc::EACCES) {
        world.recording.fail("query_device_ex", 0, failure);
        assert_eq!(
            world.context.query_device().unwrap_err().to_string(),
            "ibv_query_device_ex: EACCES (Permission denied)"
        );
        world.recording.fail("query_port", 0, failure);
        assert_eq!(world.context.query_port(1).unwrap_err().errno().raw(), libc::EACCES);
        world.recording.fail("query_gid_ex", 0, failure);
        assert_eq!(world.context.query_gid_ex(1, 0).unwrap_err().errno().raw(), libc::EACCES);
        world.recording.fail("query_gid_table", 0, failure);
        assert_eq!(world.context.query_gid_table().unwrap_err().errno().raw(), libc::EACCES);
        world.recording.fail("query_rt_values", 0, failure);
        let values = world.context.query_rt_values_ex(Default::default());
        assert_eq!(values.unwrap_err().errno().raw(), libc::EACCES);
        world.recording.fail("req_notify_cq", 0, failure);
        assert_eq!(cq.req_notify(false).unwrap_err().to_string(), "ibv_req_notify_cq: EACCES (Permission denied)");
        world.recording.fail("query_qp", 0, failure);
        assert_eq!(qp.query(QueuePairAttributeMask::State).unwrap_err().errno().raw(), libc::EACCES);
        world.recording.fail("modify_qp", 0, failure);
        let error = connect(&qp).unwrap_err();
        assert_eq!(error.verb_error().errno().raw(), libc::EACCES);
        assert!(matches!(error, ModifyQueuePairError::Verb { .. }), "{error:?}");
    }
}

#[test]
fn null_return_gives_the_errno() {
    let recording = Recording::new();
    let no = Failure::documented(libc::EMFILE);
    recording.fail("get_device_list", 0, no);
    // No other provider has devices, and the missing library is the first failure.
    assert!(matches!(DeviceList::new().unwrap_err(), GetDeviceListError::Load(_) | GetDeviceListError::Verb(_)));
    recording.fail("open_device", 0, no);
    let list = DeviceList::new().unwrap();
    let error = list.find(&recording.name()).unwrap().open().unwrap_err();
    assert_eq!(error.verb_error().errno().raw(), libc::EMFILE);
    assert!(error.to_string().contains(&recording.name()), "{error}");
    drop(list);

    let world = World::new();
    let recording = &world.recording;
    recording.fail("alloc_pd", 0, no);
    assert_eq!(world.context.alloc_pd().unwrap_err().errno().raw(), libc::EMFILE);
    recording.fail("create_comp_channel", 0, no);
    assert_eq!(world.context.create_comp_channel().unwrap_err().errno().raw(), libc::EMFILE);
    recording.fail("create_cq", 0, no).fail("create_cq_ex", 0, no);
    assert_eq!(world.context.create_cq_builder().build().unwrap_err().errno().raw(), libc::EMFILE);
    assert_eq!(world.context.create_cq_builder().build_ex().unwrap_err().errno().raw(), libc::EMFILE);
    recording.fail("create_qp", 0, no).fail("create_qp_ex", 0, no);
    assert_eq!(world.qp_builder().build().unwrap_err().errno().raw(), libc::EMFILE);
    assert_eq!(world.qp_builder().build_ex().unwrap_err().errno().raw(), libc::EMFILE);
    recording.fail("reg_mr", 0, no);
    let mut memory = [0_u8; 8];
    // SAFETY: nothing is registered.
    let error = unsafe { world.pd.reg_mr(memory.as_mut_ptr().addr(), 8, AccessFlags::LocalWrite) }.unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_reg_mr", libc::EMFILE));
    world.end();
}

#[test]
fn hint_names_what_to_change() {
    let world = World::new();
    let invalid = Failure::documented(libc::EINVAL);
    world.recording.fail("create_cq_ex", 0, invalid);
    let error = world.context.create_cq_builder().setup_cqe(5000).build_ex().unwrap_err();
    assert!(error.hint().unwrap().contains("5000") && error.hint().unwrap().contains("4096"), "{error}");
    let error = world.context.create_cq_builder().setup_cqe(0).build().unwrap_err();
    assert!(error.hint().unwrap().contains("cqe is 0"), "{error}");
    world.recording.fail("create_qp", 0, invalid);
    let error = world.qp_builder().setup_max_send_wr(2000).build().unwrap_err();
    assert!(error.hint().unwrap().contains("2000") && error.hint().unwrap().contains("1024"), "{error}");
    let error = world.context.query_port(9).unwrap_err();
    assert!(error.hint().unwrap().contains("use port 1"), "{error}");
    world.recording.fail("reg_mr", 0, invalid);
    // SAFETY: nothing is registered.
    let error = unsafe { world.pd.reg_mr(4096, 8, AccessFlags::RemoteWrite) }.unwrap_err();
    assert!(error.hint().unwrap().contains("LocalWrite"), "{error}");
}

#[test]
fn failed_poll_is_not_an_empty_queue() {
    let recording = Recording::new();
    let context = recording.open();
    let mut basic = context.create_cq_builder().build().unwrap();
    let mut extended = context.create_cq_builder().build_ex().unwrap();
    for failure in ways(libc::EIO) {
        recording.fail("poll_cq", 0, failure).fail("start_poll", 0, failure);
        let error = basic.start_poll().map(drop).unwrap_err();
        assert!(error.to_string().starts_with("ibv_poll_cq: EIO (Input/output error)"), "{error}");
        let error = extended.start_poll().map(drop).unwrap_err();
        assert!(error.to_string().starts_with("ibv_start_poll: EIO (Input/output error)"), "{error}");
        // If a poll fails after its start, the cursor is still closed.
        recording.fail("next_poll", 0, failure).complete(&extended, Completion::default()).calls();
        let mut poller = extended.start_poll().unwrap();
        assert!(poller.next().unwrap().is_some());
        let error = poller.next().map(drop).unwrap_err();
        assert!(matches!(&error, PollCompletionQueueError::Verb(error) if error.verb() == "ibv_next_poll"), "{error}");
        drop(poller);
        assert_eq!(recording.verbs(), ["start_poll", "next_poll", "end_poll"]);
    }
}

#[test]
fn failure_without_errno_is_not_success() {
    let recording = Recording::new();
    let context = recording.open();
    let mut cq = context.create_cq_builder().build().unwrap();
    // rdma-core's drivers return -1 for a broken queue, with errno unchanged.
    recording.fail("poll_cq", 0, Failure::minus_one(0));
    let error = cq.start_poll().map(drop).unwrap_err();
    assert_ne!(error, PollCompletionQueueError::CompletionQueueEmpty);
    assert!(!error.to_string().to_lowercase().contains("success"), "{error}");
}

#[test]
fn errors_fit_question_marks() {
    let world = World::new();
    world.recording.fail("alloc_pd", 0, Failure::documented(libc::EACCES));
    let failed = || -> std::io::Result<()> { Ok(world.context.alloc_pd().map(drop)?) };
    assert_eq!(failed().unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    world.recording.fail("modify_qp", 0, Failure::documented(libc::ENOMEM));
    let [qp, _] = world.queue_pairs();
    let error: Box<dyn std::error::Error + Send + Sync> = connect(&qp).unwrap_err().into();
    assert!(error.to_string().contains("ENOMEM"), "{error}");
    // No text is repeated in the chain of sources.
    assert!(error.source().is_none_or(|source| !error.to_string().contains(&source.to_string())));
}
