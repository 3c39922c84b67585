//! Invalid calls that rdma-core's drivers do not check must not reach the driver. The recording device has the faults
//! of these drivers, and a violation fails the test.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::IoSlice;
use std::path::Path;

use sideway::error::VerbError;
use sideway::ibverbs::completion::PollCompletionQueueError;
use sideway::ibverbs::memory_region::RemoteKey;
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindowType};
use sideway::ibverbs::queue_pair::{
    Connected, GenericSendQueue, PostSendGuard, QueuePair, QueuePairBuilder, SendOperationFlags,
};
use sideway::ibverbs::work_request::{PostErrorKind, PostSendError, ScatterGatherEntry, WorkRequestFlags};
use sideway::ibverbs::{AccessFlags, memory_region::LocalKey};
use sideway_tests::recording::{Driver, Failure, Recording, World};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

fn world(driver: Driver) -> World {
    let recording = Recording::new();
    recording.behave_as(driver);
    World::on(recording)
}

/// A world whose driver is also recognized by the name of its file.
fn named_world(driver: Driver) -> Option<World> {
    let recording = Recording::new();
    // Each test has its own folder, because tests write the files in parallel.
    let test = std::thread::current().name().unwrap_or_default().replace("::", "-");
    recording.pass_for(driver, &Path::new(env!("CARGO_TARGET_TMPDIR")).join(test))?;
    Some(World::on(recording))
}

/// A builder of extended queue pairs, also for drivers that do not check for space.
fn extended(world: &World) -> QueuePairBuilder {
    let mut builder = world.qp_builder();
    // SAFETY: no test has more than 4 requests outstanding, as the recording device completes each at once.
    unsafe { builder.assume_send_room() };
    builder
}

fn hello(qp: &mut impl QueuePair<Service = Connected>) -> Result<(), PostSendError> {
    let mut guard = qp.start_post_send();
    guard.construct_wr(9, SIGNALED).setup_send().setup_inline_data(b"hello");
    guard.post()
}

