//! Queue pairs and shared receive queues that are created through an identifier.

use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys::{ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex, rdma_create_qp, rdma_create_qp_ex};
use sideway::ibverbs::completion::BasicCompletionQueue;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairState};
use sideway::ibverbs::xrc_domain::XrcDomainFlags;
use sideway::rdmacm::communication_manager::{ConnectionParameter, EventKind, EventType, Identifier, PortSpace};
use sideway_tests::connections::{End, connect_at, expect, resolve};
use sideway_tests::device;
use sideway_tests::recording::{Failure, Kind};
use sideway_tests::shim::{Shim, channel};

use crate::{HERE, pair, raw};

/// The parents of a queue pair on the identifier's device.
fn parents(id: &Arc<Identifier>) -> (Arc<ProtectionDomain>, BasicCompletionQueue) {
    let context = id.get_device_context().unwrap();
    (context.alloc_pd().unwrap(), context.create_cq_builder().build().unwrap())
}

#[test]
fn identifier_changes_its_queue_pairs_state() {
    let shim = Shim::new();
    let channel = channel();
    let (active, passive) = connect_at(&channel, HERE);
    for end in [&active, &passive] {
        assert_eq!(end.qp.state(), QueuePairState::ReadyToSend);
    }
    active.id.disconnect().unwrap();
    assert_eq!(active.qp.state(), QueuePairState::Error);
    drop((active, passive));
    drop(channel);
    assert_eq!(shim.live(), []);
}

#[test]
fn identifier_forgets_a_queue_pair_before_it_is_destroyed() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let End { qp, cq, pd, id, .. } = End::of(id);
    let (_, c_id) = raw(&channel, &id);
    // SAFETY: no other thread uses the identifier.
    let attached = || unsafe { !(*c_id).qp.is_null() };
    assert!(attached());
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    let error = id.create_qp(&builder).unwrap_err();
    assert!(error.hint().unwrap().contains("has a queue pair"), "{error}");
    shim.fail("destroy_qp", 0, Failure::documented(libc::EBUSY));
    qp.close().unwrap_err();
    assert!(!attached(), "destroying it failed");
    shim.violations();
    let second = id.create_qp_ex(&builder).unwrap();
    assert!(attached());
    second.close().unwrap();
    assert!(!attached());
}

/// Runs `make` with small queues, and then restores the requested sizes, as if they were granted.
///
/// # Safety
///
/// The capabilities can be written.
unsafe fn with_small_queues(cap: *mut ibv_qp_cap, make: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let asked = *cap;
        *cap = ibv_qp_cap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let code = make();
        *cap = asked;
        code
    }
}

#[test]
fn allocation_failure_names_the_verb_that_created_the_queue_pair() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let (pd, cq) = parents(&id);
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_recv_wr(1 << 22).setup_max_recv_sge(1 << 10);
    shim.instead("rdma_create_qp", |arguments| {
        let [id, pd, attr] = [0, 1, 2].map(|index| arguments[index] as usize);
        let attr = with_exposed_provenance_mut::<ibv_qp_init_attr>(attr);
        let (id, pd) = (with_exposed_provenance_mut(id), with_exposed_provenance_mut(pd));
        // SAFETY: the arguments are those of a call that runs.
        unsafe { with_small_queues(&raw mut (*attr).cap, || rdma_create_qp(id, pd, attr)) }
    });
    shim.instead("rdma_create_qp_ex", |arguments| {
        let attr = with_exposed_provenance_mut::<ibv_qp_init_attr_ex>(arguments[1] as usize);
        let id = with_exposed_provenance_mut(arguments[0] as usize);
        // SAFETY: as above.
        unsafe { with_small_queues(&raw mut (*attr).cap, || rdma_create_qp_ex(id, attr)) }
    });
    let errors = [
        (id.create_qp(&builder).unwrap_err(), "rdma_create_qp"),
        (id.create_qp_ex(&builder).unwrap_err(), "rdma_create_qp_ex"),
    ];
    for (error, verb) in errors {
        assert_eq!((error.verb(), error.errno().raw()), (verb, libc::ENOMEM));
        assert!(error.hint().unwrap().contains("4194304 requests of 1024 entries"), "{error}");
    }
    assert!(!shim.live().contains(&Kind::QueuePair));
}

#[test]
fn queue_pair_matches_the_identifiers_device_and_type() {
    let _shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let elsewhere = device::open();
    let pd = elsewhere.alloc_pd().unwrap();
    let cq = elsewhere.create_cq_builder().build().unwrap();
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    let error = id.create_qp(&builder).unwrap_err();
    assert!(error.hint().unwrap().contains("Identifier::get_device_context"), "{error}");
    let (pd, cq) = parents(&id);
    let mut datagrams = pd.create_ud_qp_builder();
    datagrams.setup_send_cq(&cq).setup_recv_cq(&cq);
    let error = id.create_qp(&datagrams).unwrap_err();
    assert!(error.hint().unwrap().contains("PortSpace::Udp"), "{error}");
    let (_listener, id) = pair(&channel, PortSpace::Udp);
    let error = id.create_qp(pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq)).unwrap_err();
    assert!(error.hint().unwrap().contains("create_ud_qp_builder"), "{error}");
    let qp = id.create_qp(&datagrams).unwrap();
    assert_eq!(qp.state(), QueuePairState::ReadyToSend);
}

