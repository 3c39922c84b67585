//! The connection manager of the recording provider, driven as C drives it: what later tests rely on.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::ffi::CStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::{null, null_mut};
use std::{mem, slice, thread};

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::rdma_cm_event_type as event_type;
use rdma_mummy_sys::rdma_port_space as space;
use sideway_tests::process::alone;
use sideway_tests::recording::{ConnectionEvent, ConnectionParameters, Failure, Kind, Recording};

type Id = *mut ffi::rdma_cm_id;
type Channel = *mut ffi::rdma_event_channel;
type Event = *mut ffi::rdma_cm_event;

const PORT: u16 = 7471;
/// The library itself would wait for what never comes; the descriptor says that nothing is there.
const NOTHING: Result<Event, c_int> = Err(libc::EAGAIN);

/// A pointer that another thread uses.
struct Shared<T>(*mut T);

// SAFETY: the tests see to it that what is done at the same time may be.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    fn get(self) -> *mut T {
        self.0
    }
}

fn check(code: c_int) -> Result<(), c_int> {
    match code {
        0 => Ok(()),
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
        other => panic!("returned {other}"),
    }
}

fn channel() -> Channel {
    // SAFETY: takes nothing.
    let channel = unsafe { ffi::rdma_create_event_channel() };
    assert!(!channel.is_null());
    // SAFETY: the descriptor is the channel's.
    unsafe {
        if !cfg!(miri) {
            let flags = libc::fcntl((*channel).fd, libc::F_GETFL);
            assert_eq!(libc::fcntl((*channel).fd, libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
        }
    }
    channel
}

fn end_channel(channel: Channel) {
    // SAFETY: the test gives the channel up.
    unsafe { ffi::rdma_destroy_event_channel(channel) };
}

fn id(channel: Channel, ps: space) -> Id {
    let mut id = null_mut();
    // SAFETY: the channel is null or alive.
    check(unsafe { ffi::rdma_create_id(channel, &mut id, null_mut(), ps) }).unwrap();
    id
}

fn end(id: Id) {
    // SAFETY: the test gives the identifier up.
    check(unsafe { ffi::rdma_destroy_id(id) }).unwrap();
}

fn address(host: [u8; 4], port: u16) -> sockaddr_in {
    // SAFETY: a struct of integers.
    let mut address: sockaddr_in = unsafe { mem::zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_port = port.to_be();
    address.sin_addr.s_addr = u32::from_ne_bytes(host);
    address
}

fn address6(host: Ipv6Addr, port: u16) -> sockaddr_in6 {
    // SAFETY: a struct of integers.
    let mut address: sockaddr_in6 = unsafe { mem::zeroed() };
    address.sin6_family = libc::AF_INET6 as u16;
    address.sin6_port = port.to_be();
    address.sin6_addr.s6_addr = host.octets();
    address
}

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

fn bind(id: Id, host: [u8; 4], port: u16) -> Result<(), c_int> {
    let mut address = address(host, port);
    // SAFETY: the identifier and the address are alive.
    check(unsafe { ffi::rdma_bind_addr(id, (&raw mut address).cast()) })
}

/// An identifier that listens at the port.
fn listener(channel: Channel, ps: space) -> Id {
    let id = id(channel, ps);
    bind(id, [0; 4], PORT).unwrap();
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_listen(id, 4) }).unwrap();
    id
}

fn next(channel: Channel) -> Result<Event, c_int> {
    let mut event = null_mut();
    // SAFETY: the channel is alive.
    check(unsafe { ffi::rdma_get_cm_event(channel, &mut event) }).map(|()| event)
}

/// The next event, which has to be this one of this identifier.
#[track_caller]
fn expect(channel: Channel, kind: event_type, id: Id) -> Event {
    let event = next(channel).unwrap_or_else(|errno| panic!("{kind:?}: errno {errno}"));
    // SAFETY: the event was taken just now.
    unsafe {
        assert_eq!(((*event).event, (*event).id), (kind, id));
    }
    event
}

fn acknowledge(event: Event) {
    // SAFETY: the test gives the event up.
    check(unsafe { ffi::rdma_ack_cm_event(event) }).unwrap();
}

/// The same, acknowledged.
#[track_caller]
fn pass(channel: Channel, kind: event_type, id: Id) {
    acknowledge(expect(channel, kind, id));
}

fn resolve(id: Id, host: [u8; 4], port: u16) -> Result<(), c_int> {
    let mut address = address(host, port);
    // SAFETY: the identifier and the address are alive.
    check(unsafe { ffi::rdma_resolve_addr(id, null_mut(), (&raw mut address).cast(), 2000) })
}

/// An identifier with address and route.
fn active(channel: Channel, ps: space, port: u16) -> Id {
    let id = id(channel, ps);
    resolve(id, LOOPBACK, port).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_ADDR_RESOLVED, id);
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_resolve_route(id, 2000) }).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_ROUTE_RESOLVED, id);
    id
}

