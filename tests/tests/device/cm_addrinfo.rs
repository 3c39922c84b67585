//! Address information, and identifiers created from it, with the kernel's connection manager.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use sideway::ibverbs::queue_pair::{QueuePair, QueuePairState, QueuePairType};
use sideway::rdmacm::communication_manager::{
    AddressFamily, AddressInfo, AddressInfoFlags, ConnectionParameter, EventChannel, EventKind, EventType,
    GetAddressInfoError, Identifier, InfiniBandAddress, PortSpace, getaddrinfo,
};
use sideway_tests::connections::{End, LONG, address, channel, expect};
use sideway_tests::programs::port;

fn numeric() -> AddressInfo {
    let mut hints = AddressInfo::new();
    hints.setup_flags(AddressInfoFlags::NumericHost);
    hints
}

/// The result of a lookup: one address, because there is no service to find more.
#[track_caller]
fn one(node: Option<&str>, service: Option<&str>, hints: &AddressInfo) -> AddressInfo {
    // Registers the soft device, if the tests use it.
    sideway_tests::device::name();
    let mut found = getaddrinfo(node, service, hints).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// A listening endpoint on the test device, and the address information that leads to it.
#[track_caller]
fn listener(channel: &Arc<EventChannel>, port_space: PortSpace) -> (Arc<Identifier>, AddressInfo) {
    let node = address().to_string();
    let mut hints = numeric();
    hints.setup_flags(AddressInfoFlags::NumericHost | AddressInfoFlags::Passive).setup_port_space(port_space);
    let info = one(Some(&node), None, &hints);
    assert!(info.is_passive() && info.destination().is_none(), "{info:?}");
    let id = channel.create_ep(&info).unwrap_or_else(|error| panic!("{error}"));
    id.listen(0).unwrap_or_else(|error| panic!("{error}"));
    let port = id.port().to_string();
    (id, one(Some(&node), Some(&port), numeric().setup_port_space(port_space)))
}

#[test]
fn numeric_addresses_resolve_unchanged() {
    let node = address().to_string();
    let info = one(Some(&node), Some("7471"), &numeric());
    assert_eq!(info.destination().unwrap().ip(), Some(SocketAddr::new(address(), 7471)));
    assert_eq!((info.source(), info.is_passive()), (None, false));
    assert_eq!(info.qp_type(), Some(QueuePairType::ReliableConnection));
    assert_eq!(info.port_space(), Some(PortSpace::Tcp));
    assert_eq!((info.route(), info.connect_data()), (&b""[..], &b""[..]));
    let info = one(Some("::1"), Some("7471"), numeric().setup_qp_type(QueuePairType::UnreliableDatagram));
    assert_eq!((info.family(), info.port_space()), (AddressFamily::Ipv6, Some(PortSpace::Udp)));
    // A lookup with only hints returns the hints.
    let mut hints = numeric();
    let (source, destination) = (SocketAddr::new(address(), 0), SocketAddr::new(address(), 9));
    hints.setup_source(source).setup_destination(destination);
    let info = one(None, None, &hints);
    assert_eq!((info.source().unwrap().ip(), info.destination().unwrap().ip()), (Some(source), Some(destination)));
}

#[test]
fn unspecified_address_is_only_for_listeners() {
    let mut hints = AddressInfo::new();
    hints.setup_flags(AddressInfoFlags::Passive).setup_family(AddressFamily::Ipv4);
    let port = port();
    let info = one(None, Some(&port.to_string()), &hints);
    assert_eq!(info.source().unwrap().ip(), Some((Ipv4Addr::UNSPECIFIED, port).into()));
    let channel = channel();
    let id = channel.create_ep(&info).unwrap();
    id.listen(0).unwrap();
    assert_eq!(id.port(), port);
    // The port is in use.
    let error = channel.create_ep(&info).and_then(|id| id.listen(0)).unwrap_err();
    assert!([libc::EADDRINUSE, libc::EADDRNOTAVAIL].contains(&error.errno().raw()), "{error}");
}

#[test]
fn names_of_hosts_and_services_are_looked_up() {
    let info = one(Some("localhost"), Some("7471"), &AddressInfo::new());
    let found = info.destination().unwrap().ip().unwrap();
    assert!(found.ip().is_loopback() && found.port() == 7471, "{info:?}");
    let services = std::fs::read_to_string("/etc/services").unwrap_or_default();
    let is_known = services.lines().any(|line| line.split_whitespace().take(2).eq(["ssh", "22/tcp"]));
    match getaddrinfo(Some("localhost"), Some("ssh"), AddressInfo::new().setup_port_space(PortSpace::Tcp)) {
        Ok(found) => assert_eq!(found[0].destination().unwrap().ip().unwrap().port(), 22),
        Err(GetAddressInfoError::Lookup(error)) if !is_known => assert_eq!(error.code(), libc::EAI_SERVICE, "{error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn unknown_names_are_errors_with_the_name() {
    let hints = numeric().setup_port_space(PortSpace::Tcp).clone();
    let node = address().to_string();
    for (node, service, code) in
        [("no.such.host", "7471", libc::EAI_NONAME), (&node, "no-such-service", libc::EAI_SERVICE)]
    {
        let error = getaddrinfo(Some(node), Some(service), &hints).unwrap_err();
        let text = error.to_string();
        let GetAddressInfoError::Lookup(error) = error else { panic!("{text}") };
        assert_eq!(error.code(), code, "{text}");
        assert!(text.contains(&format!("node {node:?}, service {service:?}")), "{text}");
    }
    // The machine may have no name service, so any error is accepted that has a message.
    let error = getaddrinfo(Some("no.such.host.invalid"), None, &AddressInfo::new()).unwrap_err();
    assert!(matches!(error, GetAddressInfoError::Lookup(_)) && error.to_string().contains("no.such.host"), "{error}");
}

#[test]
#[ignore = "requires InfiniBand addresses, which the soft device lacks: cargo xtask softroce"]
fn gid_address_resolves_and_roce_rejects_it() {
    let mut hints = AddressInfo::new();
    hints.setup_flags(AddressInfoFlags::NumericHost | AddressInfoFlags::Family).setup_port_space(PortSpace::InfiniBand);
    hints.setup_family(AddressFamily::InfiniBand).setup_qp_type(QueuePairType::ReliableConnection);
    let info = one(Some("fe80::7"), Some("258"), &hints);
    let mut expected = InfiniBandAddress::new("fe80::7".parse().unwrap());
    expected.setup_port(PortSpace::InfiniBand, 258);
    assert_eq!(info.destination().unwrap().infiniband(), Some(expected));
    // The library would read an IPv4 address with the length of an IPv6 one.
    getaddrinfo(Some("10.71.0.1"), Some("258"), &hints).unwrap_err();
    let channel = channel();
    let id = channel.create_id(PortSpace::InfiniBand).unwrap();
    let error = id.bind_ib_addr(expected).unwrap_err();
    assert_eq!(error.errno().raw(), libc::ENODEV, "{error}");
    assert!(error.hint().unwrap().contains("no port of an InfiniBand device"), "{error}");
    assert_eq!((id.local_ib_address(), id.peer_ib_address()), (None, None));
    // Linux accepts such addresses for RoCE devices too, and then finds no route.
    id.resolve_ib_addr(None, expected, LONG).unwrap();
    expect(&channel, EventType::AddressResolved);
    assert_eq!(id.peer_ib_address(), Some(expected));
    assert!(id.local_ib_address().is_some() && id.local_address().is_none());
    let error = id.resolve_route(LONG).unwrap_err();
    assert_eq!(error.errno().raw(), libc::ENODEV, "{error}");
    assert!(error.hint().unwrap().contains("RoCE has no routes"), "{error}");
    let error = channel.create_ep(&info).unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("rdma_create_ep", libc::ENODEV), "{error}");
}

#[test]
fn endpoints_connect_through_events() {
    let channel = channel();
    let (listener, info) = listener(&channel, PortSpace::Tcp);
    let id = channel.create_ep(&info).unwrap();
    assert!(channel.try_get_cm_event().unwrap().is_none());
    assert_eq!(id.peer_address(), info.destination().unwrap().ip());
    let active = End::of(id);
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    assert!(Arc::ptr_eq(request.listener_id().unwrap(), &listener));
    let passive = End::of(Arc::clone(request.cm_id()));
    passive.id.accept(&ConnectionParameter::default()).unwrap();
    for _ in 0..2 {
        expect(&channel, EventType::Established);
    }
    assert_eq!((active.qp.state(), passive.qp.state()), (QueuePairState::ReadyToSend, QueuePairState::ReadyToSend));
    active.id.disconnect().unwrap();
    expect(&channel, EventType::Disconnected);
}

#[test]
fn endpoints_for_datagrams_are_looked_up() {
    let channel = channel();
    let (_listener, info) = listener(&channel, PortSpace::Udp);
    assert_eq!(info.qp_type(), Some(QueuePairType::UnreliableDatagram));
    let id = channel.create_ep(&info).unwrap();
    id.connect(ConnectionParameter::default().setup_private_data(b"ping")).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    let EventKind::LookupRequest(data) = request.kind() else { panic!("{request:?}") };
    assert_eq!(data.trimmed(), b"ping");
}

#[test]
fn connect_data_comes_before_private_data() {
    let channel = channel();
    let (_listener, mut info) = listener(&channel, PortSpace::Tcp);
    let id = channel.create_ep(info.setup_connect_data(b"first, ")).unwrap();
    let active = End::of(id);
    let mut parameter = ConnectionParameter::default();
    let error = active.id.connect(parameter.setup_private_data(&[7; 249])).unwrap_err();
    assert_eq!(error.hint(), Some("249 bytes of private data are too many; use at most 248"));
    // The data fits into the C struct, but not into the packet.
    let error = active.id.connect(parameter.setup_private_data(&[7; 50])).unwrap_err();
    assert_eq!(error.errno().raw(), libc::EINVAL, "{error}");
    active.id.connect(parameter.setup_private_data(b"second")).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    let EventKind::ConnectRequest(asked) = request.kind() else { panic!("{request:?}") };
    assert_eq!(asked.private_data().trimmed(), b"first, second");
}

#[test]
#[ignore = "requires the kernel's device: cargo xtask softroce"]
fn unreachable_endpoint_reports_why() {
    let channel = channel();
    let refused = |node: &str| channel.create_ep(&one(Some(node), Some("7471"), &numeric())).unwrap_err();
    let error = refused("203.0.113.5");
    assert_eq!(error.errno().raw(), libc::ENETUNREACH, "{error}");
    let error = refused("127.0.0.1");
    assert_eq!(error.errno().raw(), libc::ENODEV, "{error}");
    // No host has the address: the library waits two seconds.
    let error = refused("10.71.0.77");
    assert_eq!(error.errno().raw(), libc::ETIMEDOUT, "{error}");
    assert_eq!(error.hint(), Some("no reply from 10.71.0.77:7471; check the address, and that the machine is up"));
    assert!(channel.try_get_cm_event().unwrap().is_none());
}

#[test]
fn later_functions_work_or_give_a_typed_error() {
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    match id.write_cm_event(-7, 4711) {
        Ok(()) => {
            let event = expect(&channel, EventType::User);
            assert!(matches!(event.kind(), EventKind::User(4711)) && event.status().raw() == -7, "{event:?}");
        }
        Err(error) => assert!(error.hint().unwrap().contains("older"), "{error}"),
    }
    match id.resolve_addrinfo(Some("127.0.0.1"), Some("7471"), &numeric()) {
        Ok(()) => {
            expect(&channel, EventType::AddressInfoResolved);
            assert_eq!(id.query_addrinfo().unwrap()[0].destination().unwrap().ip(), "127.0.0.1:7471".parse().ok());
        }
        Err(error) => {
            assert!(error.to_string().contains("older"), "{error}");
            id.query_addrinfo().unwrap_err();
        }
    }
}
