//! Threads that use identifiers while others read events: the provider detects overlapping calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sideway::rdmacm::communication_manager::{ConnectionParameter, EventChannel, EventType, Identifier, PortSpace};
use sideway_tests::connections::{End, connect_at, expect, listen_at, resolve};
use sideway_tests::shim::{Shim, channel};

use crate::HERE;

const ROUNDS: usize = 100;

fn is_send_and_sync<T: Send + Sync>(_: &T) {}

#[test]
fn channels_identifiers_and_events_move_between_threads() {
    let _shim = Shim::new();
    let channel = channel();
    is_send_and_sync(&channel);
    let (_listener, address) = listen_at(&channel, PortSpace::Tcp, (HERE, 0).into());
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, address, Duration::from_secs(1)).unwrap();
    let event = channel.get_cm_event(None).unwrap();
    is_send_and_sync(&event);
    drop(id);
    thread::spawn(move || drop(event)).join().unwrap();
    thread::spawn(move || drop((channel, _listener))).join().unwrap();
}

#[test]
fn identifier_is_not_read_while_an_event_writes_it() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, address) = listen_at(&channel, PortSpace::Tcp, (HERE, 0).into());
    for _ in 0..ROUNDS {
        let id = channel.create_id(PortSpace::Tcp).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    look(&id);
                    thread::yield_now();
                }
            });
            scope.spawn(|| {
                id.resolve_addr(None, address, Duration::from_secs(1)).unwrap();
                take(&channel, EventType::AddressResolved);
                id.resolve_route(Duration::from_secs(1)).unwrap();
                take(&channel, EventType::RouteResolved);
                is_over.store(true, Ordering::Relaxed);
            });
        });
        assert_eq!(id.peer_address(), Some(address));
    }
    assert_eq!(shim.violations(), [""; 0]);
}

/// Reads all attributes.
fn look(id: &Arc<Identifier>) {
    std::hint::black_box((id.port(), id.peer_port(), id.local_address(), id.peer_address(), id.port_num()));
    drop(id.get_device_context());
}

#[track_caller]
fn take(channel: &Arc<EventChannel>, event_type: EventType) {
    let event = channel.get_cm_event(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(event.event_type(), event_type);
}

#[test]
fn identifiers_and_queue_pairs_are_dropped_while_another_thread_reads_their_events() {
    let shim = Shim::new();
    let channel = channel();
    for _ in 0..ROUNDS {
        let (active, passive) = connect_at(&channel, HERE);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    while channel.try_get_cm_event().unwrap().is_some() {}
                    thread::yield_now();
                }
            });
            active.id.disconnect().unwrap();
            drop((active, passive));
            is_over.store(true, Ordering::Relaxed);
        });
        while channel.try_get_cm_event().unwrap().is_some() {}
    }
    drop(channel);
    assert_eq!(shim.violations(), [""; 0]);
    assert_eq!(shim.live(), []);
}

#[test]
fn queue_pair_may_be_dropped_during_a_connect() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, address) = listen_at(&channel, PortSpace::Tcp, (HERE, 0).into());
    for _ in 0..ROUNDS {
        let active = End::of(resolve(&channel, PortSpace::Tcp, address));
        active.id.connect(&ConnectionParameter::default()).unwrap();
        let passive = End::of(Arc::clone(expect(&channel, EventType::ConnectRequest).cm_id()));
        passive.id.accept(&ConnectionParameter::default()).unwrap();
        // The response changes the queue pair's state on one thread, and it is destroyed on another.
        thread::scope(|scope| {
            scope.spawn(|| while channel.try_get_cm_event().unwrap().is_some() {});
            drop(active);
        });
        drop(passive);
        while channel.try_get_cm_event().unwrap().is_some() {}
    }
    assert_eq!(shim.violations(), [""; 0]);
}
