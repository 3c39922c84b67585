//! Options of identifiers, their effect on connections, and the route of a connection.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use sideway::ibverbs::address::Gid;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairAttributeMask};
use sideway::rdmacm::communication_manager::{ConnectionParameter, EventType, Identifier, PathRecord, PortSpace};
use sideway_tests::connections::{End, LONG, address, channel, connect, expect, listen, resolve};
use sideway_tests::programs::port;

#[test]
fn address_can_be_shared_with_reuseaddr() {
    let channel = channel();
    let create = || channel.create_id(PortSpace::Tcp).unwrap();
    let [first, second, third] = [create(), create(), create()];
    for id in [&first, &second] {
        id.set_reuse_address(true).unwrap();
    }
    first.bind_addr(SocketAddr::new(address(), 0)).unwrap();
    let address = first.local_address().unwrap();
    second.bind_addr(address).unwrap();
    let error = third.bind_addr(address).unwrap_err();
    assert_eq!(error.errno().raw(), libc::EADDRINUSE, "{error}");

    let error = first.set_reuse_address(false).unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("rdma_set_option", libc::EINVAL));
    assert_eq!(error.hint(), Some("the identifier already has an address; set the option before bind_addr"));
}

#[test]
fn af_only_leaves_the_port_of_the_other_family_free() {
    let channel = channel();
    for af_only in [true, false] {
        let [six, four] = [(), ()].map(|()| channel.create_id(PortSpace::Tcp).unwrap());
        six.set_af_only(af_only).unwrap();
        six.bind_addr(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port())).unwrap();
        six.listen(0).unwrap();
        let other = SocketAddr::new([0, 0, 0, 0].into(), six.port());
        assert_eq!(four.bind_addr(other).is_ok(), af_only);
        let error = six.set_af_only(true).unwrap_err();
        assert_eq!(error.hint(), Some("the identifier listens or is connected; set the option before bind_addr"));
    }
}

#[test]
fn type_of_service_and_the_time_of_an_acknowledgement_reach_the_queue_pair() {
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Tcp);
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.set_type_of_service(0x68).unwrap();
    id.set_ack_timeout(13).unwrap();
    id.resolve_addr(None, address, LONG).unwrap();
    expect(&channel, EventType::AddressResolved);
    id.resolve_route(LONG).unwrap();
    expect(&channel, EventType::RouteResolved);
    assert_eq!(id.paths()[0].traffic_class(), 0x68);
    let active = End::of(id);
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let passive = End::of(Arc::clone(expect(&channel, EventType::ConnectRequest).cm_id()));
    passive.id.set_ack_timeout(0).unwrap();
    passive.id.accept(&ConnectionParameter::default()).unwrap();
    expect(&channel, EventType::Established);
    expect(&channel, EventType::Established);
    let mask = QueuePairAttributeMask::Timeout | QueuePairAttributeMask::AddressVector;
    let ends = [&active, &passive].map(|end| end.qp.query(mask).unwrap().0);
    assert_eq!(ends.each_ref().map(|attributes| attributes.timeout()), [13, 0]);
    assert_eq!(ends[0].address_vector().grh_traffic_class(), 0x68);
}

#[test]
fn out_of_range_ack_timeouts_are_refused() {
    let channel = channel();
    let [connection, datagram] = [PortSpace::Tcp, PortSpace::Udp].map(|space| channel.create_id(space).unwrap());
    connection.set_ack_timeout(31).unwrap();
    let error = connection.set_ack_timeout(32).unwrap_err();
    assert_eq!(error.errno().raw(), libc::EINVAL);
    assert!(error.hint().unwrap().starts_with("the timeout 32 is too large; use at most 31"), "{error}");
    let error = datagram.set_ack_timeout(14).unwrap_err();
    assert!(error.hint().unwrap().starts_with("datagrams are not acknowledged"), "{error}");
}

fn gid_of_device() -> Gid {
    sideway_tests::device::gid(&sideway_tests::device::open()).unwrap().gid()
}

#[test]
fn route_exists_once_resolved() {
    let channel = channel();
    let (listener, address) = listen(&channel, PortSpace::Tcp);
    assert_eq!(listener.paths(), []);
    assert_eq!(listener.local_gid(), Some(gid_of_device()));
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    assert_eq!((id.paths(), id.local_gid(), id.peer_gid(), id.pkey()), (vec![], None, None, None));
    drop(id);

    let check = |id: &Arc<Identifier>| {
        let paths = id.paths();
        let [path] = &paths[..] else { panic!("{paths:?}") };
        assert_eq!((path.source_gid(), path.dest_gid()), (gid_of_device(), gid_of_device()));
        assert_eq!((id.local_gid(), id.peer_gid()), (Some(gid_of_device()), Some(gid_of_device())));
        // Only InfiniBand addresses have a partition.
        assert_eq!((path.pkey(), id.pkey()), (0xffff, None));
        assert_eq!((path.mtu(), path.service_level(), path.is_reversible()), (Mtu::Mtu4096, 0, true));
        assert!((16..=18).contains(&path.packet_life_time()), "{path:?}");
        assert!(path.hop_limit() > 0, "{path:?}");
    };
    let active = End::of(resolve(&channel, PortSpace::Tcp, address));
    check(&active.id);
    active.id.connect(&ConnectionParameter::default()).unwrap();
    check(expect(&channel, EventType::ConnectRequest).cm_id());
}

#[test]
fn infiniband_path_is_refused_on_ethernet() {
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Tcp);
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    let path = PathRecord::new(gid_of_device(), gid_of_device());
    assert!(id.set_path(&path).unwrap_err().hint().unwrap().contains("has no device"));
    id.resolve_addr(None, address, LONG).unwrap();
    expect(&channel, EventType::AddressResolved);
    let error = id.set_path(&path).unwrap_err();
    assert!(error.hint().unwrap().contains("not on an InfiniBand port"), "{error}");
    id.resolve_route(LONG).unwrap();
    expect(&channel, EventType::RouteResolved);
}

#[test]
fn library_negotiates_options_of_its_own_queue_pairs() {
    let channel = channel();
    let (active, passive) = connect(&channel);
    for id in [&active.id, &passive.id] {
        let error = id.remote_ece().unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("rdma_get_remote_ece", libc::EINVAL));
        assert!(error.hint().unwrap().contains("created through the identifier"), "{error}");
        let ece = sideway::ibverbs::queue_pair::Ece { vendor_id: 0x15b3, ..Default::default() };
        let error = id.set_local_ece(ece).unwrap_err();
        assert!(error.hint().unwrap().contains("created through the identifier"), "{error}");
    }
}
