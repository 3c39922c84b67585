//! Identifiers that migrate to another channel.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sideway::rdmacm::communication_manager::{ConnectionParameter, EventType, PortSpace};
use sideway_tests::connections::{End, LONG, channel, connect, expect, listen, resolve};

/// Waits until the kernel's events are queued.
fn settle() {
    thread::sleep(Duration::from_millis(200));
}

#[test]
fn queued_events_migrate_and_later_ones_follow() {
    let (old, new, other) = (channel(), channel(), channel());
    let (listener, address) = listen(&old, PortSpace::Tcp);
    let id = old.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, address, LONG).unwrap();
    settle();
    id.migrate(&new).unwrap();
    assert!(Arc::ptr_eq(&id.event_channel(), &new));
    assert!(Arc::ptr_eq(expect(&new, EventType::AddressResolved).cm_id(), &id));
    id.resolve_route(LONG).unwrap();
    expect(&new, EventType::RouteResolved);
    assert!(old.try_get_cm_event().unwrap().is_none());

    let active = End::of(id);
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let passive = End::of(Arc::clone(expect(&old, EventType::ConnectRequest).cm_id()));
    assert!(Arc::ptr_eq(&passive.id.event_channel(), &old));
    passive.id.migrate(&other).unwrap();
    // The identifier is already on this channel.
    passive.id.migrate(&other).unwrap();
    passive.id.accept(&ConnectionParameter::default()).unwrap();
    expect(&new, EventType::Established);
    expect(&other, EventType::Established);
    active.id.disconnect().unwrap();
    settle();
    passive.id.migrate(&old).unwrap();
    let ended = expect(&old, EventType::Disconnected);
    assert!(Arc::ptr_eq(ended.cm_id(), &passive.id));
    assert!(other.try_get_cm_event().unwrap().is_none());
    drop(listener);
}

#[test]
fn migrated_listener_keeps_listening() {
    let (old, new, other) = (channel(), channel(), channel());
    let (listener, address) = listen(&old, PortSpace::Tcp);
    listener.migrate(&new).unwrap();
    let active = End::of(resolve(&other, PortSpace::Tcp, address));
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let request = expect(&new, EventType::ConnectRequest);
    assert!(Arc::ptr_eq(request.listener_id().unwrap(), &listener));
    assert!(Arc::ptr_eq(&request.event_channel(), &new));
    drop(request);
    expect(&other, EventType::Rejected);
    assert!(old.try_get_cm_event().unwrap().is_none());
}

#[test]
#[ignore = "requires the kernel's device: cargo xtask softroce"]
fn queued_requests_are_rejected_when_their_listener_ends() {
    let (old, new, other) = (channel(), channel(), channel());
    let (listener, address) = listen(&old, PortSpace::Tcp);
    let active = End::of(resolve(&other, PortSpace::Tcp, address));
    active.id.connect(&ConnectionParameter::default()).unwrap();
    settle();
    let kept = Arc::downgrade(&old);
    listener.migrate(&new).unwrap();
    drop(old);
    // The kernel keeps the requests on the channel on which they arrived, and the library does not find them.
    assert!(new.try_get_cm_event().unwrap().is_none());
    assert!(other.try_get_cm_event().unwrap().is_none());
    assert!(kept.upgrade().is_some());
    drop(listener);
    assert!(kept.upgrade().is_none());
    expect(&other, EventType::Rejected);
}

#[test]
fn channel_is_destroyed_after_its_last_identifier_migrated() {
    let (old, new) = (channel(), channel());
    let (active, passive) = connect(&old);
    let gone = Arc::downgrade(&old);
    drop(old);
    active.id.migrate(&new).unwrap();
    assert!(gone.upgrade().is_some());
    passive.id.migrate(&new).unwrap();
    assert!(gone.upgrade().is_none());
    active.id.disconnect().unwrap();
    expect(&new, EventType::Disconnected);
    drop((active, passive));
    assert!(new.try_get_cm_event().unwrap().is_none());
}

#[test]
fn two_threads_move_in_opposite_directions_while_others_take_events() {
    const TIMES: usize = 1000;
    let channels = [channel(), channel()];
    let (listener, address) = listen(&channels[0], PortSpace::Tcp);
    let done = std::sync::atomic::AtomicUsize::new(0);
    let order = std::sync::atomic::Ordering::Relaxed;
    thread::scope(|scope| {
        for start in [0, 1] {
            let (channels, done) = (&channels, &done);
            scope.spawn(move || {
                let id = channels[start].create_id(PortSpace::Tcp).unwrap();
                for time in 1..=TIMES {
                    id.migrate(&channels[(start + time) % 2]).unwrap();
                    assert_eq!(id.local_address(), None);
                }
                done.fetch_add(1, order);
            });
        }
        for channel in &channels {
            scope.spawn(|| {
                while done.load(order) < 2 {
                    assert!(channel.try_get_cm_event().unwrap().is_none());
                }
            });
        }
        scope.spawn(|| {
            while done.load(order) < 2 {
                assert_eq!(listener.local_address(), Some(address));
            }
        });
    });
    assert_eq!(done.load(order), 2);
}

#[test]
fn event_arrives_on_one_channel_during_a_migration() {
    let channels = [channel(), channel()];
    for round in 0..50 {
        let (listener, address) = listen(&channels[0], PortSpace::Tcp);
        let id = channels[0].create_id(PortSpace::Tcp).unwrap();
        thread::scope(|scope| {
            id.resolve_addr(None, address, LONG).unwrap();
            let moving = scope.spawn(|| {
                for to in [1, 0, 1] {
                    id.migrate(&channels[to]).unwrap();
                }
            });
            let started = std::time::Instant::now();
            let event = loop {
                let mut found = channels.iter().filter_map(|channel| channel.try_get_cm_event().unwrap());
                if let Some(event) = found.next() {
                    break event;
                }
                assert!(started.elapsed() < LONG, "no event in round {round}");
            };
            assert_eq!(event.event_type(), EventType::AddressResolved);
            assert!(Arc::ptr_eq(event.cm_id(), &id));
            moving.join().unwrap();
        });
        assert!(channels.iter().all(|channel| channel.try_get_cm_event().unwrap().is_none()));
        drop(listener);
    }
}
