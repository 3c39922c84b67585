use std::io::IoSlice;
use std::slice;

use rdma_mummy_sys::{ibv_qp_ex, ibv_wr_opcode as opcode};
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, GenericSendQueue, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState,
    SendOperationFlags, SendQueue,
};
use sideway::ibverbs::work_request::{LocalBufferHandle, PostErrorKind, PostSendError, WorkRequestFlags};
use sideway_tests::recording::{Failure, World, connect};

/// All bytes of an extended queue pair, including its functions.
fn bytes(qp: &mut GenericQueuePair) -> Vec<u8> {
    assert!(matches!(qp.queues().0, GenericSendQueue::Extended(_)));
    // SAFETY: the recording device gives every queue pair space for an extended one, and no thread posts to it
    // meanwhile.
    unsafe {
        let qp = qp.qp().cast::<ibv_qp_ex>().as_ptr();
        let functions = std::mem::offset_of!(ibv_qp_ex, wr_atomic_cmp_swp);
        slice::from_raw_parts(qp.cast::<u8>().add(functions), size_of::<ibv_qp_ex>() - functions).to_vec()
    }
}

fn post_send(qp: &mut GenericQueuePair, wr_id: u64) -> Result<(), PostSendError> {
    let mut guard = qp.start_post_send();
    guard.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"hello");
    guard.post()
}

/// A queue pair that was built for sends only.
fn send_only(world: &World) -> GenericQueuePair {
    world.qp_builder().setup_send_ops_flags(SendOperationFlags::Send).build_generic().unwrap()
}

#[test]
fn missing_operation_is_a_typed_error() {
    type Build = fn(&mut GenericQueuePair) -> Result<(), PostSendError>;
    macro_rules! operation {
        ($Flag:ident, $setup:ident($($argument:expr),*)) => {
            (SendOperationFlags::$Flag, (|qp| {
                let mut guard = qp.start_post_send();
                let handle = guard.construct_wr(7, WorkRequestFlags::Signaled).$setup($($argument),*);
                // SAFETY: the recording device touches no memory.
                unsafe { handle.setup_sge(1, 2, 8) };
                guard.post()
            }) as Build)
        };
    }
    let operations = [
        operation!(SendWithImmediate, setup_send_imm(1)),
        operation!(Write, setup_write(1, 2)),
        operation!(WriteWithImmediate, setup_write_imm(1, 2, 3)),
        operation!(Read, setup_read(1, 2)),
        operation!(AtomicCompareAndSwap, setup_atomic_compare_swap(1, 2, 3, 4)),
        operation!(AtomicFetchAndAdd, setup_atomic_fetch_add(1, 2, 3)),
    ];
    let world = World::new();
    let mut qp = send_only(&world);
    let before = bytes(&mut qp);
    for (flag, build) in operations {
        world.recording.calls();
        let error = build(&mut qp).unwrap_err();
        assert_eq!(error.kind(), PostErrorKind::OperationNotEnabled(flag));
        assert_eq!((error.posted(), error.failed_request().unwrap().wr_id), (Some(0), 7));
        let (name, _) = flag.iter_names().next().unwrap();
        assert!(error.to_string().contains(name), "{error}");
        // The batch was aborted, and no data was sent.
        assert_eq!(world.recording.verbs(), ["wr_start", "wr_abort"], "{name}");
        assert_eq!(bytes(&mut qp), before, "the functions of the queue pair after {name}");
        post_send(&mut qp, 8).unwrap();
        assert_eq!(world.recording.posted().len(), 1);
    }
    drop(qp);
    world.end();
}

#[test]
fn missing_operation_aborts_its_whole_batch() {
    let world = World::new();
    let mut qp = send_only(&world);
    let before = bytes(&mut qp);
    world.recording.calls();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"first");
    guard.construct_wr(2, WorkRequestFlags::Signaled).setup_write(1, 2).setup_inline_data(b"second");
    guard.construct_wr(3, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"third");
    // The first error is reported.
    guard.construct_wr(4, WorkRequestFlags::Signaled).setup_read(1, 2).setup_no_data();
    let error = guard.post().unwrap_err();
    assert_eq!(error.kind(), PostErrorKind::OperationNotEnabled(SendOperationFlags::Write));
    assert_eq!(error.failed_request().unwrap().wr_id, 2);
    assert_eq!(world.recording.verbs(), ["wr_start", "wr_send", "wr_set_inline_data", "wr_abort"]);
    assert_eq!(world.recording.posted(), []);
    assert_eq!(bytes(&mut qp), before);
}

