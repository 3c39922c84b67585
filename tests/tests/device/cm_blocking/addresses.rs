//! Addresses of both families, names, and unreachable ones.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::thread;
use std::time::Duration;

use sideway::rdmacm::{ConnectCause, ConnectStep, Connector, Listener};
use sideway_tests::connections::{LONG, address};
use sideway_tests::device;
use sideway_tests::interface::Interface;
use sideway_tests::requirements::has_ipv6;

use super::{Side, accept, connect, connector, listener};

fn connects(listener: &Listener) {
    thread::scope(|scope| {
        let active = scope.spawn(|| connect(listener, &Default::default()));
        let passive = accept(listener);
        let Side { connection, end } = active.join().unwrap();
        assert_eq!(connection.peer_address(), Some(listener.local_address()));
        let [mine, theirs] = [connection.local_address(), passive.connection.peer_address()].map(Option::unwrap);
        assert_eq!((mine.ip(), mine.port()), (theirs.ip(), theirs.port()));
        drop((connection, end));
    });
}

#[test]
fn address_of_the_link_connects_with_its_scope() {
    let context = device::open();
    let table = context.query_gid_table().unwrap();
    if !has_ipv6() {
        return;
    }
    let entry = table.iter().find(|entry| entry.gid().is_unicast_link_local()).unwrap();
    let ip = Ipv6Addr::from(entry.gid());
    connects(&Listener::bind(SocketAddrV6::new(ip, 0, 0, entry.netdev_index())).unwrap());

    let listener = Listener::bind(SocketAddrV6::new(ip, 0, 0, entry.netdev_index())).unwrap();
    let from = connector().setup_source(ip.into()).resolve(listener.local_address()).unwrap();
    assert_eq!(from.local_address().unwrap().ip(), IpAddr::from(ip));
    let text = format!("[{ip}%{}]:{}", entry.netdev_index(), listener.local_address().port());
    assert_eq!(connector().resolve(text).unwrap().peer_address(), listener.local_address());
}

#[test]
#[ignore = "changes an interface of the machine: cargo xtask softroce"]
fn global_ipv6_address_connects_and_the_ipv6_wildcard_covers_ipv4() {
    let context = device::open();
    let interface = Interface::of(&context);
    let ip: Ipv6Addr = "fd00:71::71".parse().unwrap();
    interface.ip("-6 addr replace fd00:71::71/64 dev {} nodad");
    connects(&Listener::bind((ip, 0)).unwrap());
    interface.ip("-6 addr del fd00:71::71/64 dev {}");

    let listener = Listener::bind("[::]:0").unwrap();
    let to = SocketAddr::new(address(), listener.local_address().port());
    thread::scope(|scope| {
        let active = scope.spawn(move || connector().resolve(to).unwrap().connect(&Default::default()).unwrap_err());
        // Without a queue pair there is no request.
        let error = active.join().unwrap();
        assert!(error.to_string().contains("no queue pair was created through the identifier"), "{error}");
        let active = scope.spawn(move || {
            let resolved = connector().resolve(to).unwrap();
            let end = sideway_tests::connections::End::of(resolved.identifier().clone());
            (resolved.connect(&Default::default()).unwrap(), end)
        });
        let passive = accept(&listener);
        let (connection, _end) = active.join().unwrap();
        assert_eq!(connection.peer_address(), Some(to));
        drop(passive);
    });
}

#[test]
fn source_address_is_bound_or_rejected() {
    let listener = listener();
    let resolved =
        connector().setup_source(address()).setup_type_of_service(0x20).resolve(listener.local_address()).unwrap();
    assert_eq!(resolved.local_address().unwrap().ip(), address());
    let error = connector().setup_source(Ipv4Addr::new(192, 0, 2, 7).into()).resolve(listener.local_address());
    let error = error.unwrap_err();
    assert!(error.to_string().contains("no RDMA device has the source address"), "{error}");
    let error = connector().setup_source(Ipv6Addr::LOCALHOST.into()).resolve(listener.local_address()).unwrap_err();
    assert_eq!(error.step(), ConnectStep::ResolveAddress);
}

