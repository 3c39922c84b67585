//! Tests of the functions of librdmacm through the C API.
#![allow(clippy::unwrap_used, reason = "a test")]

mod faults;
mod stream;
mod synchronous;

use std::ffi::c_int;
use std::mem;
use std::ptr;
use std::time::{Duration, Instant};

use libc::{sockaddr, sockaddr_in};
use rdma_mummy_sys::load::provider::ProviderId;
use rdma_mummy_sys::load::rdmacm::{Choice, choose};
use rdma_mummy_sys::rdma_cm_event_type as event_type;
use rdma_mummy_sys::*;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use sideway_test_names::Port;

const TIMEOUT: c_int = 60_000;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn v4(ip: [u8; 4], port: u16) -> sockaddr_in {
    // SAFETY: the type has only numbers, for which zero is valid.
    let mut address: sockaddr_in = unsafe { mem::zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_port = port.to_be();
    address.sin_addr.s_addr = u32::from_ne_bytes(ip);
    address
}

fn here(port: u16) -> sockaddr_in {
    v4([127, 0, 0, 1], port)
}

/// An event channel of softrnic.
struct Channel(*mut rdma_event_channel);

/// An event that was taken and not acknowledged.
struct Event {
    raw: *mut rdma_cm_event,
    kind: event_type,
    status: c_int,
    id: *mut rdma_cm_id,
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event was taken, and is acknowledged once.
        assert_eq!(unsafe { rdma_ack_cm_event(self.raw) }, 0);
    }
}

impl Channel {
    fn new() -> Self {
        softrnic::register().unwrap();
        choose(Choice::Provider(ProviderId::by_name("softrnic").unwrap()));
        // SAFETY: the function has no preconditions.
        let channel = unsafe { rdma_create_event_channel() };
        assert!(!channel.is_null(), "{}", errno());
        Self(channel)
    }

    fn descriptor(&self) -> c_int {
        // SAFETY: the channel is alive.
        unsafe { (*self.0).fd }
    }

