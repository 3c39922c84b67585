//! Posting and polling allocate nothing, and objects free all of their memory when they are destroyed. A counting
//! allocator needs a program of its own.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::IoSlice;

use sideway::ibverbs::address::{AddressHandle, AddressHandleAttribute};
use sideway::ibverbs::completion::{GenericCompletionQueue, PollCompletionQueueError};
use sideway::ibverbs::queue_pair::{
    BasicService, Datagram, GenericQueuePair, GenericSendQueue, PostSendGuard, QueuePair, QueuePairBuilder, RawPacket,
    SendOperationFlags, Xrc,
};
use sideway::ibverbs::work_request::{FlushLevel, FlushPlacement, ScatterGatherEntry, WorkRequestFlags};
use sideway_tests::recording::{Failure, World, connect};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(pieces: i64) {
    // The counter of an exiting thread may already be destroyed.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
    let _ = HELD.try_with(|held| held.set(held.get() + pieces));
}

// SAFETY: the system's allocator does all the work; the counter needs no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-1);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(0);
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of allocations and deallocations.
fn allocations(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

#[test]
fn counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1_u8; 8]))), 2);
    assert_eq!(allocations(|| ()), 0);
}

fn round(qp: &mut GenericQueuePair, send_cq: &mut GenericCompletionQueue, recv_cq: &mut GenericCompletionQueue) {
    let signaled = WorkRequestFlags::Signaled;
    let list = [ScatterGatherEntry::new(1.into(), 2, 3), ScatterGatherEntry::new(4.into(), 5, 6)];
    let mut guard = qp.start_post_recv();
    // SAFETY: the recording device touches no memory.
    unsafe {
        guard.construct_wr(1).setup_sge(1, 2, 3);
        guard.construct_wr(2).setup_sge_list(&list);
    }
    guard.construct_wr(3).setup_no_data();
    guard.post().unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, signaled).setup_send().setup_inline_data(b"inline");
    guard
        .construct_wr(2, signaled)
        .setup_send_imm(3)
        .setup_inline_data_list(&[IoSlice::new(b"in"), IoSlice::new(b"line")]);
    // SAFETY: as above.
    unsafe {
        guard.construct_wr(3, signaled).setup_write_imm(1, 2, 3).setup_sge_list(&list);
        guard.construct_wr(4, signaled).setup_atomic_fetch_add(1, 2, 3).setup_sge(1, 2, 8);
    }
    guard.post().unwrap();
    // An aborted batch, and an empty one.
    qp.start_post_send().construct_wr(5, signaled).setup_read(1, 2).setup_no_data();
    qp.start_post_send().post().unwrap();
    for (cq, expected) in [(send_cq, 4), (recv_cq, 3)] {
        let mut seen = 0;
        let mut poller = cq.start_poll().unwrap();
        while let Some(completion) = poller.next().unwrap() {
            seen += 1;
            assert_eq!(completion.wr_id(), seen);
            std::hint::black_box((completion.status(), completion.opcode(), completion.byte_len()));
        }
        drop(poller);
        assert_eq!(seen, expected);
        // An empty poll is the most frequent result.
        assert!(matches!(cq.start_poll(), Err(PollCompletionQueueError::CompletionQueueEmpty)));
    }
}

/// Posts every request besides sends, writes, reads and atomics; on extended queue pairs, also a flush.
fn further(qp: &mut GenericQueuePair) {
    let signaled = WorkRequestFlags::Signaled;
    let is_extended = matches!(qp.queues().0, GenericSendQueue::Extended(_));
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, signaled).setup_send_inv(1).setup_inline_data(b"inline");
    guard.construct_wr(2, signaled).setup_local_inv(1);
    guard.construct_wr(4, signaled).setup_atomic_write(1, 2, [3; 8]);
    if is_extended {
        guard.construct_wr(5, signaled).setup_flush(1, 2, 3, FlushPlacement::Global, FlushLevel::Range);
    }
    guard.post().unwrap();
}

fn packets(qp: &mut GenericQueuePair<RawPacket>) {
    let signaled = WorkRequestFlags::Signaled;
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, signaled).setup_send().setup_inline_data(b"inline");
    guard.construct_wr(2, signaled).setup_send_tso(b"ethernet header", 2).setup_no_data();
    guard.post().unwrap();
}

