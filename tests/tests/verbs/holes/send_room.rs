//! A full send queue, on a driver whose extended interface does not check: `tests/c/full_queue.c`.

use std::path::Path;
use std::sync::OnceLock;

use libloading::Library;
use rdma_mummy_sys::{ibv_context, ibv_qp_ex};
use sideway::ibverbs::completion::{GenericCompletionQueue, PollCompletionQueueError};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::queue_pair::{GenericQueuePair, GenericSendQueue, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::{PostErrorKind, PostSendError, WorkRequestFlags};
use sideway_tests::recording::World;
use sideway_tests::{process, requirements};

const ROOM: usize = 4;

/// `struct slot`: the fields of a request that the device reads.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slot {
    wr_id: u64,
    remote_addr: u64,
    rkey: u32,
    lkey: u32,
    addr: u64,
    length: u32,
}

impl Slot {
    /// The write that both programs post as their request `number`.
    fn of(number: u64) -> Self {
        let (rkey, remote_addr, addr) = (100 + number as u32, 0x1000 * number, 0x10_0000 * (number + 1));
        Self { wr_id: number, remote_addr, rkey, lkey: 7, addr, length: 64 }
    }
}

/// The driver, with one send queue, which each test uses alone.
struct Driver(Library);

impl Driver {
    /// Loads a driver from a file with this name, for the devices of `world`. Without a C compiler, prints a message
    /// and returns `None`.
    fn load(world: &World, name: &str) -> Option<Self> {
        static HAS_HEADER: OnceLock<bool> = OnceLock::new();
        let compiler = requirements::c_compiler()?;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        if !HAS_HEADER.get_or_init(|| compiler.has_header(folder, "infiniband/verbs.h")) {
            return None;
        }
        let driver = Self(compiler.load(folder, name, include_str!("../../../c/full_queue.c"), &[]));
        // SAFETY: the types are those of full_queue.c; the functions belong to one driver, and no object of the context
        // is used yet.
        unsafe {
            let drive = driver.0.get::<unsafe extern "C" fn(*mut ibv_context)>(b"drive").unwrap();
            drive(DeviceContext::context(&world.context).as_ptr());
        }
        Some(driver)
    }

    fn set_functions(&self, qp: *mut ibv_qp_ex) {
        // SAFETY: as in `load`; no other thread posts to the queue pair.
        unsafe { self.0.get::<unsafe extern "C" fn(*mut ibv_qp_ex)>(b"set_functions").unwrap()(qp) }
    }

    fn overfill(&self, qp: *mut ibv_qp_ex, requests: u32) -> i32 {
        // SAFETY: as above.
        unsafe { self.0.get::<unsafe extern "C" fn(*mut ibv_qp_ex, u32) -> i32>(b"overfill").unwrap()(qp, requests) }
    }

    fn in_flight(&self) -> Vec<Slot> {
        let mut slots = [Slot::default(); ROOM];
        // SAFETY: as above; the array has space for all requests.
        let count =
            unsafe { self.0.get::<unsafe extern "C" fn(*mut Slot) -> u32>(b"in_flight").unwrap()(slots.as_mut_ptr()) };
        slots[..count as usize].to_vec()
    }
}

/// The requests from 0 on, if undamaged.
fn whole(count: usize) -> Vec<Slot> {
    (0..count as u64).map(Slot::of).collect()
}

fn post(qp: &mut GenericQueuePair, number: u64) -> Result<(), PostSendError> {
    let slot = Slot::of(number);
    let mut guard = qp.start_post_send();
    let request = guard.construct_wr(number, WorkRequestFlags::Signaled).setup_write(slot.rkey, slot.remote_addr);
    // SAFETY: the device touches no memory.
    unsafe { request.setup_sge(slot.lkey, slot.addr, slot.length) };
    guard.post()
}

