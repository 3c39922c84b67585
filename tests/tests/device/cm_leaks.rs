//! Connections by address, repeated a thousand times. However they end, this process afterwards has as many
//! identifiers, queue pairs, completion queues, regions, domains and open files as before. Each test runs in its own
//! process, because these counts belong to a process.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, thread};

use sideway::ibverbs::AccessFlags;
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, EventChannel, EventKind, EventType, Identifier, PortSpace, RejectReason,
};
use sideway_tests::child::Program;
use sideway_tests::connections::{End, LONG, address, channel, expect, listen, listen_at, resolve};
use sideway_tests::process::alone;
use sideway_tests::programs::port;
use sideway_tests::resources::Held;

/// Connections that are established and ended.
const TIMES: usize = 1000;

/// Fewer rounds for slower cases, which are still enough to show a leak.
const SOME: usize = 200;

/// Marks this program as the peer of another, with the address of the other's listener.
const PEER_OF: &str = "SIDEWAY_TEST_PEER_OF";
/// Connections in either direction with a peer that is killed.
const WITH_PEER: usize = 10;

/// The counts of this process after all lasting objects are created: devices are opened at their first use.
#[track_caller]
fn held(listener: SocketAddr, channel: &Arc<EventChannel>) -> Held {
    drop(ask(channel, listener));
    drop(expect(channel, EventType::ConnectRequest));
    let held = Held::now();
    assert_eq!((held.count("qp"), held.count("mr")), (0, 0), "{held:?}");
    held
}

/// Sends a connect request.
#[track_caller]
fn ask(channel: &Arc<EventChannel>, address: SocketAddr) -> End {
    let end = End::of(resolve(channel, PortSpace::Tcp, address));
    end.id.connect(&ConnectionParameter::default()).unwrap_or_else(|error| panic!("{error}"));
    end
}

/// Accepts the next request.
#[track_caller]
fn answer(channel: &Arc<EventChannel>) -> End {
    let end = End::of(Arc::clone(expect(channel, EventType::ConnectRequest).cm_id()));
    end.id.accept(&ConnectionParameter::default()).unwrap_or_else(|error| panic!("{error}"));
    end
}

#[test]
#[ignore = "counts the kernel's objects: cargo xtask softroce"]
fn held_objects_are_counted() {
    if !alone("cm_leaks::held_objects_are_counted", &[]) {
        return;
    }
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Tcp);
    let before = held(address, &channel);
    let end = ask(&channel, address);
    let request = expect(&channel, EventType::ConnectRequest);
    let region = end.pd.reg_owned_mr(4096, AccessFlags::LocalWrite).unwrap();
    let file = std::fs::File::open("/proc/self/stat").unwrap();
    let during = Held::now();
    assert_ne!(during, before);
    for (kind, more) in [("cm_id", 2), ("qp", 1), ("cq", 1), ("pd", 1), ("mr", 1)] {
        assert_eq!(during.count(kind), before.count(kind) + more, "{kind}: {before:?}, {during:?}");
    }
    drop((end, request, region, file));
    before.is_held_again();
}

#[test]
fn ended_connections_leak_nothing() {
    if !alone("cm_leaks::ended_connections_leak_nothing", &[]) {
        return;
    }
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Tcp);
    let before = held(address, &channel);
    for time in 0..TIMES {
        let active = ask(&channel, address);
        let passive = answer(&channel);
        let regions = [&active, &passive].map(|end| end.pd.reg_owned_mr(4096, AccessFlags::LocalWrite).unwrap());
        expect(&channel, EventType::Established);
        expect(&channel, EventType::Established);
        // Each side starts in turn, and sometimes neither disconnects.
        let (first, second) = if time % 2 == 0 { (active, passive) } else { (passive, active) };
        if time % 10 == 9 {
            drop(first);
            expect(&channel, EventType::Disconnected);
        } else {
            first.id.disconnect().unwrap();
            assert!(Arc::ptr_eq(expect(&channel, EventType::Disconnected).cm_id(), &second.id));
            second.id.disconnect().unwrap();
            assert!(Arc::ptr_eq(expect(&channel, EventType::Disconnected).cm_id(), &first.id));
        }
        drop(regions);
    }
    before.is_held_again();
}

