//! Multicast groups: the group of an event, and the state after a failure.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rdma_mummy_sys::{rdma_cm_event_type, rdma_ud_param};
use sideway::rdmacm::communication_manager::{
    EventChannel, EventKind, EventType, Identifier, MulticastFailure, MulticastJoinFlag, PortSpace,
};
use sideway_tests::connections::{datagram_end, expect};
use sideway_tests::recording::{Failure, Warnings};
use sideway_tests::shim::{ConnectionEvent, ConnectionParameters, Shim, channel};

use crate::{HERE, raw};

fn group(last: u8) -> SocketAddr {
    SocketAddr::from(([239, 1, 1, last], 0))
}

/// An identifier for datagrams that is bound to the device.
fn bound(channel: &Arc<EventChannel>) -> Arc<Identifier> {
    let id = channel.create_id(PortSpace::Udp).unwrap();
    id.bind_addr((HERE, 0).into()).unwrap();
    id
}

/// The group that the next event reports as joined.
#[track_caller]
fn joined(channel: &Arc<EventChannel>) -> Option<SocketAddr> {
    let event = expect(channel, EventType::MulticastJoin);
    let EventKind::MulticastJoin(membership) = event.kind() else { panic!("{event:?}") };
    membership.group()
}

/// A group event as the library returns it, with its context.
fn told(shim: &Shim, event_type: EventType, id: &Identifier, key: usize) {
    // SAFETY: all zeros are valid: integers and null pointers.
    let parameters: rdma_ud_param = unsafe { std::mem::zeroed() };
    let parameters = rdma_ud_param { private_data: std::ptr::without_provenance(key), ..parameters };
    let (channel, id) = raw(&id.event_channel(), id);
    let event = ConnectionEvent {
        status: if event_type == EventType::MulticastError { -libc::ETIMEDOUT } else { 0 },
        parameters: ConnectionParameters::Datagram(parameters),
        ..ConnectionEvent::new(event_type.raw(), id)
    };
    shim.raise(channel, event);
}

#[track_caller]
fn failure(channel: &Arc<EventChannel>) -> MulticastFailure {
    let event = expect(channel, EventType::MulticastError);
    let EventKind::MulticastError(failure) = event.kind() else { panic!("{event:?}") };
    failure.clone()
}

/// The library's arguments for the groups joined since the last query.
fn keys(shim: &Shim) -> Vec<usize> {
    let calls = shim.calls();
    let joins = calls.iter().filter(|call| call.verb.starts_with("rdma_join_multicast"));
    joins.map(|call| call.argument("context") as usize).collect()
}

#[test]
fn each_event_names_its_group() {
    let shim = Shim::new();
    let channel = channel();
    let id = bound(&channel);
    id.join_multicast(group(1)).unwrap();
    id.join_multicast_with(group(2), MulticastJoinFlag::SendOnlyFullMember).unwrap();
    id.join_multicast_with(group(3), MulticastJoinFlag::default()).unwrap();
    let calls = shim.calls();
    let flags: Vec<_> = calls
        .iter()
        .filter(|call| call.verb == "rdma_join_multicast_ex")
        .map(|call| (call.argument("comp_mask"), call.argument("join_flags")))
        .collect();
    assert_eq!(flags, [(3, 1), (3, 0)]);
    for last in 1..=3 {
        assert_eq!(joined(&channel), Some(group(last)));
    }
    // The event of the second join, much later.
    told(&shim, EventType::MulticastError, &id, 2);
    let event = expect(&channel, EventType::MulticastError);
    assert_eq!(event.to_string(), "multicast error: 239.1.1.2: ETIMEDOUT (Connection timed out)");
    let EventKind::MulticastError(failure) = event.kind() else { panic!("{event:?}") };
    assert_eq!(failure.group(), Some(group(2)));
    assert_eq!(failure.status().errno().unwrap().raw(), libc::ETIMEDOUT);
}

