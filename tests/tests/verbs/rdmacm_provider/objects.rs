//! Groups, events, endpoints, lists, devices, shared receive queues.

use std::ffi::CStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::{null, null_mut};
use std::{mem, thread};

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::rdma_cm_event_type as event_type;
use rdma_mummy_sys::rdma_port_space as space;
use sideway_tests::recording::{ConnectionEvent, ConnectionParameters, Failure, Kind, Recording};

use super::*;

#[test]
fn multicast_groups_take_the_queue_pair_in() {
    let recording = Recording::new();
    let channel = channel();
    let member = id(channel, space::RDMA_PS_UDP);
    bind(member, LOOPBACK, 0).unwrap();
    make_qp(member).unwrap();
    let mut group = address([239, 1, 2, 3], 0);
    let group = (&raw mut group).cast::<sockaddr>();
    let context = std::ptr::without_provenance_mut(4711);
    // SAFETY: the identifier and the address are alive.
    check(unsafe { ffi::rdma_join_multicast(member, group, context) }).unwrap();
    let event = expect(channel, event_type::RDMA_CM_EVENT_MULTICAST_JOIN, member);
    // SAFETY: the event is one of datagrams.
    unsafe {
        let ud = (*event).param.ud;
        assert_eq!((ud.private_data, ud.qp_num), (context.cast_const(), 0xff_ffff));
        assert_eq!(ud.ah_attr.grh.dgid.raw[10..], [0xff, 0xff, 239, 1, 2, 3]);
    }
    acknowledge(event);
    assert!(recording.live().contains(&Kind::MulticastMember));
    // SAFETY: the identifier and the address are alive.
    unsafe {
        check(ffi::rdma_leave_multicast(member, group)).unwrap();
        assert_eq!(check(ffi::rdma_leave_multicast(member, group)), Err(libc::EADDRNOTAVAIL));
    }
    assert!(!recording.live().contains(&Kind::MulticastMember));
    // Who only sends is no member, and an event that was not taken goes with the group.
    let mut attr = ffi::rdma_cm_join_mc_attr_ex { comp_mask: 3, join_flags: 1, addr: group };
    // SAFETY: the identifier, the attributes and the address are alive.
    unsafe {
        check(ffi::rdma_join_multicast_ex(member, &mut attr, context)).unwrap();
        pass(channel, event_type::RDMA_CM_EVENT_MULTICAST_JOIN, member);
        assert!(!recording.live().contains(&Kind::MulticastMember));
        check(ffi::rdma_join_multicast(member, group, context)).unwrap();
        check(ffi::rdma_leave_multicast(member, group)).unwrap();
        assert_eq!(next(channel), NOTHING);
        check(ffi::rdma_leave_multicast(member, group)).unwrap();
        attr.comp_mask = 1;
        assert_eq!(check(ffi::rdma_join_multicast_ex(member, &mut attr, context)), Err(libc::EINVAL));
        attr.comp_mask = 7;
        assert_eq!(check(ffi::rdma_join_multicast_ex(member, &mut attr, context)), Err(libc::ENOTSUP));
    }
    // A device that takes no more members.
    recording.fail("attach_mcast", 0, Failure::documented(libc::ENOMEM));
    // SAFETY: the identifier and the address are alive.
    check(unsafe { ffi::rdma_join_multicast(member, group, context) }).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_MULTICAST_ERROR, member);
    // The library has the group until it is left.
    // SAFETY: the identifier and the address are alive.
    check(unsafe { ffi::rdma_leave_multicast(member, group) }).unwrap();
    end_qp(member);
    end(member);
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn what_a_test_raises_comes_as_it_is() {
    let recording = Recording::new();
    recording.script_connections(true);
    let channel = channel();
    let asks = id(channel, space::RDMA_PS_TCP);
    resolve(asks, LOOPBACK, PORT).unwrap();
    assert_eq!(next(channel), NOTHING);
    let resolved = ConnectionEvent { processed: true, ..ConnectionEvent::new(0, asks) };
    recording.raise_connection_event(channel, resolved);
    pass(channel, event_type::RDMA_CM_EVENT_ADDR_RESOLVED, asks);
    // SAFETY: the identifier is alive.
    assert!(!unsafe { (*asks).verbs }.is_null());
    let mut hostile = ConnectionEvent::new(0xdead_beef, null_mut());
    hostile.status = i32::MIN;
    hostile.parameters =
        ConnectionParameters::Connection(ffi::rdma_conn_param { private_data: null(), ..parameters(b"none") });
    recording.raise_connection_event(channel, hostile.clone());
    hostile.private_data = vec![7; 255];
    recording.raise_connection_event(channel, hostile);
    let event = expect(channel, ffi::rdma_cm_event_type(0xdead_beef), null_mut());
    // SAFETY: the event is one of a connection.
    unsafe {
        assert_eq!(((*event).status, (*event).param.conn.private_data_len), (i32::MIN, 4));
        assert!((*event).param.conn.private_data.is_null());
    }
    acknowledge(event);
    let event = expect(channel, ffi::rdma_cm_event_type(0xdead_beef), null_mut());
    // SAFETY: the event is one of a connection.
    assert_eq!(unsafe { private_data(event) }, [7; 255]);
    acknowledge(event);
    // Scripted through to the end: an answer that moves the queue pair.
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_resolve_route(asks, 1) }).unwrap();
    make_qp(asks).unwrap();
    connect(asks, &mut parameters(&[])).unwrap();
    let mut response = ConnectionEvent { processed: true, ..ConnectionEvent::new(5, asks) };
    response.parameters = ConnectionParameters::Connection(parameters(&[]));
    recording.raise_connection_event(channel, response);
    pass(channel, event_type::RDMA_CM_EVENT_ESTABLISHED, asks);
    assert_eq!(state(asks), ffi::ibv_qp_state::IBV_QPS_RTS);
    disconnect(asks).unwrap();
    assert_eq!(next(channel), NOTHING);
    // A request from nowhere.
    let listens = listener(channel, space::RDMA_PS_TCP);
    recording.raise_connection_event(channel, ConnectionEvent { processed: true, ..ConnectionEvent::new(4, listens) });
    let (answers, event) = request(channel, listens);
    acknowledge(event);
    end_qp(asks);
    for id in [asks, answers, listens] {
        end(id);
    }
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn an_end_waits_for_acknowledgements() {
    let recording = Recording::new();
    let channel = channel();
    let asks = id(channel, space::RDMA_PS_TCP);
    resolve(asks, LOOPBACK, PORT).unwrap();
    let event = expect(channel, event_type::RDMA_CM_EVENT_ADDR_RESOLVED, asks);
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_resolve_route(asks, 1) }).unwrap();
    let shared = Shared(asks);
    let ends = thread::spawn(move || end(shared.get()));
    // The event that waited goes at once; the one that was taken is waited for.
    thread::yield_now();
    assert!(recording.live().contains(&Kind::Identifier));
    acknowledge(event);
    ends.join().unwrap();
    assert_eq!(next(channel), NOTHING);
    assert_eq!(recording.live(), [Kind::EventChannel]);
    end_channel(channel);
}

