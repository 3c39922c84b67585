//! The connection manager of the recording provider, driven as C drives it: what later tests rely on.
#![expect(clippy::unwrap_used, reason = "a test")]

mod connections;
mod objects;
mod rules;

use std::net::Ipv6Addr;
use std::ptr::null_mut;
use std::{mem, slice};

use libc::{c_int, sockaddr_in, sockaddr_in6};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::rdma_cm_event_type as event_type;
use rdma_mummy_sys::rdma_port_space as space;

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
