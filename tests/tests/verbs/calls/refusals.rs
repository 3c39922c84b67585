//! Batches and requests larger than the queue pair was built for.

use std::io::IoSlice;

use sideway::ibverbs::queue_pair::{GenericQueuePair, GenericSendQueue, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::{PostError, PostErrorKind, RefusalReason, ScatterGatherEntry, WorkRequestFlags};
use sideway_tests::recording::World;

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

/// Posts one send and one receive, each of which arrives.
fn works(world: &World, qp: &mut GenericQueuePair) {
    world.recording.posted();
    let mut guard = qp.start_post_send();
    guard.construct_wr(98, SIGNALED).setup_send().setup_inline_data(b"works");
    guard.post().unwrap();
    let mut guard = qp.start_post_recv();
    guard.construct_wr(99).setup_no_data();
    guard.post().unwrap();
    assert_eq!(world.recording.posted().iter().map(|request| request.wr_id).collect::<Vec<_>>(), [98, 99]);
    world.recording.calls();
}

/// The error of a basic queue pair contains the numbers; the error of an extended one comes from the driver. Neither
/// queue pair posts a request.
#[track_caller]
fn refused(world: &World, qp: &mut GenericQueuePair, error: PostError, kind: PostErrorKind, numbers: [&str; 2]) {
    assert_eq!(error.kind(), kind);
    assert_eq!(world.recording.posted(), [], "{error}");
    if matches!(qp.queues().0, GenericSendQueue::Basic(_)) {
        assert_eq!(error.posted(), Some(0));
        assert_eq!(error.failed_request().unwrap().wr_id, 7);
        for number in numbers {
            assert!(error.to_string().contains(number), "{error}");
        }
        // C was not called.
        assert!(!world.recording.verbs().contains(&"post_send"));
    }
    works(world, qp);
}

#[test]
fn oversized_batch_is_refused() {
    let world = World::new();
    for mut qp in world.queue_pairs() {
        let mut guard = qp.start_post_send();
        for wr_id in 3..9 {
            guard.construct_wr(wr_id, SIGNALED).setup_send().setup_inline_data(b"x");
        }
        let error = guard.post().unwrap_err();
        refused(&world, &mut qp, error, PostErrorKind::NotEnoughResources, ["4", "request 4"]);
    }
}

#[test]
fn oversized_list_is_refused() {
    let world = World::new();
    let entry = ScatterGatherEntry::new(1.into(), 2, 3);
    for mut qp in world.queue_pairs() {
        let mut guard = qp.start_post_send();
        guard.construct_wr(6, SIGNALED).setup_send().setup_inline_data(b"x");
        // SAFETY: the recording device touches no memory.
        unsafe { guard.construct_wr(7, SIGNALED).setup_send().setup_sge_list(&[entry; 3]) };
        guard.construct_wr(8, SIGNALED).setup_send().setup_inline_data(b"x");
        let error = guard.post().unwrap_err();
        refused(&world, &mut qp, error, PostErrorKind::InvalidWorkRequest, ["3 entries", "for 2"]);
    }
}

#[test]
fn oversized_inline_data_is_refused() {
    let world = World::new();
    for mut qp in world.queue_pairs() {
        let mut guard = qp.start_post_send();
        guard.construct_wr(7, SIGNALED).setup_send().setup_inline_data(&[0; 17]);
        let error = guard.post().unwrap_err();
        refused(&world, &mut qp, error, PostErrorKind::InvalidWorkRequest, ["17 bytes", "for 16"]);

        let mut guard = qp.start_post_send();
        let pieces = [IoSlice::new(&[0; 10]), IoSlice::new(&[0; 8])];
        guard.construct_wr(7, SIGNALED).setup_send().setup_inline_data_list(&pieces);
        let error = guard.post().unwrap_err();
        refused(&world, &mut qp, error, PostErrorKind::InvalidWorkRequest, ["18 bytes", "for 16"]);

        // Data that fits is accepted.
        let mut guard = qp.start_post_send();
        guard.construct_wr(7, SIGNALED).setup_send().setup_inline_data(&[1; 16]);
        guard.post().unwrap();
        world.recording.posted();
    }
}

#[test]
fn inline_flag_with_registered_memory_is_refused() {
    const INLINE: WorkRequestFlags = SIGNALED.union(WorkRequestFlags::Inline);
    let world = World::new();
    let entry = ScatterGatherEntry::new(1.into(), 2, 3);
    for mut qp in world.queue_pairs() {
        for list in [false, true] {
            let mut guard = qp.start_post_send();
            guard.construct_wr(6, SIGNALED).setup_send().setup_inline_data(b"x");
            let request = guard.construct_wr(7, INLINE).setup_write(1, 2);
            // SAFETY: the recording device touches no memory.
            unsafe { if list { request.setup_sge_list(&[entry]) } else { request.setup_sge(1, 2, 3) } };
            let error = guard.post().unwrap_err();
            assert_eq!(error.refusal(), Some(RefusalReason::InlineMemory));
            assert_eq!(error.failed_request().unwrap().wr_id, 7);
            refused(&world, &mut qp, error, PostErrorKind::InvalidWorkRequest, ["setup_inline_data", "request 1"]);
        }
    }
}

#[test]
fn refused_guard_has_no_effect() {
    let world = World::new();
    for mut qp in world.queue_pairs() {
        let mut guard = qp.start_post_send();
        guard.construct_wr(7, SIGNALED).setup_send().setup_inline_data(&[0; 17]);
        drop(guard);
        works(&world, &mut qp);
    }
}

#[test]
fn oversized_receives_are_refused() {
    let world = World::new();
    let entry = ScatterGatherEntry::new(1.into(), 2, 3);
    for mut qp in world.queue_pairs() {
        world.recording.calls();
        let mut guard = qp.start_post_recv();
        for wr_id in 3..9 {
            guard.construct_wr(wr_id).setup_no_data();
        }
        let error = guard.post().unwrap_err();
        assert_eq!((error.kind(), error.posted()), (PostErrorKind::NotEnoughResources, Some(0)));
        let failed = error.failed_request().unwrap();
        assert_eq!((failed.index, failed.wr_id), (Some(4), 7));

        let mut guard = qp.start_post_recv();
        guard.construct_wr(6).setup_no_data();
        // SAFETY: the recording device touches no memory.
        unsafe { guard.construct_wr(7).setup_sge_list(&[entry; 3]) };
        let error = guard.post().unwrap_err();
        assert_eq!((error.kind(), error.posted()), (PostErrorKind::InvalidWorkRequest, Some(0)));
        assert!(error.to_string().contains("3 entries") && error.to_string().contains("wr_id 7"), "{error}");
        assert_eq!(world.recording.verbs(), [""; 0], "a C function was called");
        works(&world, &mut qp);
    }
}

#[test]
fn queue_pair_without_operations_refuses_everything() {
    let world = World::new();
    let mut builder = world.qp_builder();
    builder.setup_max_send_wr(0).setup_max_recv_wr(0).setup_max_send_sge(0).setup_max_recv_sge(0);
    builder.setup_max_inline_data(0);
    let pairs: [GenericQueuePair; 2] = [builder.build().unwrap().into(), builder.build_ex().unwrap().into()];
    for mut qp in pairs {
        qp.start_post_send().post().unwrap();
        qp.start_post_recv().post().unwrap();
        let mut guard = qp.start_post_send();
        guard.construct_wr(1, SIGNALED).setup_send().setup_no_data();
        assert_eq!(guard.post().unwrap_err().kind(), PostErrorKind::NotEnoughResources);
        let mut guard = qp.start_post_recv();
        guard.construct_wr(1).setup_no_data();
        assert_eq!(guard.post().unwrap_err().kind(), PostErrorKind::NotEnoughResources);
    }
}

#[test]
fn queue_pair_without_entries_refuses_lists() {
    let world = World::new();
    let mut builder = world.qp_builder();
    builder.setup_max_send_sge(0).setup_max_recv_sge(0);
    let pairs: [GenericQueuePair; 2] = [builder.build().unwrap().into(), builder.build_ex().unwrap().into()];
    for mut qp in pairs {
        let mut guard = qp.start_post_send();
        // SAFETY: the recording device touches no memory.
        unsafe { guard.construct_wr(7, SIGNALED).setup_send().setup_sge(1, 2, 3) };
        let error = guard.post().unwrap_err();
        refused(&world, &mut qp, error, PostErrorKind::InvalidWorkRequest, ["1 entries", "for 0"]);
    }
}

#[test]
fn excessive_capabilities_are_refused_before_an_allocation() {
    let world = World::new();
    for wish in [u32::MAX, u32::MAX / 2, 1 << 24] {
        let mut builder = world.qp_builder();
        builder.setup_max_send_wr(wish);
        let error = builder.build().map(drop).unwrap_err();
        assert_eq!(error.errno().raw(), libc::EINVAL);
        assert!(error.to_string().contains(&wish.to_string()), "{error}");
    }
    assert_eq!(world.recording.verbs(), [""; 0]);
}

#[test]
fn capabilities_excessive_only_in_sum_are_refused() {
    let world = World::new();
    let wish = 1 << 22;
    for build in 0..2 {
        let mut builder = world.qp_builder();
        builder.setup_max_send_wr(wish).setup_max_send_sge(wish);
        let result = if build == 0 { builder.build().map(drop) } else { builder.build_ex().map(drop) };
        // For extended queue pairs, sideway stores no send requests, so only the driver checks.
        if build == 0 {
            assert!(matches!(result.unwrap_err().errno().raw(), libc::EINVAL | libc::ENOMEM));
        }
        let mut builder = world.qp_builder();
        builder.setup_max_recv_wr(wish).setup_max_recv_sge(wish);
        let result = if build == 0 { builder.build().map(drop) } else { builder.build_ex().map(drop) };
        assert!(matches!(result.unwrap_err().errno().raw(), libc::EINVAL | libc::ENOMEM));
    }
    world.end();
}
