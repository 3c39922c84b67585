//! Connections of queue pairs that the program has created itself, in a context that it has opened itself.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::async_event::AsyncEventType;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::queue_pair::{Ece, GenericQueuePair, QueuePair, QueuePairState};
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, Event, EventChannel, EventKind, EventType, Identifier, PortSpace, RejectReason,
};
use sideway_tests::connections::{channel, expect, listen, resolve};
use sideway_tests::device;
use sideway_tests::loopback::{End, Memory};

/// A queue pair without an identifier.
fn own(context: &Arc<DeviceContext>) -> End<GenericQueuePair> {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq_builder().build_generic().unwrap();
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    let qp = builder.build_generic().unwrap();
    let memory = Memory::new(&pd, 4096, AccessFlags::LocalWrite);
    End { qp, cq, memory }
}

/// Changes the queue pair's state with the identifier's attributes.
fn go(end: &End<GenericQueuePair>, id: &Identifier, states: &[QueuePairState]) {
    for &state in states {
        let attributes = id.get_qp_attr(state).unwrap();
        end.qp.modify(&attributes).unwrap();
        assert_eq!(end.qp.state(), state);
    }
}

fn parameter(end: &End<GenericQueuePair>) -> ConnectionParameter {
    let mut parameter = ConnectionParameter::default();
    parameter.setup_qp_number(end.qp.qp_number());
    parameter
}

const INIT: QueuePairState = QueuePairState::Init;
const UP: [QueuePairState; 2] = [QueuePairState::ReadyToReceive, QueuePairState::ReadyToSend];

/// Connects both ends up to the response: the active end has received it, and must establish.
fn respond(channel: &Arc<EventChannel>) -> [(Arc<Identifier>, End<GenericQueuePair>); 2] {
    let (_listener, address) = listen(channel, PortSpace::Tcp);
    let id = resolve(channel, PortSpace::Tcp, address);
    let context = device::open();
    let active = own(&context);
    // The queue pair and the identifier use different contexts of the same device.
    assert!(!Arc::ptr_eq(&id.get_device_context().unwrap(), &context));
    go(&active, &id, &[INIT]);
    id.connect(&parameter(&active)).unwrap();
    let request = expect(channel, EventType::ConnectRequest);
    let EventKind::ConnectRequest(info) = request.kind() else { panic!("{request:?}") };
    assert_eq!(info.qp_number(), active.qp.qp_number());
    let passive = own(&context);
    go(&passive, request.cm_id(), &[INIT]);
    go(&passive, request.cm_id(), &UP);
    request.cm_id().accept(&parameter(&passive)).unwrap();
    let response = expect(channel, EventType::ConnectResponse);
    assert!(Arc::ptr_eq(response.cm_id(), &id));
    let EventKind::ConnectResponse(info) = response.kind() else { panic!("{response:?}") };
    assert_eq!(info.qp_number(), passive.qp.qp_number());
    [(id, active), (Arc::clone(request.cm_id()), passive)]
}

#[test]
fn own_queue_pair_works_with_the_identifiers_attributes() {
    let channel = channel();
    let [(id, mut active), (passive_id, mut passive)] = respond(&channel);
    go(&active, &id, &UP);
    id.establish().unwrap();
    assert!(Arc::ptr_eq(expect(&channel, EventType::Established).cm_id(), &passive_id));
    active.memory.write(0, b"by hand");
    passive.post_receive(1, 100, 16);
    active.post_send(2, 0, 7);
    assert_eq!((passive.success().wr_id, active.success().wr_id), (1, 2));
    assert_eq!(passive.bytes(100, 7), b"by hand");

    // The identifiers do not have the queue pairs, and leave them unchanged.
    id.disconnect().unwrap();
    assert!(Arc::ptr_eq(expect(&channel, EventType::Disconnected).cm_id(), &passive_id));
    passive_id.disconnect().unwrap();
    assert!(Arc::ptr_eq(expect(&channel, EventType::Disconnected).cm_id(), &id));
    assert_eq!(active.qp.state(), QueuePairState::ReadyToSend);
}

#[test]
fn early_data_establishes_the_waiting_side() {
    let channel = channel();
    let [(id, active), (passive_id, _passive)] = respond(&channel);
    assert!(channel.try_get_cm_event().unwrap().is_none());
    passive_id.notify(AsyncEventType::CommunicationEstablished).unwrap();
    assert!(Arc::ptr_eq(expect(&channel, EventType::Established).cm_id(), &passive_id));
    // A second call is no error.
    passive_id.notify(AsyncEventType::CommunicationEstablished).unwrap();
    let error = passive_id.notify(AsyncEventType::PortActive).unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("rdma_notify", libc::EINVAL));
    go(&active, &id, &UP);
    id.establish().unwrap();
}

