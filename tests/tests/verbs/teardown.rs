//! Teardown with faulty drivers: buffers stay allocated until nothing can use them, and the error contains the reason.

use std::cell::Cell;
use std::time::Duration;

use sideway::ibverbs::completion::PollCompletions;
use sideway::ibverbs::queue_pair::teardown::{DRAIN_MARKERS, DrainError, Drained, ResetReason};
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, Pair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState as State, SendQueue,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::recording::{Completion, Failure, World, connect};

const PATIENCE: Duration = Duration::from_secs(60);

/// Counts its drops.
struct Buffer<'c>(&'c Cell<u32>);

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A connected queue pair of each kind, with one receive posted.
fn queue_pairs(world: &World) -> [GenericQueuePair; 2] {
    let mut pairs = world.queue_pairs();
    for qp in &mut pairs {
        connect(qp).expect("it connects");
        let mut batch = qp.start_post_recv();
        batch.construct_wr(5).setup_no_data();
        batch.post().expect("it is posted");
    }
    world.recording.calls();
    pairs
}

#[test]
fn markers_are_last_and_are_not_returned() {
    let mut world = World::new();
    for mut qp in queue_pairs(&world) {
        let mut batch = qp.start_post_send();
        batch.construct_wr(6, WorkRequestFlags::Signaled).setup_send().setup_no_data();
        batch.post().unwrap();
        world.recording.posted();
        let mut seen = Vec::new();
        let mut queues: [&mut dyn PollCompletions; 2] = [&mut world.send_cq, &mut world.recv_cq];
        assert_eq!(qp.drain(&mut queues, PATIENCE, |record| seen.push(record.wr_id)), Ok(Drained::Flushed));
        seen.sort_unstable();
        // The send consumed the receive.
        assert_eq!(seen, [5, 6]);
        let posted = world.recording.posted();
        assert_eq!(posted.iter().map(|request| request.wr_id).collect::<Vec<_>>(), DRAIN_MARKERS);
        assert_eq!(qp.state(), State::Error);
        qp.close().unwrap();
    }
    world.end();
}

#[test]
fn queue_pairs_that_only_receive_are_flushed() {
    fn flush<S: SendQueue>(world: &mut World, mut qp: Pair<S>) {
        let mut seen = Vec::new();
        let mut queues: [&mut dyn PollCompletions; 2] = [&mut world.send_cq, &mut world.recv_cq];
        let drained = qp.drain(&mut queues, Duration::from_secs(2), |record| seen.push(record.wr_id));
        assert_eq!((drained, seen), (Ok(Drained::Flushed), vec![5]));
    }
    let mut world = World::new();
    let mut builder = world.qp_builder();
    builder.setup_max_send_wr(0);
    let pairs: [GenericQueuePair; 2] = [builder.build().unwrap().into(), builder.build_ex().unwrap().into()];
    drop(builder);
    for mut qp in pairs {
        connect(&qp).expect("it connects");
        let mut batch = qp.start_post_recv();
        batch.construct_wr(5).setup_no_data();
        batch.post().expect("it is posted");
        flush(&mut world, qp);
    }
    // Datagram queues cannot have an end marker, and need none.
    let mut builder = world.pd.create_ud_qp_builder();
    builder.setup_send_cq(&world.send_cq).setup_recv_cq(&world.recv_cq).setup_max_send_wr(0);
    let mut qp = builder.build().unwrap();
    drop(builder);
    let mut init = QueuePairAttribute::new();
    init.setup_state(State::Init).setup_pkey_index(0).setup_port(1).setup_qkey(7);
    qp.modify(&init).unwrap();
    let mut batch = qp.start_post_recv();
    batch.construct_wr(5).setup_no_data();
    batch.post().expect("it is posted");
    flush(&mut world, qp);
    world.end();
}

