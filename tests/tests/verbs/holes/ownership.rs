use std::sync::Arc;
use std::time::Duration;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::CompletionQueue;
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::queue_pair::QueuePair;
use sideway_tests::recording::{Call, Failure, Kind, Recording, Warnings, World};

/// The destroying verbs among the calls, each with its success.
fn ends(calls: &[Call]) -> Vec<(&'static str, bool)> {
    let end = |verb: &str| ["destroy", "dealloc", "dereg", "close"].iter().any(|word| verb.starts_with(word));
    calls.iter().filter(|call| end(call.verb)).map(|call| (call.verb, call.failed.is_none())).collect()
}

#[test]
fn channel_is_destroyed_once() {
    let recording = Recording::new();
    let context = recording.open();
    let channel = context.create_comp_channel().unwrap();
    let others: Vec<_> = (0..3).map(|_| Arc::clone(&channel)).collect();
    let cq = context.create_cq_builder().setup_comp_channel(&channel, 0).build_ex().unwrap();
    drop((channel, others));
    assert!(recording.live().contains(&Kind::CompletionChannel), "the queue keeps it");
    recording.calls();
    drop((cq, context));
    assert_eq!(
        ends(&recording.calls()),
        [("destroy_cq", true), ("destroy_comp_channel", true), ("close_device", true)]
    );
    assert_eq!(recording.live(), []);
}

#[test]
fn context_outlives_the_list() {
    let recording = Recording::new();
    let list = DeviceList::new().unwrap();
    let context = list.find(&recording.name()).unwrap().open().unwrap();
    drop(list);
    assert_eq!(context.name(), recording.name());
    assert_eq!(context.guid().to_string(), "0102:0304:0506:0708");
    assert_eq!(recording.live(), [Kind::Context]);
}

#[test]
fn children_hold_their_parents_and_are_dropped_first() {
    let world = World::new();
    let mut memory = [0_u8; 64];
    // SAFETY: the memory outlives the region, and the recording device does not touch it.
    let mr = unsafe { world.pd.reg_mr(memory.as_mut_ptr().addr(), 64, AccessFlags::LocalWrite) }.unwrap();
    let (send, recv) = world.queue_pairs().map(|qp| qp.split()).into_iter().next_back().unwrap();
    let World { send_cq, recv_cq, pd, context, recording } = world;
    recording.calls();
    // Parents are dropped first; the children keep them alive.
    drop((context, pd, send_cq, recv_cq, send));
    assert_eq!(ends(&recording.calls()), []);
    drop(recv);
    let gone = ends(&recording.calls());
    assert_eq!(gone, [("destroy_qp", true), ("destroy_cq", true), ("destroy_cq", true)]);
    drop(mr);
    let gone = ends(&recording.calls());
    assert_eq!(gone, [("dereg_mr", true), ("dealloc_pd", true), ("close_device", true)]);
    assert_eq!(recording.live(), []);
}

#[test]
fn completion_queue_of_another_context_is_refused_before_the_call() {
    let world = World::new();
    // A queue of another device, and one of the same device opened again.
    let other = Recording::new();
    for context in [other.open(), world.recording.open()] {
        let foreign = context.create_cq_builder().build_generic().unwrap();
        world.recording.calls();
        for side in ["send", "recv"] {
            let mut builder = world.qp_builder();
            match side {
                "send" => builder.setup_send_cq(&foreign),
                _ => builder.setup_recv_cq(&foreign),
            };
            for error in [
                builder.build().map(drop).unwrap_err(),
                builder.build_ex().map(drop).unwrap_err(),
                builder.build_generic().map(drop).unwrap_err(),
            ] {
                assert_eq!(error.errno().raw(), libc::EINVAL);
                assert!(error.hint().unwrap().contains(&format!("setup_{side}_cq")), "{error}");
            }
        }
        assert_eq!(world.recording.verbs(), [""; 0]);
    }
}

#[test]
fn channel_of_another_context_is_refused_before_the_call() {
    let (recording, other) = (Recording::new(), Recording::new());
    let (context, foreign) = (recording.open(), other.open().create_comp_channel().unwrap());
    recording.calls();
    let mut builder = context.create_cq_builder();
    builder.setup_comp_channel(&foreign, 0);
    for error in [
        builder.build().map(drop).unwrap_err(),
        builder.build_ex().map(drop).unwrap_err(),
        builder.build_generic().map(drop).unwrap_err(),
    ] {
        assert_eq!(error.errno().raw(), libc::EINVAL);
        assert!(error.hint().unwrap().contains("another device context"), "{error}");
    }
    assert_eq!(recording.verbs(), [""; 0]);
}

#[test]
fn queue_pair_without_completion_queues_is_refused_before_the_call() {
    let world = World::new();
    let mut builder = world.pd.create_qp_builder();
    assert!(builder.build().unwrap_err().to_string().contains("setup_send_cq"));
    builder.setup_send_cq(&world.send_cq);
    assert!(builder.build_ex().unwrap_err().to_string().contains("setup_recv_cq"));
    assert_eq!(world.recording.verbs(), [""; 0]);
}