#[test]
fn refused_connections_leak_nothing() {
    if !alone("cm_leaks::refused_connections_leak_nothing", &[]) {
        return;
    }
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Tcp);
    let before = held(address, &channel);
    for time in 0..SOME {
        let active = ask(&channel, address);
        let request = expect(&channel, EventType::ConnectRequest);
        // Every other request is rejected only after all objects for an accept were created.
        let end = (time % 2 == 0).then(|| End::of(Arc::clone(request.cm_id())));
        request.cm_id().reject(b"no").unwrap();
        assert!(Arc::ptr_eq(expect(&channel, EventType::Rejected).cm_id(), &active.id));
        drop(end);
    }
    before.is_held_again();
}

#[test]
fn dropped_requests_leave_no_trace() {
    if !alone("cm_leaks::dropped_requests_leave_no_trace", &[]) {
        return;
    }
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Tcp);
    let before = held(address, &channel);
    for _ in 0..SOME {
        let active = ask(&channel, address);
        drop(expect(&channel, EventType::ConnectRequest));
        assert!(Arc::ptr_eq(expect(&channel, EventType::Rejected).cm_id(), &active.id));
    }
    before.is_held_again();
}

#[test]
fn connects_without_a_listener_leak_nothing() {
    if !alone("cm_leaks::connects_without_a_listener_leak_nothing", &[]) {
        return;
    }
    let channel = channel();
    let (listener, address) = listen_at(&channel, PortSpace::Tcp, (address(), port()).into());
    let before = held(address, &channel);
    // The identifier keeps its port, but does not listen.
    drop(listener);
    let bound = channel.create_id(PortSpace::Tcp).unwrap();
    bound.bind_addr(address).unwrap();
    for _ in 0..SOME {
        let active = ask(&channel, address);
        let event = expect(&channel, EventType::Rejected);
        let EventKind::Rejected(rejection) = event.kind() else { panic!("{event:?}") };
        assert_eq!(rejection.reason(), Some(RejectReason::InvalidServiceId));
        drop(active);
    }
    before.is_held_again();
}

#[test]
fn channels_dropped_with_events_leak_nothing() {
    if !alone("cm_leaks::channels_dropped_with_events_leak_nothing", &[]) {
        return;
    }
    let other = channel();
    let (_listener, address) = listen(&other, PortSpace::Tcp);
    let before = held(address, &other);
    let mut kinds = [0; 3];
    for time in 0..SOME {
        let channel = channel();
        let kind = time % kinds.len();
        kinds[kind] += 1;
        match kind {
            // An identifier with a resolved address.
            0 => {
                let id = channel.create_id(PortSpace::Tcp).unwrap();
                id.resolve_addr(None, address, LONG).unwrap();
                wait_for_event(&channel);
            }
            // A request; this side does not have its identifier yet.
            1 => {
                let (listener, address) = listen(&channel, PortSpace::Tcp);
                let active = ask(&other, address);
                wait_for_event(&channel);
                drop((listener, channel));
                assert!(Arc::ptr_eq(expect(&other, EventType::Rejected).cm_id(), &active.id));
            }
            // An established connection.
            _ => {
                let active = ask(&channel, address);
                let passive = answer(&other);
                wait_for_event(&channel);
                drop((active, channel));
                // Whether or not the peer had become ready, both connections end.
                let event = other.get_cm_event(Some(LONG)).unwrap();
                match event.event_type() {
                    EventType::Established => drop(expect(&other, EventType::Disconnected)),
                    EventType::Rejected | EventType::Disconnected | EventType::ConnectError => {}
                    _ => panic!("{event:?}"),
                }
                drop(passive);
            }
        }
    }
    assert!(kinds.iter().all(|&times| times > SOME / 4), "{kinds:?}");
    before.is_held_again();
}

