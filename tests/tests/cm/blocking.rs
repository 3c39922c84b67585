//! Blocking calls with a failing library, and with events that no peer would cause.

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sideway::rdmacm::communication_manager::{EventChannel, EventType, Identifier, PortSpace};
use sideway::rdmacm::{
    ConnectCause, ConnectStep, Connection, ConnectionParameter, Connector, Ended, Listener, Resolved,
};
use sideway_tests::connections::{End, LONG, expect};
use sideway_tests::recording::Failure;
use sideway_tests::shim::{ConnectionEvent, Shim, channel};

use crate::{HERE, raw};

const SHORT: Duration = Duration::from_millis(20);

/// A listener, and an identifier with a route to it.
#[track_caller]
fn sides() -> (Listener, Resolved) {
    let listener = Listener::builder().setup_timeout(LONG).bind((HERE, 0)).unwrap();
    let resolved = Connector::new().setup_timeout(LONG).resolve(listener.local_address()).unwrap();
    (listener, resolved)
}

/// A request that waits at the listener, and its client.
#[track_caller]
fn ask(resolved: &Resolved) -> End {
    let end = End::of(Arc::clone(resolved.identifier()));
    resolved.identifier().connect(&ConnectionParameter::default()).unwrap();
    end
}

/// Both ends of a connection, with their queue pairs. The other thread creates no objects, because the shim belongs to
/// this thread.
#[track_caller]
fn connect(resolved: Resolved, listener: &Listener) -> [(Connection, End); 2] {
    let active = End::of(Arc::clone(resolved.identifier()));
    thread::scope(|scope| {
        let connecting = scope.spawn(|| resolved.connect(&ConnectionParameter::default()).unwrap());
        let request = listener.accept(Some(LONG)).unwrap();
        let passive = End::of(Arc::clone(request.identifier()));
        let accepted = request.accept(&ConnectionParameter::default()).unwrap();
        [(connecting.join().unwrap(), active), (accepted, passive)]
    })
}

/// Raises an event on an identifier's channel.
fn raise(shim: &Shim, id: &Identifier, event_type: u32, status: i32) {
    let channel = id.event_channel();
    let (c_channel, c_id) = raw(&channel, id);
    shim.raise(c_channel, ConnectionEvent { status, ..ConnectionEvent::new(event_type, c_id) });
}

#[test]
fn failed_migration_leaves_the_identifier_in_place() {
    let shim = Shim::new();
    let (old, new) = (channel(), channel());
    let id = old.create_id(PortSpace::Tcp).unwrap();
    shim.fail("rdma_migrate_id", 0, Failure::documented(libc::ENOMEM));
    assert_eq!(id.migrate(&new).unwrap_err().errno().raw(), libc::ENOMEM);
    assert!(Arc::ptr_eq(&id.event_channel(), &old));
    raise(&shim, &id, EventType::AddressChange.raw(), 0);
    assert!(Arc::ptr_eq(expect(&old, EventType::AddressChange).cm_id(), &id));
    // The new channel does not have the identifier.
    let (c_channel, c_id) = raw(&new, &id);
    shim.raise(c_channel, ConnectionEvent::new(EventType::AddressChange.raw(), c_id));
    assert!(new.try_get_cm_event().unwrap_err().hint().unwrap().contains("not on this channel"));

    raise(&shim, &id, EventType::AddressChange.raw(), 0);
    id.migrate(&new).unwrap();
    id.migrate(&new).unwrap();
    assert!(Arc::ptr_eq(expect(&new, EventType::AddressChange).cm_id(), &id));
    assert!(old.try_get_cm_event().unwrap().is_none());
    drop((id, old, new));
    assert_eq!(shim.live(), []);
}

#[test]
fn error_in_an_event_is_the_cause() {
    type Check = fn(&ConnectCause) -> bool;
    let cases: [(EventType, i32, Check); 7] = [
        (EventType::DeviceRemoval, 0, |cause| matches!(cause, ConnectCause::DeviceRemoval)),
        (EventType::Disconnected, 0, |cause| matches!(cause, ConnectCause::Disconnected)),
        (EventType::Rejected, 28, |cause| matches!(cause, ConnectCause::Rejected(_))),
        (EventType::Unreachable, -libc::ETIMEDOUT, |cause| matches!(cause, ConnectCause::Unreachable(_))),
        (EventType::ConnectError, -libc::EMFILE, |cause| {
            matches!(cause, ConnectCause::Event { event_type: EventType::ConnectError, status }
                if status.errno().is_some_and(|errno| errno.raw() == libc::EMFILE))
        }),
        (EventType::RouteResolved, 0, |cause| matches!(cause, ConnectCause::Unexpected(EventType::RouteResolved))),
        (EventType::RouteError, -libc::ETIMEDOUT, |cause| matches!(cause, ConnectCause::TimedOut { .. })),
    ];
    for (event_type, status, is_cause) in cases {
        let shim = Shim::new();
        let (listener, resolved) = sides();
        let _end = End::of(Arc::clone(resolved.identifier()));
        shim.only_raised(true);
        // Irrelevant events are skipped.
        raise(&shim, resolved.identifier(), EventType::AddressChange.raw(), 0);
        raise(&shim, resolved.identifier(), 4711, 0);
        raise(&shim, resolved.identifier(), event_type.raw(), status);
        let error = resolved.connect(&ConnectionParameter::default()).unwrap_err();
        assert!(is_cause(error.cause()), "{event_type:?}: {error:?}");
        assert_eq!((error.step(), error.address()), (ConnectStep::Connect, Some(listener.local_address())));
    }
}

