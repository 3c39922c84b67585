//! Listeners, and events there besides requests.

use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sideway::rdmacm::communication_manager::EventType;
use sideway::rdmacm::{ConnectStep, ConnectionParameter, Listener, PortSpace};
use sideway_tests::connections::{End, LONG, address, expect};
use sideway_tests::device;
use sideway_tests::programs::port;

use super::{connector, listener};

#[test]
fn listener_without_a_request_times_out() {
    let listener = listener();
    for timeout in [Duration::ZERO, Duration::from_millis(30)] {
        let error = listener.accept(Some(timeout)).unwrap_err();
        assert!(error.is_timed_out());
        assert_eq!((error.step(), error.address()), (ConnectStep::AwaitRequest, Some(listener.local_address())));
        assert!(error.to_string().contains(&format!("no request within {timeout:?}")), "{error}");
    }
    thread::scope(|scope| {
        let waiting: Vec<_> =
            (0..3).map(|_| scope.spawn(|| listener.accept(Some(Duration::from_millis(30))))).collect();
        for one in waiting {
            assert!(one.join().unwrap().unwrap_err().is_timed_out());
        }
    });
}

#[test]
fn other_events_are_kept_and_not_taken_for_requests() {
    let listener = listener();
    let channel = listener.identifier().event_channel();
    let other = channel.create_id(PortSpace::Tcp).unwrap();
    other.resolve_addr(None, listener.local_address(), LONG).unwrap();
    let second = channel.create_id(PortSpace::Tcp).unwrap();
    second.bind_addr((listener.local_address().ip(), 0).into()).unwrap();
    second.listen(0).unwrap();

    // A request for the second listener, which the first one must not accept.
    let elsewhere = connector().resolve((listener.local_address().ip(), second.port())).unwrap();
    let end = End::of(elsewhere.identifier().clone());
    elsewhere.identifier().connect(&ConnectionParameter::default()).unwrap();
    assert!(listener.accept(Some(Duration::from_millis(300))).unwrap_err().is_timed_out());
    let others = listener.take_other_events();
    let types: Vec<_> = others.iter().map(|event| event.event_type()).collect();
    assert_eq!(types, [EventType::AddressResolved, EventType::ConnectRequest]);
    assert!(Arc::ptr_eq(others[0].cm_id(), &other));
    assert!(Arc::ptr_eq(others[1].listener_id().unwrap(), &second));
    assert!(listener.take_other_events().is_empty());
    drop((elsewhere, end));

    let (active, passive) = super::pair(&listener);
    assert!(!Arc::ptr_eq(&passive.connection.event_channel(), &channel));
    drop((active, passive));
}

#[test]
fn unread_events_keep_the_latest() {
    let listener = listener();
    let channel = listener.identifier().event_channel();
    let ids: Vec<_> = (0..70).map(|_| channel.create_id(PortSpace::Tcp).unwrap()).collect();
    for id in &ids {
        id.resolve_addr(None, listener.local_address(), LONG).unwrap();
    }
    assert!(listener.accept(Some(Duration::from_secs(1))).unwrap_err().is_timed_out());
    let kept = listener.take_other_events();
    assert_eq!(kept.len(), 64);
    assert!(Arc::ptr_eq(kept[63].cm_id(), &ids[69]));
}

#[test]
fn connections_outlive_their_listener_and_waiting_requests_are_rejected() {
    let listener = listener();
    let (active, passive) = super::pair(&listener);
    let resolved = connector().resolve(listener.local_address()).unwrap();
    let _end = End::of(resolved.identifier().clone());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| resolved.connect(&ConnectionParameter::default()).unwrap_err());
        thread::sleep(Duration::from_millis(100));
        drop(listener);
        assert!(waiting.join().unwrap().rejection().is_some());
    });
    assert!(!active.connection.is_ended() && !passive.connection.is_ended());
}

#[test]
fn ipv6_only_listener_rejects_ipv4() {
    // The kernel's error depends on whether the program has chosen the port.
    let port = if device::is_soft() { port() } else { 0 };
    let listener = Listener::builder().setup_af_only(true).bind((Ipv6Addr::UNSPECIFIED, port)).unwrap();
    let to = SocketAddr::new(address(), listener.local_address().port());
    let resolved = connector().resolve(to).unwrap();
    let _end = End::of(resolved.identifier().clone());
    let error = resolved.connect(&ConnectionParameter::default()).unwrap_err();
    let why = match device::is_soft() {
        true => "no listener on that port",
        // The kernel has chosen the port.
        false => "listens on another address",
    };
    assert!(error.to_string().ends_with(why), "{error}");
}

#[test]
fn polling_a_listeners_channel_returns_all_requests() {
    const PEERS: usize = 20;
    let listener = listener();
    let peers: Vec<_> = (0..PEERS)
        .map(|_| {
            let resolved = connector().resolve(listener.local_address()).unwrap();
            let end = End::of(resolved.identifier().clone());
            resolved.identifier().connect(&ConnectionParameter::default()).unwrap();
            (resolved, end)
        })
        .collect();
    let channel = listener.event_channel();
    let mut taken = 0;
    while taken < PEERS {
        let mut poll = libc::pollfd { fd: channel.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the call has one live pollfd.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, LONG.as_millis() as i32) }, 1, "{taken} came");
        // Several threads may poll: each request goes to one of them.
        taken += thread::scope(|scope| {
            let takers: Vec<_> = (0..3).map(|_| scope.spawn(|| all_requests(&listener))).collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).sum::<usize>()
        });
    }
    assert_eq!(taken, PEERS);
    // The requests were dropped, which rejects them.
    for (resolved, _end) in &peers {
        expect(&resolved.identifier().event_channel(), EventType::Rejected);
    }
}

fn all_requests(listener: &Listener) -> usize {
    let requests = std::iter::from_fn(|| match listener.accept(Some(Duration::ZERO)) {
        Ok(request) => Some(request),
        Err(error) if error.is_timed_out() => None,
        Err(error) => panic!("{error}"),
    });
    requests.map(drop).count()
}