#[test]
#[ignore = "requires the kernel's device: cargo xtask softroce"]
fn loopback_address_has_no_device() {
    let error = connector().resolve("127.0.0.1:7174").unwrap_err();
    assert_eq!(error.step(), ConnectStep::ResolveRoute);
    assert_eq!(error.address(), Some("127.0.0.1:7174".parse().unwrap()));
    assert!(matches!(error.cause(), ConnectCause::Verb(error) if error.errno().raw() == libc::ENODEV), "{error:?}");
    assert_eq!(
        error.to_string(),
        "rdma_resolve_route: ENODEV (No such device): resolving the route to 127.0.0.1:7174: the address leads to no RDMA \
         device; use the address of a device"
    );
}

#[test]
#[ignore = "requires the kernel's device: cargo xtask softroce"]
fn each_address_of_a_name_is_tried_and_reported() {
    let listener = listener();
    let port = listener.local_address().port();
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let resolved = connector().resolve(&[loopback, listener.local_address()][..]).unwrap();
    assert_eq!(resolved.peer_address(), listener.local_address());
    let error = connector().resolve(&[loopback, SocketAddr::from((Ipv6Addr::LOCALHOST, port))][..]).unwrap_err();
    assert_eq!(error.address().unwrap().ip(), Ipv6Addr::LOCALHOST);
    assert_eq!(error.earlier().len(), 1);
    assert_eq!(error.earlier()[0].address(), Some(loopback));
    let text = error.to_string();
    assert!(text.contains("; before that, ") && text.contains("127.0.0.1") && text.contains("[::1]"), "{text}");
    let bound = Listener::bind(&[SocketAddr::from(([192, 0, 2, 7], 0)), SocketAddr::new(address(), 0)][..]).unwrap();
    assert_eq!(bound.local_address().ip(), address());
}

#[test]
#[ignore = "requires the kernel's device: cargo xtask softroce"]
fn failed_name_lookup_names_the_host() {
    let error = connector().resolve(("no-such-host.invalid", 7174)).unwrap_err();
    assert_eq!(error.step(), ConnectStep::LookUpName);
    assert!(matches!(error.cause(), ConnectCause::Name(_)), "{error:?}");
    assert!(error.to_string().starts_with("looking up (\"no-such-host.invalid\", 7174): "), "{error}");
    let error = Listener::bind("no-port").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let error = connector().resolve(&[][..]).unwrap_err();
    assert!(matches!(error.cause(), ConnectCause::NoAddress), "{error:?}");
    // The addresses of the name depend on the machine; none leads to a device.
    let error = connector().resolve("localhost:7174").unwrap_err();
    assert!(error.to_string().contains("localhost") || error.address().unwrap().ip().is_loopback(), "{error}");
}

#[test]
fn network_without_a_route_is_unreachable() {
    let error = connector().resolve("203.0.113.5:7174").unwrap_err();
    assert_eq!((error.step(), error.kind()), (ConnectStep::ResolveAddress, ErrorKind::NetworkUnreachable));
    assert!(error.to_string().contains("203.0.113.5:7174"), "{error}");
}

#[test]
#[ignore = "requires the kernel's device: cargo xtask softroce"]
fn unanswered_request_uses_the_programs_deadline() {
    let IpAddr::V4(address) = address() else { panic!("the device has no IPv4 address") };
    let [a, b, c, _] = address.octets();
    let nobody = SocketAddr::from(([a, b, c, 77], 7174));
    let mut connector = Connector::new();
    let error = connector.setup_timeout(Duration::from_millis(300)).resolve(nobody).unwrap_err();
    assert_eq!((error.step(), error.kind()), (ConnectStep::ResolveAddress, ErrorKind::TimedOut));
    assert!(error.is_timed_out());
    assert_eq!(
        error.to_string(),
        format!("resolving the address {nobody}: no reply within 300ms; check the address, and that the machine is up")
    );
    // An unresponsive address leaves time for the next.
    let listener = listener();
    let found = connector.setup_timeout(LONG / 4).resolve(&[nobody, listener.local_address()][..]).unwrap();
    assert_eq!(found.peer_address(), listener.local_address());
}

#[test]
fn maximum_timeout_connects_and_zero_times_out() {
    let listener = listener();
    let mut connector = Connector::new();
    thread::scope(|scope| {
        let passive = scope.spawn(|| accept(&listener));
        let resolved = connector.setup_timeout(Duration::MAX).resolve(listener.local_address()).unwrap();
        let _end = sideway_tests::connections::End::of(resolved.identifier().clone());
        drop(resolved.connect(&Default::default()).unwrap());
        passive.join().unwrap();
    });
    let error = connector.setup_timeout(Duration::ZERO).resolve(listener.local_address()).unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert_eq!(error.step(), ConnectStep::ResolveAddress);
}
