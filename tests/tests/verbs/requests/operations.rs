//! The operations of a connected queue pair beyond sends, writes, reads and atomics.

use std::cell::RefCell;

use rdma_mummy_sys::ibv_wr_opcode as opcode;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindow, MemoryWindowType};
use sideway::ibverbs::queue_pair::{Connected, PostSendGuard, QueuePair, SendOperationFlags};
use sideway::ibverbs::work_request::{FlushLevel, FlushPlacement, PostErrorKind, PostSendError, WorkRequestFlags};
use sideway_tests::recording::{Bind, Posted, World};

use crate::batch;
use crate::requests::support::{Batch, SIGNALED, all_operations, on_each_kind, sized};

batch!(Send of Connected {}, |_this, guard| {
    guard.construct_wr(99, SIGNALED).setup_send().setup_inline_data(b"good")
});

batch!(Each of Connected {}, |_this, guard| {
    guard.construct_wr(1, SIGNALED).setup_send_inv(0x11).setup_inline_data(b"bye");
    guard.construct_wr(2, SIGNALED | WorkRequestFlags::Fence).setup_local_inv(0x22);
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
fn each_operation_arrives_unchanged() {
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
                rkey: 0x44,
                remote_addr: 0x4400,
                atomic: Some(*b"8 bytes!"),
                length: 8,
                ..request(4, opcode::IBV_WR_ATOMIC_WRITE)
            },
            request(5, opcode::IBV_WR_SEND),
        ];
        if outcome.kind == "basic" {
            // The basic verbs pass the value as inline data.
            expected[2].inline = expected[2].atomic.take().map(|bytes| bytes.to_vec());
        }
        assert_eq!(outcome.posted, expected, "{}", outcome.kind);
    }
}

batch!(FarFlush of Connected {}, |_this, guard| {
    guard.construct_wr(7, SIGNALED).setup_flush(1, 2, 3, FlushPlacement::Global, FlushLevel::from_raw(257))
});

#[test]
fn oversized_flush_level_is_not_truncated() {
    let world = World::new();
    let mut builder = sized(&world, world.pd.create_qp_builder());
    builder.setup_send_ops_flags(all_operations());
    let [_basic, extended, generic] = on_each_kind(&world, &builder, &FarFlush {}, &Send {});
    for outcome in [extended, generic] {
        outcome.result.unwrap();
        assert_eq!(outcome.posted[0].flush, Some((3, 1, 255)), "{}", outcome.kind);
    }
}

#[test]
fn flush_has_its_range_and_level() {
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
        "ibv_post_send: EOPNOTSUPP (Operation not supported): the basic verbs do not support Flush; use an extended queue pair \
         (build_ex); request 1 (wr_id 7); nothing of the batch was posted"
    );
    assert_eq!((basic.posted, basic.verbs), (vec![], vec![]));
}

struct Windows<'a> {
    window: &'a RefCell<MemoryWindow>,
    region: &'a MemoryRegion,
    addr: u64,
}

// The macro is not used here, because the batch borrows the window until it is posted.
impl Batch<Connected> for Windows<'_> {
    fn post<Q: QueuePair<Service = Connected>>(&self, qp: &mut Q) -> Result<(), PostSendError> {
        let mut window = self.window.borrow_mut();
        let bind = BindInformation::new(self.region, self.addr + 8, 16, AccessFlags::RemoteRead);
        let mut guard = qp.start_post_send();
        guard.construct_wr(7, SIGNALED).setup_bind_mw(&mut window, 0x77, bind);
        guard.construct_wr(8, SIGNALED).setup_local_inv(0x77);
        guard.post()
    }
}

// Leaves immediate data in the slot of a basic queue pair's first request.
batch!(Immediate of Connected {}, |_this, guard| {
    guard.construct_wr(1, SIGNALED).setup_send_imm(0x0102_0304).setup_inline_data(b"x")
});

/// Two batches in one.
struct Both<'a, A, B>(&'a A, &'a B);

