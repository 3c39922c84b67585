//! Tests workers whose peers violate the protocol.

mod accepting;
mod hostile;
mod landing;
mod mixed;
#[cfg(feature = "softrnic")]
mod placing;
mod sleeping;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use super::*;
use crate::Buf;
use crate::proto::{FLOOR, Frame, FrameKind, Hello, Remote};

/// A time limit that only a hung operation reaches.
const LONG: Duration = Duration::from_secs(60);

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
        Server::with(&Options { transport, memory: 256 << 20, ..Options::default() })
    }

    fn with(options: &Options) -> Server {
        let mut worker = Worker::new(options).unwrap();
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

    /// Creates a client that follows the protocol. Returns its worker, its connection, and the connection of the server
    /// to it.
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

    /// Connects a socket, and exchanges hellos with the server. The hello of the socket states that it does not READ. The
    /// server's timers are off: on a busy host it would return credits in the middle of what the test compares.
    fn raw_peer(&mut self) -> (TcpStream, ConnectionId) {
        self.raw_peer_with(0)
    }

    fn raw_peer_with(&mut self, reads: u16) -> (TcpStream, ConnectionId) {
        let mut socket = TcpStream::connect(self.address).unwrap();
        let limits = Hello { segment: 16 << 10, credits: 4 * FLOOR, message: 1 << 30, ..Hello::new(1) };
        let hello = Hello { reads, rendezvous: 1 << 30, ..limits }.emit();
        socket.write_all(&[1, hello.len() as u8]).unwrap();
        socket.write_all(&hello).unwrap();
        let accepted = self.accept(|| {});
        self.worker.set_ticking(false);
        self.worker.poll();
        socket.read_exact(&mut vec![0; 2 + hello.len()]).unwrap();
        (socket, accepted)
    }

    /// Returns the error with which a connection ends.
    fn end_of(&mut self, id: ConnectionId) -> ErrorKind {
        let begun = Instant::now();
        loop {
            match self.worker.try_recv(id) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => _ = self.worker.poll(),
                result => return result.unwrap_err().kind(),
            }
            assert!(begun.elapsed() < LONG);
        }
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
fn peer_that_floods_without_credits_loses_only_its_own_connection() {
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
        assert_eq!(server.end_of(id), ErrorKind::InvalidData);
    }
}

const READ: u32 = 1 << 31;
const ANSWER: u32 = READ | 1;

