//! The operations of a connected queue pair beyond sends, writes, reads and atomics.

use rdma_mummy_sys::ibv_wr_opcode as opcode;
use sideway::ibverbs::queue_pair::{
    Connected, PostSendGuard, QueuePair, QueuePairType, SendOperationFlags, SetInlineData, SetScatterGatherEntry,
};
use sideway::ibverbs::work_request::{FlushLevel, FlushPlacement, PostErrorKind, WorkRequestFlags};
use sideway_tests::recording::{Posted, World};

use crate::batch;
use crate::support::{SIGNALED, all_operations, on_each_kind, sized};

const HEADER: &[u8] = b"ethernet, ip, tcp";

batch!(Send of Connected {}, |_this, guard| {
    guard.construct_wr(99, SIGNALED).setup_send().setup_inline_data(b"good")
});

batch!(Each of Connected {}, |_this, guard| {
    guard.construct_wr(1, SIGNALED).setup_send_inv(0x11).setup_inline_data(b"bye");
    guard.construct_wr(2, SIGNALED | WorkRequestFlags::Fence).setup_local_inv(0x22);
    // SAFETY: the recording device touches no memory.
    unsafe { guard.construct_wr(3, SIGNALED).setup_send_tso(HEADER, 1400).setup_sge(7, 70, 3000) };
    guard.construct_wr(4, SIGNALED).setup_atomic_write(0x44, 0x4400, *b"8 bytes!");
    guard.construct_wr(5, SIGNALED).setup_send().setup_no_data();
});

batch!(Flush of Connected {}, |_this, guard| {
    guard.construct_wr(6, SIGNALED).setup_send().setup_inline_data(b"before");
    guard.construct_wr(7, SIGNALED).setup_flush(
        0x77,
        0x7700,
        1 << 33,
        FlushPlacement::Global | FlushPlacement::Persistent,
        FlushLevel::MemoryRegion,
    );
});

#[test]
fn each_operation_arrives_as_it_was_given() {
    let world = World::new();
    let mut builder = sized(&world, world.pd.create_qp_builder());
    builder.setup_send_ops_flags(all_operations());
    for outcome in on_each_kind(&world, &builder, &Each {}, &Send {}) {
        outcome.result.unwrap();
        let request =
            |wr_id, code: opcode| Posted { wr_id, opcode: Some(code.0), flags: SIGNALED.bits(), ..Posted::default() };
        let mut expected = [
            Posted {
                invalidate_rkey: Some(0x11),
                inline: Some(b"bye".to_vec()),
                length: 3,
                ..request(1, opcode::IBV_WR_SEND_WITH_INV)
            },
            Posted {
                flags: (SIGNALED | WorkRequestFlags::Fence).bits(),
                invalidate_rkey: Some(0x22),
                ..request(2, opcode::IBV_WR_LOCAL_INV)
            },
            Posted {
                segments: Some((HEADER.to_vec(), 1400)),
                entries: vec![(7, 70, 3000)],
                length: 3000,
                ..request(3, opcode::IBV_WR_TSO)
            },
            Posted {
                rkey: 0x44,
                remote_addr: 0x4400,
                atomic: Some(*b"8 bytes!"),
                length: 8,
                ..request(4, opcode::IBV_WR_ATOMIC_WRITE)
            },
            request(5, opcode::IBV_WR_SEND),
        ];
        if outcome.kind == "basic" {
            // The basic verbs have it as inline data.
            expected[3].inline = expected[3].atomic.take().map(|bytes| bytes.to_vec());
        }
        assert_eq!(outcome.posted, expected, "{}", outcome.kind);
    }
}

#[test]
fn a_flush_says_its_range_and_how_far() {
    let world = World::new();
    let mut builder = sized(&world, world.pd.create_qp_builder());
    builder.setup_send_ops_flags(all_operations());
    let [basic, extended, generic] = on_each_kind(&world, &builder, &Flush {}, &Send {});
    for outcome in [extended, generic] {
        outcome.result.unwrap();
        let expected = Posted {
            wr_id: 7,
            opcode: Some(14),
            flags: SIGNALED.bits(),
            rkey: 0x77,
            remote_addr: 0x7700,
            flush: Some((1 << 33, 3, 1)),
            ..Posted::default()
        };
        assert_eq!(outcome.posted.len(), 2);
        assert_eq!(outcome.posted[1], expected, "{}", outcome.kind);
    }
    let error = basic.result.unwrap_err();
    assert_eq!(error.kind(), PostErrorKind::OperationNotEnabled(SendOperationFlags::Flush));
    assert_eq!(
        error.to_string(),
        "ibv_post_send: EOPNOTSUPP (Operation not supported): the basic verbs have no Flush: use an extended queue pair \
         (build_ex); request 1 (wr_id 7); nothing of the batch was posted"
    );
    assert_eq!((basic.posted, basic.verbs), (vec![], vec![]));
}

#[test]
fn an_operation_is_complete_without_data() {
    let world = World::new();
    let mut builder = sized(&world, world.pd.create_qp_builder());
    let mut qp = builder.setup_send_ops_flags(all_operations()).build_ex().unwrap();
    world.recording.calls();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_local_inv(1);
    guard.construct_wr(2, SIGNALED).setup_atomic_write(1, 2, [0; 8]);
    guard.construct_wr(3, SIGNALED).setup_flush(1, 2, 3, FlushPlacement::Global, FlushLevel::Range);
    guard.post().unwrap();
    assert_eq!(world.recording.verbs(), ["wr_start", "wr_local_inv", "wr_atomic_write", "wr_flush", "wr_complete"]);
}

#[test]
fn a_raw_packet_without_data_leads_its_driver_to_no_memory_of_the_past() {
    let world = World::new();
    let mut builder = sized(&world, world.pd.create_qp_builder());
    builder.setup_qp_type(QueuePairType::RawPacket).setup_max_inline_data(0);
    let mut qp = builder.build().unwrap();
    for _ in 0..2 {
        // The recording device reads what the first entry names, as the driver of mlx4 does.
        let mut guard = qp.start_post_send();
        guard.construct_wr(1, SIGNALED).setup_send().setup_no_data();
        guard.construct_wr(2, SIGNALED).setup_local_inv(1);
        guard.construct_wr(3, SIGNALED).setup_send().setup_inline_data(&[]);
        // SAFETY: an empty list names no memory.
        unsafe { guard.construct_wr(4, SIGNALED).setup_send().setup_sge_list(&[]) };
        guard.post().unwrap();
        assert!(world.recording.posted().iter().all(|request| request.length == 0));
        let mut guard = qp.start_post_send();
        for wr_id in 0..4 {
            // SAFETY: the recording device touches no memory of packets that have a length.
            unsafe { guard.construct_wr(wr_id, SIGNALED).setup_send().setup_sge(1, 16, 64) };
        }
        guard.post().unwrap();
        world.recording.posted();
    }
}
