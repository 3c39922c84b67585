//! Random calls of non-blocking sockets, with the descriptor's readiness, in a program of `std::net`. The same program
//! runs with the kernel's TCP, which is the model, and with the library preloaded.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::env;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;

/// The name of this variable is for the program; its value is the seed.
const SEED: &str = "TRESPASS_SOCKETS_TEST_SEED";
/// A time limit, in milliseconds, that only a lost event reaches.
const LONG: i32 = 60_000;
const STEPS: usize = 3_000;
/// How many bytes the edges carry.
const BYTES: u64 = 8 << 20;

/// One end of a connection.
struct End {
    socket: TcpStream,
    sent: u64,
    received: u64,
    has_shut: bool,
}

/// A length of at most this many bits; short ones are as likely as long ones.
fn length(random: &mut Rng, bits: u64) -> u64 {
    let bits = random.u64(..bits);
    1 + random.u64(..1 << bits)
}

/// The byte at a place of a stream.
fn byte(at: u64) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8
}

fn check(bytes: &[u8], from: u64) {
    let wrong = bytes.iter().zip(from..).position(|(found, at)| *found != byte(at));
    assert_eq!(wrong, None, "of {} bytes from {from}", bytes.len());
}

fn pair() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // The first wait makes the acceptor for RDMA.
    assert!(!is_ready(&listener, libc::POLLIN, 0));
    let first = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (second, peer) = listener.accept().unwrap();
    assert_eq!(first.local_addr().unwrap(), peer);
    assert_eq!(first.peer_addr().unwrap(), second.local_addr().unwrap());
    [first, second]
}

fn is_ready(socket: &impl AsRawFd, events: i16, time: i32) -> bool {
    let mut fds = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: one element.
    let count = unsafe { libc::poll(&raw mut fds, 1, time) };
    assert!(count >= 0);
    fds.revents & events != 0
}

/// How many bytes the system reports.
fn count(socket: &TcpStream) -> u64 {
    let mut count = 0;
    // SAFETY: the request stores a number.
    assert_eq!(unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut count) }, 0);
    u64::try_from(count).unwrap()
}