#[test]
fn establish_needs_a_response() {
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Tcp);
    let id = resolve(&channel, PortSpace::Tcp, address);
    let error = id.establish().unwrap_err();
    assert!(error.hint().unwrap().starts_with("no ConnectResponse is waiting"), "{error}");
}

/// Attempts to establish at the wrong time have no effect. The kernel would treat each as a reject; after an accept,
/// destroying the identifier would then never return.
fn establish_too_early(is_active: bool) {
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Tcp);
    let id = resolve(&channel, PortSpace::Tcp, address);
    let (active, passive) = (own(&device::open()), own(&device::open()));
    go(&active, &id, &[INIT]);
    id.connect(&parameter(&active)).unwrap();
    if is_active {
        let error = id.establish().unwrap_err();
        assert!(error.hint().unwrap().starts_with("no ConnectResponse is waiting"), "{error}");
    }
    let request = expect(&channel, EventType::ConnectRequest);
    go(&passive, request.cm_id(), &[INIT]);
    go(&passive, request.cm_id(), &UP);
    request.cm_id().accept(&parameter(&passive)).unwrap();
    if !is_active {
        let error = request.cm_id().establish().unwrap_err();
        assert!(error.hint().unwrap().starts_with("no ConnectResponse is waiting"), "{error}");
    }
    expect(&channel, EventType::ConnectResponse);
    go(&active, &id, &UP);
    id.establish().unwrap();
    expect(&channel, EventType::Established);
    let error = id.establish().unwrap_err();
    assert!(error.hint().unwrap().starts_with("no ConnectResponse is waiting"), "{error}");
}

#[test]
fn establish_before_a_response_is_refused() {
    establish_too_early(true);
}

#[test]
fn establish_after_accept_is_refused() {
    establish_too_early(false);
}

/// Sends a request for a queue pair that does not exist. Each request has another number, because the kernel remembers
/// numbers for a while.
fn offered(channel: &Arc<EventChannel>, qp_number: u32, ece: Option<Ece>) -> (Arc<Identifier>, Event) {
    let (_listener, address) = listen(channel, PortSpace::Tcp);
    let id = resolve(channel, PortSpace::Tcp, address);
    assert_eq!(id.remote_ece().unwrap(), Ece::default());
    if let Some(ece) = ece {
        id.set_local_ece(ece).unwrap();
    }
    let mut parameter = ConnectionParameter::default();
    id.connect(parameter.setup_qp_number(qp_number)).unwrap();
    (id, expect(channel, EventType::ConnectRequest))
}

#[test]
fn vendor_options_are_exchanged_with_the_connection() {
    let channel = channel();
    let offer = Ece { vendor_id: 0x1015b3, options: 0xdead_beef, comp_mask: 0 };
    let (id, request) = offered(&channel, 0xff_ff01, Some(offer));
    let passive = request.cm_id();
    assert_eq!(passive.remote_ece().unwrap(), offer);
    let taken = Ece { options: 0x0ead_0000, ..offer };
    passive.set_local_ece(taken).unwrap();
    passive.accept(ConnectionParameter::default().setup_qp_number(0xff_ff02)).unwrap();
    expect(&channel, EventType::ConnectResponse);
    assert_eq!(id.remote_ece().unwrap(), taken);

    let (_id, request) = offered(&channel, 0xff_ff03, None);
    assert_eq!(request.cm_id().remote_ece().unwrap(), Ece::default());
}

#[test]
fn refused_options_are_a_rejection_with_that_reason() {
    let channel = channel();
    let (_id, request) = offered(&channel, 0xff_ff04, Some(Ece { vendor_id: 0x15b3, options: 1, comp_mask: 0 }));
    request.cm_id().reject_ece(b"plainly").unwrap();
    let event = expect(&channel, EventType::Rejected);
    let EventKind::Rejected(rejection) = event.kind() else { panic!("{event:?}") };
    assert_eq!(rejection.reason(), Some(RejectReason::VendorOptionNotSupported));
    assert_eq!(rejection.private_data().trimmed(), b"plainly");
    let error = request.cm_id().reject_ece(b"").unwrap_err();
    assert!(error.hint().unwrap().contains("already answered"), "{error}");
}

#[test]
fn options_without_a_vendor_are_refused() {
    let id = channel().create_id(PortSpace::Tcp).unwrap();
    let error = id.set_local_ece(Ece { options: 1, ..Ece::default() }).unwrap_err();
    assert_eq!(error.hint(), Some("the vendor is 0; do not set options without a vendor"));
    let error = id.set_local_ece(Ece { vendor_id: 1, comp_mask: 1, ..Ece::default() }).unwrap_err();
    assert_eq!(error.hint(), Some("comp_mask names unknown fields; set it to 0"));
}