#[test]
fn lost_group_is_left_before_it_is_rejoined() {
    let shim = Shim::new();
    let channel = channel();
    let id = bound(&channel);
    id.join_multicast(group(1)).unwrap();
    joined(&channel);
    assert_eq!(id.join_multicast(group(1)).unwrap_err().errno().raw(), libc::EADDRINUSE);
    let first = keys(&shim);
    told(&shim, EventType::MulticastError, &id, first[0]);
    assert_eq!(failure(&channel).group(), Some(group(1)));
    shim.calls();
    id.join_multicast(group(1)).unwrap();
    let verbs = shim.verbs();
    assert_eq!(verbs, ["rdma_leave_multicast", "rdma_join_multicast"]);
    assert_eq!(joined(&channel), Some(group(1)));
    // A late event of the first join is not taken for an event of the second.
    told(&shim, EventType::MulticastError, &id, first[0]);
    assert_eq!(failure(&channel).group(), None);
    id.join_multicast(group(1)).unwrap_err();
}

#[test]
fn malformed_group_events_are_not_dereferenced() {
    let shim = Shim::new();
    let channel = channel();
    let id = bound(&channel);
    id.join_multicast(group(1)).unwrap();
    assert_eq!(joined(&channel), Some(group(1)));
    for key in [0, 2, usize::MAX] {
        told(&shim, EventType::MulticastJoin, &id, key);
        assert_eq!(joined(&channel), None);
        told(&shim, EventType::MulticastError, &id, key);
        let failure = failure(&channel);
        assert_eq!((failure.group(), failure.to_string().as_str()), (None, "ETIMEDOUT (Connection timed out)"));
    }
    let connection = channel.create_id(PortSpace::Tcp).unwrap();
    told(&shim, EventType::MulticastJoin, &connection, 1);
    assert_eq!(joined(&channel), None);
}

#[test]
fn failed_attach_is_an_error_of_the_join() {
    let shim = Shim::new();
    let channel = channel();
    let id = bound(&channel);
    let end = datagram_end(&id);
    shim.rewrite(|event| {
        (event.event, event.status) = (rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_ERROR, -1);
        libc::ENOSPC
    });
    id.join_multicast(group(1)).unwrap();
    let failure = failure(&channel);
    assert_eq!((failure.group(), failure.status().raw()), (Some(group(1)), -1));
    assert_eq!(failure.status().errno().unwrap().raw(), libc::ENOSPC);
    id.join_multicast(group(1)).unwrap();
    assert_eq!(joined(&channel), Some(group(1)));
    end.side.qp.close().unwrap();
}

#[test]
fn failed_join_leaves_no_membership() {
    let shim = Shim::new();
    let channel = channel();
    let id = bound(&channel);
    for verb in ["rdma_join_multicast", "rdma_join_multicast_ex"] {
        let join = || match verb {
            "rdma_join_multicast" => id.join_multicast(group(1)),
            _ => id.join_multicast_with(group(1), MulticastJoinFlag::FullMember),
        };
        shim.fail(verb, 0, Failure::documented(libc::ENOMEM));
        let error = join().unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), (verb, libc::ENOMEM));
        shim.calls();
        let error = id.leave_multicast(group(1)).unwrap_err();
        assert_eq!((error.errno().raw(), shim.verbs()), (libc::EADDRNOTAVAIL, vec![]));
        join().unwrap();
        assert_eq!(joined(&channel), Some(group(1)));
        id.leave_multicast(group(1)).unwrap();
    }
    shim.fail("rdma_join_multicast_ex", 0, Failure::documented(libc::EOPNOTSUPP));
    let error = id.join_multicast_with(group(1), MulticastJoinFlag::FullMember).unwrap_err();
    assert_eq!(error.hint(), Some("librdmacm is older than rdma-core 16; use join_multicast"));
}