#[test]
fn missing_operation_leaves_nothing_in_a_dropped_batch() {
    let world = World::new();
    let mut qp = send_only(&world);
    let before = bytes(&mut qp);
    world.recording.calls();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, WorkRequestFlags::Signaled).setup_write(1, 2).setup_inline_data(b"refused");
    drop(guard);
    assert_eq!(world.recording.verbs(), ["wr_start", "wr_abort"]);
    assert_eq!(bytes(&mut qp), before);
    // A later failure of the driver is not mistaken for the refusal.
    world.recording.fail("wr_complete", 0, Failure::documented(libc::ENOMEM));
    assert_eq!(post_send(&mut qp, 2).unwrap_err().kind(), PostErrorKind::NotEnoughResources);
    post_send(&mut qp, 3).unwrap();
    assert_eq!(world.recording.posted().len(), 1);
}

#[test]
fn missing_setter_is_an_error_and_not_a_null_call() {
    for setter in ["wr_set_sge", "wr_set_sge_list", "wr_set_inline_data", "wr_set_inline_data_list"] {
        let world = World::new();
        world.recording.without(setter);
        let mut qp = world.qp_builder().build_generic().unwrap();
        let mut guard = qp.start_post_send();
        let handle = guard.construct_wr(1, WorkRequestFlags::Signaled).setup_send();
        match setter {
            // SAFETY: the recording device touches no memory.
            "wr_set_sge" => unsafe { handle.setup_sge(1, 2, 3) },
            "wr_set_sge_list" => handle.setup_no_data(),
            "wr_set_inline_data" => handle.setup_inline_data(b"x"),
            _ => handle.setup_inline_data_list(&[IoSlice::new(b"x")]),
        }
        let error = guard.post().unwrap_err();
        assert_eq!(error.kind(), PostErrorKind::InvalidWorkRequest);
        assert!(error.to_string().contains(setter), "{error}");
        assert_eq!(world.recording.posted(), []);
        // A request without data was started. The abort of the batch discards this request.
        drop(qp);
        world.end();
    }
}

#[test]
fn queue_pair_without_posting_is_refused() {
    for name in ["wr_start", "wr_complete", "wr_abort", "qp_to_qp_ex"] {
        let world = World::new();
        world.recording.without(name);
        let error = world.qp_builder().build_ex().unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_qp_ex", libc::EOPNOTSUPP));
        assert!(error.hint().unwrap().contains(name), "{error}");
        assert!(matches!(world.qp_builder().build_generic().unwrap().queues().0, GenericSendQueue::Basic(_)));
        world.end();
    }
}

#[test]
fn dc_initiator_is_retried_without_atomics() {
    for errno in [libc::EOPNOTSUPP, libc::EINVAL] {
        let world = World::new();
        world.recording.fail("create_qp_ex", 0, Failure::documented(errno));
        let mut qp = GenericQueuePair::from(world.qp_builder().build_ex().unwrap());
        let asked: Vec<_> = world
            .recording
            .calls()
            .iter()
            .filter(|call| call.verb == "create_qp_ex")
            .map(|call| SendOperationFlags::from_bits_retain(call.argument("send_ops_flags")))
            .collect();
        let atomics = SendOperationFlags::AtomicCompareAndSwap | SendOperationFlags::AtomicFetchAndAdd;
        assert_eq!(asked.len(), 2);
        assert!(asked[0].contains(atomics));
        assert_eq!(asked[1], asked[0].difference(atomics));
        let mut guard = qp.start_post_send();
        guard.construct_wr(1, WorkRequestFlags::Signaled).setup_atomic_fetch_add(1, 2, 3).setup_no_data();
        let kind = guard.post().unwrap_err().kind();
        assert_eq!(kind, PostErrorKind::OperationNotEnabled(SendOperationFlags::AtomicFetchAndAdd));
    }
}

#[test]
fn refused_requested_operations_are_reported() {
    let world = World::new();
    world.recording.fail("create_qp_ex", 0, Failure::documented(libc::EOPNOTSUPP));
    let error = world.qp_builder().setup_send_ops_flags(SendOperationFlags::AtomicFetchAndAdd).build_ex().unwrap_err();
    assert!(error.hint().unwrap().contains("AtomicFetchAndAdd"), "{error}");
    assert_eq!(world.recording.calls().iter().filter(|call| call.verb == "create_qp_ex").count(), 1);
}