#[test]
fn identifiers_move_with_their_events() {
    let recording = Recording::new();
    let (first, second) = (channel(), channel());
    let asks = id(first, space::RDMA_PS_TCP);
    resolve(asks, LOOPBACK, PORT).unwrap();
    let event = expect(first, event_type::RDMA_CM_EVENT_ADDR_RESOLVED, asks);
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_resolve_route(asks, 1) }).unwrap();
    let shared = (Shared(asks), Shared(second));
    let moves = thread::spawn(move || {
        let (id, channel) = (shared.0.get(), shared.1.get());
        // SAFETY: both are alive.
        check(unsafe { ffi::rdma_migrate_id(id, channel) }).unwrap();
    });
    thread::yield_now();
    acknowledge(event);
    moves.join().unwrap();
    assert_eq!(next(first), NOTHING);
    pass(second, event_type::RDMA_CM_EVENT_ROUTE_RESOLVED, asks);
    // To a channel of its own, and back.
    // SAFETY: all are alive.
    unsafe {
        check(ffi::rdma_migrate_id(asks, null_mut())).unwrap();
        assert!((*asks).channel != first && (*asks).channel != second);
        assert_eq!(check(ffi::rdma_migrate_id(asks, null_mut())), Err(libc::EINVAL));
        check(ffi::rdma_migrate_id(asks, first)).unwrap();
        assert_eq!((*asks).channel, first);
    }
    end(asks);
    end_channel(first);
    end_channel(second);
    assert_eq!(recording.live(), []);
}

