//! Asynchronous events on the recording device: the objects in them, one acknowledgement each before the event is
//! returned, and events of unknown objects.

use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use rdma_mummy_sys as sys;
use sideway::ibverbs::async_event::{AsyncEventElement as Element, AsyncEventType as Type};
use sideway::ibverbs::completion::CompletionQueue;
use sideway::ibverbs::queue_pair::{
    QueuePair, QueuePairAttribute, QueuePairAttributeMask as Mask, QueuePairState, QueuePairType,
};
use sideway::ibverbs::xrc_domain::XrcDomainFlags;
use sideway_tests::recording::{Failure, Kind, Raised, Recording, World};

const LONG: Option<Duration> = Some(Duration::from_secs(60));

const OF_QUEUE_PAIRS: [Type; 8] = [
    Type::QueuePairFatal,
    Type::QueuePairRequestError,
    Type::QueuePairAccessError,
    Type::CommunicationEstablished,
    Type::SendQueueDrained,
    Type::PathMigrated,
    Type::PathMigrationError,
    Type::LastWorkRequestReached,
];
const OF_PORTS: [Type; 7] = [
    Type::PortActive,
    Type::PortError,
    Type::LidChange,
    Type::PkeyChange,
    Type::SubnetManagerChange,
    Type::ClientReregister,
    Type::GidChange,
];
const OF_SHARED_RECEIVE_QUEUES: [Type; 2] = [Type::SharedReceiveQueueError, Type::SharedReceiveQueueLimitReached];

/// The number of object events that were acknowledged since the last query.
fn acknowledged(recording: &Recording) -> usize {
    recording.calls().iter().filter(|call| call.verb == "ack_async_event").count()
}

#[test]
fn every_event_type_is_returned_with_its_object() {
    let world = World::new();
    let events = world.context.async_events().unwrap();
    let (qp, other) = { world.queue_pairs().into() };
    let mut seen = 0;

    world.recording.raise(&world.context, Raised::of_cq(Type::CompletionQueueError.raw(), &world.recv_cq));
    let event = events.get_async_event(LONG).unwrap();
    assert_eq!(event.event_type(), Type::CompletionQueueError);
    assert_eq!(event.to_string(), "CQ error: CQ with the context 0");
    let Element::CompletionQueue(cq) = event.into_element() else { panic!("not a completion queue") };
    assert!(cq.is_of(&world.recv_cq) && !cq.is_of(&world.send_cq));
    assert_eq!(cq.cqe(), world.recv_cq.cqe());
    seen += acknowledged(&world.recording);
    assert_eq!(seen, 1);

    for event_type in OF_QUEUE_PAIRS {
        world.recording.raise(&world.context, Raised::of_qp(event_type.raw(), &qp));
        let event = events.get_async_event(LONG).unwrap();
        assert_eq!(event.event_type(), event_type);
        assert_eq!(event.to_string(), format!("{event_type}: QP {}", qp.qp_number()));
        let Element::QueuePair(found) = event.element() else { panic!("{event_type:?} is not of a queue pair") };
        assert!(found.is_of(&qp) && !found.is_of(&other));
        assert_eq!((found.qp_number(), found.qp_type()), (qp.qp_number(), QueuePairType::ReliableConnection));
        seen += acknowledged(&world.recording);
    }
    assert_eq!(seen, 9);

    let srq = world.pd.create_srq_builder().setup_srq_context(77).build().unwrap();
    for event_type in OF_SHARED_RECEIVE_QUEUES {
        // SAFETY: the recording device does not dereference the address.
        let raised = Raised::of_object(event_type.raw(), unsafe { srq.srq() }.as_ptr());
        world.recording.raise(&world.context, raised);
        let event = events.get_async_event(LONG).unwrap();
        assert_eq!(event.event_type(), event_type);
        assert_eq!(event.to_string(), format!("{event_type}: SRQ with the context 77"));
        let Element::SharedReceiveQueue(found) = event.element() else { panic!("{event_type:?} is not of an SRQ") };
        assert!(found.is_of(&srq));
        found.arm_limit(1).unwrap();
        assert_eq!(found.query().unwrap().limit(), 1);
    }

    for (event_type, port) in OF_PORTS.into_iter().zip(1..) {
        world.recording.raise(&world.context, Raised::of_port(event_type.raw(), port));
        let event = events.get_async_event(LONG).unwrap();
        assert_eq!(event.event_type(), event_type);
        assert!(matches!(event.element(), Element::Port(number) if *number == port as u32), "{event:?}");
        assert_eq!(event.to_string(), format!("{event_type}: port {port}"));
    }
    world.recording.raise(&world.context, Raised::of_device(Type::DeviceFatal.raw()));
    let event = events.get_async_event(LONG).unwrap();
    assert!(matches!(event.element(), Element::Device), "{event:?}");
    assert_eq!(event.to_string(), "device fatal error");

    assert_eq!(
        // Events of completion queues, work queues (tested with them) and the device are one each.
        OF_QUEUE_PAIRS.len() + OF_SHARED_RECEIVE_QUEUES.len() + OF_PORTS.len() + 3,
        Type::KNOWN.len()
    );
    drop((events, qp, other, cq, srq));
    world.end();
}