    fn set_nonblocking(&self) {
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::fcntl(self.descriptor(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    }

    fn is_readable(&self, timeout: c_int) -> bool {
        let mut poll = libc::pollfd { fd: self.descriptor(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one entry.
        unsafe { libc::poll(&raw mut poll, 1, timeout) == 1 }
    }

    fn id(&self, ps: rdma_port_space) -> *mut rdma_cm_id {
        let mut id = ptr::null_mut();
        // SAFETY: the channel is alive.
        assert_eq!(unsafe { rdma_create_id(self.0, &raw mut id, ptr::null_mut(), ps) }, 0);
        id
    }

    fn next(&self) -> Event {
        assert!(self.is_readable(TIMEOUT), "timed out waiting for an event");
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is alive.
        assert_eq!(unsafe { rdma_get_cm_event(self.0, &raw mut raw) }, 0, "{}", errno());
        // SAFETY: the event was just taken.
        unsafe { Event { raw, kind: (*raw).event, status: (*raw).status, id: (*raw).id } }
    }

    fn expect(&self, kind: event_type) -> Event {
        let event = self.next();
        assert_eq!((event.kind, event.status), (kind, 0));
        event
    }

    /// Asserts that there is no event, and that the descriptor is not readable.
    fn is_quiet(&self) {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is alive, and its descriptor non-blocking.
        assert_eq!((unsafe { rdma_get_cm_event(self.0, &raw mut raw) }, errno()), (-1, libc::EAGAIN));
        assert!(!self.is_readable(0));
    }

    /// Creates a listener, and returns it and its port.
    fn listen(&self, ps: rdma_port_space, backlog: c_int) -> (*mut rdma_cm_id, u16) {
        let id = self.id(ps);
        assert_eq!(bind(id, here(0)), Ok(()));
        // SAFETY: the identifier is alive.
        unsafe {
            assert_eq!(rdma_listen(id, backlog), 0);
            (id, u16::from_be(rdma_get_src_port(id)))
        }
    }

    /// Creates an identifier with a route to the port.
    fn resolved(&self, ps: rdma_port_space, port: u16) -> *mut rdma_cm_id {
        let id = self.id(ps);
        let mut to = here(port);
        // SAFETY: the identifier is alive, and the address is readable.
        unsafe {
            assert_eq!(rdma_resolve_addr(id, ptr::null_mut(), (&raw mut to).cast(), 1000), 0);
            self.expect(event_type::RDMA_CM_EVENT_ADDR_RESOLVED);
            assert_eq!(rdma_resolve_route(id, 1000), 0);
        }
        self.expect(event_type::RDMA_CM_EVENT_ROUTE_RESOLVED);
        id
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the channel's identifiers are closed.
        unsafe { rdma_destroy_event_channel(self.0) };
    }
}

fn bind(id: *mut rdma_cm_id, mut address: sockaddr_in) -> Result<(), c_int> {
    // SAFETY: the identifier is alive, and the address is readable.
    match unsafe { rdma_bind_addr(id, ptr::from_mut(&mut address).cast::<sockaddr>()) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: the identifier is alive, and no longer used.
    assert_eq!(unsafe { rdma_destroy_id(id) }, 0);
}

/// Returns parameters with private data and a QP number that the program chooses.
fn parameters(bytes: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: bytes.as_ptr().cast(),
        private_data_len: bytes.len() as u8,
        responder_resources: 3,
        initiator_depth: 2,
        flow_control: 0,
        // As in the kernel, this is limited to 7.
        retry_count: 16,
        rnr_retry_count: 5,
        srq: 1,
        qp_num: 0x1234,
    }
}

fn connect(id: *mut rdma_cm_id, bytes: &[u8]) -> Result<(), c_int> {
    let mut parameters = parameters(bytes);
    // SAFETY: the identifier is alive, and the parameters are readable.
    if unsafe { rdma_connect(id, &raw mut parameters) } == 0 { Ok(()) } else { Err(errno()) }
}

/// Connects a socket to the listener of the port, and sends nothing on it.
fn connect_silently(port: u16) -> std::os::fd::OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let name = format!("softrnic/1/cm/262/{port}/127.0.0.1");
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    socket
}

const TCP: rdma_port_space = rdma_port_space::RDMA_PS_TCP;
const UDP: rdma_port_space = rdma_port_space::RDMA_PS_UDP;

#[test]
fn descriptor_is_readable_only_with_an_event() {
    let channel = Channel::new();
    channel.set_nonblocking();
    channel.is_quiet();
    let (listener, port) = channel.listen(TCP, 0);
    channel.is_quiet();
    let active = channel.resolved(TCP, port);
    channel.is_quiet();
    connect(active, b"hello").unwrap();
    let request = channel.expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
    channel.is_quiet();
    let passive = request.id;
    // SAFETY: the event is not acknowledged, and its private data has the reported length.
    unsafe {
        assert_eq!((*request.raw).listen_id, listener);
        let got = (*request.raw).param.conn;
        assert_eq!((got.private_data_len, got.qp_num, got.srq, got.rnr_retry_count), (56, 0x1234, 1, 5));
        assert_eq!((got.initiator_depth, got.responder_resources, got.retry_count), (3, 2, 7));
        assert_eq!(std::slice::from_raw_parts(got.private_data.cast::<u8>(), 6), b"hello\0");
        let mut reply = parameters(b"welcome");
        assert_eq!(rdma_accept(passive, &raw mut reply), 0);
    }
    drop(request);
    let response = channel.expect(event_type::RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_eq!(response.id, active);
    drop(response);
    // SAFETY: the identifiers are alive.
    unsafe {
        assert_eq!(rdma_establish(active), 0);
        assert_eq!(channel.expect(event_type::RDMA_CM_EVENT_ESTABLISHED).id, passive);
        channel.is_quiet();
        assert_eq!(rdma_disconnect(active), 0);
        assert_eq!(channel.expect(event_type::RDMA_CM_EVENT_DISCONNECTED).id, passive);
        channel.is_quiet();
        assert_eq!(rdma_disconnect(passive), 0);
        assert_eq!(channel.expect(event_type::RDMA_CM_EVENT_DISCONNECTED).id, active);
    }
    for _ in 0..2 {
        channel.expect(event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT);
    }
    channel.is_quiet();
    for id in [active, passive, listener] {
        destroy(id);
    }
}

#[test]
fn destroyed_identifier_disconnects_its_peer() {
    let channel = Channel::new();
    channel.set_nonblocking();
    let (listener, port) = channel.listen(TCP, 0);
    let active = channel.resolved(TCP, port);
    connect(active, b"").unwrap();
    let request = channel.expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
    let passive = request.id;
    drop(request);
    destroy(active);
    let rejected = channel.next();
    // As in the kernel, the rejection reports the time-out of the peer.
    assert_eq!((rejected.kind, rejected.status, rejected.id), (event_type::RDMA_CM_EVENT_REJECTED, 4, passive));
    drop(rejected);
    channel.is_quiet();
    destroy(passive);
    destroy(listener);
}

#[test]
fn malformed_packet_ends_only_its_own_connection() {
    let channel = Channel::new();
    channel.set_nonblocking();
    let (listener, port) = channel.listen(TCP, 0);
    for malformed in [&b"hello"[..], &[0; 284], &[0xff; 284], &[0; 4000], b"srncm\x01"] {
        let connect_silently = connect_silently(port);
        rustix::net::send(&connect_silently, malformed, SendFlags::empty()).unwrap();
        channel.is_quiet();
        let mut room = [0; 8];
        assert_eq!(rustix::net::recv(&connect_silently, &mut room[..], RecvFlags::empty()).unwrap().1, 0);
    }
    let active = channel.resolved(TCP, port);
    connect(active, b"").unwrap();
    let request = channel.expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
    destroy_requested(request);
    assert_eq!(channel.next().kind, event_type::RDMA_CM_EVENT_REJECTED);
    destroy(active);
    destroy(listener);
}

/// Destroys the identifier of a request.
fn destroy_requested(request: Event) {
    let id = request.id;
    drop(request);
    destroy(id);
}

#[test]
fn silent_connections_are_limited_and_time_out() {
    let channel = Channel::new();
    channel.set_nonblocking();
    let (listener, port) = channel.listen(TCP, 0);
    let connections: Vec<_> = (0..80).map(|_| connect_silently(port)).collect();
    // One call accepts all connections, so if a program finds no event, everything was handled.
    channel.is_quiet();
    let is_closed = |socket: &std::os::fd::OwnedFd| {
        matches!(rustix::net::recv(socket, &mut [0_u8; 8][..], RecvFlags::DONTWAIT), Ok((_, 0)))
    };
    let closed = connections.iter().filter(|connect_silently| is_closed(connect_silently)).count();
    assert_eq!(closed, 80 - 64);
    // The other connections are closed after the time-out, although the program does nothing.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !connections.iter().all(is_closed) {
        assert!(Instant::now() < deadline, "timed out waiting for the connections to close");
        assert!(!channel.is_readable(10), "there is no event");
    }
    channel.is_quiet();
    destroy(listener);
}

#[test]
fn addresses_conflict_like_those_of_sockets() {
    let channel = Channel::new();
    let make = || channel.id(TCP);
    let [any, one, other, third] = [make(), make(), make(), make()];
    let reserved = Port::reserve();
    let port = reserved.number();
    bind(any, v4([0; 4], port)).unwrap();
    // SAFETY: the identifier is alive.
    assert!(unsafe { (*any).verbs }.is_null());
    for address in [here(port), v4([0; 4], port)] {
        assert_eq!(bind(one, address), Err(libc::EADDRNOTAVAIL), "the kernel's error for wildcard addresses");
    }
    // Another port space has its own ports.
    let datagram = channel.id(UDP);
    bind(datagram, here(port)).unwrap();
    // SAFETY: the identifier is alive.
    assert!(!unsafe { (*datagram).verbs }.is_null());
    destroy(any);
    // A process that another test starts meanwhile has the socket until it executes its program.
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(errno) = bind(one, here(port)) {
        assert!(errno == libc::EADDRNOTAVAIL && Instant::now() < deadline, "{errno}");
        std::thread::yield_now();
    }
    assert_eq!(bind(other, here(port)), Err(libc::EADDRINUSE));
    assert_eq!(bind(other, v4([0; 4], port)), Err(libc::EADDRNOTAVAIL));
    assert_eq!(bind(one, here(0)), Err(libc::EINVAL), "it is bound already");
    assert_eq!(bind(other, v4([192, 0, 2, 1], 0)), Err(libc::EADDRNOTAVAIL));
    let mut infiniband = here(0);
    infiniband.sin_family = 27;
    assert_eq!(bind(third, infiniband), Err(libc::ENODEV));
    for id in [one, other, third, datagram] {
        destroy(id);
    }
}

#[test]
fn automatic_port_is_in_the_range_of_the_kernel() {
    let channel = Channel::new();
    let id = channel.id(TCP);
    bind(id, v4([0; 4], 0)).unwrap();
    // SAFETY: the identifier is alive.
    let port = u16::from_be(unsafe { rdma_get_src_port(id) });
    assert!(port >= 32768, "{port}");
    destroy(id);
}

/// softiw0, if it is registered, reaches other hosts, but transports no datagrams.
#[test]
fn address_of_another_host_is_unreachable_for_datagrams() {
    let channel = Channel::new();
    let id = channel.id(UDP);
    let mut to = v4([192, 0, 2, 1], 7471);
    // SAFETY: the identifier is alive, and the address is readable.
    let resolved = unsafe { rdma_resolve_addr(id, ptr::null_mut(), (&raw mut to).cast(), 1000) };
    assert_eq!((resolved, errno()), (-1, libc::ENETUNREACH));
    assert!(!channel.is_readable(0), "an event");
    destroy(id);
}

#[test]
fn port_without_listener_is_rejected_and_unreachable_for_datagrams() {
    let channel = Channel::new();
    for (ps, kind, status) in
        [(TCP, event_type::RDMA_CM_EVENT_REJECTED, 8), (UDP, event_type::RDMA_CM_EVENT_UNREACHABLE, 1)]
    {
        let id = channel.resolved(ps, 9);
        connect(id, b"").unwrap();
        let event = channel.next();
        assert_eq!((event.kind, event.status), (kind, status));
        drop(event);
        destroy(id);
    }
}

#[test]
fn requests_beyond_the_backlog_are_retried() {
    let (listening, connecting) = (Channel::new(), Channel::new());
    let (listener, port) = listening.listen(TCP, 1);
    let active: Vec<_> = (0..6).map(|_| connecting.resolved(TCP, port)).collect();
    for &id in &active {
        connect(id, b"").unwrap();
    }
    let mut requests = Vec::new();
    while requests.len() < active.len() {
        if listening.is_readable(10) {
            let request = listening.expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
            requests.push(request.id);
        }
        // The backlog was full when the request was sent, so the request is retried, although the program does nothing.
        assert!(!connecting.is_readable(0), "there is no event");
    }
    for id in requests.into_iter().chain(active) {
        destroy(id);
    }
    destroy(listener);
}

#[test]
fn datagram_service_is_resolved() {
    let channel = Channel::new();
    let (listener, port) = channel.listen(UDP, 0);
    for accepts in [true, false] {
        let active = channel.resolved(UDP, port);
        connect(active, b"request").unwrap();
        let request = channel.expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
        let passive = request.id;
        // SAFETY: the identifiers are alive, and so is the event.
        unsafe {
            assert_eq!((*request.raw).param.ud.private_data_len, 180);
            drop(request);
            let mut reply = parameters(b"reply");
            if accepts {
                assert_eq!(rdma_accept(passive, &raw mut reply), 0);
            } else {
                assert_eq!(rdma_reject(passive, b"no".as_ptr().cast(), 2), 0);
            }
        }
        let event = channel.next();
        if accepts {
            assert_eq!((event.kind, event.status), (event_type::RDMA_CM_EVENT_ESTABLISHED, 0));
            // SAFETY: the event is not acknowledged.
            let got = unsafe { (*event.raw).param.ud };
            assert_eq!((got.qp_num, got.qkey, got.private_data_len), (0x1234, 0x0123_4567, 136));
            // SAFETY: all bytes of a GID are valid.
            assert_eq!(unsafe { got.ah_attr.grh.dgid.raw }[10..], [0xff, 0xff, 127, 0, 0, 1]);
        } else {
            assert_eq!((event.kind, event.status), (event_type::RDMA_CM_EVENT_UNREACHABLE, 2));
        }
        drop(event);
        destroy(active);
        destroy(passive);
    }
    destroy(listener);
}

#[test]
fn descriptors_are_closed_on_exec() {
    let channel = Channel::new();
    let (listener, port) = channel.listen(TCP, 0);
    let active = channel.resolved(TCP, port);
    connect(active, b"").unwrap();
    let request = channel.expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
    let mut seen = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let number: c_int = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let target = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        if number > 2 && ["socket:", "anon_inode:"].iter().any(|kind| target.starts_with(kind)) {
            // SAFETY: the call takes only numbers.
            let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
            assert!(flags < 0 || flags & libc::FD_CLOEXEC != 0, "{number}: {target}");
            seen += 1;
        }
    }
    assert!(seen >= 6, "{seen}");
    destroy_requested(request);
    destroy(active);
    destroy(listener);
}
