//! Workers whose peers violate the protocol.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;
use std::time::Instant;

use super::*;
use crate::Buf;
use crate::proto::{FLOOR, Frame, FrameKind, Hello};

/// A time limit that only a hung operation reaches.
const LONG: Duration = Duration::from_secs(30);

struct Server {
    worker: Worker,
    listener: ListenId,
    address: SocketAddr,
}

fn worker(transport: Transport, memory: usize) -> Worker {
    Worker::new(&Options { transport, memory, ..Options::default() }).unwrap()
}

impl Server {
    fn new(transport: Transport) -> Server {
        let mut worker = worker(transport, 256 << 20);
        let listener = worker.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = worker.local_addr(listener).unwrap();
        Server { worker, listener, address }
    }

    fn accept(&mut self, mut others: impl FnMut()) -> ConnectionId {
        let begun = Instant::now();
        loop {
            self.worker.poll();
            others();
            if let Some(id) = self.worker.accept(self.listener) {
                return id;
            }
            assert!(begun.elapsed() < LONG);
        }
    }

    /// A client that follows the protocol, and this side of its connection.
    fn neighbour(&mut self, kind: Kind) -> (Worker, ConnectionId, ConnectionId) {
        let mut client = worker(Transport::Any, 64 << 20);
        let id = client.connect(kind, self.address).unwrap();
        let accepted = self.accept(|| _ = client.poll());
        let begun = Instant::now();
        while !client.is_established(id).unwrap() {
            self.worker.poll();
            client.poll();
            assert!(begun.elapsed() < LONG);
        }
        (client, id, accepted)
    }

    /// A socket that has exchanged hellos.
    fn raw_peer(&mut self) -> (TcpStream, ConnectionId) {
        let mut socket = TcpStream::connect(self.address).unwrap();
        let hello = Hello { segment: 16 << 10, credits: FLOOR, message: 1 << 30, ..Hello::new(1) }.emit();
        socket.write_all(&[1, hello.len() as u8]).unwrap();
        socket.write_all(&hello).unwrap();
        let accepted = self.accept(|| {});
        self.worker.poll();
        socket.read_exact(&mut vec![0; 2 + hello.len()]).unwrap();
        (socket, accepted)
    }
}

fn wait_for_message(server: &mut Server, id: ConnectionId, others: &mut Worker) -> Buf {
    let begun = Instant::now();
    loop {
        server.worker.poll();
        others.poll();
        match server.worker.try_recv(id) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => assert!(begun.elapsed() < LONG),
            message => return message.unwrap(),
        }
    }
}

fn send(frame: Frame, payload: &[u8]) -> Vec<u8> {
    let frame = Frame { length: payload.len() as u32, ..frame }.emit();
    [&((frame.len() + payload.len()) as u32).to_le_bytes()[..], &frame, payload].concat()
}

