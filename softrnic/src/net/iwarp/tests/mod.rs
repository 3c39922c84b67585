//! Tests a connection whose peer is a plain socket, and whose QP records what it receives.

mod answers;
mod reads;

use std::io::{ErrorKind, Read, Write};
use std::iter;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::connect::Agreed;
use super::connection::{Connection, has_ended};
use super::ddp::{Header, Placement};
use super::engine::Engine;
use super::fpdu;
use super::rdmap::Opcode;
use crate::net::attendance::Checks;
use crate::sys::descriptor::Descriptor;
use crate::sys::thread::Reactor;
use crate::wire::address::{Gid, Path};
use crate::wire::bytes::Segment;
use crate::wire::condition::HEALTHY;
use crate::wire::message::{Refusal, Reply, Request};
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{Packet, Part, Payload, Response, ResponseKind, STREAM_PEER};
use crate::wire::transport::{Carrier, Dedicated, Deliver, Sockets, Stuck};

const PART: usize = 16 << 10;
const PATH: Path = Path {
    destination: Gid([0; 16]),
    source: Gid([0; 16]),
    source_index: 0,
    flow_label: 0,
    hop_limit: 64,
    traffic_class: 0,
    service_level: 0,
    port: 1,
    static_rate: 0,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Part(u32),
    Response(u32),
    Ended,
}

#[derive(Debug, Default)]
struct Log {
    seen: Mutex<Vec<(ThreadId, Seen)>>,
    /// The number of messages for which the QP has no receive.
    lacking: AtomicU32,
    /// The connection that the QP ends when the next message arrives.
    ends: Mutex<Option<Arc<dyn Dedicated>>>,
    /// Whether another thread holds the send queue, so that the QP handles responses later.
    is_held: AtomicBool,
    /// The thread that delivers a response waits for a message on this channel, if it is set.
    pause: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Log {
    fn add(&self, seen: Seen) {
        self.seen.lock().unwrap().push((thread::current().id(), seen));
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().iter().map(|(_, seen)| *seen).collect()
    }
}

impl Deliver for Log {
    fn part(&self, part: &Part, _payload: &[Segment], back: &Arc<dyn Carrier>) {
        if self.lacking.load(Ordering::Relaxed) > 0 {
            let kind = ResponseKind::Reply(Reply::NotReady { timer: 0 });
            let Request { source_number: number, psn, .. } = part.request;
            let response = Response { number, source_number: part.number, psn, attempt: 0, kind };
            return back.put(&Packet::Response(response), Payload::Bytes(&[])).unwrap();
        }
        self.add(Seen::Part(part.length));
        if let Some(connection) = &*self.ends.lock().unwrap() {
            connection.end();
        }
    }