/// The kernel reports this if the peer's confirmation was lost, or overtaken by its disconnect.
#[test]
fn peer_that_disconnects_at_once_was_connected() {
    let shim = Shim::new();
    let (listener, resolved) = sides();
    let active = ask(&resolved);
    let request = listener.accept(Some(LONG)).unwrap();
    let passive = End::of(Arc::clone(request.identifier()));
    shim.only_raised(true);
    raise(&shim, request.identifier(), EventType::Disconnected.raw(), 0);
    let connection = request.accept(&ConnectionParameter::default()).unwrap();
    assert_eq!(connection.ended().unwrap(), Some(Ended::Disconnected));
    assert_eq!(connection.disconnect(Some(LONG)).unwrap(), Ended::Disconnected);
    drop((active, passive));
}

#[test]
fn request_waits_if_there_is_no_channel() {
    let shim = Shim::new();
    let (listener, resolved) = sides();
    let end = ask(&resolved);
    shim.fail("rdma_create_event_channel", 0, Failure::documented(libc::EMFILE));
    let error = listener.accept(Some(LONG)).unwrap_err();
    assert!(matches!(error.cause(), ConnectCause::Channel(_)), "{error:?}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    let request = listener.accept(Some(SHORT)).unwrap();
    assert_eq!(request.peer_address(), resolved.local_address());
    drop((request, end));
}

#[test]
fn queue_pair_for_a_disconnected_peer_is_an_error() {
    let shim = Shim::new();
    let (listener, resolved) = sides();
    let end = ask(&resolved);
    let request = listener.accept(Some(LONG)).unwrap();
    let id = request.identifier();
    let context = request.device_context();
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq_builder().build().unwrap());
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    shim.fail("rdma_create_qp", 0, Failure::documented(libc::EINVAL));
    let error = id.create_qp(&builder).unwrap_err();
    assert_eq!(error.hint(), Some("the peer may have given up"));
    // This request has not been accepted or rejected.
    let other = Connector::new().resolve(listener.local_address()).unwrap();
    shim.fail("rdma_create_qp", 0, Failure::documented(libc::EINVAL));
    assert_eq!(other.identifier().create_qp(&builder).unwrap_err().hint(), None);
    drop((request, end));
}

#[test]
fn listener_options_are_set_before_bind() {
    let shim = Shim::new();
    let mut builder = Listener::builder();
    let listener = builder.setup_af_only(true).setup_type_of_service(0x20).bind((HERE, 0)).unwrap();
    assert!(Arc::ptr_eq(&listener.event_channel(), &listener.identifier().event_channel()));
    let calls = shim.calls();
    let is_of = |verb: &str| ["rdma_set_option", "rdma_bind_addr", "rdma_listen"].contains(&verb);
    let made: Vec<_> = calls.iter().map(|call| call.verb).filter(|verb| is_of(verb)).collect();
    assert_eq!(made, ["rdma_set_option", "rdma_set_option", "rdma_bind_addr", "rdma_listen"]);
    shim.fail("rdma_set_option", 0, Failure::documented(libc::EINVAL));
    let error = builder.bind((HERE, 0)).unwrap_err();
    assert_eq!(error.step(), ConnectStep::Bind);
    assert!(error.to_string().contains("rdma_set_option: EINVAL"), "{error}");
}

#[test]
fn request_that_cannot_migrate_is_reported_and_rejected() {
    let shim = Shim::new();
    let (listener, resolved) = sides();
    let _end = ask(&resolved);
    shim.fail("rdma_migrate_id", 0, Failure::documented(libc::ENOMEM));
    let error = listener.accept(Some(LONG)).unwrap_err();
    assert!(error.to_string().contains("rdma_migrate_id: ENOMEM"), "{error}");
    expect(&resolved.identifier().event_channel(), EventType::Rejected);
    assert!(listener.accept(Some(Duration::ZERO)).unwrap_err().is_timed_out());
}