#[test]
fn endpoints_wait_for_what_comes() {
    let recording = Recording::new();
    let listens = endpoint(list(true, space::RDMA_PS_TCP)).unwrap();
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_listen(listens, 1) }).unwrap();
    let asks = endpoint(list(false, space::RDMA_PS_TCP)).unwrap();
    let shared = Shared(listens);
    let serves = thread::spawn(move || {
        let mut id = null_mut();
        // SAFETY: the listener is alive.
        unsafe {
            check(ffi::rdma_get_request(shared.get(), &mut id)).unwrap();
            assert!(!(*id).qp.is_null());
            check(ffi::rdma_accept(id, null_mut())).unwrap();
        }
        Shared(id)
    });
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_connect(asks, null_mut()) }).unwrap();
    assert_eq!(state(asks), ffi::ibv_qp_state::IBV_QPS_RTS);
    let answers = serves.join().unwrap().get();
    disconnect(asks).unwrap();
    // SAFETY: the test gives all up.
    unsafe {
        for id in [asks, answers, listens] {
            ffi::rdma_destroy_ep(id);
        }
    }
    assert_eq!(recording.live(), []);
}

#[test]
fn endpoints_of_nowhere_leave_nothing() {
    let recording = Recording::new();
    recording.fail("create_qp", 0, Failure::documented(libc::ENOMEM));
    assert_eq!(endpoint(list(false, space::RDMA_PS_TCP)), Err(libc::ENOMEM));
    let asks = endpoint(list(false, space::RDMA_PS_TCP)).unwrap();
    // SAFETY: the identifier is alive.
    unsafe {
        assert_eq!(check(ffi::rdma_connect(asks, null_mut())), Err(libc::ECONNREFUSED));
        ffi::rdma_destroy_ep(asks);
    }
    assert_eq!(recording.live(), []);
}

#[test]
fn names_are_numbers() {
    let recording = Recording::new();
    let get = |node: &CStr| {
        let mut list = null_mut();
        // SAFETY: the string ends.
        let got = check(unsafe { ffi::rdma_getaddrinfo(node.as_ptr(), null(), null(), &mut list) });
        got.map(|()| list)
    };
    assert_eq!(get(c"some.host"), Err(libc::EAI_NONAME), "as the library has it");
    let list = get(c"::1").unwrap();
    // SAFETY: the list is alive.
    unsafe {
        assert_eq!(((*list).ai_family, (*list).ai_port_space), (libc::AF_INET6, space::RDMA_PS_TCP.0 as c_int));
        let address = *(*list).ai_dst_addr.cast::<sockaddr_in6>();
        assert_eq!(address.sin6_addr.s6_addr, Ipv6Addr::LOCALHOST.octets());
        assert_eq!(recording.live(), [Kind::AddressInformation]);
        ffi::rdma_freeaddrinfo(list);
    }
    assert_eq!(recording.live(), []);
    assert_eq!(Ipv4Addr::LOCALHOST.octets(), LOOPBACK);
}