/// Parameters with private data.
fn parameters(data: &[u8]) -> ffi::rdma_conn_param {
    ffi::rdma_conn_param {
        private_data: data.as_ptr().cast(),
        private_data_len: data.len().try_into().unwrap(),
        responder_resources: 3,
        initiator_depth: 5,
        flow_control: 1,
        retry_count: 6,
        rnr_retry_count: 4,
        srq: 0,
        qp_num: 77,
    }
}

fn connect(id: Id, parameters: &mut ffi::rdma_conn_param) -> Result<(), c_int> {
    // SAFETY: the identifier and the parameters are alive.
    check(unsafe { ffi::rdma_connect(id, parameters) })
}

fn accept(id: Id, parameters: &mut ffi::rdma_conn_param) -> Result<(), c_int> {
    // SAFETY: the identifier and the parameters are alive.
    check(unsafe { ffi::rdma_accept(id, parameters) })
}

fn disconnect(id: Id) -> Result<(), c_int> {
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_disconnect(id) })
}

fn establish(id: Id) -> Result<(), c_int> {
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_establish(id) })
}

/// Private data of a connection's event.
///
/// # Safety
///
/// The event is one of a connection, and is not acknowledged while the data is used.
unsafe fn private_data<'a>(event: Event) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe {
        let ffi::rdma_conn_param { private_data, private_data_len, .. } = (*event).param.conn;
        if private_data.is_null() {
            return &[];
        }
        slice::from_raw_parts(private_data.cast(), private_data_len.into())
    }
}