impl End {
    fn write(&mut self, length: u64) {
        let bytes: Vec<u8> = (self.sent..self.sent + length).map(byte).collect();
        match self.socket.write(&bytes) {
            Ok(count) => self.sent += count as u64,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
    }

    /// Reads. Returns whether something may be left.
    fn read(&mut self, length: u64, peer: (u64, bool)) -> bool {
        let mut bytes = vec![0; length as usize];
        match self.socket.read(&mut bytes) {
            Ok(0) => {
                assert_eq!((self.received, true), peer, "the end");
                false
            }
            Ok(count) => {
                check(&bytes[..count], self.received);
                self.received += count as u64;
                assert!(self.received <= peer.0);
                count == bytes.len()
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                false
            }
        }
    }

    /// One random call.
    fn step(&mut self, random: &mut Rng, peer: (u64, bool)) {
        let left = peer.0 - self.received;
        let length = length(random, 19);
        match random.u64(..9) {
            0..3 if !self.has_shut => self.write(length),
            0..5 => _ = self.read(length, peer),
            5 if left > 0 || peer.1 => {
                assert!(is_ready(&self.socket, libc::POLLIN, LONG), "{left} bytes are left");
                let mut bytes = vec![0; length as usize];
                let seen = self.socket.peek(&mut bytes).unwrap();
                assert_eq!(seen == 0, left == 0);
                check(&bytes[..seen], self.received);
            }
            5 => {
                assert!(!self.read(1, peer));
                assert!(!is_ready(&self.socket, libc::POLLIN, 0), "nothing is left");
            }
            6 => assert!(count(&self.socket) <= left),
            7 if left > 0 => {
                // A blocking read waits for one byte.
                self.socket.set_nonblocking(false).unwrap();
                self.read(length, peer);
                self.socket.set_nonblocking(true).unwrap();
            }
            _ => self.socket = self.socket.try_clone().unwrap(),
        }
    }
}

/// Both ends make random calls.
fn call_at_random(random: &mut Rng) {
    let mut ends = pair().map(|socket| {
        socket.set_nonblocking(true).unwrap();
        End { socket, sent: 0, received: 0, has_shut: false }
    });
    for step in 0..STEPS {
        let at = random.usize(..2);
        let peer = (ends[1 - at].sent, ends[1 - at].has_shut);
        ends[at].step(random, peer);
        // One end stops early.
        if step == STEPS * 3 / 4 {
            ends[0].socket.shutdown(Shutdown::Write).unwrap();
            ends[0].has_shut = true;
        }
    }
    // A writer that waits for room gets it when the peer reads.
    while is_ready(&ends[1].socket, libc::POLLOUT, 0) {
        ends[1].write(1 << 20);
    }
    while ends[0].received < ends[1].sent {
        assert!(is_ready(&ends[0].socket, libc::POLLIN, LONG));
        let peer = (ends[1].sent, false);
        ends[0].read(1 << 16, peer);
    }
    assert!(is_ready(&ends[1].socket, libc::POLLOUT, LONG));
}

/// A reader that waits for edges gets all bytes and the end. It takes a short read as the last one, as nginx does, which
/// also counts what is left after a read that filled its buffer.
fn follow_edges(random: &mut Rng, counts: bool) {
    let [mut writer, reader] = pair();
    reader.set_nonblocking(true).unwrap();
    let mut reader = End { socket: reader, sent: 0, received: 0, has_shut: false };
    let mut sizes = random.fork();
    let thread = thread::spawn(move || {
        let mut sent = 0;
        while sent < BYTES {
            let end = (sent + length(&mut sizes, 18)).min(BYTES);
            writer.write_all(&(sent..end).map(byte).collect::<Vec<_>>()).unwrap();
            sent = end;
        }
        writer.shutdown(Shutdown::Write).unwrap();
        writer
    });
    let epoll = Edges::of(&reader.socket, libc::EPOLLIN | libc::EPOLLRDHUP);
    let peer = (BYTES, true);
    while reader.received < BYTES {
        epoll.wait();
        let mut left = u64::MAX;
        while left > 0 {
            let before = reader.received;
            let length = length(random, 17);
            if !reader.read(length, peer) {
                break;
            }
            left = if left != u64::MAX {
                left.saturating_sub(reader.received - before)
            } else if counts {
                count(&reader.socket)
            } else {
                left
            };
        }
    }
    assert!(is_ready(&reader.socket, libc::POLLIN, LONG));
    assert!(!reader.read(1, peer), "the end");
    assert!(is_ready(&reader.socket, libc::POLLRDHUP, LONG));
    drop(thread.join().unwrap());
}

/// A writer that waits for edges sends all bytes. It takes a short write as the last one, as nginx does.
fn write_at_edges(random: &mut Rng) {
    let [writer, mut reader] = pair();
    writer.set_nonblocking(true).unwrap();
    let mut writer = End { socket: writer, sent: 0, received: 0, has_shut: false };
    let thread = thread::spawn(move || {
        let mut bytes = vec![0; BYTES as usize];
        reader.read_exact(&mut bytes).unwrap();
        check(&bytes, 0);
        reader
    });
    let epoll = Edges::of(&writer.socket, libc::EPOLLOUT);
    while writer.sent < BYTES {
        epoll.wait();
        loop {
            let (before, length) = (writer.sent, length(random, 23).min(BYTES - writer.sent));
            writer.write(length);
            if writer.sent < before + length || writer.sent == BYTES {
                break;
            }
        }
    }
    drop(thread.join().unwrap());
}

/// An epoll that reports edges of one socket.
struct Edges(OwnedFd);

impl Edges {
    fn of(socket: &TcpStream, events: i32) -> Self {
        let mut event = libc::epoll_event { events: (events | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: only the owner closes the descriptor, and the event is a variable.
        unsafe {
            let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let added = libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, socket.as_raw_fd(), &raw mut event);
            assert_eq!(added, 0);
            Self(epoll)
        }
    }

    fn wait(&self) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is space for one event.
        assert_eq!(unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, LONG) }, 1, "an edge is lost");
    }
}

/// The program, if this process is it.
#[test]
#[ignore = "the other test runs it in processes of its own"]
fn program() {
    let seed = env::var(SEED).unwrap().parse().unwrap();
    let mut random = Rng::with_seed(seed);
    call_at_random(&mut random);
    follow_edges(&mut random, false);
    follow_edges(&mut random, true);
    write_at_edges(&mut random);
}

#[test]
fn random_calls_get_all_bytes_and_events_as_with_tcp() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = env::var(SEED).unwrap_or_else(|_| (now.as_nanos() as u64 | 1).to_string());
    let own = env::current_exe().unwrap();
    let library = own.with_file_name("libtrespass_sockets.so");
    assert!(library.is_file(), "{}", library.display());
    for is_preloaded in [false, true] {
        let mut command = Command::new(&own);
        command.args(["--exact", "program", "--ignored", "--nocapture"]);
        command.env(SEED, &seed).env("TRESPASS_SOCKETS_LOG", "1").env("SOFTRNIC_DEVICES", "soft0");
        if is_preloaded {
            command.env("LD_PRELOAD", &library);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{SEED}={seed} preloaded: {is_preloaded}\n{said}");
        assert_eq!(said.contains("over soft0"), is_preloaded, "{said}");
    }
}
