//! Identifiers of one channel in several threads: read, used and dropped while another thread reads their events.

use std::env;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use sideway::ibverbs::queue_pair::QueuePairState;
use sideway::rdmacm::communication_manager::{ConnectionParameter, EventChannel, EventKind, Identifier, PortSpace};
use sideway_tests::child;
use sideway_tests::connections::{End, LONG, channel, listen};
use sideway_tests::process::alone;
use sideway_tests::resources::Held;

/// Marks a run under valgrind, where everything takes longer.
const UNDER_VALGRIND: &str = "SIDEWAY_TEST_UNDER_VALGRIND";

/// The deadline of a test, to detect a hang.
const HANGS: Duration = Duration::from_secs(300);

fn rounds() -> usize {
    if env::var_os(UNDER_VALGRIND).is_some() { 8 } else { 500 }
}

/// Runs a test on a thread, and fails if it hangs: an identifier that is never destroyed blocks the thread that drops
/// it.
#[track_caller]
fn without_hanging(test: impl FnOnce() + Send + 'static) {
    // One at a time, because they count open files.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (done, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        // The other end waits.
        let _ = done.send(());
    });
    match ended.recv_timeout(HANGS) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Moves an active identifier to its next step. Returns whether it is connected.
#[track_caller]
fn step(id: &Arc<Identifier>, kind: &EventKind, end: &mut Option<End>) -> bool {
    match kind {
        EventKind::AddressResolved => id.resolve_route(LONG).unwrap_or_else(|error| panic!("{error}")),
        EventKind::RouteResolved => {
            let end = end.insert(End::of(Arc::clone(id)));
            end.id.connect(&ConnectionParameter::default()).unwrap_or_else(|error| panic!("{error}"));
        }
        EventKind::Established(_) => return true,
        _ => panic!("{kind:?}"),
    }
    false
}

/// Reads all attributes of an identifier, each of which is either absent or right.
fn read(id: &Arc<Identifier>, address: SocketAddr) -> bool {
    let peer = id.peer_address();
    assert!(peer.is_none_or(|peer| peer == address || peer.ip().is_unspecified()), "{peer:?}");
    let local = id.local_address();
    assert!(local.is_none_or(|local| local.ip() == address.ip() || local.ip().is_unspecified()), "{local:?}");
    assert!([0, address.port()].contains(&id.peer_port()));
    assert!([None, Some(1)].contains(&id.port_num()));
    assert!(!format!("{id:?}").is_empty());
    // Queries the attributes too, which fails until the identifier has a device.
    if let Ok(attributes) = id.get_qp_attr(QueuePairState::Init) {
        assert!(!format!("{attributes:?}").is_empty());
    }
    let device = id.get_device_context();
    let is_on_device = device.is_some();
    if is_on_device {
        // Once this attribute exists, all others exist too.
        assert_eq!(id.peer_address(), Some(address));
        assert_eq!(id.port_num(), Some(1));
        assert_ne!(id.port(), 0);
    }
    is_on_device
}