#[test]
fn peer_that_floods_without_credits_ends_alone() {
    let mut server = Server::new(Transport::Tcp);
    let mut neighbours: Vec<_> = (0..4).map(|_| server.neighbour(Kind::Tcp)).collect();
    for frames in [send(Frame::new(FrameKind::GRANT), &[]), vec![1, 0, 0, 0, 0]] {
        let (mut socket, id) = server.raw_peer();
        socket.write_all(&frames.repeat(300)).unwrap();
        for (client, id, _) in &mut neighbours {
            (0..3).for_each(|_| client.try_send(*id, b"still here").unwrap());
            client.flush();
        }
        for (client, _, accepted) in &mut neighbours {
            for _ in 0..3 {
                assert_eq!(&wait_for_message(&mut server, *accepted, client)[..], b"still here");
            }
        }
        let begun = Instant::now();
        let end = loop {
            match server.worker.try_recv(id) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => server.worker.poll(),
                result => break result,
            };
            assert!(begun.elapsed() < LONG);
        };
        assert_eq!(end.unwrap_err().kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn peer_takes_memory_by_bytes_and_not_by_numbers() {
    let mut server = Server::new(Transport::Tcp);
    let (mut client, near, far) = server.neighbour(Kind::Tcp);
    let mut peers = Vec::new();
    for power in (20..30).rev() {
        let (mut socket, id) = server.raw_peer();
        let first = Frame { a: 1 << power, ..Frame::new(FrameKind::DATA) };
        socket.write_all(&send(first, &[1; 100])).unwrap();
        client.try_send(near, b"a neighbour").unwrap();
        client.flush();
        assert_eq!(&wait_for_message(&mut server, far, &mut client)[..], b"a neighbour");
        let begun = Instant::now();
        while server.worker.stats(id).unwrap().receives == 0 {
            server.worker.poll();
            assert!(begun.elapsed() < LONG);
        }
        assert_eq!(server.worker.try_recv(id).map_err(|error| error.kind()).err(), Some(ErrorKind::WouldBlock));
        peers.push((socket, id));
    }
    let bytes = server.worker.tcp.backend.pool().bytes();
    assert!(bytes < 32 << 20, "{bytes} bytes in use for {} peers that have sent 100 bytes each", peers.len());
}

#[test]
fn message_longer_than_its_first_memory_arrives_whole() {
    let mut server = Server::new(Transport::Tcp);
    let (mut client, near, far) = server.neighbour(Kind::Tcp);
    let message: Vec<u8> = (0..9_000_001_u32).map(|at| (at % 251) as u8).collect();
    client.try_send(near, &message).unwrap();
    assert!(wait_for_message(&mut server, far, &mut client)[..] == message[..]);
}

#[test]
fn nothing_is_read_for_a_connection_that_is_not_accepted() {
    #[cfg(feature = "softrnic")]
    softrnic::register().unwrap();
    let mut server = Server::new(Transport::Rdma);
    let mut client = worker(Transport::Rdma, 64 << 20);
    let id = client.connect(Kind::Rdma, server.address).unwrap();
    let begun = Instant::now();
    while !client.is_established(id).unwrap() || !server.worker.has_accepted(server.listener) {
        server.worker.poll();
        client.poll();
        assert!(begun.elapsed() < LONG);
    }
    client.try_send(id, &[7; 1 << 20]).unwrap();
    // Waits for a SEND, which arrives after the message's announcement.
    let before = server.worker.verbs.as_ref().unwrap().backend.pool().bytes();
    let link = server.worker.verbs.as_ref().unwrap().table.accepted[0].1;
    let unaccepted = ConnectionId { kind: Kind::Rdma, link };
    while server.worker.stats(unaccepted).unwrap().receives == 0 {
        server.worker.poll();
        client.poll();
        assert!(begun.elapsed() < LONG);
    }
    for _ in 0..100 {
        server.worker.poll();
        client.poll();
    }
    assert_eq!(server.worker.verbs.as_ref().unwrap().backend.pool().bytes(), before);
    let accepted = server.accept(|| {});
    assert_eq!(wait_for_message(&mut server, accepted, &mut client).len(), 1 << 20);
    assert_eq!(server.worker.stats(accepted).unwrap().rendezvous_received, 1);
}

struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn sender_without_memory_sleeps_until_there_is_some() {
    let mut server = Server::new(Transport::Tcp);
    let (mut client, near, far) = server.neighbour(Kind::Tcp);
    let pool = client.tcp.backend.pool().clone();
    client.tcp.table.stock.spare.clear();
    let held: Vec<Buf> = std::iter::from_fn(|| pool.segment()).collect();
    assert_eq!(client.try_send(near, &[1; 1_000]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    let count = Arc::new(Count(AtomicU32::new(0)));
    client.register(near, Wait::Write, &Waker::from(Arc::clone(&count)));
    for _ in 0..100 {
        client.poll();
        server.worker.poll();
    }
    assert_eq!(count.0.load(Ordering::Relaxed), 0, "no memory is left to continue with");
    drop(held);
    client.poll();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    client.try_send(near, &[1; 1_000]).unwrap();
    assert_eq!(wait_for_message(&mut server, far, &mut client).len(), 1_000);
}

#[test]
fn worker_does_not_sleep_over_what_it_has_not_looked_at() {
    #[cfg(feature = "softrnic")]
    softrnic::register().unwrap();
    let mut server = Server::new(Transport::Any);
    let (mut client, near, far) = server.neighbour(Kind::Tcp);
    let begun = Instant::now();
    while server.worker.arm().unwrap().is_zero() {
        server.worker.poll();
        client.poll();
        assert!(begun.elapsed() < LONG);
    }
    // Creates the state after many turns with events of the device only. An edge-triggered epoll reports the event only
    // once.
    server.worker.tcp_silence = TURNS;
    client.try_send(near, b"unseen").unwrap();
    client.flush();
    assert_eq!(server.worker.arm().unwrap(), Duration::ZERO);
    server.worker.poll();
    assert_eq!(&server.worker.try_recv(far).unwrap()[..], b"unseen");
}