#[test]
fn unknown_type_is_returned_by_number_without_its_union() {
    let world = World::new();
    let events = world.context.async_events().unwrap();
    for (number, raised) in [
        // All unknown types; then a value that looks like a port, and one that is not an address.
        (20, Raised::of_device(20)),
        (0x7fff_ffff, Raised::of_port(0x7fff_ffff, 1)),
        (u32::MAX, Raised::of_port(u32::MAX, -1)),
    ] {
        world.recording.raise(&world.context, raised);
        let event = events.get_async_event(LONG).unwrap();
        assert_eq!(event.event_type().raw(), number);
        assert!(matches!(event.element(), Element::Unknown), "{event:?}");
        assert_eq!(event.to_string(), format!("unknown ({number})"));
    }
    // An impossible port.
    world.recording.raise(&world.context, Raised::of_port(Type::PortError.raw(), -1));
    assert!(matches!(events.get_async_event(LONG).unwrap().element(), Element::Unknown));
    drop(events);
    world.end();
}

#[test]
fn foreign_object_in_an_event_is_an_address_and_is_acknowledged() {
    let world = World::new();
    let events = world.context.async_events().unwrap();
    // SAFETY: the context is open, and the queue is destroyed below, before it.
    let foreign =
        unsafe { sys::ibv_create_cq(world.context.context().as_ptr(), 1, ptr::null_mut(), ptr::null_mut(), 0) };
    assert!(!foreign.is_null());
    world.recording.calls();
    for event_type in
        [Type::CompletionQueueError, Type::QueuePairFatal, Type::SharedReceiveQueueError, Type::WorkQueueFatal]
    {
        // The recording device reads only the context of an object, so one object can stand for any.
        world.recording.raise(&world.context, Raised::of_object(event_type.raw(), foreign));
        let event = events.get_async_event(LONG).unwrap();
        assert_eq!(event.event_type(), event_type);
        assert!(matches!(event.element(), Element::Foreign(address) if *address == foreign.addr()), "{event:?}");
        let calls = world.recording.calls();
        let acknowledged: Vec<_> = calls.iter().filter(|call| call.verb == "ack_async_event").collect();
        assert_eq!(acknowledged.len(), 1);
        assert_eq!(acknowledged[0].argument("object"), foreign.addr() as u64);
        assert_eq!(acknowledged[0].argument("event_type"), u64::from(event_type.raw()));
    }
    // An event about nothing, which no driver should raise.
    world.recording.raise(&world.context, Raised::of_device(Type::CompletionQueueError.raw()));
    let error = events.get_async_event(LONG).unwrap_err();
    assert!(
        error.to_string().ends_with("the driver reported an event of an object without naming the object"),
        "{error}"
    );
    assert_eq!(acknowledged(&world.recording), 0, "the library would follow the pointer");
    // SAFETY: the object was created above, and is no longer used.
    assert_eq!(unsafe { sys::ibv_destroy_cq(foreign) }, 0);
    drop(events);
    world.end();
}