#[test]
fn identifier_can_be_used_while_its_events_are_read() {
    without_hanging(|| {
        let channel = channel();
        let (listener, address) = listen(&channel, PortSpace::Tcp);
        // The context is looked up once, not for each query.
        let _device = listener.get_device_context();
        let current: Mutex<Option<Arc<Identifier>>> = Mutex::new(None);
        let is_over = AtomicBool::new(false);
        let (without_device, with_device) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let id = current.lock().expect("no thread panicked").clone();
                        let Some(id) = id else {
                            thread::yield_now();
                            continue;
                        };
                        let counter = if read(&id, address) { &with_device } else { &without_device };
                        counter.fetch_add(1, Ordering::Relaxed);
                        // The lock of an identifier is not fair.
                        thread::sleep(Duration::from_micros(100));
                    }
                });
            }
            let events = scope.spawn(|| {
                // Repeats until the readers have run, even on a busy machine.
                let is_seen = || [&without_device, &with_device].iter().all(|seen| seen.load(Ordering::Relaxed) > 0);
                for round in 0..100 * rounds() {
                    if round >= rounds() && is_seen() {
                        break;
                    }
                    let id = channel.create_id(PortSpace::Tcp).unwrap();
                    *current.lock().unwrap() = Some(Arc::clone(&id));
                    id.resolve_addr(None, address, LONG).unwrap();
                    let (mut active, mut passive) = (None, None);
                    let mut established = 0;
                    while established < 2 {
                        let event = channel.get_cm_event(Some(LONG)).unwrap();
                        match event.kind() {
                            EventKind::ConnectRequest(_) => {
                                let end = passive.insert(End::of(Arc::clone(event.cm_id())));
                                end.id.accept(&ConnectionParameter::default()).unwrap();
                            }
                            // An event from an earlier round, whose identifier a reader still held.
                            EventKind::Disconnected(_) | EventKind::TimewaitExit
                                if !Arc::ptr_eq(event.cm_id(), &id) => {}
                            kind => established += usize::from(step(event.cm_id(), kind, &mut active)),
                        }
                    }
                    assert!(active.is_some());
                    id.disconnect().unwrap();
                    let passive = passive.unwrap();
                    let event = loop {
                        let event = channel.get_cm_event(Some(LONG)).unwrap();
                        let is_end = matches!(event.kind(), EventKind::Disconnected(_));
                        assert!(is_end || matches!(event.kind(), EventKind::TimewaitExit), "{event:?}");
                        if is_end && Arc::ptr_eq(event.cm_id(), &passive.id) {
                            break event;
                        }
                    };
                    // This thread is the last owner of one identifier, and a reader may be the last owner of the other.
                    // Events may still be outstanding.
                    drop((event, passive));
                    *current.lock().unwrap() = None;
                    drop((active, id));
                    while channel.try_get_cm_event().unwrap().is_some() {}
                }
            });
            let ended = events.join();
            is_over.store(true, Ordering::Relaxed);
            if let Err(panic) = ended {
                std::panic::resume_unwind(panic);
            }
        });
        // The readers saw both often, so they ran during the changes.
        let seen = (without_device.into_inner(), with_device.into_inner());
        assert!(seen.0 > 0 && seen.1 > 0, "{seen:?}");
    });
}

/// Drops what it receives, after varying delays.
fn drop_all<T>(receiver: &Mutex<mpsc::Receiver<T>>) -> usize {
    let mut dropped = 0;
    loop {
        // The lock is released before the drop, so that the other threads continue.
        let next = receiver.lock().expect("no thread panicked").recv();
        let Ok(next) = next else { return dropped };
        for _ in 0..dropped % 7 {
            thread::yield_now();
        }
        drop(next);
        dropped += 1;
    }
}

#[test]
fn identifiers_are_dropped_by_other_threads_while_their_events_arrive() {
    // Open files belong to the process. Under valgrind the tests run one at a time.
    if env::var_os(UNDER_VALGRIND).is_none()
        && !alone("cm_threads::identifiers_are_dropped_by_other_threads_while_their_events_arrive", &[])
    {
        return;
    }
    without_hanging(|| {
        let channel = channel();
        let (listener, address) = listen(&channel, PortSpace::Tcp);
        // Opens the devices.
        let first = resolve_one(&channel, address);
        drop(first);
        let before = Held::now();
        let (sender, receiver) = mpsc::channel::<Arc<Identifier>>();
        let receiver = Mutex::new(receiver);
        let is_over = AtomicBool::new(false);
        let (dropped, events) = thread::scope(|scope| {
            let droppers: Vec<_> = (0..2).map(|_| scope.spawn(|| drop_all(&receiver))).collect();
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut taken = 0;
                        while !is_over.load(Ordering::Relaxed) {
                            // A dropped identifier may have no event left to read.
                            match channel.get_cm_event(Some(Duration::from_millis(5))) {
                                Ok(_) => taken += 1,
                                Err(error) => assert_eq!(error.errno().raw(), libc::ETIMEDOUT, "{error}"),
                            }
                        }
                        taken
                    })
                })
                .collect();
            for time in 0..rounds() {
                let id = channel.create_id(PortSpace::Tcp).unwrap();
                id.resolve_addr(None, address, LONG).unwrap();
                for _ in 0..time % 5 {
                    thread::yield_now();
                }
                sender.send(id).unwrap();
            }
            drop(sender);
            let dropped: usize = droppers.into_iter().map(|dropper| dropper.join().unwrap()).sum();
            is_over.store(true, Ordering::Relaxed);
            let taken: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
            (dropped, taken)
        });
        assert_eq!(dropped, rounds());
        println!("{events} events were taken before their identifiers were dropped");
        before.is_held_again();
        drop(listener);
        assert!(Arc::into_inner(channel).is_some(), "nothing holds the channel");
    });
}