fn make_qp(id: Id) -> Result<(), c_int> {
    // SAFETY: a struct of integers and nullable pointers; the identifier is alive.
    unsafe {
        let mut attr: ffi::ibv_qp_init_attr = mem::zeroed();
        attr.qp_type = (*id).qp_type;
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (4, 4);
        (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (1, 1);
        check(ffi::rdma_create_qp(id, null_mut(), &mut attr))
    }
}

fn end_qp(id: Id) {
    // SAFETY: the identifier is alive and has a queue pair.
    unsafe { ffi::rdma_destroy_qp(id) };
}

fn state(id: Id) -> ffi::ibv_qp_state {
    // SAFETY: the identifier is alive and has a queue pair.
    unsafe { (*(*id).qp).state }
}

/// The identifier that a request has made.
#[track_caller]
fn request(channel: Channel, listener: Id) -> (Id, Event) {
    let event = next(channel).unwrap();
    // SAFETY: the event was taken just now.
    unsafe {
        assert_eq!((*event).event, event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!((*event).listen_id, listener);
        ((*event).id, event)
    }
}

#[test]
fn queue_pairs_of_identifiers_connect_and_part() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    // SAFETY: the identifier is alive.
    unsafe {
        assert!(!(*asks).verbs.is_null() && !(*asks).pd.is_null());
        assert_eq!(((*asks).port_num, (*asks).qp_type), (1, ffi::ibv_qp_type::IBV_QPT_RC));
        assert_eq!(ffi::rdma_get_dst_port(asks), PORT.to_be());
        assert_ne!(ffi::rdma_get_src_port(asks), 0);
        assert_eq!((*asks).route.addr.__bindgen_anon_2.dst_sin.sin_addr.s_addr, u32::from_ne_bytes(LOOPBACK));
    }
    make_qp(asks).unwrap();
    assert_eq!(state(asks), ffi::ibv_qp_state::IBV_QPS_INIT);
    connect(asks, &mut parameters(b"hello")).unwrap();
    let (answers, event) = request(channel, listens);
    // SAFETY: the event is that of a connection, and the identifiers are alive.
    unsafe {
        let data = private_data(event);
        assert_eq!((&data[..5], data.len()), (&b"hello"[..], 56));
        let got = (*event).param.conn;
        assert_eq!((got.responder_resources, got.initiator_depth), (5, 3), "each side sees the other's");
        assert_eq!((got.retry_count, got.rnr_retry_count, got.qp_num), (6, 4, (*(*asks).qp).qp_num));
        assert_eq!((*answers).verbs, (*asks).verbs);
        assert_eq!(ffi::rdma_get_src_port(answers), PORT.to_be());
        assert_eq!(ffi::rdma_get_dst_port(answers), ffi::rdma_get_src_port(asks));
    }
    acknowledge(event);
    make_qp(answers).unwrap();
    accept(answers, &mut parameters(b"welcome")).unwrap();
    assert_eq!(state(answers), ffi::ibv_qp_state::IBV_QPS_RTS);
    let established = expect(channel, event_type::RDMA_CM_EVENT_ESTABLISHED, asks);
    // SAFETY: the event is that of a connection.
    unsafe {
        let data = private_data(established);
        assert_eq!((&data[..7], data.len()), (&b"welcome"[..], 196));
        assert_eq!((*established).param.conn.qp_num, (*(*answers).qp).qp_num);
    }
    acknowledge(established);
    assert_eq!(state(asks), ffi::ibv_qp_state::IBV_QPS_RTS);
    let told = recording.verbs().into_iter().filter(|&verb| verb == "set_ece").count();
    assert_eq!(told, 2, "each side's extensions to the other's queue pair");
    pass(channel, event_type::RDMA_CM_EVENT_ESTABLISHED, answers);
    assert_eq!(next(channel), NOTHING);
    disconnect(asks).unwrap();
    assert_eq!(state(asks), ffi::ibv_qp_state::IBV_QPS_ERR);
    for end in [asks, answers] {
        pass(channel, event_type::RDMA_CM_EVENT_DISCONNECTED, end);
        pass(channel, event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT, end);
    }
    disconnect(answers).unwrap();
    assert_eq!(next(channel), NOTHING);
    for side in [asks, answers] {
        end_qp(side);
        end(side);
    }
    end(listens);
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn identifiers_without_queue_pairs_establish_by_themselves() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    // SAFETY: the identifier is alive.
    assert_eq!(check(unsafe { ffi::rdma_connect(asks, null_mut()) }), Err(libc::EINVAL));
    assert_eq!(establish(asks), Err(libc::EINVAL), "nobody has answered");
    connect(asks, &mut parameters(&[])).unwrap();
    let (answers, event) = request(channel, listens);
    acknowledge(event);
    accept(answers, &mut parameters(&[])).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_CONNECT_RESPONSE, asks);
    assert_eq!(next(channel), NOTHING);
    // What a queue pair of the program's own needs, and no more than the library writes.
    // SAFETY: a struct of integers; the identifier is alive.
    unsafe {
        let mut attr: ffi::ibv_qp_attr = mem::zeroed();
        (attr.qp_state, attr.rate_limit) = (ffi::ibv_qp_state::IBV_QPS_RTR, 4711);
        let mut mask = 0;
        check(ffi::rdma_init_qp_attr(asks, &mut attr, &mut mask)).unwrap();
        assert_eq!((attr.qp_state, attr.rate_limit), (ffi::ibv_qp_state::IBV_QPS_RTR, 4711));
        assert_eq!((attr.dest_qp_num, attr.max_dest_rd_atomic), (77, 3));
        assert_ne!(mask as u32 & ffi::ibv_qp_attr_mask::IBV_QP_AV.0, 0);
    }
    establish(asks).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_ESTABLISHED, answers);
    // An end that goes is an end that parts.
    end(answers);
    pass(channel, event_type::RDMA_CM_EVENT_DISCONNECTED, asks);
    pass(channel, event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT, asks);
    end(asks);
    end(listens);
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn a_request_can_be_refused_or_meet_nobody() {
    let recording = Recording::new();
    let channel = channel();
    let nobody = active(channel, space::RDMA_PS_TCP, PORT);
    connect(nobody, &mut parameters(&[])).unwrap();
    let event = expect(channel, event_type::RDMA_CM_EVENT_REJECTED, nobody);
    // SAFETY: the event was taken just now.
    assert_eq!(unsafe { (*event).status }, 8);
    acknowledge(event);
    end(nobody);
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    connect(asks, &mut parameters(&[])).unwrap();
    let (answers, event) = request(channel, listens);
    acknowledge(event);
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_reject(answers, b"no".as_ptr().cast(), 2) }).unwrap();
    let event = expect(channel, event_type::RDMA_CM_EVENT_REJECTED, asks);
    // SAFETY: the event is one of a connection.
    unsafe {
        assert_eq!((*event).status, 28);
        assert_eq!((&private_data(event)[..2], private_data(event).len()), (&b"no"[..], 148));
    }
    acknowledge(event);
    end(answers);
    end(asks);
    // A request that nobody has read goes with the one it was for, and one whose sender has gone is refused by time.
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    connect(asks, &mut parameters(&[])).unwrap();
    end(asks);
    let (answers, event) = request(channel, listens);
    acknowledge(event);
    pass(channel, event_type::RDMA_CM_EVENT_REJECTED, answers);
    end(answers);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    connect(asks, &mut parameters(&[])).unwrap();
    end(listens);
    pass(channel, event_type::RDMA_CM_EVENT_REJECTED, asks);
    end(asks);
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn datagrams_find_their_service() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_UDP);
    let asks = active(channel, space::RDMA_PS_UDP, PORT);
    make_qp(asks).unwrap();
    assert_eq!(state(asks), ffi::ibv_qp_state::IBV_QPS_RTS);
    connect(asks, &mut parameters(b"who")).unwrap();
    let (answers, event) = request(channel, listens);
    // SAFETY: the event is one of datagrams.
    unsafe {
        let ud = (*event).param.ud;
        assert_eq!((ud.private_data_len, ud.qp_num), (180, 0));
        assert_eq!(slice::from_raw_parts(ud.private_data.cast::<u8>(), 3), b"who");
    }
    acknowledge(event);
    accept(answers, &mut parameters(&[])).unwrap();
    let event = expect(channel, event_type::RDMA_CM_EVENT_ESTABLISHED, asks);
    // SAFETY: the event is one of datagrams.
    unsafe {
        let ud = (*event).param.ud;
        assert_eq!((ud.qp_num, ud.qkey, ud.ah_attr.is_global, ud.private_data_len), (77, 0x0123_4567, 1, 136));
    }
    acknowledge(event);
    assert_eq!(next(channel), NOTHING);
    let nobody = active(channel, space::RDMA_PS_UDP, PORT + 1);
    connect(nobody, &mut parameters(&[])).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_UNREACHABLE, nobody);
    end_qp(asks);
    for id in [asks, answers, nobody, listens] {
        end(id);
    }
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

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

