//! Events: their contents, the objects that they hold, and the handling of malformed ones.

use std::sync::Arc;
use std::time::Duration;

use rdma_mummy_sys::rdma_conn_param;
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, EventChannel, EventKind, EventType, PortSpace, RejectReason,
};
use sideway_tests::connections::{End, connect_at, expect, resolve};
use sideway_tests::recording::Kind;
use sideway_tests::shim::{ConnectionEvent, ConnectionParameters, Shim, channel};

use crate::{HERE, pair, raw};

#[test]
fn event_holds_its_identifier_and_its_channel() {
    let shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, "127.0.0.1:1".parse().unwrap(), Duration::from_secs(1)).unwrap();
    let event = expect(&channel, EventType::AddressResolved);
    // The event keeps both alive: destroying the identifier would wait for the event, and destroying the channel would
    // leave the event with freed memory.
    drop(id);
    drop(channel);
    assert_eq!(shim.live(), [Kind::EventChannel, Kind::Identifier]);
    assert_eq!(event.cm_id().peer_port(), 1);
    assert!(event.event_channel().try_get_cm_event().unwrap().is_none());
    drop(event);
    assert_eq!(shim.live(), []);
}

#[test]
fn identifier_is_destroyed_with_its_unread_events() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, gone) = pair(&channel, PortSpace::Tcp);
    let stays = channel.create_id(PortSpace::Tcp).unwrap();
    for id in [&gone, &stays] {
        let (channel, id) = raw(&channel, id);
        shim.raise(channel, ConnectionEvent::new(EventType::AddressChange.raw(), id));
    }
    drop(gone);
    let event = channel.get_cm_event(None).unwrap();
    assert!(Arc::ptr_eq(event.cm_id(), &stays));
    assert!(channel.try_get_cm_event().unwrap().is_none());
}

#[test]
fn event_is_acknowledged_before_it_is_returned() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    shim.calls();
    let (c_channel, c_id) = raw(&channel, &id);
    shim.raise(c_channel, ConnectionEvent::new(EventType::AddressChange.raw(), c_id));
    let event = expect(&channel, EventType::AddressChange);
    assert_eq!(shim.verbs(), ["rdma_get_cm_event", "rdma_ack_cm_event"]);
    event.ack();
    assert_eq!(shim.verbs(), [""; 0]);
}

#[test]
fn connect_request_has_the_peers_parameters_from_this_side() {
    let _shim = Shim::new();
    let channel = channel();
    let (listener, id) = pair(&channel, PortSpace::Tcp);
    let active = End::of(id);
    let mut parameter = ConnectionParameter::new();
    parameter.setup_responder_resources(3).setup_initiator_depth(5).setup_retry_count(6).setup_rnr_retry_count(4);
    active.id.connect(parameter.setup_flow_control(true).setup_private_data(b"hello")).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    assert!(Arc::ptr_eq(request.listener_id().unwrap(), &listener));
    assert!(!Arc::ptr_eq(request.cm_id(), &listener));
    assert_eq!(request.cm_id().peer_port(), active.id.port());
    let (id, EventKind::ConnectRequest(info)) = request.into_parts() else { panic!("no request") };
    assert_eq!((info.responder_resources(), info.initiator_depth()), (5, 3));
    assert_eq!((info.retry_count(), info.rnr_retry_count(), info.flow_control(), info.srq()), (6, 4, true, false));
    assert_eq!((info.private_data().len(), info.private_data().trimmed()), (56, &b"hello"[..]));
    id.reject(b"no").unwrap();
    let event = expect(&channel, EventType::Rejected);
    let EventKind::Rejected(rejection) = event.kind() else { panic!("{event:?}") };
    assert_eq!(rejection.reason(), Some(RejectReason::ConsumerDefined));
    assert_eq!(rejection.private_data().trimmed(), b"no");
}

#[test]
fn new_identifier_inherits_from_its_listener() {
    let _shim = Shim::new();
    let channel = channel();
    let (listener, id) = pair(&channel, PortSpace::Tcp);
    listener.setup_context(4711_u32);
    assert_eq!(listener.get_context::<String>(), None);
    let active = End::of(id);
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    assert_eq!(request.cm_id().get_context::<u32>().as_deref(), Some(&4711));
    request.cm_id().setup_context("mine".to_owned());
    assert_eq!(listener.get_context::<u32>().as_deref(), Some(&4711));
    assert_eq!(active.id.get_context::<u32>(), None);
}

#[test]
fn dropped_connect_request_is_rejected_and_destroyed() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let active = End::of(id);
    let before = shim.live();
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    shim.calls();
    drop(request);
    assert_eq!(shim.verbs(), ["rdma_reject", "rdma_destroy_id"]);
    expect(&channel, EventType::Rejected);
    assert_eq!(shim.live(), before);
}

#[test]
fn request_of_a_destroyed_listener_is_rejected_and_destroyed() {
    let shim = Shim::new();
    let channel = channel();
    let (listener, id) = pair(&channel, PortSpace::Tcp);
    let active = End::of(id);
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    drop(listener);
    assert!(request.listener_id().is_some());
    drop(request);
    expect(&channel, EventType::Rejected);
    drop(active);
    drop(channel);
    assert_eq!(shim.live(), []);
}