impl<A: Batch<Connected>, B: Batch<Connected>> Batch<Connected> for Both<'_, A, B> {
    fn post<Q: QueuePair<Service = Connected>>(&self, qp: &mut Q) -> Result<(), PostSendError> {
        self.0.post(qp)?;
        self.1.post(qp)
    }
}

#[test]
fn bind_has_its_window_region_and_range_only() {
    let world = World::new();
    let access = AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind;
    let region = world.pd.reg_owned_mr(64, access).unwrap();
    let window = RefCell::new(world.pd.alloc_mw(MemoryWindowType::Type2).unwrap());
    let mut builder = sized(&world, world.pd.create_qp_builder());
    builder.setup_send_ops_flags(all_operations() | SendOperationFlags::BindMemoryWindow);
    let bind = Windows { window: &window, region: region.region(), addr: region.addr() };
    let outcomes = on_each_kind(&world, &builder, &Both(&Immediate {}, &bind), &Send {});
    let addr = region.addr();
    drop((window, region));
    let calls = world.recording.calls();
    let object = |verb| calls.iter().find(|call| call.verb == verb).unwrap().argument("object");
    let expected = Posted {
        wr_id: 7,
        opcode: Some(opcode::IBV_WR_BIND_MW.0),
        flags: SIGNALED.bits(),
        bind: Some(Bind {
            mw: object("dealloc_mw"),
            rkey: 0x77,
            mr: object("dereg_mr"),
            addr: addr + 8,
            length: 16,
            access: AccessFlags::RemoteRead.bits(),
        }),
        ..Posted::default()
    };
    for outcome in outcomes {
        outcome.result.unwrap();
        assert_eq!(outcome.posted[0].imm_data, Some(0x0102_0304));
        assert_eq!(outcome.posted[1], expected, "{}", outcome.kind);
        assert_eq!((outcome.posted[2].invalidate_rkey, outcome.posted[2].bind), (Some(0x77), None));
    }
}

#[test]
fn windows_of_another_device_and_bindings_that_cannot_be_are_refused() {
    let (world, other) = (World::new(), World::new());
    let access = AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind;
    let (region, foreign_region) =
        (world.pd.reg_owned_mr(64, access).unwrap(), other.pd.reg_owned_mr(64, access).unwrap());
    let allocate = |world: &World, window_type| RefCell::new(world.pd.alloc_mw(window_type).unwrap());
    // Drivers need not check these objects (mlx5 does not).
    let plain = world.pd.reg_owned_mr(64, AccessFlags::LocalWrite | AccessFlags::RemoteRead).unwrap();
    let short = world.pd.reg_owned_mr(23, access).unwrap();
    let (window, foreign) = (allocate(&world, MemoryWindowType::Type2), allocate(&other, MemoryWindowType::Type2));
    let first_type = allocate(&world, MemoryWindowType::Type1);
    let mut builder = sized(&world, world.pd.create_qp_builder());
    builder.setup_send_ops_flags(all_operations() | SendOperationFlags::BindMemoryWindow);
    for (window, region, words) in [
        (&foreign, &foreign_region, "another device context than the queue pair"),
        (&window, &foreign_region, "another protection domain than the window"),
        (&first_type, &region, "the window is of type 1; bind it with MemoryWindow::bind_mw"),
        (&window, &plain, "registered without MemoryWindowBind; add it"),
        (&window, &short, "the range exceeds the region"),
    ] {
        for outcome in
            on_each_kind(&world, &builder, &Windows { window, region: region.region(), addr: region.addr() }, &Send {})
        {
            let error = outcome.result.unwrap_err();
            assert_eq!((error.kind(), error.posted()), (PostErrorKind::InvalidWorkRequest, Some(0)));
            assert!(error.to_string().contains(words) && error.to_string().contains("wr_id 7"), "{error}");
            assert_eq!(outcome.posted, []);
            assert!(!outcome.verbs.contains(&"wr_bind_mw") && !outcome.verbs.contains(&"post_send"));
        }
    }
}

#[test]
fn operation_is_complete_without_data() {
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