#[test]
fn open_devices_are_shared_until_the_last_goes() {
    let recording = Recording::new();
    let channel = channel();
    let bound = id(channel, space::RDMA_PS_TCP);
    bind(bound, LOOPBACK, 0).unwrap();
    let mut count = -1;
    // SAFETY: the list is alive until it is freed.
    let list = unsafe {
        let list = ffi::rdma_get_devices(&mut count);
        assert_eq!((count, *list), (1, (*bound).verbs));
        list
    };
    assert_eq!(recording.live(), [Kind::EventChannel, Kind::Identifier, Kind::OpenDevices]);
    recording.unplug();
    // SAFETY: as above; the test gives the list up.
    unsafe {
        let empty = ffi::rdma_get_devices(&mut count);
        assert_eq!(count, 0);
        ffi::rdma_free_devices(empty);
        ffi::rdma_free_devices(list);
    }
    let late = id(channel, space::RDMA_PS_TCP);
    assert_eq!(bind(late, LOOPBACK, 0), Err(libc::ENODEV));
    end(late);
    // SAFETY: the identifier is alive, which keeps the context open.
    let context = unsafe { (*bound).verbs };
    recording.calls();
    end(bound);
    assert_eq!(recording.verbs(), ["rdma_destroy_id", "dealloc_pd", "close_device"]);
    // SAFETY: the memory of a context is never freed.
    let pd = unsafe { ffi::ibv_alloc_pd(context) };
    assert_eq!(recording.violations(), ["a context was used that is closed"]);
    // SAFETY: the domain is nobody else's.
    assert_eq!(unsafe { ffi::ibv_dealloc_pd(pd) }, 0);
    assert_eq!(
        recording.violations(),
        ["a context was used that is closed"; 2],
        "to find its device, and for the call"
    );
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn shared_receive_queues_come_and_go() {
    let recording = Recording::new();
    let channel = channel();
    let both = id(channel, space::RDMA_PS_TCP);
    bind(both, LOOPBACK, 0).unwrap();
    // SAFETY: a struct of integers and a nullable pointer; the identifier is alive.
    unsafe {
        let mut attr: ffi::ibv_srq_init_attr = mem::zeroed();
        (attr.attr.max_wr, attr.attr.max_sge) = (8, 1);
        check(ffi::rdma_create_srq(both, (*both).pd, &mut attr)).unwrap();
        make_qp(both).unwrap();
        assert!(!(*both).srq.is_null());
        assert_eq!((*(*both).qp).srq, (*both).srq);
        end_qp(both);
        ffi::rdma_destroy_srq(both);
        assert!((*both).srq.is_null() && (*both).qp.is_null());
    }
    end(both);
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn lists_and_events_of_a_later_library() {
    let recording = Recording::new();
    let channel = channel();
    let asks = id(channel, space::RDMA_PS_TCP);
    // SAFETY: the identifier is alive, and the strings end.
    unsafe {
        let mut list = null_mut();
        assert_eq!(check(ffi::since_v44::rdma_query_addrinfo(asks, &mut list)), Err(libc::ENODATA));
        let resolved = ffi::since_v44::rdma_resolve_addrinfo(asks, c"10.0.0.1".as_ptr(), c"5".as_ptr(), null());
        check(resolved).unwrap();
        pass(channel, event_type::RDMA_CM_EVENT_ADDRINFO_RESOLVED, asks);
        check(ffi::since_v44::rdma_query_addrinfo(asks, &mut list)).unwrap();
        assert_eq!((*(*list).ai_dst_addr.cast::<sockaddr_in>()).sin_port, 5_u16.to_be());
        ffi::rdma_freeaddrinfo(list);
        let write = |event| check(ffi::since_v44::rdma_write_cm_event(asks, event, -3, 4711));
        assert_eq!(write(event_type::RDMA_CM_EVENT_ESTABLISHED), Err(libc::EINVAL));
        write(event_type::RDMA_CM_EVENT_USER).unwrap();
        let event = expect(channel, event_type::RDMA_CM_EVENT_USER, asks);
        assert_eq!(((*event).status, (*event).param.conn.private_data.addr()), (-3, 4711));
        acknowledge(event);
    }
    end(asks);
    end_channel(channel);
    assert_eq!(recording.live(), []);
}