#[test]
fn dropped_request_is_not_posted() {
    let world = World::new();
    for mut qp in world.queue_pairs() {
        let mut guard = qp.start_post_send();
        guard.construct_wr(1, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"one");
        drop(guard.construct_wr(2, WorkRequestFlags::Signaled));
        drop::<LocalBufferHandle<'_, _, _>>(guard.construct_wr(3, WorkRequestFlags::Signaled).setup_write(1, 2));
        drop(guard.construct_wr(4, WorkRequestFlags::Signaled).setup_read(1, 2));
        guard.construct_wr(5, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"five");
        drop(guard.construct_wr(6, WorkRequestFlags::Signaled).setup_atomic_fetch_add(1, 2, 3));
        guard.post().unwrap();
        let posted = world.recording.posted();
        let numbers: Vec<_> = posted.iter().map(|request| (request.wr_id, request.opcode)).collect();
        assert_eq!(numbers, [(1, Some(opcode::IBV_WR_SEND.0)), (5, Some(opcode::IBV_WR_SEND.0))]);
        assert_eq!(posted[0].inline.as_deref(), Some(&b"one"[..]));
        assert_eq!(posted[1].inline.as_deref(), Some(&b"five"[..]));
    }
}

#[test]
fn dropped_requests_leave_an_empty_batch() {
    let world = World::new();
    for (mut qp, expected) in world.queue_pairs().into_iter().zip([&[][..], &["wr_start", "wr_abort"]]) {
        world.recording.calls();
        let mut guard = qp.start_post_send();
        drop(guard.construct_wr(1, WorkRequestFlags::Signaled).setup_write(1, 2));
        guard.post().unwrap();
        assert_eq!(world.recording.verbs(), expected);
        let mut guard = qp.start_post_recv();
        drop(guard.construct_wr(1));
        guard.post().unwrap();
        assert_eq!(world.recording.verbs(), [""; 0]);
    }
    assert_eq!(world.recording.posted(), []);
}

#[test]
fn dropped_batch_is_not_posted() {
    let world = World::new();
    for (mut qp, expected) in world.queue_pairs().into_iter().zip([0, 1]) {
        world.recording.calls();
        let mut guard = qp.start_post_send();
        guard.construct_wr(1, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"never");
        drop(guard);
        qp.start_post_recv().construct_wr(1).setup_no_data();
        let verbs = world.recording.verbs();
        assert_eq!(verbs.iter().filter(|&&verb| verb == "wr_abort").count(), expected);
        assert!(!verbs.iter().any(|verb| matches!(*verb, "wr_complete" | "post_send" | "post_recv")), "{verbs:?}");
        assert_eq!(world.recording.posted(), []);
        // Dropped requests do not return in the next batch.
        post_send(&mut qp, 2).unwrap();
        assert_eq!(world.recording.posted().iter().map(|request| request.wr_id).collect::<Vec<_>>(), [2]);
    }
}

#[test]
fn dropped_receive_is_not_posted() {
    let world = World::new();
    for mut qp in world.queue_pairs() {
        let mut guard = qp.start_post_recv();
        drop(guard.construct_wr(1));
        // SAFETY: the recording device touches no memory.
        unsafe { guard.construct_wr(2).setup_sge(9, 100, 10) };
        drop(guard.construct_wr(3));
        guard.post().unwrap();
        let posted = world.recording.posted();
        assert_eq!(posted.len(), 1);
        assert_eq!((posted[0].wr_id, &posted[0].entries[..]), (2, &[(9, 100, 10)][..]));
    }
}

#[test]
fn queue_pair_is_not_reset_under_a_batch() {
    let mut reset = QueuePairAttribute::new();
    reset.setup_state(QueuePairState::Reset);
    let world = World::new();
    for mut qp in world.queue_pairs() {
        connect(&qp).unwrap();
        let (send, recv) = qp.queues();
        let mut batch = send.start_post_send();
        batch.construct_wr(1, WorkRequestFlags::Signaled).setup_send().setup_no_data();
        world.recording.calls();
        let error = recv.modify(&reset).unwrap_err().to_string();
        let start =
            "ibv_modify_qp(ReadyToSend -> Reset): EINVAL (Invalid argument): another thread may be building a batch";
        assert!(error.starts_with(start), "{error}");
        assert_eq!(world.recording.verbs(), [""; 0]);
        batch.post().unwrap();
        // The owner cannot start a batch of receives either.
        send.modify(&reset).unwrap_err();
        recv.modify(QueuePairAttribute::new().setup_state(QueuePairState::Error)).unwrap();
        qp.modify(&reset).unwrap();
        assert_eq!(qp.state(), QueuePairState::Reset);
    }
    // The owner of only one of its queues cannot reset it either.
    let [mut one, mut other] = world.queue_pairs();
    std::mem::swap(one.queues().1, other.queues().1);
    let mut batch = other.start_post_recv();
    batch.construct_wr(2).setup_no_data();
    one.modify(&reset).unwrap_err();
    batch.post().unwrap();
}