fn datagrams(qp: &mut GenericQueuePair<Datagram>, ah: &AddressHandle) {
    let signaled = WorkRequestFlags::Signaled;
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, signaled).setup_send().setup_ud_addr(ah, 1, 2).setup_inline_data(b"inline");
    // SAFETY: the recording device accesses no memory, and the handle belongs to its queue pair's device.
    unsafe {
        guard.construct_wr(2, signaled).setup_send_imm(3).setup_ud_addr(ah, 1, 2).setup_sge(1, 2, 3);
        guard.construct_wr(3, signaled).setup_send().setup_ud_addr_unchecked(ah, 1, 2).setup_no_data();
    }
    guard.post().unwrap();
    // An aborted batch.
    qp.start_post_send().construct_wr(4, signaled).setup_send().setup_ud_addr(ah, 1, 2).setup_no_data();
}

fn to_shared_queues(qp: &mut GenericQueuePair<Xrc>) {
    let signaled = WorkRequestFlags::Signaled;
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, signaled).setup_send().setup_xrc_srqn(1).setup_inline_data(b"inline");
    // SAFETY: the recording device touches no memory.
    unsafe { guard.construct_wr(2, signaled).setup_write_imm(1, 2, 3).setup_xrc_srqn(1).setup_sge(1, 2, 3) };
    guard.construct_wr(3, signaled).setup_local_inv(1);
    guard.post().unwrap();
}

fn drain(cq: &mut GenericCompletionQueue) {
    while let Ok(mut poller) = cq.start_poll() {
        while poller.next().unwrap().is_some() {}
    }
}

/// A queue pair of each kind, with the operations that the requests above need.
fn of_each_kind<T: BasicService>(
    world: &World,
    mut builder: QueuePairBuilder<T>,
    operations: SendOperationFlags,
) -> [GenericQueuePair<T>; 2] {
    builder.setup_send_cq(&world.send_cq).setup_recv_cq(&world.recv_cq);
    builder.setup_max_inline_data(16).setup_send_ops_flags(operations);
    [builder.build().unwrap().into(), builder.build_ex().unwrap().into()]
}

#[test]
fn no_request_of_any_service_allocates() {
    let world = World::new();
    let mut way = AddressHandleAttribute::new();
    let ah = world.pd.create_ah(way.setup_port(1)).unwrap();
    let all = SendOperationFlags::from_bits_retain(0x1fff);
    let connected = of_each_kind(&world, world.pd.create_qp_builder(), all);
    let unconnected = of_each_kind(&world, world.pd.create_ud_qp_builder(), all);
    let mut packets_builder = world.pd.create_raw_packet_qp_builder();
    packets_builder.setup_max_tso_header(64);
    let packets_pairs = of_each_kind(&world, packets_builder, all);
    let initiators = of_each_kind(&world, world.pd.create_xrc_send_qp_builder(), all);
    let World { mut send_cq, recording, .. } = world;
    recording.quiet();
    let others = unconnected.into_iter().zip(initiators).zip(packets_pairs);
    for (mut one, ((mut two, mut three), mut four)) in connected.into_iter().zip(others) {
        let mut round = || {
            further(&mut one);
            datagrams(&mut two, &ah);
            to_shared_queues(&mut three);
            packets(&mut four);
            drain(&mut send_cq);
        };
        // The recording device allocates memory of its own in the first rounds.
        (0..10).for_each(|_| round());
        assert_eq!(allocations(|| (0..1000).for_each(|_| round())), 0);
    }
}