#[test]
fn event_of_a_dying_object_is_acknowledged_and_skipped() {
    let world = World::new();
    let events = world.context.async_events().unwrap();
    let qp = world.qp_builder().build().unwrap();
    let fatal = Raised::of_qp(Type::QueuePairFatal.raw(), &qp);
    // The driver refuses to destroy the queue pair, which lives on without an owner.
    world.recording.fail("destroy_qp", 0, Failure::documented(libc::EIO));
    drop(qp);
    let port = Raised::of_port(Type::PortActive.raw(), 1);
    world.recording.calls();
    world.recording.raise(&world.context, fatal).raise(&world.context, port);
    assert_eq!(events.get_async_event(LONG).unwrap().event_type(), Type::PortActive);
    assert_eq!(world.recording.verbs(), ["get_async_event", "ack_async_event", "get_async_event"]);
    world.recording.raise(&world.context, fatal);
    assert!(events.try_get_async_event().unwrap().is_none());
    assert_eq!(acknowledged(&world.recording), 1);
    assert!(world.recording.live().contains(&Kind::QueuePair));
}

#[test]
fn shared_queue_that_waits_for_its_completion_queue_has_no_owner() {
    let world = World::new();
    let events = world.context.async_events().unwrap();
    let xrcd = world.context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
    let srq = world.pd.create_srq_builder().setup_xrc(&xrcd, &world.recv_cq).build_ex().unwrap();
    // SAFETY: the recording device does not dereference the address.
    let raised = Raised::of_object(Type::SharedReceiveQueueLimitReached.raw(), unsafe { srq.srq() }.as_ptr());
    drop((srq, xrcd));
    world.recording.calls();
    world.recording.raise(&world.context, raised);
    assert!(events.try_get_async_event().unwrap().is_none());
    assert_eq!(acknowledged(&world.recording), 1);
    drop(events);
    world.end();
}

#[test]
fn object_destroyed_during_an_event_read_is_handled() {
    let world = World::new();
    let events = world.context.async_events().unwrap();
    let mut taken = 0;
    for round in 0..500 {
        let qp = world.qp_builder().build().unwrap();
        let number = qp.qp_number();
        world.recording.raise(&world.context, Raised::of_qp(Type::QueuePairFatal.raw(), &qp));
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                drop(qp);
            });
            barrier.wait();
            if round % 2 == 0 {
                thread::yield_now();
            }
            // The event has a queue pair that is kept alive, or none; never a destroyed one.
            if let Some(event) = events.try_get_async_event().unwrap() {
                let Element::QueuePair(found) = event.element() else { panic!("{event:?}") };
                assert_eq!(found.query(Mask::State).unwrap().0.state(), QueuePairState::Reset);
                assert_eq!(found.qp_number(), number);
                taken += 1;
            }
        });
        world.recording.calls();
        assert!(!world.recording.live().contains(&Kind::QueuePair));
    }
    println!("{taken} of 500 events were taken");
    drop(events);
    world.end();
}

#[test]
fn event_holds_its_object_and_its_parents() {
    let World { send_cq, recv_cq, pd, context, recording } = World::new();
    let events = context.async_events().unwrap();
    let qp = pd.create_qp_builder().setup_send_cq(&send_cq).setup_recv_cq(&recv_cq).build().unwrap();
    recording.raise(&context, Raised::of_qp(Type::LastWorkRequestReached.raw(), &qp));
    let event = events.get_async_event(LONG).unwrap();
    let another = event.clone();
    recording.calls();

    // The owner cannot destroy the queue pair, and receives an error.
    let error = qp.close().unwrap_err();
    assert_eq!(error.errno().raw(), libc::EBUSY);
    assert_eq!(
        error.to_string(),
        "ibv_destroy_qp: EBUSY (Device or resource busy): flows or asynchronous events reference the queue pair; the last of them \
         destroys it"
    );
    drop((send_cq, recv_cq, pd, context, events));
    drop(another);
    assert_eq!(recording.verbs(), [""; 0], "nothing is destroyed");
    assert_eq!(recording.live().len(), 5);

    // The queue pair can still be used.
    let Element::QueuePair(found) = event.into_element() else { panic!("not a queue pair") };
    let mut to_error = QueuePairAttribute::new();
    to_error.setup_state(QueuePairState::Error);
    found.modify(&to_error).unwrap();
    assert_eq!(
        (found.state(), found.query(Mask::State).unwrap().0.state()),
        (QueuePairState::Error, QueuePairState::Error)
    );
    assert_eq!(recording.verbs(), ["modify_qp", "query_qp"]);

    // Dropping the last reference destroys the objects on that thread, children first.
    thread::spawn(move || drop(found)).join().unwrap();
    assert_eq!(recording.verbs(), ["destroy_qp", "destroy_cq", "destroy_cq", "dealloc_pd", "close_device"]);
    assert_eq!(recording.live(), []);
}

