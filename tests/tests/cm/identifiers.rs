//! Calls on identifiers: the arguments that C receives, and calls that are rejected before C.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sideway::ibverbs::async_event::AsyncEventType;
use sideway::ibverbs::queue_pair::QueuePairState;
use sideway::rdmacm::communication_manager::{ConnectionParameter, EventType, PortSpace};
use sideway_tests::connections::{End, expect};
use sideway_tests::programs::port;
use sideway_tests::recording::Kind;
use sideway_tests::shim::{Shim, channel};

use crate::pair;

#[test]
fn source_address_is_valid_when_c_reads_it() {
    let _shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    let source = SocketAddr::from((Ipv4Addr::LOCALHOST, port()));
    id.resolve_addr(Some(source), "127.0.0.1:7".parse().unwrap(), Duration::from_secs(1)).unwrap();
    expect(&channel, EventType::AddressResolved);
    assert_eq!(id.local_address(), Some(source));
    assert_eq!((id.port(), id.peer_port()), (source.port(), 7));
}

#[test]
fn oversized_timeout_is_clamped() {
    let shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, "127.0.0.1:7".parse().unwrap(), Duration::MAX).unwrap();
    expect(&channel, EventType::AddressResolved);
    id.resolve_route(Duration::from_secs(u64::from(u32::MAX))).unwrap();
    let calls = shim.calls();
    for verb in ["rdma_resolve_addr", "rdma_resolve_route"] {
        let call = calls.iter().find(|call| call.verb == verb).unwrap();
        assert_eq!(call.argument("timeout_ms"), i32::MAX as u64, "{call:?}");
    }
}

#[test]
fn operation_without_a_device_is_an_error() {
    let shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    assert!(id.get_device_context().is_none());
    assert_eq!((id.port_num(), id.local_address(), id.peer_address()), (None, None, None));
    shim.calls();
    let parameter = ConnectionParameter::default();
    let refused = [
        id.resolve_route(Duration::ZERO),
        id.connect(&parameter),
        id.accept(&parameter),
        id.reject(b""),
        id.disconnect(),
        id.notify(AsyncEventType::CommunicationEstablished),
        id.get_qp_attr(QueuePairState::Init).map(drop),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert_eq!(error.errno().raw(), libc::EINVAL, "{error}");
        assert!(error.hint().unwrap().contains("has no device"), "{error}");
    }
    // C would dereference a null pointer.
    assert_eq!(shim.verbs(), [""; 0]);
}

#[test]
fn request_is_answered_once() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let error = id.accept(&ConnectionParameter::default()).unwrap_err();
    assert!(error.hint().unwrap().contains("does not belong to one"), "{error}");
    let active = End::of(id);
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let passive = End::of(expect(&channel, EventType::ConnectRequest).cm_id().clone());
    passive.id.accept(&ConnectionParameter::default()).unwrap();
    shim.calls();
    for error in [passive.id.reject(b""), passive.id.accept(&ConnectionParameter::default())].map(Result::unwrap_err) {
        assert!(error.hint().unwrap().contains("already answered"), "{error}");
    }
    assert_eq!(shim.verbs(), [""; 0]);
    drop(passive);
    assert!(!shim.verbs().contains(&"rdma_reject"));
}

#[test]
fn oversized_private_data_does_not_reach_c() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let active = End::of(id);
    shim.calls();
    let error = active.id.connect(ConnectionParameter::default().setup_private_data(&[1; 256])).unwrap_err();
    assert!(error.hint().unwrap().contains("256 bytes of private data are too many; use at most 255"), "{error}");
    assert!(active.id.reject(&[1; 256]).unwrap_err().hint().unwrap().contains("256 bytes"));
    assert_eq!(shim.verbs(), [""; 0]);
    let error = active.id.connect(ConnectionParameter::default().setup_private_data(&[1; 57])).unwrap_err();
    assert!(error.hint().unwrap().contains("57 bytes of private data are too many"), "{error}");
}

#[test]
fn excessive_depth_is_named_in_the_error() {
    let _shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let active = End::of(id);
    let device = active.context.query_device().unwrap();
    let most = u8::try_from(device.max_qp_rd_atom()).unwrap();
    let mut parameter = ConnectionParameter::default();
    let error = active.id.connect(parameter.setup_responder_resources(most + 1)).unwrap_err();
    assert!(error.hint().unwrap().contains(&format!("responder_resources is {}", most + 1)), "{error}");
    parameter.setup_responder_resources(ConnectionParameter::MAX_DEPTH);
    active.id.connect(parameter.setup_initiator_depth(ConnectionParameter::MAX_DEPTH)).unwrap();
}

#[test]
fn partly_written_attributes_are_otherwise_zero() {
    let _shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let attribute = id.get_qp_attr(QueuePairState::Init).unwrap();
    assert_eq!(attribute.state(), QueuePairState::Init);
    // Fields that librdmacm never writes.
    assert_eq!((attribute.rate_limit(), attribute.sqd_async_notify()), (0, false));
}

#[test]
fn objects_can_be_dropped_in_any_order() {
    let shim = Shim::new();
    let channel = channel();
    let (listener, id) = pair(&channel, PortSpace::Tcp);
    let End { qp, cq, pd, context, id } = End::of(id);
    drop(id);
    drop(channel);
    drop(context);
    drop(pd);
    drop(cq);
    drop(listener);
    assert!(shim.live().contains(&Kind::Identifier), "the queue pair holds it");
    drop(qp);
    assert_eq!(shim.live(), []);
}