#[test]
fn groups_are_left_before_queue_pair_and_identifier_are_destroyed() {
    let shim = Shim::new();
    let channel = channel();
    let id = bound(&channel);
    let end = datagram_end(&id);
    for last in 1..=2 {
        id.join_multicast(group(last)).unwrap();
        joined(&channel);
    }
    shim.calls();
    end.side.qp.close().unwrap();
    assert_eq!(shim.verbs(), ["rdma_leave_multicast", "rdma_leave_multicast", "destroy_qp"]);
    id.join_multicast(group(1)).unwrap();
    shim.calls();
    // The event was not read.
    drop(id);
    assert_eq!(shim.verbs(), ["rdma_leave_multicast", "rdma_destroy_id"]);
    assert!(channel.try_get_cm_event().unwrap().is_none());
}

#[test]
fn events_of_freed_objects_are_not_read() {
    let shim = Shim::new();
    let warnings = Warnings::listen();
    let channel = channel();
    let stays = bound(&channel);
    for with_queue_pair in [false, true] {
        let id = bound(&channel);
        let end = with_queue_pair.then(|| datagram_end(&id));
        // The event of the freed object is not read.
        id.join_multicast(group(1)).unwrap();
        stays.join_multicast(group(2)).unwrap();
        shim.fail("rdma_leave_multicast", 0, Failure::documented(libc::ENXIO));
        if let Some(end) = end {
            end.side.qp.close().unwrap();
            assert_eq!(warnings.take().len(), 1);
        } else {
            let error = id.leave_multicast(group(1)).unwrap_err();
            assert_eq!((error.verb(), error.errno().raw()), ("rdma_leave_multicast", libc::ENXIO));
            assert!(error.hint().unwrap().contains("drop the identifier, until which"), "{error}");
        }
        let error = channel.try_get_cm_event().unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("rdma_get_cm_event", libc::EBUSY));
        // The lost group is removed; other groups are joined and left as before.
        assert_eq!(id.leave_multicast(group(1)).unwrap_err().errno().raw(), libc::EADDRNOTAVAIL);
        id.join_multicast(group(3)).unwrap();
        assert_eq!(channel.try_get_cm_event().unwrap_err().errno().raw(), libc::EBUSY);
        drop(id);
        assert_eq!(joined(&channel), Some(group(2)));
        stays.leave_multicast(group(2)).unwrap();
    }
    // The identifier is destroyed at once.
    let id = bound(&channel);
    id.join_multicast(group(1)).unwrap();
    shim.fail("rdma_leave_multicast", 0, Failure::documented(libc::EACCES));
    drop(id);
    assert_eq!(warnings.take().len(), 1);
    assert!(channel.try_get_cm_event().unwrap().is_none());
    assert_eq!(shim.violations(), [""; 0]);
}

#[test]
fn leaked_identifier_stays_silent_after_a_migration() {
    let shim = Shim::new();
    let (old, new) = (channel(), channel());
    let id = bound(&old);
    id.join_multicast(group(1)).unwrap();
    shim.fail("rdma_leave_multicast", 0, Failure::documented(libc::ENXIO));
    id.leave_multicast(group(1)).unwrap_err();
    shim.fail("rdma_migrate_id", 0, Failure::documented(libc::ENOMEM));
    id.migrate(&new).unwrap_err();
    assert_eq!(old.try_get_cm_event().unwrap_err().errno().raw(), libc::EBUSY);
    assert!(new.try_get_cm_event().unwrap().is_none());
    id.migrate(&new).unwrap();
    assert!(old.try_get_cm_event().unwrap().is_none());
    assert_eq!(new.try_get_cm_event().unwrap_err().errno().raw(), libc::EBUSY);
    drop(id);
    assert!(new.try_get_cm_event().unwrap().is_none());
    assert_eq!(shim.violations(), [""; 0]);
}

