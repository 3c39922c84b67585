//! Tests of two ends in one process, and of packets between them.

mod announce;
mod carry;
mod codec;
mod fuzz;
mod groups;
mod malicious_peer;
mod order;
mod processes;
mod ring;
mod stress;
mod turns;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Processes;
use super::peers::Peers;
use crate::sys::fork::PerProcess;
use crate::sys::thread::Reactor;
use crate::wire::address::Gid;
use crate::wire::bytes::{Segment, read_bytes};
use crate::wire::message::{Reply, Request};
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{Part, Response, ResponseKind};
use crate::wire::transport::{Carrier, Deliver, Wake};

/// Records the packets that arrive.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) parts: Mutex<Vec<(Part, Vec<u8>)>>,
    pub(super) responses: Mutex<Vec<(Response, Vec<u8>)>>,
    pub(super) back: Mutex<Option<Arc<dyn Carrier>>>,
    pub(super) lost: AtomicUsize,
    pub(super) space: Arc<SpaceCount>,
    /// Whether QPs are simulated that handle responses later.
    pub(super) is_late: AtomicBool,
}

/// Counts how often it is called because there is space.
#[derive(Debug, Default)]
pub(super) struct SpaceCount(pub(super) AtomicUsize);

impl Wake for SpaceCount {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").finish_non_exhaustive()
    }
}

fn bytes(payload: &[Segment]) -> Vec<u8> {
    let mut bytes = vec![0; payload.iter().map(Segment::len).sum()];
    read_bytes(payload, &mut bytes).unwrap();
    bytes
}

impl Deliver for Seen {
    fn part(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>) {
        *self.back.lock().unwrap() = Some(Arc::clone(back));
        self.parts.lock().unwrap().push((*part, bytes(payload)));
    }

    fn response(&self, response: &Response, payload: &[Segment]) -> bool {
        self.responses.lock().unwrap().push((*response, bytes(payload)));
        self.is_settled(response.number)
    }

    fn is_settled(&self, _: u32) -> bool {
        !self.is_late.load(Ordering::SeqCst)
    }

    fn lost(&self, _: &Arc<dyn Carrier>) {
        self.lost.fetch_add(1, Ordering::SeqCst);
    }
}

/// One end of the transport, which exists until the tests end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) seen: &'static Seen,
    pub(super) host: Processes,
}

pub(super) fn end() -> End {
    end_on(Reactor::of_test)
}

pub(super) fn end_on(thread: fn() -> &'static Reactor) -> End {
    let seen: &'static Seen = Box::leak(Box::default());
    End { seen, host: host_on(seen, thread) }
}

/// Creates a transport for one test.
pub(super) fn host(deliver: &'static dyn Deliver) -> Processes {
    host_on(deliver, Reactor::of_test)
}

fn host_on(deliver: &'static dyn Deliver, thread: fn() -> &'static Reactor) -> Processes {
    let peers = Peers::new(deliver, thread);
    Processes(Box::leak(Box::new(PerProcess::new(peers, || unreachable!("children do not use it")))))
}

/// Waits until the condition is true, without polling the transport.
pub(super) fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("timed out");
}

pub(super) fn part(number: u32, length: u32) -> Part {
    let request = Request {
        service: Service::ReliableConnection,
        operation: Operation::Send,
        length: u64::from(length),
        is_solicited: false,
        psn: 5,
        packets: 1,
        source_number: 7,
        source: Gid([1; 16]),
        destination: Gid([2; 16]),
        key: 0,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        service_level: 0,
        srq_number: 0,
    };
    Part { number, request, offset: 0, length, attempt: 3 }
}

pub(super) fn response(number: u32) -> Response {
    let kind = ResponseKind::Reply(Reply::Done { original: 9 });
    Response { number, source_number: 11, psn: 5, attempt: 3, kind }
}