/// Shows in C the damage that safe code cannot cause.
#[test]
fn overfilled_extended_queue_in_c_changes_a_request_in_flight() {
    let world = World::new();
    let Some(driver) = Driver::load(&world, "mlx5-overfilled") else { return };
    let mut builder = world.qp_builder();
    // SAFETY: this test breaks the caller's promise on purpose, on a device that accesses no memory.
    let qp = unsafe { builder.assume_send_room() }.build_ex().unwrap();
    // SAFETY: the recording device gives every queue pair space for an extended one, and only C posts to it.
    let raw = unsafe { qp.qp() }.cast::<ibv_qp_ex>().as_ptr();
    driver.set_functions(raw);
    assert_eq!(driver.overfill(raw, ROOM as u32), 0);
    assert_eq!(driver.in_flight(), whole(ROOM));
    assert_eq!(driver.overfill(raw, 1), libc::ENOMEM);
    let mut damaged = whole(ROOM);
    damaged[ROOM - 1] = Slot::of(0);
    assert_eq!(driver.in_flight(), damaged, "the last request in flight is the refused one now");
    drop((qp, builder));
    world.end();
}

#[test]
fn safe_code_gets_no_extended_queue_pair_from_an_unchecked_driver() {
    let world = World::new();
    let Some(_driver) = Driver::load(&world, "mlx5-unchecked") else { return };
    let error = world.qp_builder().build_ex().unwrap_err();
    assert_eq!(error.errno().raw(), libc::EOPNOTSUPP);
    for part in ["libmlx5", "assume_send_room", "use build or build_generic"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(!world.recording.verbs().contains(&"create_qp_ex"), "the driver was called");
    world.end();
}

#[test]
fn safe_code_that_overfills_a_queue_is_refused_and_changes_nothing() {
    let world = World::new();
    let Some(driver) = Driver::load(&world, "mlx5-full") else { return };
    let cq = world.context.create_cq_builder().build().unwrap();
    let mut qp = world.qp_builder().setup_send_cq(&cq).build_generic().unwrap();
    let mut cq = GenericCompletionQueue::Basic(cq);
    assert!(matches!(qp.queues().0, GenericSendQueue::Basic(_)));
    for number in 0..ROOM as u64 {
        post(&mut qp, number).unwrap();
    }
    for number in ROOM as u64..2 * ROOM as u64 {
        let error = post(&mut qp, number).unwrap_err();
        assert_eq!((error.kind(), error.queue_limit()), (PostErrorKind::NotEnoughResources, Some(ROOM)));
        assert_eq!((error.posted(), error.failed_request().unwrap().wr_id), (Some(0), number));
        assert_eq!(driver.in_flight(), whole(ROOM));
    }
    // A completion makes space for a request.
    let mut polled = Vec::new();
    let taken = cq.poll_each::<PollCompletionQueueError>(1, |completion| {
        polled.push(completion.wr_id());
        Ok(())
    });
    assert_eq!((taken, polled), (Ok(1), vec![0]));
    post(&mut qp, 4).unwrap();
    assert_eq!(driver.in_flight(), (1..=4).map(Slot::of).collect::<Vec<_>>());
    drop((qp, cq));
    world.end();
}

/// Loads a driver that checks, from a file with its name.
#[test]
fn driver_that_checks_needs_no_promise() {
    let world = World::new();
    let Some(_driver) = Driver::load(&world, "efa-checked") else { return };
    drop(world.qp_builder().build_ex().unwrap());
    world.end();
}

/// softrnic's device with the limits of ConnectX has no faults, but a program shall be refused as on the NIC.
#[test]
fn extended_queue_pair_of_a_connectx_profile_needs_the_promise() {
    let name = "holes::send_room::extended_queue_pair_of_a_connectx_profile_needs_the_promise";
    if !process::alone(name, &[(softrnic::PROFILE_VARIABLE, "connectx")]) {
        return;
    }
    softrnic::register().unwrap();
    let pd = DeviceList::new().unwrap().find("soft0").unwrap().open().unwrap().alloc_pd().unwrap();
    let cq = pd.device_context().create_cq_builder().build_generic().unwrap();
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    let error = builder.build_ex().unwrap_err();
    assert!(error.errno().raw() == libc::EOPNOTSUPP && error.to_string().contains("libmlx5"), "{error}");
    assert!(matches!(builder.build_generic().unwrap().queues().0, GenericSendQueue::Basic(_)));
    // SAFETY: no request is posted.
    assert!(unsafe { builder.assume_send_room() }.build_ex().is_ok());
}
