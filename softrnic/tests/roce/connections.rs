//! Messages of the connection manager at times, in an order or in a number that a cooperative peer does not send.

use std::fs;
use std::io::{Read, Write, pipe};
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::ptr;

use rdma_mummy_sys::rdma_cm_event_type as event_type;
use rdma_mummy_sys::*;

use crate::child::{forked, is_alone};
use crate::manager::{DREP, DREQ, Listener, Manager, REJ, REP, REQ, RTU, TIMEOUT, destroy};
use crate::peer::own_address;

const REQUEST: event_type = event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
const REJECTED: event_type = event_type::RDMA_CM_EVENT_REJECTED;

/// Otherwise a peer could fill the memory of a program that takes no events.
#[test]
fn withdrawn_requests_count_in_the_backlog() {
    let (listener, other) = (Listener::new(2), Listener::new(0));
    let manager = Manager::at(own_address(0x40));
    manager.send(REQ, 9, &manager.request(9, other.port));
    let accepted = accept(&other);
    // The upper bits of an id lead to this process, and the lower ones are never 0.
    let reply = manager.next();
    assert_eq!(reply.kind, REP);
    let unknown = reply.word(0) & !0xf_ffff;
    for id in 1..=5 {
        manager.send(REQ, id.into(), &manager.request(id, listener.port));
        manager.send(REJ, id.into(), &Manager::withdrawal(id));
    }
    assert!(manager.settle(77, unknown).iter().all(|message| message.kind == REP));
    // As in the kernel, the program gets the requests, and then their ends.
    let events = [(); 4].map(|()| listener.next());
    assert_eq!(events.map(|(kind, ..)| kind), [REQUEST, REQUEST, REJECTED, REJECTED]);
    let [(.., first), (.., second), ended @ ..] = events;
    assert_eq!(ended, [first, second].map(|id| (REJECTED, TIMEOUT.into(), id)));
    assert!(!listener.has_event());
    // There is space for others.
    manager.send(REQ, 6, &manager.request(6, listener.port));
    let (kind, _, third) = listener.next();
    assert_eq!(kind, REQUEST);
    [first, second, third, accepted].into_iter().for_each(destroy);
    listener.close();
    other.close();
}

/// Accepts the next request.
fn accept(listener: &Listener) -> *mut rdma_cm_id {
    let (kind, _, id) = listener.next();
    assert_eq!(kind, REQUEST);
    // SAFETY: the identifier is alive, and zero is valid for all fields of the parameters.
    assert_eq!(unsafe { rdma_accept(id, &mut rdma_conn_param { qp_num: 7, ..zeroed() }) }, 0);
    id
}

/// The sender of the reply would wait for its time-out.
#[test]
fn reply_to_an_unknown_request_is_rejected() {
    let (listener, manager) = (Listener::new(0), Manager::at(own_address(0x40)));
    let mut body = [0; 232];
    (body[3], body[7]) = (0x88, 0x77);
    manager.send(REP, 5, &body);
    let rejection = manager.next();
    assert_eq!((rejection.kind, rejection.transaction), (REJ, 5));
    assert_eq!((rejection.word(0), rejection.word(4)), (0x77, 0x88));
    // The rejected message is a reply, and its id is invalid.
    assert_eq!((rejection.body[8], &rejection.body[10..12]), (1 << 6, &[0, 6][..]));
    listener.close();
}

/// A process that is killed does not disconnect. Another one of its host, here the device, does not know the connection.
#[test]
fn connection_to_a_killed_process_ends() {
    let (listener, manager) = (Listener::new(0), Manager::at(own_address(0x40)));
    manager.send(REQ, 5, &manager.request(0x55, listener.port));
    let id = accept(&listener);
    let reply = manager.next();
    let mut body = [0; 232];
    body[..4].copy_from_slice(&0x55_u32.to_be_bytes());
    body[4..8].copy_from_slice(&reply.body[..4]);
    manager.send(RTU, 5, &body);
    assert_eq!(listener.next(), (event_type::RDMA_CM_EVENT_ESTABLISHED, 0, id));
    drop(manager);
    assert_eq!(listener.next(), (event_type::RDMA_CM_EVENT_DISCONNECTED, 0, id));
    destroy(id);
    listener.close();
}