#[test]
fn reset_queue_pair_has_nothing_to_drain() {
    let mut world = World::new();
    for mut qp in world.queue_pairs() {
        let mut queues: [&mut dyn PollCompletions; 2] = [&mut world.send_cq, &mut world.recv_cq];
        assert_eq!(qp.drain(&mut queues, PATIENCE, |record| panic!("{record:?}")), Ok(Drained::Flushed));
        assert_eq!(world.recording.verbs(), ["query_qp"]);
        drop(qp);
        world.recording.verbs();
    }
    world.end();
}

#[test]
fn unflushable_queue_pair_is_reset() {
    let failure = Failure::documented(libc::EIO);
    type Expected = fn(&ResetReason) -> bool;
    let cases: [(&str, Expected); 3] = [
        ("modify_qp", |reason| matches!(reason, ResetReason::Modify(error) if error.errno().raw() == libc::EIO)),
        (
            "post_recv",
            |reason| matches!(reason, ResetReason::Post(error) if error.verb_error().verb() == "ibv_post_recv"),
        ),
        ("poll", |reason| matches!(reason, ResetReason::Poll(_))),
    ];
    for (verb, expected) in cases {
        let mut world = World::new();
        for mut qp in queue_pairs(&world) {
            match verb {
                // The queue may be basic or extended, so both functions fail.
                "poll" => world.recording.fail("start_poll", 0, failure).fail("poll_cq", 0, failure),
                verb => world.recording.fail(verb, 0, failure),
            };
            let mut queues: [&mut dyn PollCompletions; 2] = [&mut world.send_cq, &mut world.recv_cq];
            match qp.drain(&mut queues, PATIENCE, |_| {}) {
                Ok(Drained::Reset(reason)) => assert!(expected(&reason), "{verb}: {reason:?}"),
                other => panic!("{verb}: {other:?}"),
            }
            assert_eq!(qp.state(), State::Reset, "{verb}");
            drop(qp);
            world.recording.succeed("start_poll").succeed("poll_cq");
        }
        world.end();
    }
}

#[test]
fn timeout_resets_and_returns_the_buffers() {
    let mut world = World::new();
    let dropped = Cell::new(0);
    for qp in queue_pairs(&world) {
        // Receives are not flushed, because the queue pair only appears to be in the error state.
        world.recording.edit(|facts| facts.flushes = false);
        let mut queues: [&mut dyn PollCompletions; 2] = [&mut world.send_cq, &mut world.recv_cq];
        let torn_down =
            qp.tear_down(&mut queues, Duration::from_millis(1), Buffer(&dropped), |record| panic!("{record:?}"));
        let torn_down = torn_down.unwrap();
        assert_eq!(torn_down.drained, Drained::Reset(ResetReason::TimedOut));
        assert_eq!(torn_down.destroyed, Ok(()));
        assert_eq!(dropped.take(), 0);
        drop(torn_down.buffers);
        assert_eq!(dropped.take(), 1);
    }
    world.end();
}

#[test]
fn stale_drain_markers_are_not_taken_for_new_ones() {
    let mut world = World::new();
    for mut qp in queue_pairs(&world) {
        for (cq, wr_id) in [(&world.send_cq, DRAIN_MARKERS[0]), (&world.recv_cq, DRAIN_MARKERS[1])] {
            world.recording.complete(cq, Completion { wr_id, qp_num: qp.qp_number(), ..Default::default() });
        }
        world.recording.edit(|facts| facts.flushes = false);
        let mut queues: [&mut dyn PollCompletions; 2] = [&mut world.send_cq, &mut world.recv_cq];
        let drained = qp.drain(&mut queues, Duration::from_millis(1), |record| panic!("{record:?}"));
        assert_eq!(drained, Ok(Drained::Reset(ResetReason::TimedOut)), "the receive is outstanding");
        world.recording.edit(|facts| facts.flushes = true);
    }
    world.end();
}

