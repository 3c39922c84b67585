//! When the engine calls a connection, and its memory.

use super::*;
use crate::net::roce::packet::PORT;
use crate::net::roce::socket::batch::Route;
use crate::sys::thread::Reactor;
use crate::wire::bytes::Segment;
use crate::wire::condition::HEALTHY;
use crate::wire::message::{Refusal, Reply};
use crate::wire::packet::{Packet as Carried, Part, Payload};
use crate::wire::transport::{Dedicated, Deliver};

/// Delivers nothing, as if there were no QP.
#[derive(Debug)]
struct Discards;

impl Deliver for Discards {
    fn part(&self, _part: &Part, _payload: &[Segment], _back: &Arc<dyn Carrier>) {}

    fn response(&self, _response: &Response, _payload: &[Segment]) -> bool {
        true
    }

    fn is_settled(&self, _number: u32) -> bool {
        true
    }

    fn lost(&self, _carrier: &Arc<dyn Carrier>) {}
}

const LOCAL: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]);

/// Returns a connection whose engine has no sockets, so that all packets are lost.
fn link(condition: &'static Condition) -> Arc<Link> {
    let path = Path {
        destination: LOCAL,
        source: LOCAL,
        source_index: 0,
        flow_label: 0,
        hop_limit: 64,
        traffic_class: 0,
        service_level: 0,
        port: 1,
        static_rate: 0,
    };
    let route = Route { source: LOCAL, destination: LOCAL, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let engine = Box::leak(Box::new(Engine::new(&Discards, Reactor::not_started)));
    let service = Service::ReliableConnection;
    let ends = Ends { number: 7, service, path, destination: 8, mtu: 1024, psn: 100, depth: 1, condition };
    Link::new(engine, Header::new(PORT, &route), Window::new(), ends)
}

/// Sends a read of eight bytes.
fn read(link: &Link) {
    let request = Request {
        service: Service::ReliableConnection,
        operation: Operation::Read { address: 0, rkey: 0 },
        length: 8,
        is_solicited: false,
        psn: 200,
        packets: 1,
        source_number: 7,
        source: LOCAL,
        destination: LOCAL,
        key: 0,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        service_level: 0,
        srq_number: 0,
    };
    let part = Part { number: 8, request, offset: 0, length: 0, attempt: 0 };
    assert_eq!(link.put(&Carried::Part(part), Payload::Bytes(&[])), Ok(()));
    link.flush();
}

#[test]
fn times_that_were_replaced_do_not_multiply() {
    let link = link(&HEALTHY);
    read(&link);
    assert_eq!(link.engine.times(), 1);
    for _ in 0..10 {
        link.expired(Instant::now());
    }
    assert_eq!(link.engine.times(), 1);
    // When the time comes, the next one is set.
    let time = link.state().scheduled.unwrap();
    link.expired(time);
    assert_eq!(link.engine.times(), 2);
    assert!(link.state().scheduled.unwrap() > time);
}

/// The peer has failed too, and acknowledges nothing.
#[test]
fn connection_that_has_refused_a_request_leaves_the_window_to_others() {
    let link = link(&HEALTHY);
    read(&link);
    let in_flight = || link.window.lock().unwrap().in_flight();
    assert_eq!(in_flight(), 1024);
    let kind = ResponseKind::Reply(Reply::Refused(Refusal::InvalidRequest));
    let response = Response { number: 8, source_number: 7, psn: 100, attempt: 0, kind };
    assert_eq!(link.put(&Carried::Response(response), Payload::Bytes(&[])), Ok(()));
    link.flush();
    assert_eq!(in_flight(), 0);
}

/// Makes a packet wait for space in the socket.
fn hold(link: &Link) {
    let mut batch = link.engine.batch(&link.header);
    batch.add(&Packet::congestion(8), &[]).unwrap();
    link.state().held = Some((batch, Instant::now()));
}

#[test]
fn packets_that_wait_for_the_socket_are_sent_after_the_end() {
    let link = link(&HEALTHY);
    hold(&link);
    link.end();
    link.flush();
    assert!(link.state().held.is_none());
}

/// The requests of an unreliable connection have completed, and the peer waits for the last responses of a reliable one.
#[test]
fn packets_that_wait_for_the_socket_are_sent_before_the_qp_is_destroyed() {
    let link = link(&HEALTHY);
    hold(&link);
    link.leave();
    assert!(link.state().held.is_none());
}

#[test]
fn packets_that_wait_for_the_socket_are_lost_if_the_port_goes_down() {
    static CONDITION: Condition = Condition::new();
    let link = link(&CONDITION);
    hold(&link);
    CONDITION.set_down(true);
    link.flush();
    assert!(link.state().held.is_none());
    // Otherwise the engine would call the connection without a pause.
    assert_eq!(link.engine.times(), 0);
}

#[test]
fn idle_connection_takes_little_memory() {
    // The queues of a new connection have no memory.
    let bytes = size_of::<Link>() + size_of::<(Requests, Responses)>();
    assert!(bytes <= 2048, "{bytes} bytes");
}