/// A list for the loopback address, to listen or to connect.
fn list(passive: bool, ps: space) -> *mut ffi::rdma_addrinfo {
    // SAFETY: a struct of integers and nullable pointers; the strings end.
    unsafe {
        let mut hints: ffi::rdma_addrinfo = mem::zeroed();
        hints.ai_flags = if passive { ffi::RAI_PASSIVE as c_int } else { 0 };
        hints.ai_port_space = ps.0 as c_int;
        let mut list = null_mut();
        check(ffi::rdma_getaddrinfo(c"127.0.0.1".as_ptr(), c"7471".as_ptr(), &hints, &mut list)).unwrap();
        list
    }
}

fn endpoint(list: *mut ffi::rdma_addrinfo) -> Result<Id, c_int> {
    // SAFETY: a struct of integers and nullable pointers; the list is alive and freed here.
    unsafe {
        let mut attr: ffi::ibv_qp_init_attr = mem::zeroed();
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (4, 4);
        let mut id = null_mut();
        let made = check(ffi::rdma_create_ep(&mut id, list, null_mut(), &mut attr));
        ffi::rdma_freeaddrinfo(list);
        made.map(|()| id)
    }
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
fn private_data_has_its_limits() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    assert_eq!(connect(asks, &mut parameters(&[1; 57])), Err(libc::EINVAL));
    connect(asks, &mut parameters(&[1; 56])).unwrap();
    let (answers, event) = request(channel, listens);
    // SAFETY: the event is one of a connection.
    assert_eq!(unsafe { private_data(event) }, [1; 56]);
    acknowledge(event);
    // SAFETY: the identifier and the data are alive.
    assert_eq!(check(unsafe { ffi::rdma_reject(answers, [0; 149].as_ptr().cast(), 149) }), Err(libc::EINVAL));
    assert_eq!(accept(answers, &mut parameters(&[2; 197])), Err(libc::EINVAL));
    for id in [asks, answers, listens] {
        end(id);
    }
    end_channel(channel);
    drop(recording);
    // What a list brings is sent before what the call has, and the library counts neither.
    let recording = Recording::new();
    let found = list(false, space::RDMA_PS_TCP);
    let mut data = [3_u8; 200];
    // SAFETY: the list and the data are alive.
    unsafe { ((*found).ai_connect, (*found).ai_connect_len) = (data.as_mut_ptr().cast(), data.len()) };
    let asks = endpoint(found).unwrap();
    assert_eq!(connect(asks, &mut parameters(&[3; 56])), Err(libc::EINVAL));
    assert_eq!(recording.violations(), ["rdma_connect with more private data than the library has room for"]);
    // SAFETY: the test gives it up.
    unsafe { ffi::rdma_destroy_ep(asks) };
    assert_eq!(recording.live(), []);
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
fn extensions_are_told_to_the_other_side() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    let mut ece = ffi::ibv_ece { vendor_id: 0x15b3, options: 6, comp_mask: 0 };
    let mut remote = ffi::ibv_ece { vendor_id: 0, options: 0, comp_mask: 1 };
    // SAFETY: the identifier and the structs are alive.
    check(unsafe { ffi::rdma_set_local_ece(asks, &mut ece) }).unwrap();
    connect(asks, &mut parameters(&[])).unwrap();
    let (answers, event) = request(channel, listens);
    acknowledge(event);
    // SAFETY: as above.
    unsafe {
        check(ffi::rdma_get_remote_ece(answers, &mut remote)).unwrap();
        assert_eq!((remote.vendor_id, remote.options, remote.comp_mask), (0x15b3, 6, 0));
        ece.comp_mask = 1;
        assert_eq!(check(ffi::rdma_set_local_ece(answers, &mut ece)), Err(libc::EINVAL));
        check(ffi::rdma_reject_ece(answers, null(), 0)).unwrap();
    }
    let event = expect(channel, event_type::RDMA_CM_EVENT_REJECTED, asks);
    // SAFETY: the event was taken just now.
    assert_eq!(unsafe { (*event).status }, 35);
    acknowledge(event);
    for id in [asks, answers, listens] {
        end(id);
    }
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn a_side_that_has_received_is_connected() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    connect(asks, &mut parameters(&[])).unwrap();
    let (answers, event) = request(channel, listens);
    acknowledge(event);
    let notify = |id: Id, event| {
        // SAFETY: the identifier is alive.
        check(unsafe { ffi::rdma_notify(id, event) })
    };
    assert_eq!(notify(answers, ffi::ibv_event_type::IBV_EVENT_COMM_EST), Err(libc::EINVAL));
    accept(answers, &mut parameters(&[])).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_CONNECT_RESPONSE, asks);
    notify(answers, ffi::ibv_event_type::IBV_EVENT_COMM_EST).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_ESTABLISHED, answers);
    assert_eq!(notify(answers, ffi::ibv_event_type::IBV_EVENT_PATH_MIG), Err(libc::EINVAL));
    establish(asks).unwrap();
    assert_eq!(next(channel), NOTHING, "it was told once");
    for id in [asks, answers, listens] {
        end(id);
    }
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
        assert_eq!(check(ffi::later::rdma_query_addrinfo(asks, &mut list)), Err(libc::ENODATA));
        let resolved = ffi::later::rdma_resolve_addrinfo(asks, c"10.0.0.1".as_ptr(), c"5".as_ptr(), null());
        check(resolved).unwrap();
        pass(channel, event_type::RDMA_CM_EVENT_ADDRINFO_RESOLVED, asks);
        check(ffi::later::rdma_query_addrinfo(asks, &mut list)).unwrap();
        assert_eq!((*(*list).ai_dst_addr.cast::<sockaddr_in>()).sin_port, 5_u16.to_be());
        ffi::rdma_freeaddrinfo(list);
        let write = |event| check(ffi::later::rdma_write_cm_event(asks, event, -3, 4711));
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
    if !alone("a_device_of_the_system_has_connections_too", &[]) {
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
