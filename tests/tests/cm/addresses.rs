//! Address information, and identifiers created from it.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rdma_mummy_sys::{rdma_addrinfo, rdma_cm_id, sockaddr_ib};
use sideway::ibverbs::queue_pair::QueuePairType;
use sideway::rdmacm::communication_manager::{
    AddressFamily, AddressInfo, AddressInfoFlags, ConnectionParameter, EventChannel, EventKind, EventType,
    GetAddressInfoError, Identifier, InfiniBandAddress, PortSpace, getaddrinfo,
};
use sideway_tests::connections::{End, expect};
use sideway_tests::recording::{Failure, Kind};
use sideway_tests::shim::{ConnectionEvent, Shim, channel};

use crate::raw;

const SECOND: Duration = Duration::from_secs(1);

fn passive() -> AddressInfo {
    let mut hints = AddressInfo::new();
    hints.setup_flags(AddressInfoFlags::Passive | AddressInfoFlags::NumericHost).setup_port_space(PortSpace::Tcp);
    hints
}

/// A listening endpoint, and the address information that leads to it.
fn listener(channel: &Arc<EventChannel>) -> (Arc<Identifier>, AddressInfo) {
    let found = getaddrinfo(Some("127.0.0.1"), None, &passive()).unwrap();
    let id = channel.create_ep(&found[0]).unwrap();
    id.listen(4).unwrap();
    let port = id.port().to_string();
    let [info] = &getaddrinfo(Some("127.0.0.1"), Some(&port), &AddressInfo::new()).unwrap()[..] else {
        panic!("one address")
    };
    (id, info.clone())
}

#[test]
fn lookup_result_is_copied_and_freed() {
    let shim = Shim::new();
    let found = getaddrinfo(Some("::1"), Some("7471"), &AddressInfo::new()).unwrap();
    assert_eq!(shim.live(), [Kind::AddressInformation; 0]);
    assert_eq!(shim.verbs(), ["rdma_getaddrinfo", "rdma_freeaddrinfo"]);
    let [info] = &found[..] else { panic!("{found:?}") };
    assert_eq!(info.destination().unwrap().ip(), Some("[::1]:7471".parse().unwrap()));
    assert_eq!((info.source(), info.is_passive(), info.family()), (None, false, AddressFamily::Ipv6));
    assert_eq!(info.qp_type(), Some(QueuePairType::ReliableConnection));
    assert_eq!(info.port_space(), Some(PortSpace::Tcp));
}

#[test]
fn hint_addresses_are_valid_when_c_reads_them() {
    let shim = Shim::new();
    let source: SocketAddr = "192.0.2.1:0".parse().unwrap();
    let mut hints = AddressInfo::new();
    hints.setup_source(source).setup_qp_type(QueuePairType::UnreliableDatagram);
    let found = getaddrinfo(Some("192.0.2.2"), Some("7"), &hints).unwrap();
    assert_eq!(found[0].source().unwrap().ip(), Some(source));
    assert_eq!(found[0].port_space(), Some(PortSpace::Udp));
    // The family of the source is that of the destination.
    getaddrinfo(Some("::1"), Some("7"), &hints).unwrap_err();
    let gid = InfiniBandAddress::new("fe80::7".parse().unwrap());
    let mut hints = AddressInfo::new();
    hints.setup_destination(gid).setup_port_space(PortSpace::InfiniBand);
    // softrnic has no InfiniBand addresses.
    shim.instead("rdma_getaddrinfo", |arguments| {
        let hints = std::ptr::with_exposed_provenance::<rdma_addrinfo>(arguments[2] as usize);
        // SAFETY: the hints exist during the call, and so does the address that they name.
        let (hints, address) = unsafe { (*hints, (*hints).ai_dst_addr.cast::<sockaddr_ib>().read()) };
        assert_eq!(hints.ai_dst_len as usize, size_of::<sockaddr_ib>());
        assert_eq!(i32::from(address.sib_family), libc::AF_IB);
        // SAFETY: any bytes are a value of the union.
        assert_eq!(unsafe { address.sib_addr.ib_u.uib_addr8 }[..2], [0xfe, 0x80]);
        libc::EAI_NONAME
    });
    getaddrinfo(None, None, &hints).unwrap_err();
}

#[test]
fn failed_lookup_reports_its_error() {
    let shim = Shim::new();
    // No name server is asked, whose error depends on the network.
    let mut numeric = AddressInfo::new();
    numeric.setup_flags(AddressInfoFlags::NumericHost);
    let error = getaddrinfo(Some("no.such.host"), Some("1"), &numeric).unwrap_err();
    let GetAddressInfoError::Lookup(error) = error else { panic!("{error:?}") };
    assert_eq!((error.code(), error.node(), error.service()), (libc::EAI_NONAME, Some("no.such.host"), Some("1")));
    shim.fail("rdma_getaddrinfo", 0, Failure::documented(libc::ENODEV));
    let error = getaddrinfo(Some("127.0.0.1"), None, &AddressInfo::new()).unwrap_err();
    assert!(error.to_string().contains("there is no RDMA device"), "{error}");
    shim.verbs();
    for (node, service) in [(Some("\0"), None), (None, Some("1\0")), (None, None)] {
        let error = getaddrinfo(node, service, &AddressInfo::new()).unwrap_err();
        let GetAddressInfoError::Verb(error) = error else { panic!("{error:?}") };
        assert_eq!(error.errno().raw(), libc::EINVAL);
    }
    assert_eq!(shim.verbs(), [""; 0]);
}

