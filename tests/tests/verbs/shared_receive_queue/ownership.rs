//! Ownership, and the order of destruction.

use std::sync::Arc;

use sideway::ibverbs::xrc_domain::XrcDomainFlags;
use sideway_tests::recording::{Call, Completion, Failure, Kind, Recording, Warnings, World};

/// The destroying verbs among the calls.
fn ends(calls: &[Call]) -> Vec<&'static str> {
    let end = |verb: &str| ["destroy", "dealloc", "close"].iter().any(|word| verb.starts_with(word));
    calls.iter().filter(|call| end(call.verb) && call.failed.is_none()).map(|call| call.verb).collect()
}

#[test]
fn queue_owner_may_be_dropped_before_its_queue_pairs() {
    let world = World::new();
    let queue = world.pd.create_srq_builder().build().unwrap();
    let mut builder = world.qp_builder();
    builder.setup_srq(&queue);
    let pairs = [builder.build_generic().unwrap(), builder.build().unwrap().into()];
    drop((builder, queue));
    assert!(world.recording.live().contains(&Kind::SharedReceiveQueue), "the queue pairs keep it");
    world.recording.calls();
    let [first, second] = pairs;
    let (send, recv) = first.split();
    drop((send, second));
    assert_eq!(ends(&world.recording.calls()), ["destroy_qp"]);
    drop(recv);
    assert_eq!(ends(&world.recording.calls()), ["destroy_qp", "destroy_srq"]);
    world.end();
}

#[test]
fn queue_holds_its_parents() {
    let World { send_cq, recv_cq, pd, context, recording } = World::new();
    let xrcd = context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
    let queue = pd.create_srq_builder().setup_xrc(&xrcd, &recv_cq).build_ex().unwrap();
    let pair = xrcd.create_recv_qp().unwrap();
    recording.calls();
    drop((send_cq, recv_cq, pd, context, xrcd));
    assert_eq!(ends(&recording.calls()), ["destroy_cq"], "that of the sends");
    drop(queue);
    assert_eq!(ends(&recording.calls()), ["destroy_srq", "destroy_cq", "dealloc_pd"]);
    drop(pair);
    assert_eq!(ends(&recording.calls()), ["destroy_qp", "close_xrcd", "close_device"]);
    assert_eq!(recording.live(), []);
}

#[test]
fn sole_owner_of_a_completion_queue_destroys_both() {
    let mut world = World::new();
    let xrcd = world.context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
    let build = |cq| world.pd.create_srq_builder().setup_xrc(&xrcd, cq).build_ex().unwrap();
    let queue = build(&world.recv_cq);
    world.recv_cq = world.context.create_cq_builder().build_generic().unwrap();
    world.recording.calls();
    assert_eq!(queue.close(), Ok(()));
    assert_eq!(ends(&world.recording.calls()), ["destroy_srq", "destroy_cq"]);
    drop(xrcd);
    world.end();
}

#[test]
fn shared_queue_in_completions_lives_as_long_as_the_completion_queue() {
    let mut world = World::new();
    let xrcd = world.context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
    let build = || world.pd.create_srq_builder().setup_xrc(&xrcd, &world.recv_cq).build_ex().unwrap();
    let [closed, dropped] = [build(), build()];
    world.recording.complete(&world.recv_cq, Completion::default());
    world.recording.calls();
    // A poll is running, and drivers look up the queue again at its next step.
    let mut poller = world.recv_cq.start_poll().unwrap();
    let held = closed.close().unwrap_err();
    assert_eq!((held.verb(), held.errno().raw()), ("ibv_destroy_srq", libc::EBUSY));
    drop((dropped, xrcd));
    assert!(poller.next().unwrap().is_some());
    drop(poller);
    assert_eq!(ends(&world.recording.calls()), [""; 0]);
    let World { send_cq, recv_cq, pd, context, recording } = world;
    drop(recv_cq);
    assert_eq!(ends(&recording.calls()), ["destroy_srq", "destroy_srq", "close_xrcd", "destroy_cq"]);
    drop((send_cq, pd, context));
    assert_eq!(recording.live(), []);
}

#[test]
fn everything_closes_and_reports() {
    let world = World::new();
    let build = || world.pd.create_srq_builder().build().unwrap();
    build().close().unwrap();
    let held = build();
    let qp = world.qp_builder().setup_srq(&held).build().unwrap();
    let error = held.close().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_destroy_srq", libc::EBUSY));
    assert!(error.to_string().contains("queue pairs or events reference the queue"), "{error}");
    assert!(world.recording.live().contains(&Kind::SharedReceiveQueue));
    qp.close().unwrap();
    assert!(!world.recording.live().contains(&Kind::SharedReceiveQueue));

    let xrcd = world.context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
    xrcd.create_recv_qp().unwrap().close().unwrap();
    Arc::into_inner(xrcd).unwrap().close().unwrap();

    let warnings = Warnings::listen();
    let no = Failure::negative(libc::EIO);
    world.recording.fail("destroy_srq", 0, no).fail("close_xrcd", 0, no);
    assert_eq!(build().close().unwrap_err().to_string(), "ibv_destroy_srq: EIO (Input/output error)");
    let xrcd = world.context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
    let error = Arc::into_inner(xrcd).unwrap().close().unwrap_err();
    assert_eq!(error.to_string(), "ibv_close_xrcd: EIO (Input/output error)");
    assert_eq!(warnings.take(), [""; 0], "close returns the error itself");
}

#[test]
fn failed_destroy_is_logged_without_a_panic() {
    for verb in ["destroy_srq", "close_xrcd", "destroy_qp"] {
        let warnings = Warnings::listen();
        let recording = Recording::new();
        let context = recording.open();
        let pd = context.alloc_pd().unwrap();
        let xrcd = context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
        let (queue, pair) = (pd.create_srq_builder().build().unwrap(), xrcd.create_recv_qp().unwrap());
        recording.fail(verb, 0, Failure::minus_one(libc::EBUSY));
        drop((queue, pair, xrcd, pd, context));
        let lines = warnings.take();
        assert!(lines[0].starts_with(&format!("WARN: ibv_{verb}: EBUSY")), "{lines:?}");
        assert!(lines[0].contains("leaked"), "{lines:?}");
        // The parents of the object cannot be destroyed either.
        assert_eq!(lines.len(), recording.live().len());
    }
}
