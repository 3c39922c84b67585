//! Requests that are refused before they reach the device, and the next batch, which works.

use sideway::ibverbs::queue_pair::{ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairBuilder, SendOperationFlags};
use sideway::ibverbs::work_request::{FlushLevel, FlushPlacement, PostErrorKind, PostSendError};
use sideway_tests::recording::World;

use crate::requests::support::{SIGNALED, all_operations, sized};

type Build = fn(&mut ExtendedQueuePair) -> Result<(), PostSendError>;

/// Each operation that a queue pair does not have by default.
const OPERATIONS: [(SendOperationFlags, Build); 4] = [
    (SendOperationFlags::SendWithInvalidate, |qp| {
        let mut guard = qp.start_post_send();
        guard.construct_wr(7, SIGNALED).setup_send_inv(1).setup_inline_data(b"x");
        guard.post()
    }),
    (SendOperationFlags::LocalInvalidate, |qp| {
        let mut guard = qp.start_post_send();
        guard.construct_wr(7, SIGNALED).setup_local_inv(1);
        guard.post()
    }),
    (SendOperationFlags::AtomicWrite, |qp| {
        let mut guard = qp.start_post_send();
        guard.construct_wr(7, SIGNALED).setup_atomic_write(1, 2, [3; 8]);
        guard.post()
    }),
    (SendOperationFlags::Flush, |qp| {
        let mut guard = qp.start_post_send();
        guard.construct_wr(7, SIGNALED).setup_flush(1, 2, 3, FlushPlacement::Global, FlushLevel::Range);
        guard.post()
    }),
];

fn send(qp: &mut ExtendedQueuePair) -> Result<(), PostSendError> {
    let mut guard = qp.start_post_send();
    guard.construct_wr(8, SIGNALED).setup_send().setup_inline_data(b"x");
    guard.post()
}

fn builder(world: &World) -> QueuePairBuilder {
    sized(world, world.pd.create_qp_builder())
}

/// Each operation is refused by name, without a call of the driver except the start and the end, and the next batch
/// works.
fn each_is_refused(world: &World, qp: &mut ExtendedQueuePair) {
    for (flag, build) in OPERATIONS {
        world.recording.calls();
        let error = build(qp).unwrap_err();
        assert_eq!((error.kind(), error.posted()), (PostErrorKind::OperationNotEnabled(flag), Some(0)));
        let (name, _) = flag.iter_names().next().unwrap();
        assert_eq!(
            error.to_string(),
            format!(
                "ibv_wr_complete: EOPNOTSUPP (Operation not supported): the queue pair was not built for {name}; add it with \
                 QueuePairBuilder::setup_send_ops_flags, if the device supports it; wr_id 7; nothing of the batch was posted"
            )
        );
        assert_eq!(world.recording.verbs(), ["wr_start", "wr_abort"], "{name}");
        send(qp).unwrap();
        assert_eq!(world.recording.posted().iter().map(|request| request.wr_id).collect::<Vec<_>>(), [8]);
    }
}

#[test]
fn unrequested_operations_are_refused() {
    // The recording device has invalid pointers in place of the later functions, so calling one ends the process.
    let world = World::new();
    let mut qp = builder(&world).build_ex().unwrap();
    each_is_refused(&world, &mut qp);
}

#[test]
fn requested_operations_missing_in_the_driver_are_refused() {
    let world = World::new();
    for function in ["wr_send_inv", "wr_local_inv", "wr_atomic_write", "wr_flush"] {
        world.recording.without(function);
    }
    let mut qp = builder(&world).setup_send_ops_flags(all_operations()).build_ex().unwrap();
    each_is_refused(&world, &mut qp);
}

#[test]
fn requested_operations_work_after_a_refusal() {
    let world = World::new();
    let mut qp =
        builder(&world).setup_send_ops_flags(all_operations().difference(SendOperationFlags::Read)).build_ex().unwrap();
    for (flag, build) in OPERATIONS {
        let mut guard = qp.start_post_send();
        guard.construct_wr(1, SIGNALED).setup_read(1, 2).setup_no_data();
        // Requests after the refusal do not reach the driver, whether or not their function is in the queue pair's
        // struct.
        guard.construct_wr(2, SIGNALED).setup_atomic_write(1, 2, [3; 8]);
        guard.construct_wr(3, SIGNALED).setup_flush(1, 2, 3, FlushPlacement::Global, FlushLevel::Range);
        guard.construct_wr(4, SIGNALED).setup_local_inv(1);
        world.recording.calls();
        let error = guard.post().unwrap_err();
        assert_eq!(error.kind(), PostErrorKind::OperationNotEnabled(SendOperationFlags::Read));
        assert_eq!(error.failed_request().unwrap().wr_id, 1);
        assert_eq!(world.recording.verbs(), ["wr_abort"]);
        build(&mut qp).unwrap();
        assert_eq!(world.recording.posted().iter().map(|request| request.wr_id).collect::<Vec<_>>(), [7], "{flag:?}");
    }
}

#[test]
fn atomic_write_needs_inline_space_on_a_basic_queue_pair() {
    let world = World::new();
    let mut builder = builder(&world);
    let mut qp = builder.setup_max_inline_data(7).build().unwrap();
    world.recording.calls();
    let mut guard = qp.start_post_send();
    guard.construct_wr(7, SIGNALED).setup_atomic_write(1, 2, [3; 8]);
    let error = guard.post().unwrap_err();
    assert!(error.to_string().contains("the inline data has 8 bytes, but the queue pair was built for 7"), "{error}");
    assert_eq!(world.recording.verbs(), ["query_device_ex"]);
}

#[test]
fn every_request_to_a_full_queue_is_refused() {
    let world = World::new();
    let mut builder = builder(&world);
    let mut qp = builder.setup_max_send_wr(0).setup_send_ops_flags(all_operations()).build_ex().unwrap();
    for (flag, build) in OPERATIONS {
        world.recording.calls();
        let error = build(&mut qp).unwrap_err();
        assert_eq!((error.kind(), error.posted()), (PostErrorKind::NotEnoughResources, Some(0)), "{flag:?}");
        assert!(error.to_string().contains("exceeds the 0 requests"), "{error}");
        assert_eq!(world.recording.verbs(), ["wr_start", "wr_abort"], "{flag:?}");
    }
    let mut basic = builder.build().unwrap();
    let mut guard = basic.start_post_send();
    guard.construct_wr(7, SIGNALED).setup_local_inv(1);
    assert_eq!(guard.post().unwrap_err().kind(), PostErrorKind::NotEnoughResources);
    assert_eq!(world.recording.posted(), []);
}
