//! A server process with hostile neighbours. During and after each disturbance, an honest client is served, and the
//! resources of the process return to what they were.
//!
//! `STRIDE_HOSTILE` is the number of disturbances, `STRIDE_SEED` chooses them. With `--nocapture`, the test prints how
//! long the honest client waited for the hello of the server.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use fastrand::Rng;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use sideway_tests::process::{Lines, end_with_parent};
use sideway_tests::usage::Usage;
use socket2::SockRef;

use super::super::frame::MAGIC;
use super::*;

/// This variable is set in the child process, which runs the server.
const CHILD: &str = "STRIDE_TEST_NEIGHBOURS";
/// How many mappings and how many KiB of resident memory the server may have more than before. The allocator keeps memory
/// that was used once.
const TOLERANCE: (usize, usize) = (16, 8 << 10);

const NAMES: [&str; 8] =
    ["idle", "partial", "slow", "malformed", "floods", "half-open", "descriptors", "silent after the hello"];

struct World {
    child: Child,
    contact: ControlOptions,
    address: SocketAddr,
    random: Rng,
    latencies: Vec<Duration>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["control::tests::neighbours::child", "--exact", "--nocapture"]).env(CHILD, "1");
        // With one arena, the allocator's mappings do not depend on which threads allocate.
        command.env("MALLOC_ARENA_MAX", "1").env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let address: SocketAddr = Lines::of(child.stdout.take().unwrap()).after("listens at ").parse().unwrap();
        let contact = ControlOptions { port: address.port(), family: None, timeout: LONG };
        Self { child, contact, address, random: Rng::with_seed(seed), latencies: Vec::new() }
    }

    fn below(&mut self, end: u64) -> usize {
        self.random.u64(..end) as usize
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.below(256) as u8).collect()
    }

    fn peers(&mut self, most: u64) -> Vec<TcpStream> {
        (0..1 + self.below(most)).map(|_| TcpStream::connect(self.address).unwrap()).collect()
    }

    /// A complete test of an honest client.
    fn measure(&mut self) {
        let begun = Instant::now();
        let met = connect("127.0.0.1", &self.contact, Some(LONG)).unwrap();
        self.latencies.push(begun.elapsed());
        let request = request(|plan| plan.workload.sizes = vec![64, 128]);
        let outcome = measure(met.connection, met.near, &Fake::default(), &request, &mut ()).unwrap();
        assert_eq!(outcome.steps.len(), 2);
    }

    /// Disturbs the server, and measures while the hostile connections are open. Errors of their writes are ignored,
    /// because the server may have closed them.
    fn disturb(&mut self, which: usize) {
        let hello = frame(&Message::Hello(Hello { version: "9".to_owned(), busy: None }));
        let mut peers = Vec::new();
        match NAMES[which] {
            "idle" => peers = self.peers(150),
            "partial" => {
                peers = self.peers(60);
                for peer in &mut peers {
                    let _ = peer.write_all(&hello[..self.below(hello.len() as u64)]);
                }
            }
            "slow" => {
                peers = self.peers(20);
                for byte in &hello[..hello.len() - 1] {
                    peers.iter_mut().for_each(|peer| drop(peer.write(&[*byte])));
                    if self.below(20) == 0 {
                        self.measure();
                    }
                }
            }
            "malformed" => {
                peers = self.peers(60);
                for peer in &mut peers {
                    let mut bytes = [&hello[..], &self.bytes(300)].concat();
                    for _ in 0..self.below(4) {
                        let at = self.below(bytes.len() as u64);
                        bytes[at] = self.below(256) as u8;
                    }
                    // Most of the first frames are not a hello, so they do not occupy the server.
                    bytes[self.below(8)] ^= 1;
                    let _ = peer.write_all(&bytes);
                }
            }
            "floods" => {
                peers = self.peers(4);
                for peer in &mut peers {
                    peer.set_nonblocking(true).unwrap();
                    let length = [16, 1 << 12, 1 << 23, u32::MAX][self.below(4)];
                    let start = [&MAGIC[..], &PROTOCOL.to_be_bytes(), &[0, 2], &length.to_be_bytes()].concat();
                    let _ = peer.write(&start);
                    for _ in 0..100 {
                        let _ = peer.write(&[b' '; 65536]);
                    }
                }
            }
            "half-open" => {
                peers = self.peers(60);
                for peer in &peers {
                    let how = [Shutdown::Write, Shutdown::Read, Shutdown::Both][self.below(3)];
                    let _ = peer.shutdown(how);
                    // Half of the connections end with a reset.
                    let reset = (self.below(2) == 0).then_some(Duration::ZERO);
                    SockRef::from(peer).set_linger(reset).unwrap();
                }
            }
            "descriptors" => {
                let id = Pid::from_raw(self.child.id() as i32);
                let whole = getrlimit(Resource::Nofile);
                let few = Some(self.usage().descriptors as u64 + self.below(4) as u64);
                prlimit(id, Resource::Nofile, Rlimit { current: few, maximum: whole.maximum }).unwrap();
                peers = self.peers(12);
                prlimit(id, Resource::Nofile, whole).unwrap();
            }
            _ => self.wait_for(&hello),
        }
        self.measure();
        if ["idle", "partial", "slow"].contains(&NAMES[which]) {
            // The client did not wait until the server had closed these connections. The oldest may have been closed to
            // limit their number.
            for peer in peers.iter().rev().take(40) {
                peer.set_nonblocking(true).unwrap();
                assert_eq!(peer.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            }
        }
    }

    /// Lets a peer occupy the server with a valid hello. An honest client is served after that peer ends.
    fn wait_for(&mut self, hello: &[u8]) {
        let mut peer = TcpStream::connect(self.address).unwrap();
        peer.write_all(hello).unwrap();
        // The server has sent its hello, so this peer occupies it.
        peer.read_exact(&mut [0; 16]).unwrap();
        let bytes = self.bytes(100);
        let _ = peer.write_all(&bytes[..self.below(bytes.len() as u64 + 1).min(15)]);
        let mut peer = Some(peer);
        let met = connect_reporting("127.0.0.1", &self.contact, Some(LONG), |_| peer = None).unwrap();
        measure(met.connection, met.near, &Fake::default(), &request(|_| ()), &mut ()).unwrap();
    }

    fn usage(&self) -> Usage {
        Usage::of(&self.child.id().to_string())
    }

    /// Waits until the server's resources are back.
    fn settle(&mut self, before: &Usage, what: &str) {
        let begun = Instant::now();
        while !self.usage().is_back(before, TOLERANCE.0, TOLERANCE.1) {
            assert!(begun.elapsed() < LONG, "after {what}: {:?}, before: {before:?}", self.usage());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn frame(message: &Message) -> Vec<u8> {
    let body = message.pack().unwrap();
    let length = body.len() as u32;
    [&MAGIC[..], &PROTOCOL.to_be_bytes(), &message.kind().to_be_bytes(), &length.to_be_bytes(), &body].concat()
}

/// The server, in a child process.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    end_with_parent();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("listens at {}", listener.local_addr().unwrap());
    serve(&listener, &Fake::default(), &Host::default(), LONG, false, &mut |_| ()).unwrap();
}

#[test]
fn server_with_hostile_neighbours_serves_its_client() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let (seed, rounds) = (number("STRIDE_SEED").unwrap_or(1), number("STRIDE_HOSTILE").unwrap_or(8));
    let mut world = World::new(seed as u64);
    world.measure();
    let mut before = None;
    for round in 0..NAMES.len() + rounds {
        let which = if round < NAMES.len() { round } else { world.below(NAMES.len() as u64) };
        println!("round {round}: {}", NAMES[which]);
        world.disturb(which);
        if round + 1 == NAMES.len() {
            // The first rounds allocate what stays. The connections of the last one have ended.
            world.measure();
            thread::sleep(Duration::from_secs(1));
            before = Some(world.usage());
        }
        if let Some(before) = before {
            world.settle(&before, NAMES[which]);
        }
    }
    world.latencies.sort_unstable();
    let at = |share: usize| world.latencies[(world.latencies.len() - 1) * share / 100];
    println!(
        "{} clients: p50 {:?}, p99 {:?}, longest {:?}; {before:?}",
        world.latencies.len(),
        at(50),
        at(99),
        at(100)
    );
}