#[test]
fn stuck_queue_pair_keeps_its_buffers() {
    let mut world = World::new();
    let dropped = Cell::new(0);
    let [basic, extended] = queue_pairs(&world);
    for (qp, again) in [(basic, false), (extended, true)] {
        world.recording.fail_always("modify_qp", Failure::documented(libc::EIO));
        let mut queues: [&mut dyn PollCompletions; 2] = [&mut world.send_cq, &mut world.recv_cq];
        let error = qp.tear_down(&mut queues, PATIENCE, Buffer(&dropped), |_| {}).map(drop).unwrap_err();
        assert!(matches!(error.drain_error(), DrainError::Stuck { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "the queue pair could be neither flushed (ibv_modify_qp: EIO (Input/output error)) nor reset \
             (ibv_modify_qp(ReadyToSend -> Reset): EIO (Input/output error)); keep its buffers, which may still be in use"
        );
        world.recording.succeed("modify_qp");
        if again {
            let (qp, buffers) = error.into_parts();
            let torn_down = qp.tear_down(&mut queues, PATIENCE, buffers, |_| {}).unwrap();
            drop(std::mem::ManuallyDrop::into_inner(torn_down.buffers));
            assert_eq!(dropped.take(), 1);
        } else {
            drop(error);
            assert_eq!(dropped.take(), 0, "leaked, because the device may use them");
        }
    }
    world.end();
}

#[test]
fn queues_of_two_pairs_cannot_be_drained_together() {
    let mut world = World::new();
    let dropped = Cell::new(0);
    let [mut one, mut other] = queue_pairs(&world);
    std::mem::swap(one.queues().1, other.queues().1);
    let mut queues: [&mut dyn PollCompletions; 2] = [&mut world.send_cq, &mut world.recv_cq];
    let error = one.tear_down(&mut queues, PATIENCE, Buffer(&dropped), |_| {}).map(drop).unwrap_err();
    assert_eq!(error.drain_error(), &DrainError::MixedQueues);
    assert!(error.to_string().contains("belong to two queue pairs"), "{error}");
    assert_eq!(world.recording.verbs(), [""; 0], "nothing was done, and the other queue pair got no marker");
    let (mut one, buffers) = error.into_parts();
    assert_eq!(dropped.get(), 0);

    std::mem::swap(one.queues().1, other.queues().1);
    for (qp, buffers) in [(one, Some(buffers)), (other, None)] {
        let torn_down = qp.tear_down(&mut queues, PATIENCE, buffers, |_| {}).unwrap();
        assert_eq!((torn_down.drained, torn_down.destroyed), (Drained::Flushed, Ok(())));
        drop(torn_down.buffers.map(std::mem::ManuallyDrop::into_inner));
    }
    assert_eq!(dropped.get(), 1);
    world.end();
}

#[test]
fn split_queues_are_joined_before_a_drain() {
    let mut world = World::new();
    let [one, other] = queue_pairs(&world);
    let ((send, recv), (other_send, other_recv)) = (one.split(), other.split());
    let (send, recv) = GenericQueuePair::join(send, other_recv)
        .map(drop)
        .map_err(|(send, other_recv)| (send, (recv, other_recv)))
        .unwrap_err();
    let pairs = [(send, recv.0), (other_send, recv.1)].map(|(send, recv)| GenericQueuePair::join(send, recv).unwrap());
    for qp in pairs {
        let mut queues: [&mut dyn PollCompletions; 2] = [&mut world.send_cq, &mut world.recv_cq];
        assert!(qp.tear_down(&mut queues, PATIENCE, (), |_| {}).is_ok());
    }
    world.end();
}

#[test]
fn program_panic_keeps_the_buffers() {
    let mut world = World::new();
    let dropped = Cell::new(0);
    let [qp, _other] = queue_pairs(&world);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut queues: [&mut dyn PollCompletions; 2] = [&mut world.send_cq, &mut world.recv_cq];
        qp.tear_down(&mut queues, PATIENCE, Buffer(&dropped), |_| panic!("of the program's own")).map(drop).ok()
    }));
    assert!(result.is_err());
    assert_eq!(dropped.get(), 0);
}
