//! A vendor's queue pair, added from outside by the public API alone: a service with addresses of its own.
//!
//! `acme` is the vendor's library with its driver; `plug_in` is the crate that a vendor would write for it.
#![expect(clippy::unwrap_used, reason = "a test")]

mod acme;
mod plug_in;

use std::sync::Arc;

use sideway::ibverbs::completion::{ExtendedCompletionQueue, PollCompletionQueueError};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairBuilder, QueuePairState,
    SendOperationFlags,
};
use sideway::ibverbs::work_request::{PostErrorKind, WorkRequestFlags};

use acme::{log, take_log};
use plug_in::{AcmeBuilder, BuildParcel, BuildWithWeight, Parcel, Route, SetRoute};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

struct World {
    context: Arc<DeviceContext>,
    pd: Arc<ProtectionDomain>,
    cq: ExtendedCompletionQueue,
}

impl World {
    fn new() -> Self {
        acme::plug_in();
        let context = DeviceList::new().unwrap().find("acme_0").unwrap().open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq_builder().build_ex().unwrap();
        take_log();
        Self { context, pd, cq }
    }

    fn builder(&self) -> QueuePairBuilder<Parcel> {
        let mut builder = self.pd.create_parcel_builder();
        builder.setup_send_cq(&self.cq).setup_recv_cq(&self.cq).setup_max_inline_data(16).setup_max_recv_wr(0);
        builder
    }

    fn queue_pair(&self) -> ExtendedQueuePair<Parcel> {
        let qp = self.builder().build_parcel(7).unwrap();
        take_log();
        qp
    }

    /// The numbers of all requests that have completed.
    fn poll(&mut self) -> Vec<u64> {
        let mut numbers = Vec::new();
        let mut poller = match self.cq.start_poll() {
            Ok(poller) => poller,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return numbers,
            Err(error) => panic!("{error}"),
        };
        while let Some(completion) = poller.next().unwrap() {
            numbers.push(completion.wr_id());
        }
        numbers
    }
}

#[test]
fn requests_reach_their_destination_and_complete() {
    let mut world = World::new();
    let route = Route::to(&world.context, 42);
    let mut qp = world.builder().build_parcel(7).unwrap();
    assert_eq!(take_log(), ["acme_create_qp tag=7 operations=4", "acme_qp_functions"]);
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_route(&route).setup_inline_data(b"hello");
    guard.construct_wr(2, SIGNALED).setup_send().setup_route(&route).setup_inline_data(b"you");
    guard.post().unwrap();
    let first = ["start", "send 1", "route 42", "inline 5"];
    assert_eq!(take_log(), [&first[..], &["send 2", "route 42", "inline 3", "complete 2"]].concat());
    assert_eq!(world.poll(), [1, 2]);
}

#[test]
fn dropped_batch_is_aborted() {
    let mut world = World::new();
    let route = Route::to(&world.context, 1);
    let mut qp = world.queue_pair();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_route(&route).setup_inline_data(b"");
    drop(guard);
    assert_eq!(take_log(), ["start", "send 1", "route 1", "inline 0", "abort"]);
    assert_eq!(world.poll(), [0; 0]);
}

/// After a refused request, the standard functions have no effect, and the vendor's functions are not called.
#[test]
fn refused_request_reaches_none_of_the_vendors_functions() {
    let mut world = World::new();
    let route = Route::to(&world.context, 1);
    let mut qp = world.queue_pair();
    let mut guard = qp.start_post_send();
    // The first request has an operation that the driver lacks, so no request was started.
    guard.construct_wr(1, SIGNALED).setup_write(1, 2).setup_route(&route).setup_inline_data(b"x");
    guard.construct_wr(2, SIGNALED).setup_send().setup_route(&route).setup_inline_data(b"x");
    let error = guard.post().unwrap_err();
    assert_eq!(error.kind(), PostErrorKind::OperationNotEnabled(SendOperationFlags::Write), "{error}");
    assert_eq!(error.failed_request().unwrap().wr_id, 1);
    assert_eq!(take_log(), ["start", "abort"]);

    let mut guard = qp.start_post_send();
    guard.construct_wr(3, SIGNALED).setup_send().setup_route(&route).setup_inline_data(b"x");
    guard.post().unwrap();
    assert_eq!(take_log(), ["start", "send 3", "route 1", "inline 1", "complete 1"]);
    assert_eq!(world.poll(), [3]);
}

#[test]
fn object_of_another_device_context_is_refused() {
    let world = World::new();
    let other = World::new();
    let route = Route::to(&other.context, 1);
    let mut qp = world.queue_pair();
    let mut guard = qp.start_post_send();
    guard.construct_wr(5, SIGNALED).setup_send().setup_route(&route).setup_inline_data(b"x");
    let error = guard.post().unwrap_err();
    assert_eq!(error.kind(), PostErrorKind::InvalidWorkRequest);
    assert!(error.to_string().contains("belongs to another device context than the queue pair"), "{error}");
    assert_eq!(take_log(), ["start", "send 5", "abort"]);
}