/// An identifier whose address is resolved.
#[track_caller]
fn resolve_one(channel: &Arc<EventChannel>, address: SocketAddr) -> Arc<Identifier> {
    sideway_tests::connections::resolve(channel, PortSpace::Tcp, address)
}

#[test]
fn both_ends_are_dropped_by_other_threads_while_their_events_arrive() {
    // Open files belong to the process. Under valgrind the tests run one at a time.
    if env::var_os(UNDER_VALGRIND).is_none()
        && !alone("cm_threads::both_ends_are_dropped_by_other_threads_while_their_events_arrive", &[])
    {
        return;
    }
    without_hanging(|| {
        let channel = channel();
        let (listener, address) = listen(&channel, PortSpace::Tcp);
        // Opens the files that a device opens with its first queue pair.
        drop(End::of(resolve_one(&channel, address)));
        let before = Held::now();
        let (sender, receiver) = mpsc::channel::<End>();
        let receiver = Mutex::new(receiver);
        let dropped = thread::scope(|scope| {
            let droppers: Vec<_> = (0..2).map(|_| scope.spawn(|| drop_all(&receiver))).collect();
            let channel = &channel;
            let events = scope.spawn(move || {
                // Waits until one end of a connection exists, and then until its first event.
                let mut waiting = Vec::new();
                let mut kept: Vec<End> = Vec::new();
                let (mut begun, mut ended) = (0, 0);
                while ended < rounds() {
                    // A few connections at a time.
                    while begun < rounds() && begun < ended + 4 {
                        let id = channel.create_id(PortSpace::Tcp).unwrap();
                        id.resolve_addr(None, address, LONG).unwrap();
                        waiting.push(id);
                        begun += 1;
                    }
                    let event = channel.get_cm_event(Some(LONG)).unwrap();
                    let (id, kind) = event.into_parts();
                    match kind {
                        EventKind::AddressResolved => id.resolve_route(LONG).unwrap(),
                        EventKind::RouteResolved => {
                            waiting.retain(|waiting| !Arc::ptr_eq(waiting, &id));
                            let end = End::of(id);
                            end.id.connect(&ConnectionParameter::default()).unwrap();
                            // Some are dropped during the connect.
                            if begun % 3 == 0 {
                                sender.send(end).unwrap();
                                ended += 1;
                            } else {
                                kept.push(end);
                            }
                        }
                        EventKind::ConnectRequest(_) => {
                            // The peer may have disconnected before or during this.
                            if let Ok(end) = End::try_of(id) {
                                let _ = end.id.accept(&ConnectionParameter::default());
                                sender.send(end).unwrap();
                            }
                        }
                        // The active ends that were kept: their peers disconnect, or have already disconnected.
                        EventKind::Established(_)
                        | EventKind::Rejected(_)
                        | EventKind::Disconnected(_)
                        | EventKind::ConnectError(_)
                        | EventKind::Unreachable(_) => {
                            if let Some(at) = kept.iter().position(|end| Arc::ptr_eq(&end.id, &id)) {
                                sender.send(kept.swap_remove(at)).unwrap();
                                ended += 1;
                            }
                        }
                        // The queue pair of this identifier is already dropped, and the identifier is about to be
                        // dropped.
                        EventKind::ConnectResponse(_) => assert!(!kept.iter().any(|end| Arc::ptr_eq(&end.id, &id))),
                        _ => panic!("{kind:?}"),
                    }
                }
                drop(sender);
            });
            events.join().unwrap();
            droppers.into_iter().map(|dropper| dropper.join().unwrap()).sum::<usize>()
        });
        assert!(dropped >= rounds(), "{dropped}");
        // Objects of the other ends are released as events are read, at any time.
        before.is_held_again_while(|| while channel.try_get_cm_event().unwrap().is_some() {});
        drop(listener);
        assert!(Arc::into_inner(channel).is_some(), "nothing holds the channel");
    });
}

#[test]
#[ignore = "runs under valgrind, a minute or more: cargo xtask softroce"]
fn all_of_it_is_clean_under_valgrind() {
    if env::var_os(UNDER_VALGRIND).is_some() {
        return;
    }
    let ended = child::run(child::under_valgrind(UNDER_VALGRIND, &["cm_threads::"]), HANGS);
    assert!(ended.status.success(), "{}", ended.output);
    assert!(ended.output.contains("4 passed"), "{}", ended.output);
    assert!(ended.output.contains("ERROR SUMMARY: 0 errors"), "{}", ended.output);
}
