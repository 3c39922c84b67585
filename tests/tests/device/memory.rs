//! Memory on a device: I/O addresses, pages, windows, and the error for each unsupported feature.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test, which reports what the device has")]

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{WorkCompletionOperationType as Operation, WorkCompletionStatus as Status};
use sideway::ibverbs::dma_handle::DmaHandleAttributes;
use sideway::ibverbs::fork::{ForkStatus, is_fork_initialized};
use sideway::ibverbs::memory_region::{AdviseFlags, HugePageSize, HugePages, MemoryAdvice, RemoteKey, SurvivingRegion};
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindowType};
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::device;
use sideway_tests::loopback::{Give, Kind, Loopback, MEMORY, QueueKind};

const PEER: AccessFlags = AccessFlags::LocalWrite.union(AccessFlags::RemoteWrite).union(AccessFlags::RemoteRead);
const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

/// Writes the first `len` bytes of the near memory to the far side, and returns the status.
fn write<Q: Kind>(pair: &mut Loopback<Q>, len: usize, rkey: RemoteKey, addr: u64) -> Status {
    let range = pair.near.range(0, len);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(1, SIGNALED).setup_write(rkey, addr).give(range);
    batch.post().unwrap();
    pair.near.completion().status
}

#[test]
fn requests_name_memory_by_its_io_address() {
    const IOVA: u64 = 0x7_0000_0000;
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let at = pair.far.memory.as_ptr().expose_provenance();
    // SAFETY: the memory is dropped after the region, which is local to this function, and has no reference to it.
    let moved = unsafe { pair.pd.reg_mr_iova(at, MEMORY, IOVA, PEER) }.unwrap();
    assert_eq!((moved.iova(), moved.get_ptr(), moved.region_len()), (Some(IOVA), at, MEMORY));
    assert_ne!(moved.rkey(), pair.far.memory.rkey());

    // The peer names the bytes only by the I/O address.
    pair.near.memory.write(0, b"by another name");
    assert_eq!(write(&mut pair, 15, moved.rkey(), IOVA + 5000), Status::Success);
    assert_eq!(pair.far.bytes(4999, 17), b"\0by another name\0");

    // Entries of this side also use the I/O address.
    let mut batch = pair.far.qp.start_post_send();
    let request = batch.construct_wr(2, SIGNALED).setup_write(pair.near.memory.rkey(), pair.near.memory.addr() + 100);
    // SAFETY: the region is registered until the end of this function; its bytes are not written until the completion.
    unsafe { request.setup_sge(moved.lkey(), IOVA + 5000, 15) };
    batch.post().unwrap();
    assert_eq!(pair.far.success().wr_id, 2);
    assert_eq!(pair.near.bytes(99, 17), b"\0by another name\0");

    assert_eq!(write(&mut pair, 15, moved.rkey(), at as u64), Status::RemoteAccessError);
    Arc::into_inner(moved).unwrap().close().unwrap();
}

#[test]
fn owned_memory_of_every_kind_of_page_is_written_by_the_peer() {
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let text: Vec<u8> = (0..50_000_u32).map(|at| (at % 251) as u8).collect();
    pair.near.memory.write(0, &text);

    let mut builder = pair.pd.create_mr_builder();
    builder.setup_length((3 << 20) + 1).setup_access(PEER);
    let reserved = HugePages::Reserved(HugePageSize::MIB_2);
    for huge_pages in [HugePages::System, HugePages::Transparent, reserved] {
        println!("{huge_pages:?}");
        let region = match builder.setup_huge_pages(huge_pages).build() {
            // This machine has too few huge pages, or another process uses them. The soft-RoCE guest has enough.
            Err(error) if huge_pages == reserved => {
                println!("{error}");
                assert_eq!(error.verb(), "mmap");
                assert!(error.to_string().contains("huge pages of 2 MiB"), "{error}");
                continue;
            }
            region => region.unwrap(),
        };
        let last = region.len() - text.len();
        assert_eq!(write(&mut pair, text.len(), region.rkey(), region.addr() + last as u64), Status::Success);
        let mut bytes = vec![0; text.len() + 1];
        region.read_at(last - 1, &mut bytes).unwrap();
        assert_eq!((bytes[0], &bytes[1..]), (0, &text[..]));
        assert!(region.as_slice().is_err(), "a peer may write it");
        if huge_pages != HugePages::System {
            assert_eq!(region.addr() % (2 << 20), 0);
        }
        region.close().unwrap();
    }
}

