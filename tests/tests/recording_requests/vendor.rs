//! What another crate adds for a vendor's queue pairs: a service, an address, an operation, and the function that makes them.

use std::ptr;

use rdma_mummy_sys::{self as ffi, ibv_wr_opcode as opcode};
use sideway::ibverbs::queue_pair::{
    Connected, Offers, PostSendGuard, QueuePair, QueuePairBuilder, QueuePairType, SendOperationFlags, Service,
    SetScatterGatherEntry,
};
use sideway::ibverbs::work_request::{
    Addressed, PostErrorKind, RefusalReason, Send, SendAddress, SendOperation, WorkRequestHandle,
};
use sideway_tests::recording::{Failure, World};

use crate::support::{SIGNALED, sized};

/// Sends that name a shared receive queue, as a vendor might have them.
#[derive(Debug)]
enum Vendors {}

#[derive(Clone, Copy, Debug)]
struct Number(u32);

/// A write that is always to the same place.
#[derive(Clone, Copy, Debug)]
struct Signal;

// SAFETY: a send with a number is complete on an XRC queue pair, which the tests make alone, and so is a write with one.
unsafe impl Service for Vendors {}
// SAFETY: as above.
unsafe impl Offers<Addressed<Send, Number>> for Vendors {}
// SAFETY: as above.
unsafe impl Offers<Addressed<Signal, Number>> for Vendors {}

// SAFETY: no pointer is left in the request.
unsafe impl SendAddress for Number {
    unsafe fn give(self, qp: *mut ffi::ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { ffi::ibv_wr_set_xrc_srqn(qp, self.0) }
    }

    unsafe fn write(self, _wr: &mut ffi::ibv_send_wr, _qp: *mut ffi::ibv_qp) -> Result<(), RefusalReason> {
        Err(RefusalReason::DriverFault("the vendor has extended queue pairs alone"))
    }
}

// SAFETY: no pointer is left in the request.
unsafe impl SendOperation for Signal {
    unsafe fn begin(self, qp: *mut ffi::ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { ffi::ibv_wr_rdma_write(qp, 1, 2) }
    }

    unsafe fn write(self, _wr: &mut ffi::ibv_send_wr, _qp: *mut ffi::ibv_qp) -> Result<(), RefusalReason> {
        Err(RefusalReason::DriverFault("the vendor has extended queue pairs alone"))
    }
}

/// The vendor's own word for it.
trait Signals {
    fn signal(self, number: u32);
}

impl<G: PostSendGuard<Service = Vendors>> Signals for WorkRequestHandle<'_, G> {
    fn signal(self, number: u32) {
        self.setup_operation(Signal).setup_address(Number(number)).setup_no_data();
    }
}

fn builder(world: &World) -> QueuePairBuilder<Vendors> {
    // SAFETY: requests to XRC queue pairs look as the service says.
    let builder = unsafe { QueuePairBuilder::of_service(&world.pd, &[QueuePairType::ReliableConnectionExtendedSend]) };
    sized(world, builder)
}

#[test]
fn a_service_of_another_crate_says_what_its_requests_are() {
    let world = World::new();
    let mut asked = 0;
    // SAFETY: the function is ibv_create_qp_ex.
    let qp = unsafe {
        builder(&world).build_with("vendor_create_qp", |context, attr| {
            asked = attr.send_ops_flags;
            ffi::ibv_create_qp_ex(context, attr)
        })
    };
    let mut qp = qp.unwrap();
    assert!(SendOperationFlags::from_bits_retain(asked).contains(SendOperationFlags::Write));
    let mut guard = qp.start_post_send();
    let request = guard.construct_wr(1, SIGNALED).setup_send().setup_address(Number(11));
    // SAFETY: the recording device touches no memory.
    unsafe { request.setup_sge(1, 2, 3) };
    guard.construct_wr(2, SIGNALED).signal(12);
    guard.post().unwrap();
    let posted = world.recording.posted();
    assert_eq!((posted[0].srqn, posted[0].entries.len()), (Some(11), 1));
    assert_eq!((posted[1].srqn, posted[1].rkey, posted[1].remote_addr), (Some(12), 1, 2));
    assert_eq!(posted[1].opcode, Some(opcode::IBV_WR_RDMA_WRITE.0));
}

#[test]
fn an_operation_that_the_vendor_left_out_is_refused_by_name() {
    let world = World::new();
    // SAFETY: as above; operations that were not asked for stay null.
    let qp = unsafe {
        builder(&world)
            .setup_send_ops_flags(SendOperationFlags::Send)
            .build_with("vendor_create_qp", |context, attr| ffi::ibv_create_qp_ex(context, attr))
    };
    let mut qp = qp.unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).signal(1);
    assert_eq!(guard.post().unwrap_err().kind(), PostErrorKind::OperationNotEnabled(SendOperationFlags::Write));
}

#[test]
fn a_vendors_function_that_fails_leaves_nothing() {
    let world = World::new();
    world.recording.fail("create_qp_ex", 0, Failure::documented(libc::EACCES));
    for expected in [libc::EACCES, libc::EPERM] {
        let mut calls = 0;
        // SAFETY: the function gives null.
        let error = unsafe {
            builder(&world).build_with("vendor_create_qp", |context, attr| {
                calls += 1;
                if expected == libc::EACCES {
                    return ffi::ibv_create_qp_ex(context, attr);
                }
                *libc::__errno_location() = expected;
                ptr::null_mut()
            })
        };
        let error = error.map(drop).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw(), calls), ("vendor_create_qp", expected, 1));
    }
    // What is no extended queue pair is destroyed again.
    world.recording.without("qp_to_qp_ex").calls();
    // SAFETY: the function is ibv_create_qp_ex.
    let error =
        unsafe { builder(&world).build_with("vendor_create_qp", |context, attr| ffi::ibv_create_qp_ex(context, attr)) };
    assert!(error.unwrap_err().to_string().starts_with("vendor_create_qp: EOPNOTSUPP"));
    assert!(world.recording.verbs().contains(&"destroy_qp"));
    world.end();
}

#[test]
fn a_service_takes_no_type_of_another() {
    let world = World::new();
    // SAFETY: nothing is posted.
    let builder: QueuePairBuilder<Connected> =
        unsafe { QueuePairBuilder::of_service(&world.pd, &[QueuePairType::UnreliableConnection]) };
    let mut builder = sized(&world, builder);
    drop(builder.build().unwrap());
    let error = builder.setup_qp_type(QueuePairType::ReliableConnection).build().unwrap_err();
    assert!(error.to_string().contains("queue pairs of the types [UnreliableConnection]"), "{error}");
}