#[test]
fn destroyed_objects_free_their_memory() {
    let world = World::new();
    let channel = world.context.create_comp_channel().unwrap();
    world.recording.quiet();
    let mut builder_of_queues = world.context.create_cq_builder();
    builder_of_queues.setup_comp_channel(&channel, 0);
    let once = || {
        let cq = builder_of_queues.build().unwrap();
        drop((cq, builder_of_queues.build_ex().unwrap(), builder_of_queues.build_generic().unwrap()));
        let builder = world.qp_builder();
        drop((builder.build().unwrap(), builder.build_ex().unwrap(), builder.build_generic().unwrap()));
        drop(of_each_kind(&world, world.pd.create_ud_qp_builder(), SendOperationFlags::Send));
        drop(of_each_kind(&world, world.pd.create_xrc_send_qp_builder(), SendOperationFlags::Send));
        drop(world.pd.create_ah(&AddressHandleAttribute::new()).unwrap());
        // A failed creation leaks nothing either.
        let no = Failure::documented(libc::ENOMEM);
        world.recording.fail("create_cq", 0, no).fail("create_cq_ex", 0, no);
        world.recording.fail("create_qp", 0, no).fail("create_qp_ex", 0, no);
        drop((builder_of_queues.build().unwrap_err(), builder_of_queues.build_ex().unwrap_err()));
        drop((builder.build().unwrap_err(), builder.build_ex().unwrap_err()));
        // Refused requests, with their guards.
        let mut qp = world.qp_builder().setup_send_ops_flags(SendOperationFlags::Send).build_ex().unwrap();
        let mut guard = qp.start_post_send();
        guard.construct_wr(1, WorkRequestFlags::empty()).setup_read(1, 2).setup_no_data();
        drop(guard.post().unwrap_err());
        let mut guard = qp.start_post_send();
        guard.construct_wr(1, WorkRequestFlags::empty()).setup_flush(
            1,
            2,
            3,
            FlushPlacement::Global,
            FlushLevel::Range,
        );
        drop(guard);
    };
    (0..10).for_each(|_| once());
    let before = HELD.get();
    (0..100).for_each(|_| once());
    assert_eq!(HELD.get() - before, 0);
}

#[test]
fn posting_and_polling_do_not_allocate() {
    let world = World::new();
    let pairs = world.queue_pairs();
    let builder = world.context.create_cq_builder();
    let World { mut send_cq, mut recv_cq, recording, .. } = world;
    recording.quiet();
    for mut qp in pairs {
        connect(&qp).unwrap();
        // The recording device allocates memory of its own in the first rounds.
        (0..10).for_each(|_| round(&mut qp, &mut send_cq, &mut recv_cq));
        let taken = allocations(|| (0..1000).for_each(|_| round(&mut qp, &mut send_cq, &mut recv_cq)));
        assert_eq!(taken, 0, "{qp:?}");
    }
    // A basic queue, whose batch is allocated once.
    let mut basic = builder.build().unwrap();
    let mut poll = || {
        recording.complete(&basic, Default::default());
        assert!(basic.start_poll().unwrap().next().unwrap().is_some());
        assert!(basic.start_poll().is_err());
    };
    poll();
    assert_eq!(allocations(|| (0..1000).for_each(|_| poll())), 0);
}

#[test]
fn shared_receive_queue_allocates_nothing_and_frees_its_memory() {
    let world = World::new();
    world.recording.quiet();
    let once = || {
        let queue = world.pd.create_srq_builder().build().unwrap();
        drop((world.qp_builder().setup_srq(&queue).build().unwrap(), queue));
        world.recording.fail("create_srq", 0, Failure::documented(libc::ENOMEM));
        drop(world.pd.create_srq_builder().build().unwrap_err());
    };
    (0..10).for_each(|_| once());
    let before = HELD.get();
    (0..100).for_each(|_| once());
    assert_eq!(HELD.get() - before, 0);

    let mut queue = world.pd.create_srq_builder().setup_max_wr(4).build().unwrap();
    let mut qp = world.qp_builder().setup_srq(&queue).build().unwrap();
    let World { mut recv_cq, .. } = world;
    let mut round = || {
        let mut guard = queue.start_post_recv();
        // SAFETY: the recording device touches no memory.
        unsafe { guard.construct_wr(1).setup_sge(1, 2, 3) };
        guard.construct_wr(2).setup_no_data();
        guard.post().unwrap();
        let mut guard = qp.start_post_send();
        guard.construct_wr(3, WorkRequestFlags::empty()).setup_send().setup_inline_data(b"a");
        guard.construct_wr(4, WorkRequestFlags::empty()).setup_send().setup_inline_data(b"b");
        guard.post().unwrap();
        let mut poller = recv_cq.start_poll().unwrap();
        assert_eq!(poller.next().unwrap().unwrap().wr_id(), 1);
        assert_eq!(poller.next().unwrap().unwrap().wr_id(), 2);
        assert!(poller.next().unwrap().is_none());
    };
    (0..10).for_each(|_| round());
    assert_eq!(allocations(|| (0..1000).for_each(|_| round())), 0);
}