#[test]
fn failed_transition_is_an_error_and_destroys_the_queue_pair() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let (pd, cq) = parents(&id);
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    let before = shim.live();
    shim.fail("rdma_create_qp", 0, Failure::documented(libc::ENOMEM));
    let error = id.create_qp(&builder).unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("rdma_create_qp", libc::ENOMEM), "{error}");
    assert_eq!(shim.live(), before);
}

#[test]
fn shared_queue_of_the_identifier_feeds_its_queue_pair() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let (pd, cq) = parents(&id);
    let srq = id.create_srq(&pd.create_srq_builder()).unwrap();
    let error = id.create_srq(&pd.create_srq_builder()).unwrap_err();
    assert_eq!(error.verb(), "rdma_create_srq_ex");
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    let mut qp = id.create_qp(&builder).unwrap();
    // C sets the shared queue, so a receive posted to the queue pair itself would be lost.
    let mut batch = qp.start_post_recv();
    batch.construct_wr(1).setup_no_data();
    batch.post().unwrap_err();
    drop(id);
    drop(srq);
    assert!(shim.live().contains(&Kind::SharedReceiveQueue), "the queue pair holds it");
    drop(qp);
    assert!(!shim.live().contains(&Kind::SharedReceiveQueue));
}

#[test]
fn dying_shared_queue_feeds_no_queue_pair() {
    let _shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let (pd, cq) = parents(&id);
    let srq = pd.create_srq_builder().build().unwrap();
    let (_, c_id) = raw(&channel, &id);
    // Simulates the time after the queue's last owner is dropped and before the identifier forgets the queue. SAFETY:
    // no other thread uses the identifier, and the queue lives until it is forgotten below.
    unsafe { (*c_id).srq = srq.srq().as_ptr() };
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    let qp = id.create_qp(&builder).unwrap();
    // SAFETY: the queue pair is live.
    assert!(unsafe { (*qp.qp().as_ptr()).srq.is_null() }, "no owner would keep the queue alive");
    drop(qp);
    let qp = id.create_qp_ex(&builder).unwrap();
    // SAFETY: as above.
    assert!(unsafe { (*qp.qp().as_ptr()).srq.is_null() });
    // SAFETY: no other thread uses the identifier.
    unsafe {
        assert_eq!((*c_id).srq, srq.srq().as_ptr(), "it is the identifier's as before");
        (*c_id).srq = std::ptr::null_mut();
    }
    srq.close().unwrap();
}

#[test]
fn xrc_shared_queue_does_not_feed_the_identifiers_queue_pair() {
    let _shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let (pd, cq) = parents(&id);
    let xrcd = pd.device_context().open_xrcd(None, XrcDomainFlags::Create).unwrap();
    let _srq = id.create_srq(pd.create_srq_builder().setup_xrc(&xrcd, &cq)).unwrap();
    let mut builder = pd.create_qp_builder();
    let mut qp = id.create_qp(builder.setup_send_cq(&cq).setup_recv_cq(&cq)).unwrap();
    let mut batch = qp.start_post_recv();
    batch.construct_wr(1).setup_no_data();
    batch.post().unwrap();
}

#[test]
fn programs_own_queue_pair_is_modified_by_the_program() {
    let _shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let mut parameter = ConnectionParameter::default();
    id.connect(parameter.setup_qp_number(0x77)).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    let EventKind::ConnectRequest(info) = request.kind() else { panic!("{request:?}") };
    assert_eq!(info.qp_number(), 0x77);
    request.cm_id().accept(parameter.setup_qp_number(0x88)).unwrap();
    let response = expect(&channel, EventType::ConnectResponse);
    let EventKind::ConnectResponse(info) = response.kind() else { panic!("{response:?}") };
    assert_eq!(info.qp_number(), 0x88);
    assert_eq!(id.get_qp_attr(QueuePairState::ReadyToReceive).unwrap().dest_qp_num(), 0x88);
    id.establish().unwrap();
    expect(&channel, EventType::Established);
}

#[test]
fn identifier_with_a_queue_pair_establishes_by_itself() {
    let _shim = Shim::new();
    let channel = channel();
    let (listener, id) = pair(&channel, PortSpace::Tcp);
    let active = End::of(id);
    let error = active.id.establish().unwrap_err();
    assert!(error.hint().unwrap().contains("needs no call"), "{error}");
    let port = listener.port();
    drop(active);
    resolve(&channel, PortSpace::Tcp, (HERE, port).into()).establish().unwrap_err();
}