#[test]
fn event_of_a_completion_queue_outlives_the_queues_owner() {
    let recording = Recording::new();
    let context = recording.open();
    let events = context.async_events().unwrap();
    let cq = context.create_cq_builder().setup_cq_context(7).build().unwrap();
    recording.raise(&context, Raised::of_cq(Type::CompletionQueueError.raw(), &cq));
    let event = events.get_async_event(LONG).unwrap();
    let error = cq.close().unwrap_err();
    assert_eq!(error.errno().raw(), libc::EBUSY, "{error}");
    assert_eq!(event.to_string(), "CQ error: CQ with the context 7");
    recording.calls();
    drop(event);
    assert_eq!(recording.verbs(), ["destroy_cq"]);
    // The queue is destroyed, so no object has the address.
    drop((events, context));
    assert_eq!(recording.live(), []);
}

#[test]
fn wait_ends_at_its_deadline_or_with_an_event() {
    let recording = Recording::new();
    let context = recording.open();
    let events = context.async_events().unwrap();
    assert!(events.try_get_async_event().unwrap().is_none());
    for wait in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(30)] {
        let begin = Instant::now();
        let error = events.get_async_event(Some(wait)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ibv_get_async_event: ETIMEDOUT (Connection timed out): no asynchronous event arrived in time"
        );
        assert!(begin.elapsed() >= wait, "{:?} of {wait:?}", begin.elapsed());
    }
    thread::scope(|scope| {
        for wait in [None, LONG, Some(Duration::MAX)] {
            let waiting = scope.spawn({
                let events = events.clone();
                move || events.get_async_event(wait).unwrap().event_type()
            });
            thread::sleep(Duration::from_millis(10));
            recording.raise(&context, Raised::of_port(Type::PortError.raw(), 1));
            assert_eq!(waiting.join().unwrap(), Type::PortError);
        }
    });
    // The descriptor is readable as well.
    let mut poll = libc::pollfd { fd: events.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the call has one live pollfd.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, 0) }, 0);
    recording.raise(&context, Raised::of_port(Type::PortActive.raw(), 1));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, 60_000) }, 1);
    assert_eq!(events.try_get_async_event().unwrap().unwrap().event_type(), Type::PortActive);
    assert!(Arc::ptr_eq(events.device_context(), &context));
}

#[test]
fn signals_and_empty_queues_are_no_failures() {
    let recording = Recording::new();
    let context = recording.open();
    let events = context.async_events().unwrap();
    recording.calls();
    recording.raise(&context, Raised::of_port(Type::PortActive.raw(), 1));
    recording.fail("get_async_event", 0, Failure::documented(libc::EINTR));
    assert_eq!(events.try_get_async_event().unwrap().unwrap().event_type(), Type::PortActive);
    assert_eq!(recording.verbs(), ["get_async_event", "get_async_event"]);

    recording.raise(&context, Raised::of_port(Type::PortActive.raw(), 1));
    recording.fail("get_async_event", 0, Failure::documented(libc::EAGAIN));
    assert!(events.try_get_async_event().unwrap().is_none());
    // Earlier events are still there.
    assert_eq!(events.get_async_event(LONG).unwrap().event_type(), Type::PortActive);
}

#[test]
fn failures_are_errors_of_the_verb() {
    let recording = Recording::new();
    let context = recording.open();
    let events = context.async_events().unwrap();
    for errno in [libc::EIO, libc::ENODEV] {
        recording.fail("get_async_event", 0, Failure::documented(errno));
        let error = events.get_async_event(None).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_get_async_event", errno));
        assert!(error.hint().unwrap().contains("the device was removed"), "{error}");
    }
    recording.fail("get_async_event", 0, Failure::documented(libc::EACCES));
    assert_eq!(
        events.get_async_event(None).unwrap_err().to_string(),
        "ibv_get_async_event: EACCES (Permission denied)"
    );
    // Reading at the end of a file fails without setting errno.
    recording.fail("get_async_event", 0, Failure::documented(0));
    assert_eq!(events.try_get_async_event().unwrap_err().errno().raw(), libc::EIO);
}

