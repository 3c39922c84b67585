//! Messages of the connection manager at times, in an order or in a number that a cooperative peer does not send.

use rdma_mummy_sys::rdma_cm_event_type as event_type;

use crate::manager::{DREP, DREQ, Listener, Manager, REJ, REP, REQ, RTU, TIMEOUT, destroy};
use crate::port::own_address;

const REQUEST: event_type = event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
const REJECTED: event_type = event_type::RDMA_CM_EVENT_REJECTED;

/// Otherwise a peer could fill the memory of a program that takes no events.
#[test]
fn withdrawn_requests_count_in_the_backlog() {
    let (listener, other) = (Listener::new(2), Listener::new(0));
    let manager = Manager::at(own_address(0x40));
    manager.send(REQ, 9, &manager.request(9, other.port));
    let accepted = other.accept();
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
    let id = listener.accept();
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
    let id = listener.accept();
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
    let new = listener.accept();
    assert_eq!(manager.next().kind, REP);
    [id, new].into_iter().for_each(destroy);
    listener.close();
}