#[test]
fn missing_function_is_detected_at_build_time() {
    let world = World::new();
    acme::without_functions(true);
    let error = world.builder().build_parcel(7).unwrap_err();
    acme::without_functions(false);
    assert_eq!(
        error.to_string(),
        "acme_create_qp: EOPNOTSUPP (Operation not supported): libacme created the queue pair without wr_set_route"
    );
    assert_eq!(take_log(), ["acme_create_qp tag=7 operations=4", "acme_qp_functions", "destroy_qp"]);
}

#[test]
fn library_refusal_is_quoted_and_leaks_nothing() {
    let world = World::new();
    acme::fail_next(libc::ENOSPC);
    let error = world.builder().build_parcel(7).unwrap_err();
    assert_eq!(error.to_string(), "acme_create_qp: ENOSPC (No space left on device)");
    assert_eq!(take_log(), [""; 0]);
}

#[test]
fn full_queue_refuses_vendor_requests_too() {
    let mut world = World::new();
    let route = Route::to(&world.context, 1);
    let mut qp = world.builder().setup_max_send_wr(0).build_parcel(7).unwrap();
    take_log();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_route(&route).setup_inline_data(b"x");
    let error = guard.post().unwrap_err();
    assert_eq!(error.kind(), PostErrorKind::NotEnoughResources, "{error}");
    assert_eq!(take_log(), ["start", "abort"]);
    assert_eq!(world.poll(), [0; 0]);
}

#[test]
fn states_are_those_of_the_service() {
    let world = World::new();
    let qp = world.queue_pair();
    let mut attribute = QueuePairAttribute::new();
    attribute.setup_state(QueuePairState::Init).setup_port(1);
    let error = qp.modify(&attribute).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ibv_modify_qp(Reset -> Init): EINVAL: no such transition; from Reset, move to one of ReadyToSend"
    );
    qp.modify(QueuePairAttribute::new().setup_state(QueuePairState::ReadyToSend)).unwrap();
    assert_eq!(qp.state(), QueuePairState::ReadyToSend);
}

#[test]
fn queue_pair_is_dropped_before_its_parents() {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            log("the kept object".to_owned());
        }
    }
    let world = World::new();
    let mut builder = world.builder();
    let qp = builder.setup_kept(Arc::new(Loud)).build_parcel(7).unwrap();
    drop(builder);
    take_log();
    let World { context, pd, cq } = world;
    drop((cq, pd, context));
    assert_eq!(take_log(), [""; 0]);
    drop(qp);
    assert_eq!(take_log(), ["destroy_qp", "destroy_cq", "dealloc_pd", "the kept object", "close_device"]);
}

#[test]
fn completions_have_the_vendors_field() {
    let world = World::new();
    let (mut cq, reader) = world.context.create_cq_builder().build_with_weight().unwrap();
    // Fields that the vendor lacks, and that only InfiniBand uses, are omitted.
    assert_eq!(take_log(), ["acme_create_cq fields=0x7f", "acme_create_cq fields=0x2f"]);
    assert_eq!(cq.wc_flags().bits(), 0x2f);
    let route = Route::to(&world.context, 1);
    let mut qp = world.builder().setup_send_cq(&cq).build_parcel(7).unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(4, SIGNALED).setup_send().setup_route(&route).setup_inline_data(b"x");
    guard.post().unwrap();
    let mut poller = cq.start_poll().unwrap();
    let completion = poller.next().unwrap().unwrap();
    assert_eq!(reader.read(&completion), Some(40));
    let (_other, other_reader) = world.context.create_cq_builder().build_with_weight().unwrap();
    assert_eq!(other_reader.read(&completion), None);
    drop(poller);
    drop(qp);
    take_log();
    assert_eq!(cq.close().unwrap_err().errno().raw(), libc::EBUSY);
    assert_eq!(take_log(), [""; 0]);
    drop(reader);
    assert_eq!(take_log(), ["destroy_cq"]);
}

#[test]
fn queue_pair_without_queues_can_be_modified_queried_and_closed() {
    let world = World::new();
    let target = world.builder().build_parcel_target(8).unwrap();
    assert_eq!(take_log(), ["acme_create_qp tag=8 operations=0"]);
    let before = target.qp_number();
    target.modify(QueuePairAttribute::new().setup_state(QueuePairState::ReadyToSend)).unwrap();
    assert_eq!(target.state(), QueuePairState::ReadyToSend);
    // The device assigns the number at this transition.
    assert_eq!(target.qp_number(), before + 1000);
    take_log();
    target.close().unwrap();
    assert_eq!(take_log(), ["destroy_qp"]);

    let error = world.pd.create_parcel_builder().build_parcel_target(8).unwrap_err();
    assert_eq!(
        error.to_string(),
        "acme_create_qp: EINVAL (Invalid argument): no completion queue is set; call setup_recv_cq"
    );
}