#[test]
fn listener_of_a_removed_device_fails_after_the_last_request() {
    let shim = Shim::new();
    let (listener, resolved) = sides();
    let end = ask(&resolved);
    let (c_channel, c_id) = raw(&listener.event_channel(), listener.identifier());
    for event_type in [EventType::AddressChange, EventType::DeviceRemoval, EventType::Established] {
        shim.raise_after_next(c_channel, ConnectionEvent::new(event_type.raw(), c_id));
    }
    drop(listener.accept(Some(LONG)).unwrap());
    for _ in 0..2 {
        let error = listener.accept(None).unwrap_err();
        assert!(matches!(error.cause(), ConnectCause::DeviceRemoval), "{error:?}");
    }
    let kept: Vec<_> = listener.take_other_events().iter().map(|event| event.event_type()).collect();
    assert_eq!(kept, [EventType::AddressChange, EventType::DeviceRemoval]);
    drop(end);
}

#[test]
fn first_end_of_a_connection_is_reported() {
    let shim = Shim::new();
    let (listener, resolved) = sides();
    let [(active, _end), (passive, _other)] = connect(resolved, &listener);
    shim.only_raised(true);
    for event_type in [EventType::TimewaitExit.raw(), 4711, EventType::Established.raw()] {
        raise(&shim, active.identifier(), event_type, 0);
    }
    assert_eq!(active.ended().unwrap(), None);
    assert!(!active.has_address_changed());
    raise(&shim, active.identifier(), EventType::AddressChange.raw(), 0);
    assert!(!active.is_ended() && active.has_address_changed());
    raise(&shim, active.identifier(), EventType::Disconnected.raw(), -libc::ETIMEDOUT);
    raise(&shim, active.identifier(), EventType::DeviceRemoval.raw(), 0);
    assert_eq!(active.wait(None).unwrap(), Ended::NoAnswer);
    assert_eq!(active.wait(None).unwrap(), Ended::NoAnswer);
    raise(&shim, passive.identifier(), EventType::DeviceRemoval.raw(), 0);
    // The connection has already ended.
    shim.fail("rdma_disconnect", 0, Failure::documented(libc::EINVAL));
    assert_eq!(passive.disconnect(Some(LONG)).unwrap(), Ended::DeviceRemoval);
}

#[test]
fn forced_disconnect_is_attributed_to_the_peer() {
    let shim = Shim::new();
    let (listener, resolved) = sides();
    let [(active, _end), _passive] = connect(resolved, &listener);
    shim.only_raised(true);
    // A driver reports this for iWARP connections.
    raise(&shim, active.identifier(), EventType::Disconnected.raw(), -libc::ECONNRESET);
    assert_eq!(active.wait(None).unwrap(), Ended::Disconnected);
}

#[test]
fn one_waiting_thread_may_leave_and_the_others_continue() {
    let shim = Shim::new();
    let (listener, resolved) = sides();
    let [(active, _end), _passive] = connect(resolved, &listener);
    shim.only_raised(true);
    thread::scope(|scope| {
        let wait = |timeout| active.wait(timeout);
        let leaving: Vec<_> = (0..8).map(|n| scope.spawn(move || wait(Some(SHORT * n)))).collect();
        let staying: Vec<_> = (0..4).map(|_| scope.spawn(|| active.wait(Some(LONG)))).collect();
        for one in leaving {
            assert!(one.join().unwrap().unwrap_err().is_timed_out());
        }
        raise(&shim, active.identifier(), EventType::Disconnected.raw(), 0);
        for one in staying {
            assert_eq!(one.join().unwrap().unwrap(), Ended::Disconnected);
        }
    });
}

#[test]
fn channel_failure_is_reported_once_and_the_others_continue() {
    let shim = Shim::new();
    let (listener, resolved) = sides();
    let [(active, _end), _passive] = connect(resolved, &listener);
    shim.only_raised(true);
    thread::scope(|scope| {
        // The wait has a limit, so that the loop below ends.
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| active.wait(Some(LONG)))).collect();
        // An event of an unknown identifier.
        let channel = active.event_channel();
        let (c_channel, c_id) = raw(&channel, listener.identifier());
        shim.raise(c_channel, ConnectionEvent::new(EventType::AddressChange.raw(), c_id));
        while !waiting.iter().any(|one| one.is_finished()) {
            thread::sleep(Duration::from_millis(1));
        }
        raise(&shim, active.identifier(), EventType::Disconnected.raw(), 0);
        let told: Vec<_> = waiting.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(told.iter().filter(|one| matches!(one, Ok(Ended::Disconnected))).count(), 3, "{told:?}");
        let error = told.into_iter().find_map(Result::err).unwrap();
        assert!(error.to_string().contains("not on this channel"), "{error}");
    });
}