/// A peer that was killed may come back with the same QP number. Its request is rejected, as by the kernel.
#[test]
fn request_with_the_qp_of_another_connection_ends_that_connection() {
    const STALE: u8 = 10;
    let (listener, manager) = (Listener::new(0), Manager::at(own_address(0x40)));
    manager.send(REQ, 5, &manager.request(0x55, listener.port));
    let id = accept(&listener);
    let reply = manager.next();
    let mut body = [0; 232];
    body[..4].copy_from_slice(&0x55_u32.to_be_bytes());
    body[4..8].copy_from_slice(&reply.body[..4]);
    manager.send(RTU, 5, &body);
    assert_eq!(listener.next(), (event_type::RDMA_CM_EVENT_ESTABLISHED, 0, id));
    let again = |new: u32| {
        let mut request = manager.request(0x55, listener.port);
        request[..4].copy_from_slice(&new.to_be_bytes());
        request
    };
    manager.send(REQ, 6, &again(0x66));
    let rejection = manager.next();
    assert_eq!((rejection.kind, rejection.word(4), rejection.body[11]), (REJ, 0x66, STALE));
    let end = manager.next();
    assert_eq!((end.kind, end.word(4)), (DREQ, 0x55));
    manager.send(DREP, end.transaction, &body);
    assert_eq!(listener.next(), (event_type::RDMA_CM_EVENT_DISCONNECTED, 0, id));
    manager.send(REQ, 7, &again(0x77));
    let new = accept(&listener);
    assert_eq!(manager.next().kind, REP);
    [id, new].into_iter().for_each(destroy);
    listener.close();
}

/// Programs have few descriptors, 1,024 by default.
#[test]
fn connections_that_wait_for_one_host_share_its_probe() {
    const COUNT: usize = 50;
    if !is_alone("connections::connections_that_wait_for_one_host_share_its_probe") {
        return;
    }
    let (listener, manager) = (Listener::new(0), Manager::at(own_address(0x40)));
    let ids: Vec<_> = (0..COUNT).map(|_| resolved(&listener, manager.address)).collect();
    let count = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    for &id in &ids {
        // SAFETY: the identifier is alive, and zero is valid for all fields of the parameters.
        assert_eq!(unsafe { rdma_connect(id, &mut rdma_conn_param { qp_num: 7, ..zeroed() }) }, 0);
    }
    // The device probes the host before it repeats a request for the second time.
    let mut seen = [0; COUNT];
    let mut numbers = Vec::new();
    while seen.iter().any(|count| *count < 3) {
        let request = manager.next();
        assert_eq!(request.kind, REQ);
        let place = numbers.iter().position(|number| *number == request.word(0)).unwrap_or(numbers.len());
        numbers.resize(numbers.len().max(place + 1), request.word(0));
        seen[place] += 1;
    }
    let after = count();
    assert!(after < before + COUNT / 2, "{before} {after}");
    ids.into_iter().for_each(destroy);
    listener.close();
}

/// Returns an identifier with a route to a port of an address.
fn resolved(listener: &Listener, address: Ipv4Addr) -> *mut rdma_cm_id {
    let mut id = ptr::null_mut();
    // SAFETY: the channel and the identifier are alive, and the address is readable.
    unsafe {
        let mut to: libc::sockaddr_in = zeroed();
        (to.sin_family, to.sin_port) = (libc::AF_INET as u16, 7471_u16.to_be());
        to.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
        assert_eq!(rdma_create_id(listener.channel, &raw mut id, ptr::null_mut(), rdma_port_space::RDMA_PS_TCP), 0);
        assert_eq!(rdma_resolve_addr(id, ptr::null_mut(), (&raw mut to).cast(), 1000), 0);
        assert_eq!(listener.next().0, event_type::RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_eq!(rdma_resolve_route(id, 1000), 0);
    }
    assert_eq!(listener.next().0, event_type::RDMA_CM_EVENT_ROUTE_RESOLVED);
    id
}

/// The number of peers. The kernel gives the messages of each to one of two processes.
const PEERS: u8 = 16;

/// The process with the listener accepts all requests, and stops to listen, before the duplicates arrive.
#[test]
fn duplicate_is_not_rejected_by_a_process_that_has_passed_the_request_on() {
    // If another process used the port from now on, the kernel could select others for the peers.
    let listener = Listener::new(0);
    if !is_alone("connections::duplicate_is_not_rejected_by_a_process_that_has_passed_the_request_on") {
        return listener.close();
    }
    let (mut input, mut output) = pipe().unwrap();
    let (mut waits, mut ends) = pipe().unwrap();
    let child = std::thread::spawn(move || {
        forked(|| {
            let listener = Listener::new(0);
            output.write_all(&listener.port.to_be_bytes()).unwrap();
            (0..PEERS).for_each(|_| _ = accept(&listener));
            listener.close();
            output.write_all(&[0]).unwrap();
            waits.read_exact(&mut [0]).unwrap();
        })
    });
    let mut port = [0; 2];
    input.read_exact(&mut port).unwrap();
    let port = u16::from_be_bytes(port);
    let managers: Vec<_> = (0..PEERS).map(|last| Manager::at(Ipv4Addr::new(127, 77, 1, last))).collect();
    for manager in &managers {
        manager.send(REQ, 1, &manager.request(1, port));
        assert_eq!(manager.next().kind, REP);
    }
    input.read_exact(&mut [0]).unwrap();
    for manager in &managers {
        manager.send(REQ, 1, &manager.request(1, port));
        let others = manager.settle(2, 0);
        assert!(others.iter().all(|message| message.kind == REP), "{}: {others:?}", manager.address);
    }
    listener.close();
    ends.write_all(&[0]).unwrap();
    assert_eq!(child.join().unwrap(), 0);
}