/// Raises events of any type and status, on an identifier of either port space. Only requests may be taken for
/// requests.
#[test]
fn events_are_not_confused() {
    let shim = Shim::new();
    let channel = channel();
    let mut numbers: Vec<u32> = (0..64).collect();
    numbers.extend([0x7fff_ffff, 0x8000_0000, u32::MAX]);
    let mut others = 0;
    for port_space in [PortSpace::Tcp, PortSpace::Udp] {
        let (_listener, id) = pair(&channel, port_space);
        let (c_channel, c_id) = raw(&channel, &id);
        for &number in numbers.iter().filter(|&&number| number != EventType::ConnectRequest.raw()) {
            for status in [0, -libc::ETIMEDOUT, 8, i32::MIN, i32::MAX] {
                let event = ConnectionEvent { status, ..ConnectionEvent::new(number, c_id) };
                shim.raise(c_channel, event);
                let event = channel.get_cm_event(None).unwrap();
                assert_eq!((event.event_type().raw(), event.status().raw()), (number, status));
                assert!(Arc::ptr_eq(event.cm_id(), &id));
                assert!(!event.to_string().is_empty() && !format!("{event:?}").is_empty());
                assert!(event.listener_id().is_none());
                let is_request = matches!(event.kind(), EventKind::ConnectRequest(_) | EventKind::LookupRequest(_));
                assert!(!is_request, "{event:?}");
                others += usize::from(matches!(event.kind(), EventKind::Other));
            }
        }
    }
    assert!(others > 100);
    assert_eq!(shim.violations(), [""; 0]);
}

#[test]
fn events_without_an_identifier_are_errors_and_the_next_is_read() {
    let shim = Shim::new();
    let channel = channel();
    let (listener, id) = pair(&channel, PortSpace::Tcp);
    let (c_channel, c_id) = raw(&channel, &id);
    let (_, c_listener) = raw(&channel, &listener);
    let request =
        |id, listen_id| ConnectionEvent { listen_id, ..ConnectionEvent::new(EventType::ConnectRequest.raw(), id) };
    let null = std::ptr::null_mut();
    let strange = [
        (ConnectionEvent::new(EventType::Established.raw(), null), "without an identifier"),
        (request(null, c_listener), "without an identifier"),
        (request(c_id, c_listener), "without a new identifier"),
        (request(c_listener, c_listener), "without a new identifier"),
        (request(c_id, null), "without a new identifier"),
    ];
    for (event, text) in strange {
        shim.raise(c_channel, event);
        let error = channel.get_cm_event(None).unwrap_err();
        assert_eq!(error.errno().raw(), libc::EIO);
        assert!(error.to_string().contains(text), "{error}");
    }
    shim.raise(c_channel, ConnectionEvent::new(EventType::Established.raw(), c_id));
    expect(&channel, EventType::Established);
}

#[test]
fn absent_private_data_is_empty() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let (c_channel, c_id) = raw(&channel, &id);
    let parameters = rdma_conn_param {
        private_data: std::ptr::null(),
        private_data_len: 255,
        responder_resources: 255,
        initiator_depth: 255,
        flow_control: 255,
        retry_count: 255,
        rnr_retry_count: 255,
        srq: 255,
        qp_num: u32::MAX,
    };
    let parameters = ConnectionParameters::Connection(parameters);
    shim.raise(c_channel, ConnectionEvent { parameters, ..ConnectionEvent::new(EventType::Established.raw(), c_id) });
    let event = expect(&channel, EventType::Established);
    let EventKind::Established(info) = event.kind() else { panic!("{event:?}") };
    assert!(info.private_data().is_empty());
    assert_eq!((info.retry_count(), info.flow_control(), info.qp_number()), (255, true, u32::MAX));
}

#[test]
fn both_ends_get_the_disconnect() {
    let shim = Shim::new();
    let channel = channel();
    let (active, passive) = connect_at(&channel, HERE);
    active.id.disconnect().unwrap();
    let mut ended = 0;
    while let Some(event) = channel.try_get_cm_event().unwrap() {
        if event.event_type() == EventType::Disconnected {
            ended += 1;
            // The peer receives the event only after this end has disconnected as well.
            let _ = event.cm_id().disconnect();
        }
    }
    assert_eq!(ended, 2);
    drop((active, passive));
    drop(channel);
    assert_eq!(shim.live(), []);
}

#[test]
fn waits_end_on_time() {
    let _shim = Shim::new();
    let channel: Arc<EventChannel> = channel();
    let error = channel.get_cm_event(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(error.errno().raw(), libc::ETIMEDOUT);
    assert_eq!(error.hint(), Some("no event of the connection manager arrived in time"));
    let (_listener, address) = sideway_tests::connections::listen_at(&channel, PortSpace::Tcp, (HERE, 0).into());
    // This time-out exceeds the range of the clock.
    let id = resolve(&channel, PortSpace::Tcp, address);
    id.connect(&ConnectionParameter::default()).unwrap();
    assert_eq!(channel.get_cm_event(Some(Duration::MAX)).unwrap().event_type(), EventType::ConnectRequest);
}
