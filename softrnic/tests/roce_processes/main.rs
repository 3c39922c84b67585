//! Processes that share the port of RoCEv2, and count their descriptors.

#[path = "../common/child.rs"]
mod child;
#[path = "../common/mod.rs"]
mod common;
#[path = "../roce/manager.rs"]
mod manager;
#[path = "../roce/packet.rs"]
mod packet;
#[path = "../roce/port.rs"]
mod port;

use std::fs;
use std::io::{Read, Write, pipe};
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::ptr;

use rdma_mummy_sys::rdma_cm_event_type as event_type;
use rdma_mummy_sys::*;

use crate::child::{forked, is_alone};
use crate::manager::{Listener, Manager, REP, REQ, destroy};
use crate::port::own_address;

/// Programs have few descriptors, 1,024 by default.
#[test]
fn connections_that_wait_for_one_host_share_its_probe() {
    const COUNT: usize = 50;
    if !is_alone("connections_that_wait_for_one_host_share_its_probe") {
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
    // If a third process used the port, the kernel would select others for the peers when it ends.
    if !is_alone("duplicate_is_not_rejected_by_a_process_that_has_passed_the_request_on") {
        return;
    }
    let listener = Listener::new(0);
    let (mut input, mut output) = pipe().unwrap();
    let (mut waits, mut ends) = pipe().unwrap();
    let child = std::thread::spawn(move || {
        forked(|| {
            let listener = Listener::new(0);
            output.write_all(&listener.port.to_be_bytes()).unwrap();
            (0..PEERS).for_each(|_| _ = listener.accept());
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