    fn response(&self, response: &Response, _payload: &[Segment]) -> bool {
        if let Some(pause) = self.pause.lock().unwrap().take() {
            pause.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        self.add(Seen::Response(response.psn));
        !self.is_held.load(Ordering::SeqCst)
    }

    fn is_settled(&self, _number: u32) -> bool {
        !self.is_held.load(Ordering::SeqCst)
    }

    fn lost(&self, _carrier: &Arc<dyn Carrier>) {}

    fn ended(&self, _number: u32, _carrier: &Arc<dyn Carrier>, _refusal: Option<Refusal>) {
        self.add(Seen::Ended);
    }
}

fn engine() -> (&'static Engine, &'static Log) {
    let log: &'static Log = Box::leak(Box::default());
    (Box::leak(Box::new(Engine::new(log, Reactor::of_test))), log)
}

/// Returns an engine whose thread is not started.
fn idle_engine() -> (&'static Engine, &'static Log) {
    let log: &'static Log = Box::leak(Box::default());
    let engine: &'static Engine = Box::leak(Box::new(Engine::new(log, Reactor::not_started)));
    engine.start().unwrap();
    (engine, log)
}

/// Creates a connection that is not served yet, and its peer. `size` is the size of the socket buffers.
fn pair(engine: &'static Engine, size: Option<usize>) -> (Arc<Connection>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    if let Some(size) = size {
        sockopt::set_socket_recv_buffer_size(&listener, size).unwrap();
    }
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    if let Some(size) = size {
        sockopt::set_socket_send_buffer_size(&socket, size).unwrap();
    }
    (connection(engine, socket), peer)
}

fn connection(engine: &'static Engine, socket: TcpStream) -> Arc<Connection> {
    let socket = Arc::new(Descriptor::new(OwnedFd::from(socket)).unwrap());
    let agreed = Agreed { ird: 1, ord: 1, has_crc: true, rtr: None, private: Vec::new() };
    engine.connection(socket, &agreed, true, Vec::new(), (5, &PATH, &HEALTHY)).unwrap()
}

/// Returns a part of a Send.
fn part(psn: u32, offset: usize, total: usize) -> Packet {
    let request = Request {
        service: Service::Iwarp,
        operation: Operation::Send,
        length: total as u64,
        is_solicited: false,
        psn,
        packets: 1,
        source_number: 5,
        source: PATH.source,
        destination: PATH.destination,
        key: 0,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        service_level: 0,
        srq_number: 0,
    };
    Packet::Part(Part { number: STREAM_PEER, request, offset: offset as u64, length: PART as u32, attempt: 0 })
}

fn put(connection: &Connection, psn: u32) -> Result<(), Stuck> {
    connection.put(&part(psn, 0, PART), Payload::Bytes(&[7; PART]))
}

/// Returns the frame of a Send of the peer.
fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    let opcode = Opcode::Send { is_solicited: false, invalidates: false };
    let placement = Placement::Untagged { invalidate: 0, queue: 0, msn, offset: 0 };
    let mut frame = Vec::new();
    fpdu::emit(&Header { opcode, is_last: true, placement }.bytes(), payload, true, &mut frame);
    frame
}

/// Returns the frame of an empty Write, which has no effect.
fn nothing() -> Vec<u8> {
    let header = Header { opcode: Opcode::Write, is_last: true, placement: Placement::Tagged { stag: 1, offset: 0 } };
    let mut frame = Vec::new();
    fpdu::emit(&header.bytes(), &[], true, &mut frame);
    frame
}