/// Posts a refused batch, of a request that fits and one that does not, and then a valid one.
#[track_caller]
fn is_refused<Q: QueuePair<Service = Connected>>(
    world: &World,
    qp: &mut Q,
    words: &str,
    build: impl FnOnce(&mut Q::Guard<'_>),
) {
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_inline_data(b"fits");
    build(&mut guard);
    guard.construct_wr(3, SIGNALED).setup_send().setup_inline_data(b"fits");
    let error = guard.post().unwrap_err();
    assert_eq!((error.kind(), error.posted()), (PostErrorKind::InvalidWorkRequest, Some(0)), "{error}");
    assert_eq!(error.failed_request().unwrap().wr_id, 2);
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(world.recording.posted(), []);
    hello(qp).unwrap();
    assert_eq!(world.recording.posted().len(), 1);
}

#[test]
fn oversized_inline_data_reaches_no_driver() {
    for driver in [Driver::HNS, Driver::IONIC] {
        let Some(world) = named_world(driver) else { return };
        let mut qp = extended(&world).build_ex().unwrap();
        is_refused(&world, &mut qp, "the inline data has 17 bytes, but the queue pair was built for 16", |guard| {
            guard.construct_wr(2, SIGNALED).setup_send().setup_inline_data(&[0; 17]);
        });
        is_refused(&world, &mut qp, "the inline data has 17 bytes", |guard| {
            let pieces = [IoSlice::new(&[0; 9]), IoSlice::new(&[0; 8])];
            guard.construct_wr(2, SIGNALED).setup_write(1, 2).setup_inline_data_list(&pieces);
        });
        // The sum of these lengths is 0 in 32 bits.
        let mebibyte = vec![0; 1 << 20];
        let pieces = vec![IoSlice::new(&mebibyte); 4096];
        is_refused(&world, &mut qp, "has 4294967296 bytes", |guard| {
            guard.construct_wr(2, SIGNALED).setup_write(1, 2).setup_inline_data_list(&pieces);
        });
        let mut guard = qp.start_post_send();
        let halves = [IoSlice::new(b"eight by"), IoSlice::new(b"eight by")];
        guard.construct_wr(5, SIGNALED).setup_send().setup_inline_data(b"sixteen bytes...");
        guard.construct_wr(6, SIGNALED).setup_send().setup_inline_data_list(&halves);
        guard.post().unwrap();
        drop(qp);
        world.end();
    }
}

#[test]
fn oversized_lists_reach_no_driver() {
    let Some(world) = named_world(Driver::HNS) else { return };
    let entry = ScatterGatherEntry::new(LocalKey::from_raw(1), 2, 3);
    let mut builder = extended(&world);
    let mut qp = builder.build_ex().unwrap();
    is_refused(&world, &mut qp, "the list has 3 entries, but the queue was built for 2", |guard| {
        // SAFETY: the recording device touches no memory.
        unsafe { guard.construct_wr(2, SIGNALED).setup_send().setup_sge_list(&[entry; 3]) };
    });
    let mut qp = builder.setup_max_send_sge(0).build_ex().unwrap();
    is_refused(&world, &mut qp, "the list has 1 entries, but the queue was built for 0", |guard| {
        // SAFETY: as above.
        unsafe { guard.construct_wr(2, SIGNALED).setup_send().setup_sge(1, 2, 3) };
    });
}

#[test]
fn empty_list_has_an_address_that_can_be_read() {
    let Some(world) = named_world(Driver::HNS) else { return };
    let mut qp = extended(&world).build_ex().unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_atomic_fetch_add(1, 8, 3).setup_no_data();
    guard.post().unwrap();
    assert_eq!(world.recording.posted().len(), 1);
}

#[test]
fn atomic_write_needs_a_device_that_reports_it() {
    let post = |world: &World| {
        let mut qp = world.qp_builder().build().unwrap();
        let mut guard = qp.start_post_send();
        guard.construct_wr(7, SIGNALED).setup_atomic_write(1, 8, [3; 8]);
        let result = guard.post();
        hello(&mut qp).unwrap();
        result
    };
    let siw = world(Driver::SIW);
    siw.recording.edit(|facts| facts.device.device_cap_flags_ex = 0);
    let error = post(&siw).unwrap_err();
    let kind = PostErrorKind::OperationNotEnabled(SendOperationFlags::AtomicWrite);
    assert_eq!((error.kind(), error.posted()), (kind, Some(0)));
    assert!(error.to_string().contains("the device does not report AtomicWrite"), "{error}");
    // A device that cannot be queried now may be queried later.
    let silent = World::new();
    silent.recording.fail_always("query_device_ex", Failure::documented(libc::EIO));
    let error = post(&silent).unwrap_err();
    assert!(error.to_string().contains("ibv_query_device_ex failed"), "{error}");
    silent.recording.succeed("query_device_ex");
    post(&silent).unwrap();
    post(&World::new()).unwrap();
}

#[test]
fn bind_takes_the_window_exclusively() {
    let world = world(Driver::IRDMA);
    let region = world.pd.reg_owned_mr(64, AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind).unwrap();
    let mut window = world.pd.alloc_mw(MemoryWindowType::Type2).unwrap();
    let mut qp = world.qp_builder().build().unwrap();
    let key: RemoteKey = window.rkey().inc_rkey();
    let mut guard = qp.start_post_send();
    let part = BindInformation::new(region.region(), region.addr(), 64, AccessFlags::RemoteRead);
    guard.construct_wr(1, SIGNALED).setup_bind_mw(&mut window, key, part);
    guard.post().unwrap();
    assert_eq!(window.rkey(), key);
}

#[test]
fn unbind_needs_a_driver_that_checks_the_region() {
    let mut taken_back = Vec::new();
    for driver in Driver::ALL {
        let Some(world) = named_world(driver) else { return };
        let mut window = world.pd.alloc_mw(MemoryWindowType::Type1).unwrap();
        let mut qp = world.qp_builder().build().unwrap();
        match window.bind_mw(qp.queues().0, 1, SIGNALED, &BindInformation::unbind()) {
            Ok(_) => taken_back.push(driver.name),
            Err(error) => {
                assert_eq!(error.errno().raw(), libc::EOPNOTSUPP, "{}: {error}", driver.name);
                assert!(error.to_string().contains("drop the window"), "{error}");
            }
        }
    }
    assert_eq!(taken_back, ["mlx5"]);
}

#[test]
fn unsafe_extended_driver_gets_basic_queue_pairs() {
    let kind = |builder: &QueuePairBuilder| {
        matches!(builder.build_generic().unwrap().queues().0, GenericSendQueue::Extended(_))
    };
    for driver in Driver::ALL {
        let Some(world) = named_world(driver) else { return };
        let builder = extended(&world);
        // sideway limits the list entries of soft-RoCE's extended queue pairs; basic queue pairs need no limit.
        let is_basic = [Driver::BNXT_RE.name, Driver::RXE.name].contains(&driver.name);
        assert_eq!(kind(&builder), !is_basic, "{}", driver.name);
        match builder.build_ex() {
            Ok(_) => assert_ne!(driver.name, Driver::BNXT_RE.name),
            Err(error) => {
                assert_eq!((driver.name, error.errno().raw()), (Driver::BNXT_RE.name, libc::EOPNOTSUPP), "{error}");
                assert!(error.to_string().contains("libbnxt_re writes requests"), "{error}");
            }
        }
        hello(&mut builder.build_generic().unwrap()).unwrap();
        drop(builder);
        world.end();
    }
}

/// Resizes a queue, which fails, and then polls the queue.
fn resize_and_poll(
    world: &World,
    errno: libc::c_int,
) -> [(VerbError, PollCompletionQueueError, Result<(), VerbError>); 2] {
    world.recording.fail_always("resize_cq", Failure::documented(errno));
    let builder = world.context.create_cq_builder();
    let (mut basic, mut extended) = (builder.build().unwrap(), builder.build_ex().unwrap());
    let failed = [basic.resize(200), extended.resize(200)].map(Result::unwrap_err);
    let polled = [basic.start_poll().map(drop), extended.start_poll().map(drop)].map(Result::unwrap_err);
    world.recording.succeed("resize_cq");
    let again = [basic.resize(100), extended.resize(100)];
    let [first, second] = failed;
    let ([one, two], [three, four]) = (polled, again);
    [(first, one, three), (second, two, four)]
}

#[test]
fn queue_lost_in_a_failed_resize_is_not_polled() {
    // The failure occurs before the driver is called.
    let Some(world) = named_world(Driver::BNXT_RE) else { return };
    for (failed, polled, again) in resize_and_poll(&world, libc::ENOMEM) {
        assert_eq!(failed.errno().raw(), libc::EOPNOTSUPP, "{failed}");
        assert_eq!(polled, PollCompletionQueueError::CompletionQueueEmpty);
        assert_eq!(again.unwrap_err(), failed);
    }
    assert!(!world.recording.verbs().contains(&"resize_cq"));
    // A resize that the kernel refuses leaves the queue unchanged; a failed mapping does not.
    for (errno, is_lost) in [(libc::EINVAL, false), (libc::ENOMEM, true)] {
        let Some(world) = named_world(Driver::RXE) else { return };
        for (failed, polled, again) in resize_and_poll(&world, errno) {
            assert_eq!(failed.errno().raw(), errno);
            assert_eq!(again.is_err(), is_lost);
            match polled {
                PollCompletionQueueError::CompletionQueueEmpty => assert!(!is_lost),
                PollCompletionQueueError::Verb(error) => {
                    assert!(is_lost && failed.to_string().contains("lost the memory of the queue"), "{failed}");
                    assert_eq!(error.errno().raw(), libc::EIO);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(world.recording.verbs().iter().filter(|verb| **verb == "poll_cq").count(), usize::from(!is_lost));
        world.end();
    }
}