#[test]
fn endpoint_connects_through_events() {
    let shim = Shim::new();
    let channel = channel();
    let (listener, info) = listener(&channel);
    let id = channel.create_ep(&info).unwrap();
    assert!(channel.try_get_cm_event().unwrap().is_none(), "address and route are resolved without an event");
    assert_eq!(id.peer_address(), info.destination().unwrap().ip());
    assert!(Arc::ptr_eq(&id.event_channel(), &channel));
    let active = End::of(id);
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    assert!(Arc::ptr_eq(request.listener_id().unwrap(), &listener));
    let passive = End::of(request.cm_id().clone());
    passive.id.accept(&ConnectionParameter::default()).unwrap();
    for _ in 0..2 {
        expect(&channel, EventType::Established);
    }
    active.id.disconnect().unwrap();
    drop((request, active, passive, listener, channel));
    assert_eq!(shim.live(), []);
}

#[test]
fn connect_data_and_private_data_share_the_space() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, mut info) = listener(&channel);
    let id = channel.create_ep(info.setup_connect_data(&[b'c'; 20])).unwrap();
    let active = End::of(id);
    shim.calls();
    let mut parameter = ConnectionParameter::default();
    let error = active.id.connect(parameter.setup_private_data(&[b'p'; 236])).unwrap_err();
    assert_eq!(error.hint(), Some("236 bytes of private data are too many; use at most 235"));
    assert_eq!(shim.verbs(), [""; 0]);
    active.id.connect(parameter.setup_private_data(&[b'p'; 4])).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    let EventKind::ConnectRequest(asked) = request.kind() else { panic!("{request:?}") };
    assert_eq!(asked.private_data().trimmed(), b"ccccccccccccccccccccpppp");
    let error = channel.create_ep(info.setup_connect_data(&[0; 256])).unwrap_err();
    assert_eq!(error.hint(), Some("256 bytes of connect data are too many; use at most 255"));
    assert_eq!(shim.calls().iter().filter(|call| call.verb == "rdma_create_ep").count(), 0);
}

#[test]
fn failed_endpoint_leaks_nothing() {
    let shim = Shim::new();
    let channel = channel();
    let (listener, info) = listener(&channel);
    shim.fail("rdma_create_ep", 0, Failure::documented(libc::ETIMEDOUT));
    let error = channel.create_ep(&info).unwrap_err();
    assert!(error.hint().unwrap().contains("no reply from 127.0.0.1"), "{error}");
    shim.fail("rdma_migrate_id", 0, Failure::documented(libc::ENOMEM));
    let error = channel.create_ep(&info).unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("rdma_migrate_id", libc::ENOMEM));
    drop(listener);
    drop(channel);
    assert_eq!(shim.live(), []);
}

/// Looks up, listens, connects and disconnects; stops at the first error.
fn whole_life() -> Result<(), Box<dyn Error>> {
    let channel = EventChannel::new()?;
    let found = getaddrinfo(Some("127.0.0.1"), None, &passive())?;
    let listener = channel.create_ep(&found[0])?;
    listener.listen(1)?;
    let port = listener.port().to_string();
    let mut found = getaddrinfo(Some("127.0.0.1"), Some(&port), &AddressInfo::new())?;
    let id = channel.create_ep(found[0].setup_connect_data(b"data"))?;
    id.resolve_addrinfo(Some("127.0.0.1"), Some("7"), &AddressInfo::new())?;
    let event = channel.get_cm_event(Some(Duration::ZERO))?;
    if event.event_type() != EventType::AddressInfoResolved {
        return Err(event.to_string().into());
    }
    id.query_addrinfo()?;
    id.write_cm_event(0, 7)?;
    channel.get_cm_event(Some(Duration::ZERO))?;
    Ok(())
}

#[test]
fn any_failing_call_leaks_nothing() {
    let shim = Shim::new();
    whole_life().unwrap();
    let calls = shim.failable();
    drop(shim);
    assert!(calls > 10, "{calls} calls");
    for number in 0..calls {
        let shim = Shim::new();
        shim.fail_any(number, Failure::documented(libc::ENOMEM));
        let told = whole_life();
        let failed: Vec<_> = shim.calls().into_iter().filter(|call| call.failed.is_some()).collect();
        // An object that C does not destroy is leaked, and keeps its parents.
        let is_leaked = failed.iter().any(|call| call.verb.contains("destroy") || call.verb.contains("dealloc"));
        // Port 0 is enough, because the connection is not established.
        let has_other_way = failed.iter().any(|call| ["rdma_ack_cm_event", "rdma_get_src_port"].contains(&call.verb));
        assert!(is_leaked || has_other_way || told.is_err(), "{failed:?}");
        assert!(is_leaked || shim.live().is_empty(), "{failed:?}: {:?} is left", shim.live());
        // A leaked identifier keeps its channel.
        assert!(is_leaked || shim.violations().is_empty(), "{failed:?}");
        shim.violations();
    }
}