#[test]
fn failed_destroy_is_logged_without_a_panic() {
    let warnings = Warnings::listen();
    let verbs = ["destroy_qp", "destroy_cq", "destroy_comp_channel", "dereg_mr", "dealloc_pd", "close_device"];
    for verb in verbs {
        for failure in
            [Failure::documented(libc::EBUSY), Failure::negative(libc::EBUSY), Failure::minus_one(libc::EBUSY)]
        {
            let recording = Recording::new();
            let context = recording.open();
            let pd = context.alloc_pd().unwrap();
            let channel = context.create_comp_channel().unwrap();
            let cq = context.create_cq_builder().setup_comp_channel(&channel, 0).build_ex().unwrap();
            let qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build_ex().unwrap();
            let mut memory = [0_u8; 8];
            // SAFETY: the memory outlives the region, and the recording device does not touch it.
            let mr = unsafe { pd.reg_mr(memory.as_mut_ptr().addr(), 8, AccessFlags::LocalWrite) }.unwrap();
            recording.fail(verb, 0, failure).calls();
            drop((qp, mr, cq, channel, pd, context));
            let calls = recording.calls();
            let tried = ends(&calls);
            assert_eq!(tried.len(), 6, "each is tried once: {tried:?}");
            let failed: Vec<_> = calls.iter().filter(|call| call.failed.is_some()).map(|call| call.verb).collect();
            assert!(failed.contains(&verb), "{failed:?}");
            let lines = warnings.take();
            assert_eq!(lines.len(), failed.len(), "one line for each: {lines:?}");
            for (line, verb) in lines.iter().zip(&failed) {
                assert!(line.starts_with(&format!("WARN: ibv_{verb}: EBUSY")), "{line}");
                assert!(line.contains("leaked"), "{line}");
            }
            // Objects that failed are leaked with their parents; all others are destroyed.
            assert_eq!(recording.live().len(), failed.len());
        }
    }
}

#[test]
fn failed_close_reports_its_error() {
    let recording = Recording::new();
    let warnings = Warnings::listen();
    let context = recording.open();
    recording.fail("close_device", 0, Failure::documented(libc::EIO));
    let error = Arc::into_inner(context).unwrap().close().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_close_device", libc::EIO));
    assert_eq!(warnings.take(), [""; 0], "close returns the error itself");
    assert_eq!(recording.calls().iter().filter(|call| call.verb == "close_device").count(), 1);
}

#[test]
fn everything_closes_and_reports() {
    let recording = Recording::new();
    let context = recording.open();
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let queue = || context.create_cq_builder().setup_comp_channel(&channel, 0).build_generic().unwrap();
    let (cq, held) = (queue(), queue());
    let qp = pd.create_qp_builder().setup_send_cq(&held).setup_recv_cq(&held).build_generic().unwrap();

    let error = held.close().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_destroy_cq", libc::EBUSY));
    assert!(error.to_string().contains("queue pairs or events reference the queue"), "{error}");
    cq.close().unwrap();
    qp.close().unwrap();
    Arc::into_inner(pd).unwrap().close().unwrap();
    Arc::into_inner(channel).unwrap().close().unwrap();
    Arc::into_inner(context).unwrap().close().unwrap();
    assert_eq!(recording.live(), []);
    assert_eq!(ends(&recording.calls()).len(), 6, "two completion queues, each destroyed once");

    let warnings = Warnings::listen();
    let recording = Recording::new();
    let context = recording.open();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq_builder().build().unwrap();
    let qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build().unwrap();
    recording.fail("destroy_qp", 0, Failure::documented(libc::EIO));
    assert_eq!(qp.close().unwrap_err().errno().raw(), libc::EIO);
    assert_eq!(warnings.take(), [""; 0], "close returns the error itself");
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn half_built_objects_are_destroyed() {
    let recording = Recording::new();
    let context = recording.open();
    recording.without("descriptor").calls();
    // The descriptor cannot be made non-blocking.
    let error = context.create_comp_channel().unwrap_err();
    assert_eq!(error.errno().raw(), libc::EBADF);
    assert_eq!(recording.verbs(), ["create_comp_channel", "destroy_comp_channel"]);
    drop(context);
    assert_eq!(recording.live(), []);
}

#[test]
fn event_holds_its_queue() {
    let recording = Recording::new();
    let context = recording.open();
    let channel = context.create_comp_channel().unwrap();
    let cq = context.create_cq_builder().setup_comp_channel(&channel, 0).setup_cq_context(77).build().unwrap();
    cq.req_notify(false).unwrap();
    recording.complete(&cq, Default::default());
    let event = channel.get_cq_event(Some(Duration::from_secs(60))).unwrap();
    assert!(event.is_of(&cq));
    drop(cq);
    assert!(recording.live().contains(&Kind::CompletionQueue));
    assert_eq!(event.cq_context(), 77);
    drop((event, channel, context));
    assert_eq!(recording.live(), []);
}

#[test]
fn split_queue_pair_reports_through_either_half() {
    let world = World::new();
    let [basic, extended] = world.queue_pairs();
    for qp in [basic, extended] {
        let number = qp.qp_number();
        let (send, recv) = qp.split();
        assert_eq!((send.qp_number(), recv.qp_number()), (number, number));
        drop(send);
        assert!(world.recording.live().contains(&Kind::QueuePair));
    }
    assert!(!world.recording.live().contains(&Kind::QueuePair));
}

#[test]
fn parents_outlive_a_queue_pair_that_is_not_destroyed() {
    let world = World::new();
    for refused in [false, true] {
        let kept = Arc::new(());
        let qp = world.qp_builder().setup_kept(kept.clone()).build().unwrap();
        assert_eq!(Arc::strong_count(&kept), 2);
        if refused {
            world.recording.fail("destroy_qp", 0, Failure::documented(libc::EIO));
        }
        let closed = qp.close().map_err(|error| error.errno().raw());
        assert_eq!(closed, if refused { Err(libc::EIO) } else { Ok(()) });
        // The driver may still read the parents.
        assert_eq!(Arc::strong_count(&kept), if refused { 2 } else { 1 });
    }
}