#[test]
fn removed_device_is_an_error_without_an_endless_wait() {
    let recording = Recording::new();
    let context = recording.open();
    let events = context.async_events().unwrap();
    // A pipe with its other end closed replaces the context's descriptor. The pipe reports a hang-up and is never
    // readable, like the descriptor of a removed device.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    // SAFETY: both descriptors are open; `dup2` leaves the context's descriptor number unchanged.
    assert!(unsafe { libc::dup2(reader.as_raw_fd(), events.as_raw_fd()) } >= 0);
    recording.fail_always("get_async_event", Failure::documented(libc::EAGAIN)).calls();
    for _ in 0..3 {
        assert_eq!(events.get_async_event(None).unwrap_err().errno().raw(), libc::EIO);
        assert_eq!(events.try_get_async_event().unwrap_err().errno().raw(), libc::EIO);
    }
    assert_eq!(recording.verbs(), ["get_async_event"; 6]);
}

#[test]
fn device_without_an_event_descriptor_is_an_error() {
    let recording = Recording::new();
    recording.without("async_fd");
    let error = recording.open().async_events().unwrap_err();
    assert_eq!(error.errno().raw(), libc::EOPNOTSUPP);
    assert!(error.hint().unwrap().contains("no descriptor"), "{error}");
}

#[test]
fn two_readers_share_the_events() {
    const EVENTS: usize = 1000;
    let world = World::new();
    let qps = world.queue_pairs();
    let counts: [AtomicUsize; 2] = Default::default();
    world.recording.quiet();
    thread::scope(|scope| {
        for _ in 0..2 {
            let events = world.context.async_events().unwrap();
            let (counts, qps) = (&counts, &qps);
            scope.spawn(move || {
                while counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>() < EVENTS {
                    let Ok(event) = events.get_async_event(Some(Duration::from_millis(10))) else { continue };
                    let Element::QueuePair(found) = event.element() else { panic!("{event:?}") };
                    let index = qps.iter().position(|qp| found.is_of(qp)).unwrap();
                    counts[index].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 0..EVENTS {
            world.recording.raise(&world.context, Raised::of_qp(Type::QueuePairFatal.raw(), &qps[number % 2]));
        }
    });
    // Each was returned by exactly one of the readers.
    assert_eq!(counts.map(AtomicUsize::into_inner), [EVENTS / 2; 2]);
    // All are acknowledged, so their objects can be destroyed.
    drop(qps);
    world.end();
}

#[test]
fn foreign_unacknowledged_event_delays_only_the_destruction() {
    let world = World::new();
    let events = world.context.async_events().unwrap();
    let qp = world.qp_builder().build().unwrap();
    world.recording.raise(&world.context, Raised::of_qp(Type::QueuePairFatal.raw(), &qp));
    // SAFETY: zero is a value of integers and pointers.
    let mut taken: sys::ibv_async_event = unsafe { mem::zeroed() };
    // SAFETY: the context is open, and the event can be written.
    assert_eq!(unsafe { sys::ibv_get_async_event(world.context.context().as_ptr(), &mut taken) }, 0);
    thread::scope(|scope| {
        let destroying = scope.spawn(|| drop(qp));
        thread::sleep(Duration::from_millis(20));
        assert!(!destroying.is_finished(), "the event is not acknowledged");
        world.recording.raise(&world.context, Raised::of_port(Type::PortActive.raw(), 1));
        assert_eq!(events.get_async_event(LONG).unwrap().event_type(), Type::PortActive);
        // SAFETY: taken above, acknowledged once.
        unsafe { sys::ibv_ack_async_event(&mut taken) };
        destroying.join().unwrap();
    });
    // The recording device detects a second acknowledgement. SAFETY: its objects are never freed.
    unsafe { sys::ibv_ack_async_event(&mut taken) };
    assert_eq!(world.recording.violations(), ["an asynchronous event that was not read was acknowledged"]);
    drop(events);
    world.end();
}