fn fields(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

/// Builds the announcement of a message with a key. `address` is 1 if the message follows without a READ.
fn announce(address: u64, key: u32, length: u32) -> Vec<u8> {
    send(Frame { a: length, ..Frame::new(FrameKind::RTS) }, &Remote { address, key }.emit())
}

fn answer(key: u32, message: &[u8]) -> Vec<u8> {
    [fields(&[ANSWER, key, message.len() as u32]), message.to_vec()].concat()
}

/// Reads `length` bytes from the socket while the worker runs.
fn read(server: &mut Server, socket: &mut TcpStream, length: usize) -> Vec<u8> {
    socket.set_nonblocking(true).unwrap();
    let (begun, mut bytes) = (Instant::now(), Vec::new());
    while bytes.len() < length {
        server.worker.poll();
        let mut some = vec![0; length - bytes.len()];
        match socket.read(&mut some) {
            Ok(count) => bytes.extend_from_slice(&some[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(begun.elapsed() < LONG);
    }
    socket.set_nonblocking(false).unwrap();
    bytes
}

/// Writes several parts to the socket, with turns of the worker between them. Returns all messages that arrive.
fn exchange(
    server: &mut Server,
    (socket, id): &mut (TcpStream, ConnectionId),
    parts: &[&[u8]],
    count: usize,
) -> Vec<Buf> {
    let mut received = Vec::new();
    for part in parts {
        socket.write_all(part).unwrap();
        let arrived = Instant::now();
        while arrived.elapsed() < Duration::from_millis(5) {
            server.worker.poll();
            received.extend(server.worker.try_recv(*id).ok());
        }
    }
    let begun = Instant::now();
    while received.len() < count {
        server.worker.poll();
        received.extend(server.worker.try_recv(*id).ok());
        assert!(begun.elapsed() < LONG);
    }
    received
}

#[test]
fn one_done_announces_several_messages_that_are_read_together() {
    const COUNT: usize = 8;
    let mut server = Server::new(Transport::Any);
    let (mut client, id, accepted) = server.neighbour(Kind::Rdma);
    for number in 0..COUNT {
        let mut message = client.alloc(id, 64 << 10);
        message.fill(number as u8);
        client.try_send_buf(id, message).map_err(|(error, _)| error).unwrap();
    }
    let (begun, mut received) = (Instant::now(), Vec::new());
    while received.len() < COUNT || !client.is_flushed(id).unwrap() {
        client.poll();
        server.worker.poll();
        received.extend(server.worker.try_recv(accepted).ok().map(|message| message[0]));
        assert!(begun.elapsed() < LONG);
    }
    assert_eq!(received, (0..COUNT as u8).collect::<Vec<_>>());
    let stats = server.worker.stats(accepted).unwrap();
    assert_eq!(stats.rendezvous_received, COUNT as u64);
    assert!(stats.sends <= COUNT as u64 / 2, "{} SENDs", stats.sends);
}

#[test]
fn announced_messages_are_read_in_order_and_sends_pass_between_their_parts() {
    let mut server = Server::new(Transport::Tcp);
    let mut peer = server.raw_peer_with(16);
    let messages = [vec![1; 300_000], vec![2; 20_000]];
    for (key, message) in [9, 4].into_iter().zip(&messages) {
        peer.0.write_all(&announce(0, key, message.len() as u32)).unwrap();
    }
    assert_eq!(read(&mut server, &mut peer.0, 16), fields(&[READ, 9, READ, 4]));
    let data = send(Frame { flags: 1, a: 3, ..Frame::new(FrameKind::DATA) }, b"end");
    let stream = [answer(9, &messages[0]), answer(4, &messages[1]), data].concat();
    // Each part except the last one ends within a head or a body.
    let parts = [&stream[..5], &stream[5..40_000], &stream[40_000..300_017], &stream[300_017..]];
    let received = exchange(&mut server, &mut peer, &parts, 3);
    assert!(received[0][..] == messages[0] && received[1][..] == messages[1] && received[2][..] == *b"end");
}

#[test]
fn messages_pushed_before_between_and_after_their_announcements_arrive() {
    let mut server = Server::new(Transport::Tcp);
    let mut peer = server.raw_peer_with(16);
    let (announced, answers): (Vec<_>, Vec<_>) =
        (1..4).map(|key| (announce(1, key, 100_000), answer(key, &[key as u8; 100_000]))).unzip();
    let parts = [
        &answers[0],
        &answers[1][..50_000],
        &[&answers[1][50_000..], &announced[0][..], &announced[1][..], &announced[2][..]].concat(),
        &answers[2][..],
    ];
    let received = exchange(&mut server, &mut peer, &parts, 3);
    for (message, key) in received.iter().zip(1..) {
        assert!(message[..] == [key; 100_000], "{key}");
    }
}

#[test]
fn peer_reads_each_message_once_and_requests_overtake_answers() {
    const LENGTHS: [usize; 3] = [50_000, 24 << 20, 3 << 20];
    let transport = Transport::Tcp;
    let mut server = Server::with(&Options { transport, send_high_water: 64 << 20, ..Options::default() });
    let (mut socket, id) = server.raw_peer_with(16);
    let mut keys = Vec::new();
    for (length, address) in LENGTHS.into_iter().zip([1, 0, 0]) {
        server.worker.try_send(id, &vec![3; length]).unwrap();
        let announced = read(&mut server, &mut socket, 32);
        assert_eq!((announced[0], announced[4], announced[20]), (28, FrameKind::RTS.0, address));
        keys.push(u32::from_le_bytes(*announced[28..].first_chunk().unwrap()));
        if address == 1 {
            assert!(read(&mut server, &mut socket, 12 + length) == answer(keys[0], &vec![3; length]));
        }
    }
    // The kernel buffers only a part of the first answer, so the second one is not begun.
    socket.write_all(&fields(&[READ, keys[1], READ, keys[2]])).unwrap();
    socket.write_all(&announce(0, 5, 20_000)).unwrap();
    let begun = Instant::now();
    while server.worker.stats(id).unwrap().receives == 0 {
        server.worker.poll();
        assert!(begun.elapsed() < LONG);
    }
    let bytes = read(&mut server, &mut socket, 12 + LENGTHS[1] + 8 + 12 + LENGTHS[2]);
    assert_eq!(bytes[..12], fields(&[ANSWER, keys[1], LENGTHS[1] as u32]));
    assert_eq!(bytes[12 + LENGTHS[1]..][..20], fields(&[READ, 5, ANSWER, keys[2], LENGTHS[2] as u32]));
    socket.write_all(&fields(&[READ, keys[1]])).unwrap();
    assert_eq!(server.end_of(id), ErrorKind::InvalidData);
}

#[test]
fn send_buffer_of_a_stream_limits_what_waits_for_the_peer() {
    let mut server = Server::new(Transport::Tcp);
    // The peer announces that it reads, and reads nothing.
    let (_socket, id) = server.raw_peer_with(64);
    let mut written = |limit| {
        server.worker.set_send_buffer(id, limit).unwrap();
        let (bytes, mut count) = (vec![3; 64 << 10], 0);
        loop {
            match server.worker.try_write(id, &bytes) {
                Ok(more) => count += more,
                Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        count
    };
    let few = written(128 << 10);
    assert!((128 << 10..256 << 10).contains(&few), "{few}");
    let all = few + written(1 << 20);
    assert!((1 << 20..1152 << 10).contains(&all), "{all}");
    assert_eq!(written(0), 0);
}

#[test]
fn answers_that_break_the_rules_end_the_connection() {
    let mut server = Server::new(Transport::Tcp);
    let long = vec![0; 1_500_000];
    let violations = [
        fields(&[ANSWER, 9, 50_001]),
        fields(&[ANSWER, 9, 0]),
        // These answers exceed the window: first in one message, then in two.
        fields(&[ANSWER, 6, (2 << 20) + 1]),
        // Short messages are not sent in this way, so a peer cannot make many of them arrive.
        answer(6, b"x"),
        [answer(6, &long), answer(7, &long)].concat(),
        // In these, the announced length differs from the length of a message that is arriving or has arrived.
        [announce(1, 7, 20_000), answer(7, &[0; 19_999])].concat(),
        [answer(7, &[0; 20_001]), announce(1, 7, 20_000)].concat(),
        fields(&[READ, 1]),
    ];
    for violation in violations {
        let (mut socket, id) = server.raw_peer_with(16);
        socket.write_all(&announce(0, 9, 50_000)).unwrap();
        assert_eq!(read(&mut server, &mut socket, 8), fields(&[READ, 9]));
        socket.write_all(&violation).unwrap();
        assert_eq!(server.end_of(id), ErrorKind::InvalidData);
        server.worker.close(id, 0, "");
    }
    let tcp = &server.worker.tcp;
    let stock = &tcp.table.stock;
    assert_eq!(tcp.backend.pool().outstanding(), stock.ledger.total as usize + stock.spare.len());
}

/// Sends a long message to a peer that READs it, and returns the key of the message.
fn send_to_reader(server: &mut Server, (socket, id): &mut (TcpStream, ConnectionId), length: usize) -> u32 {
    server.worker.try_send(*id, &vec![3; length]).unwrap();
    let announced = read(server, socket, 32);
    let key = u32::from_le_bytes(*announced[28..].first_chunk().unwrap());
    socket.write_all(&fields(&[READ, key])).unwrap();
    key
}

#[test]
fn peer_that_acknowledges_a_message_before_it_arrives_loses_its_connection() {
    let mut server = Server::new(Transport::Tcp);
    let mut peer = server.raw_peer_with(16);
    let key = send_to_reader(&mut server, &mut peer, 24 << 20);
    peer.0.write_all(&send(Frame { a: key, ..Frame::new(FrameKind::DONE) }, b"")).unwrap();
    assert_eq!(server.end_of(peer.1), ErrorKind::InvalidData);
}

/// Tests a peer that reads nothing: its kernel still answers the probes of its full window.
#[test]
fn peer_whose_program_reads_nothing_for_a_while_keeps_its_connection() {
    const LENGTH: usize = 24 << 20;
    let mut server = Server::new(Transport::Tcp);
    let mut peer = server.raw_peer_with(16);
    let key = send_to_reader(&mut server, &mut peer, LENGTH);
    server.worker.set_ticking(true);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(12) {
        server.worker.poll();
        thread::sleep(Duration::from_millis(10));
    }
    assert!(read(&mut server, &mut peer.0, 12 + LENGTH) == answer(key, &vec![3; LENGTH]));
}

#[test]
fn peer_that_closes_amid_a_message_receives_the_end_of_the_stream() {
    let mut server = Server::new(Transport::Tcp);
    let mut peer = server.raw_peer_with(16);
    send_to_reader(&mut server, &mut peer, 24 << 20);
    server.worker.set_ticking(true);
    server.worker.poll();
    server.worker.close(peer.1, 0, "");
    let begun = Instant::now();
    peer.0.set_nonblocking(true).unwrap();
    let mut bytes = vec![0; 1 << 20];
    loop {
        server.worker.poll();
        match peer.0.read(&mut bytes) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(begun.elapsed() < LONG);
    }
}

#[test]
fn peer_without_reads_gets_long_messages_in_segments() {
    let mut server = Server::new(Transport::Tcp);
    let (mut socket, id) = server.raw_peer();
    server.worker.try_send(id, &[3; 40_000]).unwrap();
    let first = read(&mut server, &mut socket, 20);
    assert_eq!((first[4], first[8..12].to_vec()), (FrameKind::DATA.0, fields(&[(16 << 10) - 16])));
}

#[test]
fn announced_messages_that_never_arrive_leave_memory_for_other_connections() {
    let mut server = Server::new(Transport::Tcp);
    let (mut client, near, far) = server.neighbour(Kind::Tcp);
    let peers: Vec<_> = (0..20)
        .map(|key| {
            let (mut socket, id) = server.raw_peer_with(16);
            socket.write_all(&announce(0, key, 64 << 20)).unwrap();
            read(&mut server, &mut socket, 8);
            (socket, id)
        })
        .collect();
    client.try_send(near, &[1; 3 << 20]).unwrap();
    assert_eq!(wait_for_message(&mut server, far, &mut client).len(), 3 << 20);
    assert_eq!(peers.len(), 20);
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
    let before = server.worker.verbs.get(0).unwrap().backend.pool().bytes();
    let link = server.worker.verbs.get(0).unwrap().table.accepted[0].1;
    let unaccepted = ConnectionId { device: 0, link };
    while server.worker.stats(unaccepted).unwrap().receives == 0 {
        server.worker.poll();
        client.poll();
        assert!(begun.elapsed() < LONG);
    }
    for _ in 0..100 {
        server.worker.poll();
        client.poll();
    }
    assert_eq!(server.worker.verbs.get(0).unwrap().backend.pool().bytes(), before);
    let accepted = server.accept(|| {});
    assert_eq!(wait_for_message(&mut server, accepted, &mut client).len(), 1 << 20);
    assert_eq!(server.worker.stats(accepted).unwrap().rendezvous_received, 1);
}