/// Waits until an event is queued, without reading it.
#[track_caller]
fn wait_for_event(channel: &EventChannel) {
    use std::os::fd::AsRawFd;
    let mut entry = libc::pollfd { fd: channel.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the call has one entry, which is readable and writable.
    let ready = unsafe { libc::poll(&mut entry, 1, LONG.as_millis() as i32) };
    assert_eq!(ready, 1, "timed out waiting for an event");
}

/// The process that is killed: connects to its parent, and lets the parent connect to it.
#[test]
fn peer() {
    // Runs only if the test below starts it.
    let Ok(address) = env::var(PEER_OF) else { return };
    let active_channel = channel();
    let address = address.parse().expect("an address");
    let connect = |_| {
        let end = ask(&active_channel, address);
        expect(&active_channel, EventType::Established);
        end
    };
    let active: Vec<_> = (0..WITH_PEER).map(connect).collect();
    let passive_channel = channel();
    let (_listener, address) = listen(&passive_channel, PortSpace::Tcp);
    println!("PEER {address}");
    std::io::stdout().flush().expect("the other process listens");
    let accept = |_| {
        let end = answer(&passive_channel);
        expect(&passive_channel, EventType::Established);
        end
    };
    let passive: Vec<_> = (0..WITH_PEER).map(accept).collect();
    thread::sleep(Duration::from_secs(300));
    drop((active, passive));
}

#[test]
fn connections_to_a_killed_peer_end_and_leak_nothing() {
    if !alone("cm_leaks::connections_to_a_killed_peer_end_and_leak_nothing", &[]) {
        return;
    }
    let channel = channel();
    let (_listener, address) = listen(&channel, PortSpace::Tcp);
    let before = held(address, &channel);
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command.args(["--exact", "cm_leaks::peer", "--include-ignored", "--nocapture", "--test-threads=1"]);
    command.env(PEER_OF, address.to_string());
    let mut peer = Program::start(command, 6 * LONG);
    let mut ends = Vec::new();
    // Requests are sequential. A connection is established when the peer has received the response.
    while ends.len() < WITH_PEER || is_one_missing(&ends) {
        let event = channel.get_cm_event(Some(LONG)).unwrap_or_else(|error| panic!("{error}\n{}", peer.said()));
        match event.event_type() {
            EventType::ConnectRequest => {
                let end = End::of(Arc::clone(event.cm_id()));
                end.id.accept(&ConnectionParameter::default()).unwrap();
                ends.push((end, false));
            }
            EventType::Established => {
                ends.iter_mut().find(|(end, _)| Arc::ptr_eq(&end.id, event.cm_id())).expect("one of these").1 = true;
            }
            _ => panic!("{event:?}\n{}", peer.said()),
        }
    }
    let theirs: SocketAddr = peer_address(&peer);
    let ids: Vec<Arc<Identifier>> = ends.iter().map(|(end, _)| Arc::clone(&end.id)).collect();
    let active: Vec<_> = (0..WITH_PEER)
        .map(|_| {
            let end = ask(&channel, theirs);
            expect(&channel, EventType::Established);
            end
        })
        .collect();
    let all: Vec<_> = ids.into_iter().chain(active.iter().map(|end| Arc::clone(&end.id))).collect();
    assert_eq!(all.len(), 2 * WITH_PEER);

    peer.kill();
    let mut told = Vec::new();
    for _ in &all {
        let event = expect(&channel, EventType::Disconnected);
        let at = all.iter().position(|id| Arc::ptr_eq(id, event.cm_id())).expect("one of these");
        assert!(!told.contains(&at), "{at} was reported twice");
        told.push(at);
        // The disconnect message has no receiver, and needs none.
        event.cm_id().disconnect().unwrap();
    }
    drop((peer, all, active, ends));
    before.is_held_again();
}

/// Whether one of them is not established yet.
fn is_one_missing(ends: &[(End, bool)]) -> bool {
    ends.iter().any(|(_, is_established)| !is_established)
}

/// The address of the peer's listener.
#[track_caller]
fn peer_address(peer: &Program) -> SocketAddr {
    let started = Instant::now();
    loop {
        let said = peer.said();
        let line = said.split_once("PEER ").and_then(|(_, rest)| rest.split_once('\n'));
        if let Some((line, _)) = line {
            return line.parse().expect("an address");
        }
        assert!(started.elapsed() < LONG, "the peer did not print its address:\n{said}");
        thread::sleep(Duration::from_millis(10));
    }
}