#[test]
fn connection_that_cannot_be_ended_reports_why() {
    let shim = Shim::new();
    let (listener, resolved) = sides();
    let [(active, _end), _passive] = connect(resolved, &listener);
    shim.fail("rdma_disconnect", 0, Failure::documented(libc::EIO));
    let error = active.disconnect(Some(LONG)).unwrap_err();
    assert_eq!((error.step(), error.address()), (ConnectStep::Disconnect, Some(listener.local_address())));
    assert!(error.to_string().contains("rdma_disconnect: EIO"), "{error}");
    // The channel fails too, so the call does not wait.
    shim.fail("rdma_disconnect", 0, Failure::documented(libc::EINVAL));
    shim.fail("rdma_get_cm_event", 0, Failure::documented(libc::EIO));
    let error = active.disconnect(Some(SHORT)).unwrap_err();
    assert!(error.to_string().contains("rdma_disconnect: EINVAL"), "{error}");
    shim.fail("rdma_get_cm_event", 0, Failure::documented(libc::EIO));
    // No more events will arrive, which also counts as the end.
    assert!(active.is_ended());
}

#[test]
fn request_is_detached_from_its_listener() {
    let shim = Shim::new();
    let (listener, resolved) = sides();
    let end = ask(&resolved);
    let request = listener.accept(None).unwrap();
    let own = request.identifier().event_channel();
    assert!(!Arc::ptr_eq(&own, &listener.identifier().event_channel()));
    let error = request.accept(&ConnectionParameter::default()).unwrap_err();
    assert_eq!((error.step(), error.address()), (ConnectStep::Accept, resolved.local_address()));
    drop((listener, own));
    drop((resolved, end));
    assert_eq!(shim.live(), []);
}

/// One end connects, and the other accepts; stops at the first error.
fn both_ways() -> Result<(), Box<dyn Error>> {
    // The time limit for the confirmation, which does not arrive.
    let listener = Listener::builder().setup_timeout(SHORT).bind((HERE, 0))?;
    // The failure of `rdma_get_src_port`.
    if listener.local_address().port() == 0 {
        return Err("no port".into());
    }
    let resolved = Connector::new().setup_timeout(LONG).resolve(listener.local_address())?;
    let queue_pair = |id: &Arc<Identifier>| -> Result<_, Box<dyn Error>> {
        let context = id.get_device_context().ok_or("no device")?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_builder().build()?;
        Ok(id.create_qp(pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq))?)
    };
    let active = queue_pair(resolved.identifier())?;
    resolved.identifier().connect(&ConnectionParameter::default())?;
    let request = listener.accept(Some(LONG))?;
    let passive = queue_pair(request.identifier())?;
    // The other end, on the same thread, does not confirm.
    match request.accept(&ConnectionParameter::default()) {
        Err(error) if error.is_timed_out() => {}
        accepted => drop(accepted?),
    }
    let told = resolved.identifier().event_channel().get_cm_event(Some(LONG))?;
    if told.event_type() != EventType::Established {
        return Err(told.to_string().into());
    }
    active.close()?;
    passive.close()?;
    Ok(())
}

#[test]
fn any_failing_call_leaks_nothing() {
    let shim = Shim::new();
    both_ways().unwrap();
    let calls = shim.failable();
    drop(shim);
    assert!(calls > 20, "{calls} calls");
    let mut told = 0;
    for number in 0..calls {
        let shim = Shim::new();
        shim.fail_any(number, Failure::documented(libc::ENOMEM));
        told += u32::from(both_ways().is_err());
        let failed: Vec<_> = shim.calls().into_iter().filter(|call| call.failed.is_some()).collect();
        let is_leaked = failed.iter().any(|call| call.verb.contains("destroy") || call.verb.contains("dealloc"));
        assert!(is_leaked || shim.live().is_empty(), "{failed:?}: {:?} is left", shim.live());
        assert!(is_leaked || shim.violations().is_empty(), "{failed:?}");
        shim.violations();
    }
    assert!(told > calls / 2, "{told} failures of {calls} calls were reported");
}

#[test]
fn failed_channel_is_reported_as_the_first_step() {
    let shim = Shim::new();
    shim.fail("rdma_create_event_channel", 0, Failure::documented(libc::ENODEV));
    let error = Connector::new().resolve((HERE, 1)).unwrap_err();
    assert_eq!(error.step(), ConnectStep::OpenChannel);
    assert!(error.to_string().starts_with("opening an event channel: rdma_create_event_channel: ENODEV"), "{error}");
    shim.fail("rdma_create_event_channel", 0, Failure::documented(libc::EMFILE));
    assert_eq!(Listener::bind((HERE, 0)).unwrap_err().step(), ConnectStep::OpenChannel);
    drop(EventChannel::new().unwrap());
    assert_eq!(shim.live(), []);
}
