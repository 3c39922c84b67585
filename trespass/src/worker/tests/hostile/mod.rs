//! A server process with hostile neighbours, which uses this crate or its C interface. After each disturbance, its honest
//! client still gets its echoes, and the resources of the process are back where they were.
//!
//! `TRESPASS_HOSTILE` is the number of disturbances on each transport, `TRESPASS_SEED` chooses them. With `--nocapture`,
//! the test prints the latency of the honest client.

mod c_server;
mod peers;
mod server;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use sideway_tests::process::{Lines, end_with_parent};
use sideway_tests::usage::Usage;

use super::LONG;
use crate::Connection;
use crate::proto::Rng;
use crate::worker::{Handle, Options, Transport};

use peers::Raw;

/// The role of the test `child` in a child process, with the transport and the address of the server.
const ROLE: &str = "TRESPASS_TEST_HOSTILE";

/// Returns options for a transport. The short linger time lets resources return soon.
fn options(transport: Transport) -> Options {
    let linger = Duration::from_secs(1);
    Options { transport, memory: 64 << 20, linger, ..Options::default() }
}

/// A child process, which is killed when this value is dropped.
struct Process {
    child: Child,
    lines: Lines,
}

impl Process {
    fn start(role: &str, transport: Transport, address: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["worker::tests::hostile::child", "--exact", "--nocapture"]);
        command.env(ROLE, format!("{role} {transport:?} {address}"));
        // With one arena, the allocator's mappings do not depend on which threads allocate.
        command.env("MALLOC_ARENA_MAX", "1").env("RUST_BACKTRACE", "0");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn usage(&self) -> Usage {
        Usage::of(&self.child.id().to_string())
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// How many mappings and how many KiB of resident memory the server may have more than before. The allocator and the
/// pool keep memory that was used once: the tolerance is the memory of one disturbance, so that a leak exceeds it in a few
/// rounds.
const TOLERANCE: (usize, usize) = (16, 16 << 10);

/// The honest client: a connection that lives as long as the server, and the latencies of its echoes.
struct Honest {
    handle: Handle,
    address: SocketAddr,
    connection: Connection,
    latencies: Vec<Duration>,
}

impl Honest {
    fn connect(transport: Transport, address: SocketAddr) -> Self {
        let handle = Handle::new(&options(transport)).unwrap();
        let connection = Connection::connect_on(&handle, address, Some(LONG)).unwrap();
        Self { handle, address, connection, latencies: Vec::new() }
    }

    fn echo(&mut self, rng: &mut Rng) {
        for number in 0..20 {
            let length = if number % 5 == 4 { rng.below(100_000) as usize } else { 64 };
            let begun = Instant::now();
            echo(&self.connection, length, rng);
            if length == 64 {
                self.latencies.push(begun.elapsed());
            }
        }
    }

    /// Connects once more.
    fn visit(&self, rng: &mut Rng) {
        let begun = Instant::now();
        // A listener whose backlog is full refuses connections.
        let connection = loop {
            match Connection::connect_on(&self.handle, self.address, Some(LONG)) {
                Ok(connection) => break connection,
                Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        echo(&connection, 5_000, rng);
        connection.close(0, "").unwrap();
    }
}

fn echo(connection: &Connection, length: usize, rng: &mut Rng) {
    let message = vec![rng.next() as u8; length];
    connection.send(&message).unwrap();
    let received = connection.recv_until(Some(Instant::now() + LONG)).unwrap().expect("an echo, not the end");
    assert!(received[..] == message);
}

type Disturbance = (&'static str, fn(&mut World, &mut Rng));

/// The disturbances. Each runs while the honest client works, and ends before the resources are compared.
const DISTURBANCES: [Disturbance; 9] = [
    ("records", World::records),
    ("mute", World::mute),
    ("half open", World::half_open),
    ("descriptors", World::without_descriptors),
    ("stopped", |world, rng| world.flooded(Signal::STOP, rng)),
    ("killed", |world, rng| world.flooded(Signal::KILL, rng)),
    ("wakers", |world, rng| world.ordered("wakers", rng)),
    ("fork", |world, rng| world.ordered("fork", rng)),
    ("workers", |world, rng| world.ordered("workers", rng)),
];
/// How many of them apply to a server in the C interface. The others use functions that it lacks.
const OF_C: usize = 6;

struct World {
    transport: Transport,
    server: Process,
    honest: Honest,
}

impl World {
    fn new(transport: Transport, server: &str) -> Self {
        let server = Process::start(server, transport, "-");
        let address = server.lines.after("listens at ").parse().unwrap();
        Self { transport, honest: Honest::connect(transport, address), server }
    }

    /// Peers that send random frames and records. Some then fall silent.
    fn records(&mut self, rng: &mut Rng) {
        let mut silent = Vec::new();
        for _ in 0..1 + rng.below(6) {
            let Some(mut peer) = Raw::connect(self.transport, self.honest.address, &peers::hello(rng)) else {
                continue;
            };
            peer.misbehave(rng);
            self.honest.echo(rng);
            if rng.one_in(2) {
                silent.push(peer);
            }
        }
        self.honest.echo(rng);
    }

    /// Sockets that send nothing, the beginning of a handshake, or a wrong one. Some end with a reset.
    fn mute(&mut self, rng: &mut Rng) {
        // soft0 has no sockets.
        let mut sockets: Vec<_> =
            (0..1 + rng.below(150)).map_while(|_| TcpStream::connect(self.honest.address).ok()).collect();
        let handshake = [&[1, 56][..], &peers::hello(rng)].concat();
        for socket in &mut sockets {
            let mut sent = handshake.clone();
            if rng.one_in(3) {
                sent[rng.below(58) as usize] ^= 1 << rng.below(8);
            } else {
                sent.truncate(rng.below(58) as usize);
            }
            // The server may have closed the socket.
            _ = socket.write_all(&sent);
            if rng.one_in(3) {
                set_socket_linger(socket, Some(Duration::ZERO)).unwrap();
            }
        }
        self.honest.echo(rng);
    }

    /// Peers that request a connection, and never react to the answer.
    fn half_open(&mut self, rng: &mut Rng) {
        let hello = peers::hello(rng);
        let peers: Vec<_> =
            (0..1 + rng.below(8)).filter_map(|_| Raw::begin(self.transport, self.honest.address, &hello)).collect();
        self.honest.echo(rng);
        drop(peers);
    }

    /// The server has no descriptors left, while peers connect.
    fn without_descriptors(&mut self, rng: &mut Rng) {
        let id = Some(self.server.id());
        let whole = getrlimit(Resource::Nofile);
        let used = self.server.usage().descriptors as u64;
        let few = Rlimit { current: Some(used + u64::from(rng.below(4))), maximum: whole.maximum };
        prlimit(id, Resource::Nofile, few).unwrap();
        let hello = peers::hello(rng);
        let peers: Vec<_> = (0..6).filter_map(|_| Raw::begin(self.transport, self.honest.address, &hello)).collect();
        self.honest.echo(rng);
        prlimit(id, Resource::Nofile, whole).unwrap();
        self.honest.visit(rng);
        drop(peers);
    }

    fn ordered(&mut self, order: &str, rng: &mut Rng) {
        writeln!(self.server.child.stdin.as_mut().unwrap(), "{order}").unwrap();
        self.honest.echo(rng);
        self.server.lines.after("done: ");
    }

    /// A process that sends without end and reads nothing gets a signal.
    fn flooded(&mut self, signal: Signal, rng: &mut Rng) {
        let flood = Process::start("flood", self.transport, &self.honest.address.to_string());
        flood.lines.after("floods");
        self.honest.echo(rng);
        kill_process(flood.id(), signal).unwrap();
        self.honest.echo(rng);
    }

    /// Waits until the server's resources are back.
    fn settle(&mut self, before: &Usage, what: &str, rng: &mut Rng) {
        let begun = Instant::now();
        loop {
            let now = self.server.usage();
            if now.is_back(before, TOLERANCE.0, TOLERANCE.1) {
                return;
            }
            assert!(begun.elapsed() < LONG, "after {what}: {now:?}, before: {before:?}");
            thread::sleep(Duration::from_millis(20));
            // An honest client lets the server work, as in reality.
            echo(&self.honest.connection, 64, rng);
        }
    }

    /// Ends the server while hostile connections are open. Each call of the server returns.
    fn end(mut self, rng: &mut Rng) {
        let hello = peers::hello(rng);
        let half_open = Raw::begin(self.transport, self.honest.address, &hello);
        let mut peer = Raw::connect(self.transport, self.honest.address, &hello);
        peer.iter_mut().for_each(|peer| peer.misbehave(rng));
        drop(self.server.child.stdin.take());
        self.server.lines.after("ends");
        assert!(self.server.child.wait().unwrap().success());
        drop((half_open, peer));
    }
}

/// Runs the disturbances in turn, and then as many more as the environment states, in a random order.
fn run(transport: Transport, server: &str) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let (seed, rounds) = (number("TRESPASS_SEED").unwrap_or(1), number("TRESPASS_HOSTILE").unwrap_or(6));
    let mut rng = Rng::new(seed as u64);
    let mut world = World::new(transport, server);
    let disturbances = if server == "c-server" { &DISTURBANCES[..OF_C] } else { &DISTURBANCES };
    world.honest.echo(&mut rng);
    world.honest.visit(&mut rng);
    // The first rounds allocate what stays: the threads of devices, the pools, lazily loaded libraries.
    let mut before = None;
    for round in 0..disturbances.len() + rounds {
        let is_first = round < disturbances.len();
        let which = if is_first { round } else { rng.below(disturbances.len() as u32) as usize };
        let (name, disturb) = disturbances[which];
        println!("{transport:?} round {round}: {name}");
        disturb(&mut world, &mut rng);
        world.honest.echo(&mut rng);
        world.honest.visit(&mut rng);
        if round + 1 >= disturbances.len() {
            let before = before.get_or_insert_with(|| {
                // The linger time of the disturbances has passed.
                thread::sleep(Duration::from_secs(2));
                world.server.usage()
            });
            world.settle(before, name, &mut rng);
        }
    }
    let mut latencies = std::mem::take(&mut world.honest.latencies);
    world.end(&mut rng);
    latencies.sort_unstable();
    let at = |share: usize| latencies[(latencies.len() - 1) * share / 1_000];
    println!(
        "{transport:?}: {} echoes of 64 B: p50 {:?}, p99 {:?}, p99.9 {:?}, longest {:?}; {before:?}",
        latencies.len(),
        at(500),
        at(990),
        at(999),
        at(1_000)
    );
}

/// Runs in a child process.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    end_with_parent();
    let [role, transport, address] = role.split(' ').collect::<Vec<_>>()[..] else { panic!("{role}") };
    let transport = match transport {
        "Tcp" => Transport::Tcp,
        "Rdma" => Transport::Rdma,
        _ => Transport::Any,
    };
    #[cfg(feature = "softrnic")]
    softrnic::register().unwrap();
    match role {
        "run" => run(transport, address),
        "server" => server::serve(transport),
        "c-server" => c_server::serve(),
        _ => server::flood(transport, address),
    }
}

/// The device is chosen by the environment, so each run is a process.
fn run_on(transport: Transport, devices: &str, server: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["worker::tests::hostile::child", "--exact", "--nocapture"]);
    command.env(ROLE, format!("run {transport:?} {server}")).env("SOFTRNIC_DEVICES", devices);
    let ran = command.output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    let is_well = ran.status.success() && text.contains("1 passed");
    assert!(is_well, "{}\n{text}\n{}", ran.status, String::from_utf8_lossy(&ran.stderr));
    println!("{server}, {devices}: {}", text.lines().filter(|line| line.contains("echoes")).collect::<String>());
}

#[test]
fn server_with_hostile_neighbours_on_tcp_serves_its_client() {
    run_on(Transport::Tcp, "0", "server");
}

#[test]
fn server_with_hostile_neighbours_on_soft0_serves_its_client() {
    run_on(Transport::Rdma, "soft0", "server");
}

#[test]
fn server_with_hostile_neighbours_on_iwarp_serves_its_client() {
    run_on(Transport::Rdma, "softiw0", "server");
}

#[test]
fn c_server_with_hostile_neighbours_on_tcp_serves_its_client() {
    run_on(Transport::Tcp, "0", "c-server");
}

#[test]
fn c_server_with_hostile_neighbours_on_soft0_serves_its_client() {
    run_on(Transport::Rdma, "soft0", "c-server");
}

/// The C interface listens for TCP first, which takes the port from iWARP. So hostile requests of iWARP meet TCP.
#[test]
fn c_server_with_hostile_neighbours_on_iwarp_serves_its_client() {
    run_on(Transport::Any, "softiw0", "c-server");
}
