//! Every call fails once, each with a different errno.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use rdma_mummy_sys::rdma_cm_event_type;
use sideway::error::VerbError;
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, CreateEventChannelError, EventChannel, EventKind, EventType, Identifier, PortSpace,
};
use sideway_tests::connections::{End, expect};
use sideway_tests::recording::Failure;
use sideway_tests::shim::{ConnectionEvent, Shim, channel};

use crate::{HERE, pair, raw};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn errno_is_always_reported() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let fresh = channel.create_id(PortSpace::Tcp).unwrap();
    let parameter = ConnectionParameter::default();
    let here = (HERE, 9).into();
    type Call<'c> = (&'static str, &'c dyn Fn() -> Result<(), VerbError>);
    let calls: [Call<'_>; 8] = [
        ("rdma_create_id", &|| channel.create_id(PortSpace::Tcp).map(drop)),
        ("rdma_bind_addr", &|| fresh.bind_addr(here)),
        ("rdma_resolve_addr", &|| fresh.resolve_addr(None, here, SECOND)),
        ("rdma_resolve_route", &|| id.resolve_route(SECOND)),
        ("rdma_listen", &|| fresh.listen(1)),
        ("rdma_connect", &|| id.connect(&parameter)),
        ("rdma_disconnect", &|| id.disconnect()),
        ("rdma_get_cm_event", &|| channel.try_get_cm_event().map(drop)),
    ];
    for (index, (verb, call)) in calls.into_iter().enumerate() {
        let errno = [libc::ENOMEM, libc::EFAULT, libc::ENXIO, libc::E2BIG][index % 4];
        shim.fail(verb, 0, Failure::documented(errno));
        let error = call().unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), (verb, errno), "{error}");
    }
}

#[test]
fn failed_internal_step_reports_its_errno() {
    let shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    let (c_channel, c_id) = raw(&channel, &id);
    let event =
        ConnectionEvent { status: -libc::EHOSTUNREACH, ..ConnectionEvent::new(EventType::AddressError.raw(), c_id) };
    shim.raise(c_channel, event);
    let event = expect(&channel, EventType::AddressError);
    let EventKind::AddressError(status) = event.kind() else { panic!("{event:?}") };
    assert_eq!(status.errno().unwrap().raw(), libc::EHOSTUNREACH);
    // The library changes the queue pair's state when the response arrives.
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let active = End::of(id);
    active.id.connect(&ConnectionParameter::default()).unwrap();
    expect(&channel, EventType::ConnectRequest).cm_id().accept(&ConnectionParameter::default()).unwrap();
    shim.rewrite(|event| {
        (event.event, event.status) = (rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_ERROR, -1);
        libc::EMFILE
    });
    let event = expect(&channel, EventType::ConnectError);
    assert_eq!((event.status().raw(), event.status().errno().unwrap().raw()), (-1, libc::EMFILE), "{event}");
}

#[test]
fn channel_that_cannot_be_created_is_an_error() {
    let shim = Shim::new();
    shim.fail("rdma_create_event_channel", 0, Failure::documented(libc::ENOENT));
    let error = EventChannel::new().unwrap_err();
    assert!(error.to_string().contains("modprobe rdma_ucm"), "{error}");
    assert!(error.source().is_none());
    let CreateEventChannelError::Verb(error) = error else { panic!("{error:?}") };
    assert_eq!(error.errno().raw(), libc::ENOENT);
    assert_eq!(shim.live(), []);
}

#[test]
fn identifier_that_cannot_be_destroyed_is_leaked() {
    let shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    shim.fail("rdma_destroy_id", 0, Failure::documented(libc::EIO));
    drop(id);
    // The identifier still exists, and its channel works.
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.bind_addr((HERE, 0).into()).unwrap();
    drop(id);
    drop(channel);
    // The library destroyed the channel with an identifier on it.
    assert_eq!(shim.violations().len(), 1);
}

/// Connects and disconnects two ends; stops at the first error.
fn whole_life() -> Result<(), Box<dyn Error>> {
    let channel = EventChannel::new()?;
    let next = |event_type| -> Result<Arc<Identifier>, Box<dyn Error>> {
        let event = channel.get_cm_event(Some(Duration::ZERO))?;
        if event.event_type() != event_type {
            return Err(event.to_string().into());
        }
        Ok(event.cm_id().clone())
    };
    let listener = channel.create_id(PortSpace::Tcp)?;
    listener.bind_addr((HERE, 0).into())?;
    listener.listen(1)?;
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, (HERE, listener.port()).into(), SECOND)?;
    next(EventType::AddressResolved)?;
    id.resolve_route(SECOND)?;
    next(EventType::RouteResolved)?;
    let queue_pair = |id: &Arc<Identifier>| -> Result<_, Box<dyn Error>> {
        let context = id.get_device_context().ok_or("no device")?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_builder().build()?;
        Ok(id.create_qp(pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq))?)
    };
    let active = queue_pair(&id)?;
    id.connect(&ConnectionParameter::default())?;
    let request = next(EventType::ConnectRequest)?;
    let passive = queue_pair(&request)?;
    request.accept(&ConnectionParameter::default())?;
    next(EventType::Established)?;
    next(EventType::Established)?;
    id.disconnect()?;
    next(EventType::Disconnected)?;
    active.close()?;
    passive.close()?;
    Ok(())
}

#[test]
fn any_failing_call_leaks_nothing_and_repeats_nothing() {
    let shim = Shim::new();
    whole_life().unwrap();
    let calls = shim.failable();
    drop(shim);
    assert!(calls > 30, "{calls} calls");
    let mut told = 0;
    for number in 0..calls {
        for errno in [libc::ENOMEM, libc::EINVAL] {
            let shim = Shim::new();
            shim.fail_any(number, Failure::documented(errno));
            told += u32::from(whole_life().is_err());
            let failed: Vec<_> = shim.calls().into_iter().filter(|call| call.failed.is_some()).collect();
            assert!(failed.iter().any(|call| call.failed == Some(errno)), "{failed:?}");
            // An object that C does not destroy is leaked, and keeps its parents.
            let is_leaked = failed.iter().any(|call| call.verb.contains("destroy") || call.verb.contains("dealloc"));
            assert!(is_leaked || shim.live().is_empty(), "{failed:?}: {:?} is left", shim.live());
            // A leaked identifier keeps its channel.
            assert!(is_leaked || shim.violations().is_empty(), "{failed:?}");
            shim.violations();
        }
    }
    assert!(told > calls, "{told} failures of {calls} calls were reported");
}