#[test]
fn addresses_are_found_by_events() {
    let shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    let error = id.query_addrinfo().unwrap_err();
    assert!(error.hint().unwrap().contains("there is no result"), "{error}");
    id.resolve_addrinfo(Some("127.0.0.1"), Some("5"), &AddressInfo::new()).unwrap();
    let event = expect(&channel, EventType::AddressInfoResolved);
    assert!(matches!(event.kind(), EventKind::AddressInfoResolved), "{event:?}");
    let found = id.query_addrinfo().unwrap();
    assert_eq!(found[0].destination().unwrap().ip(), Some("127.0.0.1:5".parse().unwrap()));
    let (c_channel, c_id) = raw(&channel, &id);
    let kind = EventType::AddressInfoError.raw();
    shim.raise(c_channel, ConnectionEvent { status: -libc::EIO, ..ConnectionEvent::new(kind, c_id) });
    let event = expect(&channel, EventType::AddressInfoError);
    let EventKind::AddressInfoError(status) = event.kind() else { panic!("{event:?}") };
    assert_eq!(status.errno().unwrap().raw(), libc::EIO);
}

#[test]
fn user_event_has_its_argument() {
    let _shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    for (status, argument) in [(0, 0), (-1, u64::MAX), (i32::MIN, 0x0123_4567_89ab_cdef)] {
        id.write_cm_event(status, argument).unwrap();
        let event = expect(&channel, EventType::User);
        assert!(matches!(event.kind(), EventKind::User(told) if *told == argument), "{event:?}");
        assert_eq!(event.status().raw(), status);
        assert!(Arc::ptr_eq(event.cm_id(), &id));
    }
}

#[test]
fn older_library_gives_a_typed_error() {
    let shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    for verb in ["rdma_resolve_addrinfo", "rdma_query_addrinfo", "rdma_write_cm_event"] {
        shim.fail(verb, 0, Failure::documented(libc::EOPNOTSUPP));
    }
    let told = [
        id.resolve_addrinfo(Some("127.0.0.1"), None, &AddressInfo::new()).unwrap_err().to_string(),
        id.query_addrinfo().unwrap_err().to_string(),
        id.write_cm_event(0, 0).unwrap_err().to_string(),
    ];
    for told in told {
        assert!(told.contains("EOPNOTSUPP") && told.contains("librdmacm is older than RDMACM_1.4"), "{told}");
    }
}

/// Stores InfiniBand addresses in an identifier, as the library does; softrnic has none.
pub(crate) fn store(id: u64, source: u64, destination: u64) -> libc::c_int {
    let id = std::ptr::with_exposed_provenance_mut::<rdma_cm_id>(id as usize);
    let read = |address: u64| std::ptr::with_exposed_provenance::<sockaddr_ib>(address as usize);
    // SAFETY: the identifier and the addresses are live during the call.
    unsafe {
        let address = &raw mut (*id).route.addr;
        (&raw mut (*address).__bindgen_anon_1).cast::<sockaddr_ib>().write(*read(source));
        if destination != 0 {
            (&raw mut (*address).__bindgen_anon_2).cast::<sockaddr_ib>().write(*read(destination));
        }
    }
    0
}

#[test]
fn infiniband_addresses_survive_the_round_trip_through_c() {
    let shim = Shim::new();
    let channel = channel();
    let mut here = InfiniBandAddress::new("fe80::7".parse().unwrap());
    here.setup_pkey(0x8001).setup_port(PortSpace::InfiniBand, 4242);
    let id = channel.create_id(PortSpace::InfiniBand).unwrap();
    shim.instead("rdma_bind_addr", |arguments| store(arguments[0], arguments[1], 0));
    id.bind_ib_addr(here).unwrap();
    assert_eq!((id.local_ib_address(), id.local_address()), (Some(here), None));
    assert_eq!(id.peer_ib_address(), None);
    shim.fail("rdma_bind_addr", 0, Failure::documented(libc::EINVAL));
    let error = id.bind_ib_addr(here).unwrap_err();
    assert!(error.hint().unwrap().contains("the service identifier is outside its port space"), "{error}");
    let there = *InfiniBandAddress::new("fe80::8".parse().unwrap()).setup_service_id(77, !0);
    let id = channel.create_id(PortSpace::InfiniBand).unwrap();
    let source = *here.setup_port(PortSpace::InfiniBand, 4243);
    shim.instead("rdma_resolve_addr", |arguments| store(arguments[0], arguments[1], arguments[2]));
    id.resolve_ib_addr(Some(source), there, SECOND).unwrap();
    assert_eq!((id.local_ib_address(), id.peer_ib_address()), (Some(source), Some(there)));
}