fn wait(what: &str, mut is_done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_done() {
        assert!(Instant::now() < limit, "timed out waiting for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn slow_peer_limits_the_buffer() {
    let (connection, mut peer) = pair(engine().0, Some(8 << 10));
    let mut bytes = [0; 20_000];
    for psn in 0..1024 {
        while put(&connection, psn) == Err(Stuck::Full) {
            let read = peer.read(&mut bytes).unwrap();
            assert!(read > 0);
            connection.serve(true);
        }
    }
    assert!(connection.capacity() < 1 << 20, "{}", connection.capacity());
}

#[test]
fn response_completes_no_request_on_its_thread() {
    let (engine, log) = engine();
    let (connection, _peer) = pair(engine, None);
    engine.begin(&connection).unwrap();
    put(&connection, 3).unwrap();
    let kind = ResponseKind::Reply(Reply::Done { original: 0 });
    let response = Response { number: STREAM_PEER, source_number: 5, psn: 0, attempt: 0, kind };
    connection.put(&Packet::Response(response), Payload::Bytes(&[])).unwrap();
    wait("the completion", || log.seen() == [Seen::Response(3)]);
    assert_ne!(log.seen.lock().unwrap()[0].0, thread::current().id(), "the caller may hold a lock of the QP");
}

/// Ends a connection whose peer never closes it, and calls `work` repeatedly until the connection has ended.
fn end_beside(mut work: impl FnMut(&'static Engine, &mut TcpStream)) {
    let (engine, log) = engine();
    let ((ending, _silent), (other, mut peer)) = (pair(engine, None), pair(engine, None));
    for connection in [&ending, &other] {
        engine.begin(connection).unwrap();
    }
    ending.end();
    wait("the end", || {
        work(engine, &mut peer);
        engine.count() == 1
    });
    assert_eq!(log.seen(), [Seen::Ended]);
}

#[test]
fn silent_peer_is_left_beside_traffic() {
    end_beside(|_, peer| peer.write_all(&nothing()).unwrap());
}

#[test]
fn silent_peer_is_left_while_the_program_polls() {
    end_beside(|engine, _| {
        for _ in 0..100 {
            engine.progress();
        }
    });
}

#[test]
fn settling_delivers_all_that_has_arrived() {
    let (engine, log) = engine();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Only root may exceed the limit of the system. For other users, the buffer is smaller.
    let _ = sockopt::set_socket_recv_buffer_size_force(&listener, 16 << 20);
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let connection = connection(engine, listener.accept().unwrap().0);
    peer.set_nonblocking(true).unwrap();
    let stream: Vec<u8> = (1..=512).flat_map(|msn| send(msn, &[7; PART])).collect();
    let mut rest = &stream[..];
    wait("a full buffer", || match peer.write(rest) {
        Ok(length) => {
            rest = &rest[length..];
            rest.is_empty()
        }
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    });
    let arrived = rustix::io::ioctl_fionread(&*connection.socket).unwrap() as usize;
    connection.settle();
    let expected = arrived / send(1, &[7; PART]).len();
    assert!(expected > 0 && log.seen().len() >= expected, "{} of {expected}", log.seen().len());
}

#[test]
fn failed_write_keeps_what_was_received() {
    let (engine, log) = engine();
    let (connection, mut peer) = pair(engine, None);
    put(&connection, 0).unwrap();
    connection.flush();
    peer.write_all(&send(1, b"last")).unwrap();
    // The peer has data that it has not read, so TCP resets the connection.
    drop(peer);
    wait("the failure", || {
        let put = put(&connection, 1);
        connection.flush();
        put == Err(Stuck::Lost)
    });
    wait("the end", || {
        connection.serve(true);
        log.seen().contains(&Seen::Ended)
    });
    assert!(log.seen().starts_with(&[Seen::Response(0)]));
    assert!(log.seen().contains(&Seen::Part(4)), "{:?}", log.seen());
}

/// The kernel's siw may not read the first frame until another one arrives.
#[test]
fn silent_peer_is_nudged_until_it_sends() {
    let (engine, log) = engine();
    let (connection, mut peer) = pair(engine, None);
    engine.begin(&connection).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    for _ in 0..2 {
        let mut frame = nothing();
        peer.read_exact(&mut frame).unwrap();
        assert_eq!(frame, nothing());
    }
    peer.write_all(&send(1, b"answer")).unwrap();
    wait("the answer", || log.seen() == [Seen::Part(6)]);
    wait("the end of the nudges", || !engine.has_unheard());
    assert!(!connection.nudge());
}

#[test]
fn sends_wait_for_a_receive() {
    for is_polled in [false, true] {
        let (engine, log) = engine();
        let (connection, mut peer) = pair(engine, None);
        engine.begin(&connection).unwrap();
        log.lacking.store(1, Ordering::Relaxed);
        peer.write_all(&send(1, b"one")).unwrap();
        wait("the first message", || connection.is_waiting());
        let other: Vec<u8> = [send(2, b"four"), send(3, b"fifth")].concat();
        peer.write_all(&other).unwrap();
        for _ in 0..100 {
            connection.serve(true);
        }
        assert_eq!(log.seen(), []);
        log.lacking.store(0, Ordering::Relaxed);
        wait("the messages", || {
            if is_polled {
                engine.progress();
            }
            log.seen().len() == 3
        });
        assert_eq!(log.seen(), [Seen::Part(3), Seen::Part(4), Seen::Part(5)]);
        assert!(!connection.is_waiting());
    }
}

#[test]
fn connection_notifies_while_it_is_served() {
    let (engine, log) = idle_engine();
    let (connection, mut peer) = pair(engine, None);
    engine.begin(&connection).unwrap();
    *log.ends.lock().unwrap() = Some(connection.clone());
    peer.write_all(&send(1, b"last")).unwrap();
    engine.notify(connection.id);
    let serving = thread::spawn(|| engine.serve_notified());
    wait("the end", || serving.is_finished());
    assert_eq!(log.seen(), [Seen::Part(4), Seen::Ended]);
}

/// A flush with many posts once listed its connection once for each of them.
#[test]
fn connection_notified_repeatedly_is_listed_once() {
    let (engine, _) = idle_engine();
    [1, 1, 1, 2, 2].into_iter().for_each(|id| engine.notify(id));
    assert_eq!(*engine.notified.lock().unwrap(), [1, 2]);
}

#[test]
fn program_that_waits_serves_the_sockets() {
    let (engine, log) = idle_engine();
    assert!(engine.attend().is_none(), "there is no connection");
    let (connection, mut peer) = pair(engine, None);
    engine.begin(&connection).unwrap();
    let sockets = engine.attend().unwrap();
    assert!(engine.attend().is_none(), "one thread serves the sockets");
    let is_readable = |descriptor| {
        let mut poll = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        rustix::event::poll(&mut poll, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    };
    let set = engine.sockets.get().unwrap();
    let mut now = Instant::now();
    let mut checks = Checks::new(now);
    let mut check = || {
        now += Duration::from_secs(1);
        engine.attendance.check(set, &mut checks, now)
    };
    assert!(!check(), "the thread leaves the sockets to the program");
    peer.write_all(&send(1, b"one")).unwrap();
    wait("the message", || is_readable(sockets));
    assert!(set.place.is_quiet(), "the thread is not woken");
    assert!(engine.serve());
    assert_eq!(log.seen(), [Seen::Part(3)]);
    engine.attendance.begin(set);
    engine.leave();
    // The program now polls. It is often late, but does not stop.
    for _ in 0..20 {
        assert!(!check());
        assert!(check(), "the thread serves the sockets once");
        assert!(set.place.is_quiet(), "the thread does not wait for them");
        engine.attendance.begin(set);
    }
    // The program no longer polls.
    peer.write_all(&send(2, b"four")).unwrap();
    wait("the message", || is_readable(sockets));
    assert!(!check() && (0..20).all(|_| check()));
    assert!(!set.place.is_quiet(), "the thread takes over");
    assert!(engine.attend().is_some());
}

/// At a fixed interval of 1 ms, the checks delayed most messages in an emulated guest.
#[test]
fn thread_checks_a_steady_program_rarely() {
    let (engine, _) = idle_engine();
    let sockets = engine.sockets.get().unwrap();
    let begun = Instant::now();
    let mut checks = Checks::new(begun);
    let mut intervals = Vec::new();
    while checks.next < begun + Duration::from_secs(1) {
        let now = checks.next;
        engine.attendance.begin(sockets);
        assert!(!engine.attendance.check(sockets, &mut checks, now));
        intervals.push((now - begun, checks.next - now));
    }
    assert!(intervals.len() < 200, "{} checks", intervals.len());
    for (attended, interval) in intervals {
        assert!(interval <= attended / 8 + Duration::from_millis(2), "{interval:?} after {attended:?}");
    }
    let now = checks.next;
    assert!(engine.attendance.check(sockets, &mut checks, now));
    assert_eq!(checks.next - now, Duration::from_millis(1), "a late program is checked often");
}

#[test]
fn peer_that_still_sends_delays_the_close() {
    let seconds = Duration::from_secs;
    for (whole, silent, expected) in [(4, 4, false), (5, 5, true), (29, 1, false), (31, 1, true)] {
        assert_eq!(has_ended(seconds(whole), seconds(silent)), expected, "{whole} {silent}");
    }
}

#[test]
fn connection_that_is_blocked_from_the_start_continues() {
    let (engine, _) = engine();
    let (connection, mut peer) = pair(engine, Some(8 << 10));
    let sent = iter::from_fn(|| put(&connection, 0).ok()).count() * PART;
    engine.begin(&connection).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (mut received, mut bytes) = (0, vec![0; PART]);
    while received < sent {
        received += peer.read(&mut bytes).unwrap();
    }
}

#[test]
fn failed_attempt_to_connect_leaves_nothing() {
    let (engine, _) = idle_engine();
    let socket = || {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        Arc::new(Descriptor::new(OwnedFd::from(socket)).unwrap())
    };
    let first = socket();
    engine.send_once_connected(&first, Vec::new()).unwrap();
    assert_eq!(engine.send_once_connected(&first, Vec::new()), Err(Errno::EXIST));
    assert_eq!(engine.connecting(), 1);
    drop(first);
    let second = socket();
    engine.send_once_connected(&second, Vec::new()).unwrap();
    assert_eq!(engine.connecting(), 1, "the owner of the first has closed it");
}