#[test]
fn channel_of_a_leaked_identifier_gets_no_events() {
    let shim = Shim::new();
    let channel = channel();
    let id = bound(&channel);
    id.join_multicast(group(1)).unwrap();
    shim.fail("rdma_leave_multicast", 0, Failure::documented(libc::ENXIO));
    id.leave_multicast(group(1)).unwrap_err();
    let hint = || {
        let error = channel.try_get_cm_event().unwrap_err();
        assert_eq!(error.errno().raw(), libc::EBUSY);
        error.hint().unwrap().to_owned()
    };
    assert!(hint().contains("drop that identifier"), "{}", hint());
    shim.fail("rdma_destroy_id", 0, Failure::documented(libc::EIO));
    drop(id);
    // The program has no object left to drop.
    assert!(hint().contains("create another"), "{}", hint());
    drop(channel);
    // The library destroyed the channel with an identifier on it.
    assert_eq!(shim.violations().len(), 1);
}

/// Joins, loses and leaves groups; stops at the first error.
fn whole_life(shim: &Shim) -> Result<(), Box<dyn Error>> {
    let channel = EventChannel::new()?;
    let id = channel.create_id(PortSpace::Udp)?;
    id.bind_addr((HERE, 0).into())?;
    let context = id.get_device_context().ok_or("no device")?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq_builder().build()?;
    let qp = id.create_qp(pd.create_ud_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq))?;
    for last in 1..=3 {
        id.join_multicast(group(last))?;
        let event = channel.get_cm_event(Some(Duration::ZERO))?;
        let EventKind::MulticastJoin(membership) = event.kind() else { return Err(event.to_string().into()) };
        assert_eq!(membership.group(), Some(group(last)));
    }
    told(shim, EventType::MulticastError, &id, 1);
    channel.get_cm_event(Some(Duration::ZERO))?;
    id.join_multicast(group(1))?;
    id.leave_multicast(group(2))?;
    qp.close()?;
    id.join_multicast(group(4))?;
    Ok(())
}

#[test]
fn any_failing_call_leaks_nothing_and_repeats_nothing() {
    let shim = Shim::new();
    whole_life(&shim).unwrap();
    let calls = shim.failable();
    drop(shim);
    assert!(calls > 20, "{calls} calls");
    let mut told = 0;
    for number in 0..calls {
        let shim = Shim::new();
        shim.fail_any(number, Failure::documented(libc::ENOMEM));
        told += u32::from(whole_life(&shim).is_err());
        let failed: Vec<_> = shim.calls().into_iter().filter(|call| call.failed.is_some()).collect();
        assert!(failed.iter().any(|call| call.failed == Some(libc::ENOMEM)), "{failed:?}");
        // An object that C does not destroy is leaked, and keeps its parents; so does a queue pair that stays in a
        // group.
        let is_leaked =
            ["destroy", "dealloc", "leave"].iter().any(|verb| failed.iter().any(|call| call.verb.contains(verb)));
        assert!(is_leaked || shim.live().is_empty(), "{failed:?}: {:?} is left", shim.live());
        assert!(is_leaked || shim.violations().is_empty(), "{failed:?}");
        shim.violations();
    }
    assert!(told > calls / 2, "{told} failures of {calls} calls were reported");
}

#[test]
fn leave_does_not_wait_for_an_event_read_elsewhere() {
    let shim = Shim::new();
    let channel = channel();
    let id = bound(&channel);
    let is_over = AtomicBool::new(false);
    let rounds: u8 = 100;
    thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let mut taken = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                // The event is kept, as in a program that never acknowledges.
                taken.extend(channel.try_get_cm_event().unwrap());
                thread::yield_now();
            }
            taken
        });
        for last in 0..rounds {
            id.join_multicast(group(last)).unwrap();
            thread::yield_now();
            id.leave_multicast(group(last)).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        let named = |event| matches!(event, EventKind::MulticastJoin(membership) if membership.group().is_some());
        assert!(taker.join().unwrap().into_iter().all(|event| named(event.into_parts().1)));
    });
    assert_eq!(shim.violations(), [""; 0]);
}
