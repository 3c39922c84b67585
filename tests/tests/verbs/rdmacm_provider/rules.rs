//! What fails when it is told to, and what is noticed.

use std::net::Ipv6Addr;
use std::ptr::null_mut;
use std::thread;

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::rdma_cm_event_type as event_type;
use rdma_mummy_sys::rdma_port_space as space;
use sideway_tests::process::alone;
use sideway_tests::recording::{ConnectionEvent, Failure, Recording};

use super::*;

#[test]
fn verbs_fail_when_they_are_told_to() {
    let recording = Recording::new();
    recording.fail("rdma_create_event_channel", 0, Failure::documented(libc::EMFILE));
    // SAFETY: takes nothing.
    assert!(unsafe { ffi::rdma_create_event_channel() }.is_null());
    let channel = channel();
    let mut made = null_mut();
    // SAFETY: the channel is alive.
    let odd = unsafe { ffi::rdma_create_id(channel, &mut made, null_mut(), space(4711)) };
    assert_eq!(check(odd), Err(libc::EINVAL), "no such port space");
    let first = id(channel, space::RDMA_PS_TCP);
    let second = id(channel, space::RDMA_PS_TCP);
    bind(first, [0; 4], PORT).unwrap();
    assert_eq!(bind(second, LOOPBACK, PORT), Err(libc::EADDRINUSE));
    let failed = recording.calls().into_iter().next_back().unwrap();
    assert_eq!((failed.verb, failed.failed), ("rdma_bind_addr", Some(libc::EADDRINUSE)));
    recording.fail("rdma_bind_addr", 0, Failure::documented(libc::EADDRNOTAVAIL));
    assert_eq!(bind(second, LOOPBACK, 0), Err(libc::EADDRNOTAVAIL));
    recording.fail("alloc_pd", 0, Failure::documented(libc::ENOMEM));
    resolve(second, LOOPBACK, PORT).unwrap_err();
    let mut six = address6(Ipv6Addr::LOCALHOST, PORT + 1);
    let third = id(channel, space::RDMA_PS_TCP);
    // SAFETY: the identifier and the address are alive.
    check(unsafe { ffi::rdma_bind_addr(third, (&raw mut six).cast()) }).unwrap();
    let mut one: c_int = 1;
    // SAFETY: the identifier and the value are alive.
    unsafe {
        check(ffi::rdma_set_option(third, 0, 1, (&raw mut one).cast(), 4)).unwrap();
        assert_eq!(check(ffi::rdma_set_option(third, 0, 1, (&raw mut one).cast(), 1)), Err(libc::EINVAL));
    }
    for id in [first, second, third] {
        end(id);
    }
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn an_identifier_does_not_go_while_somebody_waits() {
    let recording = Recording::new();
    recording.script_connections(true);
    let both = id(null_mut(), space::RDMA_PS_TCP);
    let own = Shared(both);
    let waits = thread::spawn(move || {
        // SAFETY: the memory of an identifier is never freed.
        let code = check(unsafe { ffi::rdma_get_request(own.get(), &mut null_mut()) });
        assert_eq!(code, Err(libc::EBADF));
    });
    while !recording.verbs().contains(&"rdma_get_request") {
        thread::yield_now();
    }
    end(both);
    waits.join().unwrap();
    let found = recording.violations();
    assert!(found.contains(&String::from("rdma_get_cm_event on a EventChannel that is not there")), "{found:?}");
}

/// What is written down of what `wrong` does.
#[track_caller]
fn violations(wrong: impl FnOnce(&Recording, Channel)) -> Vec<String> {
    let recording = Recording::new();
    let channel = channel();
    wrong(&recording, channel);
    recording.violations()
}

#[test]
fn what_was_given_back_is_not_used() {
    let found = violations(|_, channel| {
        let gone = id(channel, space::RDMA_PS_TCP);
        end(gone);
        // SAFETY: the memory of an identifier is never freed.
        assert_eq!(check(unsafe { ffi::rdma_listen(gone, 1) }), Err(libc::EINVAL));
        // SAFETY: as above.
        assert_eq!(check(unsafe { ffi::rdma_destroy_id(gone) }), Err(libc::EINVAL));
    });
    assert_eq!(
        found,
        ["rdma_listen on a Identifier that is not there", "rdma_destroy_id on a Identifier that is not there"]
    );
    let found = violations(|_, channel| {
        end_channel(channel);
        assert_eq!(next(channel), Err(libc::EBADF));
    });
    assert_eq!(found, ["rdma_get_cm_event on a EventChannel that is not there"]);
    let found = violations(|_, channel| {
        let asks = id(channel, space::RDMA_PS_TCP);
        resolve(asks, LOOPBACK, PORT).unwrap();
        let event = expect(channel, event_type::RDMA_CM_EVENT_ADDR_RESOLVED, asks);
        acknowledge(event);
        // SAFETY: the memory of an event is never freed, and overwritten.
        unsafe {
            assert_eq!((*event).event.0, 0xa5a5_a5a5);
            assert_eq!(check(ffi::rdma_ack_cm_event(event)), Err(libc::EINVAL));
        }
        end(asks);
    });
    assert_eq!(found, ["an event was acknowledged that is not there"]);
}

#[test]
fn what_is_left_is_noticed() {
    let found = violations(|_, channel| {
        id(channel, space::RDMA_PS_TCP);
        end_channel(channel);
    });
    assert_eq!(found, ["an event channel was destroyed that identifiers were left on"]);
    let found = violations(|_, channel| {
        let id = id(channel, space::RDMA_PS_TCP);
        bind(id, LOOPBACK, 0).unwrap();
        make_qp(id).unwrap();
        end(id);
    });
    assert_eq!(found[0], "an identifier was destroyed that holds a queue pair");
    let found = violations(|_, channel| {
        let id = id(channel, space::RDMA_PS_TCP);
        bind(id, LOOPBACK, 0).unwrap();
        make_qp(id).unwrap();
        // SAFETY: the queue pair is alive.
        unsafe { ffi::ibv_destroy_qp((*id).qp) };
    });
    assert_eq!(found, ["a queue pair was destroyed that an identifier still holds"]);
    let found = violations(|_, channel| {
        let id = id(channel, space::RDMA_PS_TCP);
        bind(id, LOOPBACK, 0).unwrap();
        // SAFETY: both are alive.
        unsafe {
            assert_eq!(ffi::ibv_dealloc_pd((*id).pd), libc::EINVAL);
            assert_eq!(ffi::ibv_close_device((*id).verbs), -1);
        }
    });
    assert_eq!(
        found,
        [
            "a ProtectionDomain was destroyed that is the connection manager's own",
            "a Context was destroyed that is the connection manager's own"
        ]
    );
}

#[test]
#[should_panic(expected = "a ConnectionEvent was never acknowledged")]
fn an_event_that_nobody_acknowledges_fails_the_test() {
    let recording = Recording::new();
    let channel = channel();
    let asks = id(channel, space::RDMA_PS_TCP);
    resolve(asks, LOOPBACK, PORT).unwrap();
    expect(channel, event_type::RDMA_CM_EVENT_ADDR_RESOLVED, asks);
    drop(recording);
}

#[test]
fn what_would_crash_is_noticed() {
    let found = violations(|_, channel| {
        let id = id(channel, space::RDMA_PS_TCP);
        // SAFETY: the identifier is alive.
        unsafe {
            check(ffi::rdma_resolve_route(id, 1)).unwrap_err();
            connect(id, &mut parameters(&[])).unwrap_err();
            accept(id, &mut parameters(&[])).unwrap_err();
            check(ffi::rdma_accept(id, null_mut())).unwrap_err();
            make_qp(id).unwrap_err();
            ffi::rdma_destroy_qp(id);
        }
    });
    assert_eq!(
        found,
        [
            "rdma_resolve_route on an identifier without a device",
            "rdma_connect on an identifier without a device",
            "rdma_accept on an identifier without a device",
            "rdma_accept without parameters and without a queue pair",
            "a queue pair was made on an identifier without a device",
            "rdma_destroy_qp on an identifier without a queue pair",
        ]
    );
}

#[test]
fn who_only_waits_is_in_nobodys_way() {
    let recording = Recording::new();
    recording.script_connections(true);
    // An identifier with a channel of its own, that waits in one thread and is used in another.
    let both = id(null_mut(), space::RDMA_PS_TCP);
    let own = Shared(both);
    let waits = thread::spawn(move || {
        let id = own.get();
        // SAFETY: the identifier is alive.
        let code = unsafe { check(ffi::rdma_get_request(id, &mut null_mut())) };
        assert_eq!(code, Err(libc::EINVAL));
    });
    while !recording.verbs().contains(&"rdma_get_request") {
        thread::yield_now();
    }
    bind(both, LOOPBACK, 0).unwrap();
    // SAFETY: the identifier is alive, and its channel its own.
    let channel = unsafe { (*both).channel };
    recording.raise_connection_event(channel, ConnectionEvent::new(15, both));
    waits.join().unwrap();
    assert_eq!(recording.violations(), [""; 0]);
    end(both);
    assert_eq!(recording.live(), []);
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn a_channel_that_blocks_waits_and_can_be_polled() {
    let recording = Recording::new();
    // SAFETY: takes nothing.
    let channel = unsafe { ffi::rdma_create_event_channel() };
    let asks = id(channel, space::RDMA_PS_TCP);
    let readable = || {
        // SAFETY: the channel is alive, and the descriptor its own.
        unsafe {
            let mut asked = libc::pollfd { fd: (*channel).fd, events: libc::POLLIN, revents: 0 };
            libc::poll(&mut asked, 1, 0) == 1
        }
    };
    assert!(!readable());
    resolve(asks, LOOPBACK, PORT).unwrap();
    assert!(readable());
    pass(channel, event_type::RDMA_CM_EVENT_ADDR_RESOLVED, asks);
    assert!(!readable());
    let shared = (Shared(asks), Shared(channel));
    let waits = thread::spawn(move || {
        let (id, channel) = (shared.0.get(), shared.1.get());
        pass(channel, event_type::RDMA_CM_EVENT_ROUTE_RESOLVED, id);
    });
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_resolve_route(asks, 1) }).unwrap();
    waits.join().unwrap();
    // What was not taken goes with the identifier.
    let gone = id(channel, space::RDMA_PS_TCP);
    resolve(gone, LOOPBACK, PORT).unwrap();
    end(gone);
    assert!(!readable());
    end(asks);
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_device_of_the_system_has_connections_too() {
    if !alone("rdmacm_provider::rules::a_device_of_the_system_has_connections_too", &[]) {
        return;
    }
    let recording = Recording::of_system();
    let channel = channel();
    let bound = id(channel, space::RDMA_PS_TCP);
    bind(bound, LOOPBACK, 0).unwrap();
    let mut count = 0;
    // SAFETY: the list is alive until it is freed.
    unsafe {
        let list = ffi::rdma_get_devices(&mut count);
        assert_eq!((count, *list), (1, (*bound).verbs));
        ffi::rdma_free_devices(list);
    }
    end(bound);
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn another_thread_has_the_device_if_it_is_plugged_in_there() {
    let recording = Recording::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: takes nothing.
            assert!(unsafe { ffi::rdma_create_event_channel() }.is_null());
            recording.plug_in_here();
            end_channel(channel());
        });
    });
    assert_eq!(recording.verbs(), ["rdma_create_event_channel", "rdma_destroy_event_channel"]);
}