#[test]
fn windows_of_both_types_are_allocated_and_freed() {
    if !device::has_windows() {
        return;
    }
    let pd = device::open().alloc_pd().unwrap();
    for window_type in [MemoryWindowType::Type1, MemoryWindowType::Type2] {
        let (window, other) = (pd.alloc_mw(window_type).unwrap(), pd.alloc_mw(window_type).unwrap());
        assert_eq!(window.window_type(), window_type);
        assert_ne!(window.rkey(), other.rkey());
        window.close().unwrap();
        other.close().unwrap();
    }
    let error = pd.alloc_mw(MemoryWindowType::from_raw(77)).unwrap_err();
    assert_eq!(error.verb(), "ibv_alloc_mw");
    Arc::into_inner(pd).unwrap().close().unwrap();
}

#[test]
fn bound_window_exposes_its_range_and_holds_the_region() {
    if !device::has_windows() {
        return;
    }
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    pair.near.memory.write(0, b"through the window");
    // Peers cannot reach the region itself.
    let bindable = AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind;
    let region = pair.pd.reg_owned_mr(8192, bindable).unwrap();
    let mut window = pair.pd.alloc_mw(MemoryWindowType::Type1).unwrap();
    let part = BindInformation::new(region.region(), region.addr() + 1000, 100, AccessFlags::RemoteWrite);
    let old = window.rkey();
    let rkey = window.bind_mw(pair.far.qp.queues().0, 5, SIGNALED, &part).unwrap();
    let bound = pair.far.success();
    assert_eq!((bound.wr_id, bound.opcode), (5, Some(Operation::BindMemoryWindow)));
    assert_ne!(rkey, old);

    assert_eq!(write(&mut pair, 18, rkey, region.addr() + 1082), Status::Success);
    let mut bytes = [1; 20];
    region.read_at(1081, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0through the window\0");

    // The region cannot be deregistered while the window is bound, so its memory stays.
    let (held, at) = (region.region().clone(), region.as_ptr());
    drop(region);
    let error = Arc::into_inner(held).unwrap().close().unwrap_err();
    println!("{error}");
    assert!(matches!(error.errno().raw(), libc::EBUSY | libc::EINVAL), "{error}");
    // SAFETY: the pages were leaked, and are mapped.
    assert_eq!(unsafe { at.add(1082).read_volatile() }, b't');
    assert_eq!(write(&mut pair, 1, rkey, at as u64 + 1099), Status::Success);
    // SAFETY: as above.
    assert_eq!(unsafe { at.add(1099).read_volatile() }, b't');

    // An access beyond the region fails and breaks the connection. Soft-RoCE of Linux 6.1 allows access to the region
    // beyond the window, which real devices do not.
    assert_eq!(write(&mut pair, 18, rkey, at as u64 + 8192 - 17), Status::RemoteAccessError);
    window.close().unwrap();
}

#[test]
fn dropped_window_releases_its_region() {
    if !device::has_windows() {
        return;
    }
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let region = pair.pd.reg_owned_mr(4096, AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind).unwrap();
    let mut window = pair.pd.alloc_mw(MemoryWindowType::Type1).unwrap();
    let all = BindInformation::new(region.region(), region.addr(), 4096, AccessFlags::RemoteRead);
    window.bind_mw(pair.far.qp.queues().0, 1, SIGNALED, &all).unwrap();
    pair.far.success();
    window.close().unwrap();
    region.close().unwrap();

    // A region without window access is refused, at the latest by the completion.
    let closed = pair.pd.reg_owned_mr(4096, AccessFlags::LocalWrite).unwrap();
    let mut window = pair.pd.alloc_mw(MemoryWindowType::Type1).unwrap();
    let all = BindInformation::new(closed.region(), closed.addr(), 4096, AccessFlags::RemoteRead);
    match window.bind_mw(pair.far.qp.queues().0, 2, SIGNALED, &all) {
        Ok(_) => assert_eq!(pair.far.completion().status, Status::MemoryWindowBindError),
        Err(error) => assert!(error.to_string().contains("MemoryWindowBind"), "{error}"),
    }
}

/// Asserts that the device supports an operation, or that the error states that it does not.
#[track_caller]
fn there_or_not<T>(verb: &str, result: Result<T, sideway::error::VerbError>) -> Option<T> {
    match result {
        Ok(there) => {
            println!("{verb}: there");
            Some(there)
        }
        Err(error) => {
            println!("{error}");
            assert_eq!(error.verb(), verb);
            let known =
                [libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL, libc::EPROTONOSUPPORT, libc::ENODEV, libc::EPERM];
            assert!(known.contains(&error.errno().raw()), "{error}");
            None
        }
    }
}

#[test]
fn unsupported_operation_is_an_error_and_no_crash() {
    let context = device::open();
    let pd = context.alloc_pd().unwrap();
    let has_null = there_or_not("ibv_alloc_null_mr", pd.alloc_null_mr()).is_some();
    let dm = there_or_not("ibv_alloc_dm", context.alloc_dm(64, 3));
    let has_memory = dm.is_some();
    if let Some(dm) = dm {
        dm.memcpy_to_dm(0, &[5; 64]).unwrap();
        let mut bytes = [0; 64];
        dm.memcpy_from_dm(0, &mut bytes).unwrap();
        assert_eq!(bytes, [5; 64]);
        pd.reg_dm_mr(&dm, 0, 64, AccessFlags::LocalWrite).unwrap();
    }
    there_or_not("ibv_alloc_dmah", context.alloc_dmah(&DmaHandleAttributes::default()));
    there_or_not("ibv_alloc_buf", pd.alloc_buf(4096));
    let imports = there_or_not("ibv_import_pd", context.import_pd(pd.handle())).is_some();
    there_or_not("ibv_reg_mr", pd.reg_owned_mr(4096, AccessFlags::LocalWrite | AccessFlags::OnDemand));
    // SAFETY: only requests of this side could use the region, and none are posted.
    there_or_not("ibv_reg_mr", unsafe { pd.reg_implicit_odp_mr(AccessFlags::LocalWrite) });
    let region = pd.reg_owned_mr(4096, AccessFlags::LocalWrite).unwrap();
    let range = [region.sge(..).unwrap()];
    let takes_advice =
        there_or_not("ibv_advise_mr", pd.advise_mr(MemoryAdvice::Prefetch, AdviseFlags::Flush, &range)).is_some();
    let fd = context.cmd_fd().unwrap();
    there_or_not("ibv_import_device", sideway::ibverbs::device_context::DeviceContext::import_device(fd));

    let memory = pd.reg_owned_mr(8192, AccessFlags::LocalWrite).unwrap();
    let at = memory.as_ptr().expose_provenance();
    // SAFETY: the memory is dropped after the region, and has no reference to it.
    let mut mr = unsafe { pd.reg_mr(at, 4096, AccessFlags::LocalWrite) }.unwrap();
    // SAFETY: as above, and no request is outstanding.
    let reregistered = unsafe { Arc::get_mut(&mut mr).unwrap().rereg_mr(None, None, Some(AccessFlags::empty())) };
    if device::is_soft_nic(&context) {
        // The capabilities that the device reports.
        assert_eq!([has_null, has_memory, imports, takes_advice, reregistered.is_ok()], [true; 5]);
    }
    match reregistered {
        Ok(()) => println!("ibv_rereg_mr: there"),
        Err(error) => {
            println!("{error}");
            assert_eq!((error.region(), error.verb_error().errno().raw()), (SurvivingRegion::Old, libc::EOPNOTSUPP));
        }
    }
    Arc::into_inner(mr).unwrap().close().unwrap();
    memory.close().unwrap();
    region.close().unwrap();
    assert!(ForkStatus::KNOWN.contains(&is_fork_initialized()));
    Arc::into_inner(pd).unwrap().close().unwrap();
}
