//! A server process with hostile neighbours. After each disturbance, its honest client still gets its answers, and the
//! resources of the process are back where they were.
//!
//! `TRESPASS_HOSTILE` is the number of disturbances on each transport, `TRESPASS_SEED` chooses them. With `--nocapture`,
//! the test prints the latency of the honest client.

use std::process::Command;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use sideway_tests::process::end_with_parent;
use sideway_tests::usage::Usage;
use trespass::{Connection, Handle, Transport};
use trespass_rpc::wire::{Bulk, BulkKind, Flags, Header, Kind, write};
use trespass_rpc::{Attachment, CallOptions, Channel, Endpoint, Options};
use trespass_rpc_ecosystem::{LONG, Listed, SumsClient, options, transport_of, within};

use crate::bulk::StoreClient;
use crate::hostile::Raw;
use crate::processes::Process;

/// The transport of the test `child` in a child process.
const CHILD: &str = "TRESPASS_RPC_TEST_NEIGHBOURS";
/// How many mappings and how many KiB of resident memory the server may have more than before. The allocator and the
/// pools keep memory that was used once, the pool of attachments up to its watermark: the tolerance is the memory of one
/// disturbance, so that a leak exceeds it in a few rounds.
const TOLERANCE: (usize, usize) = (16, 24 << 10);

struct World {
    transport: Transport,
    options: Options,
    server: Process,
    address: String,
    endpoint: Endpoint,
    honest: SumsClient,
    latencies: Vec<Duration>,
    random: Rng,
}

const NAMES: [&str; 9] =
    ["frames", "announcements", "panics", "cancellations", "silence", "descriptors", "visits", "stopped", "killed"];

impl World {
    async fn new(transport: Transport, seed: u64) -> Self {
        let (server, address) = Process::start("server", transport);
        let mut options = options(transport);
        options.worker.linger = Duration::from_secs(1);
        let endpoint = Endpoint::thread(&options).unwrap();
        let honest = SumsClient::new(Channel::connect_on(&endpoint, &address).await.unwrap());
        let random = Rng::with_seed(seed);
        Self { transport, options, server, address, endpoint, honest, latencies: Vec::new(), random }
    }

    fn usage(&self) -> Usage {
        Usage::of(&self.server.id().to_string())
    }

    /// The calls of the honest client.
    async fn call(&mut self) {
        for number in 0..20 {
            let begun = Instant::now();
            let sum = within(self.honest.add(number, 1)).await;
            assert_eq!(sum, Ok(number + 1));
            self.latencies.push(begun.elapsed());
        }
        let channel = Channel::connect_on(&self.endpoint, &self.address);
        let store = StoreClient::new(within(channel).await.unwrap());
        let put = store.put(Attachment::from(vec![3; 100_000]), 7, Attachment::from(&[7; 5][..]));
        assert_eq!(within(put).await, Ok(100_000));
    }

    async fn disturb(&mut self, which: usize) {
        match NAMES[which] {
            "frames" => self.frames().await,
            "announcements" => self.announcements().await,
            "panics" => {
                for _ in 0..20 {
                    self.honest.panic().await.unwrap_err();
                }
            }
            "cancellations" => self.cancellations().await,
            "silence" => {
                let handle = Handle::new(&self.options.worker).unwrap();
                let silent: Vec<_> = (0..1 + self.random.u64(..20))
                    .map_while(|_| Connection::connect_on(&handle, &*self.address, Some(LONG)).ok())
                    .collect();
                self.call().await;
                drop(silent);
            }
            "descriptors" => self.without_descriptors().await,
            "visits" => {
                for _ in 0..5 {
                    let endpoint = Endpoint::thread(&self.options).unwrap();
                    let channel = Channel::connect_on(&endpoint, &self.address).await.unwrap();
                    assert_eq!(SumsClient::new(channel).ping().await, Ok(()));
                }
            }
            name => {
                let client = Process::start(&self.address, self.transport).0;
                self.call().await;
                let signal = if name == "stopped" { Signal::STOP } else { Signal::KILL };
                kill_process(Pid::from_raw(client.id() as i32).unwrap(), signal).unwrap();
                self.call().await;
            }
        }
    }

    /// Peers that send random frames. Some then fall silent.
    async fn frames(&mut self) {
        let mut silent = Vec::new();
        for _ in 0..1 + self.random.u64(..4) {
            let peer = Raw::connect(&self.options, &self.address);
            for _ in 0..1 + self.random.u64(..10) {
                let mut message = Vec::new();
                for _ in 0..1 + self.random.u64(..20) {
                    self.frame(&peer, &mut message);
                }
                if self.random.u64(..20) == 0 {
                    message.truncate(self.random.usize(..message.len()));
                }
                let count = [1, 1, 100][self.random.usize(..3)];
                if !(0..count).all(|_| peer.send(&message)) {
                    break;
                }
            }
            self.call().await;
            if self.random.u64(..2) == 0 {
                silent.push(peer);
            }
        }
    }

    /// Appends a frame: mostly a well-formed one, in an order that may be wrong.
    fn frame(&mut self, peer: &Raw, message: &mut Vec<u8>) {
        use Kind::*;
        const KINDS: [Kind; 12] =
            [Request, Request, Request, StreamData, StreamEnd, Bulk, Cancel, Credit, Ping, Pong, Response, GoAway];
        let random = &mut self.random;
        let known = if random.u64(..20) == 0 { 12 } else { 9 };
        let kind = KINDS[random.usize(..known)];
        let call = 1 + 2 * random.u32(..40) + u32::from(random.u64(..50) == 0);
        let bulks = if random.u64(..4) == 0 { random.usize(..4) } else { 0 };
        let mut flags = Flags::new(0, bulks);
        if random.u64(..3) == 0 {
            flags.0 |= Flags::STREAM_IN;
        }
        let methods = peer.methods();
        let method = if kind == Request { methods[random.usize(..methods.len())] } else { random.u64(..9) };
        let mut body: Vec<u8> = (0..random.u64(..200)).map(|_| random.u8(..)).collect();
        for at in 0..bulks {
            let kind = [BulkKind::Inline, BulkKind::Read, BulkKind::Pull, BulkKind::Write, BulkKind::Push];
            let kind = kind[random.usize(..5)];
            let length = if kind == BulkKind::Inline { random.u64(..20) } else { random.u64(..1 << 31) };
            let bulk = trespass_rpc::wire::Bulk { kind, length, address: random.u64(..), key: random.u32(..) };
            let at = (32 * at).min(body.len());
            body.splice(at..at, bulk.to_bytes());
        }
        let header = Header { method, flags, budget: random.u32(..3), ..Header::new(kind, call) };
        write(message, &header, &[], &[&body]);
    }

    /// A peer that announces long attachments, and sends nothing.
    async fn announcements(&mut self) {
        let mut peer = Raw::connect(&self.options, &self.address);
        for _ in 0..self.random.u64(..100) {
            let value = Bulk { kind: BulkKind::Pull, length: 1 << self.random.u64(..31), address: 0, key: 0 };
            let mark = Bulk { kind: BulkKind::Inline, length: 5, ..value };
            peer.request("test.Store/put", &[value, mark], &[7; 6]);
        }
        self.call().await;
    }

    /// Calls and streams that end before their answers.
    async fn cancellations(&mut self) {
        let hurried = self.honest.clone().with(CallOptions::default().timeout(Duration::from_millis(5)));
        for _ in 0..10 {
            hurried.wait(60_000).await.unwrap_err();
            let (sum, wait) = (self.honest.sum(0, Listed(0..1_000)), self.honest.wait(60_000));
            _ = tokio::time::timeout(Duration::from_millis(self.random.u64(..3)), async { tokio::join!(sum, wait) })
                .await;
            let mut items = self.honest.count(1_000_000, 100);
            items.next().await.unwrap().unwrap();
        }
    }

    async fn without_descriptors(&mut self) {
        let id = Pid::from_raw(self.server.id() as i32);
        let whole = getrlimit(Resource::Nofile);
        let used = self.usage().descriptors as u64;
        let few = Rlimit { current: Some(used + self.random.u64(..4)), maximum: whole.maximum };
        prlimit(id, Resource::Nofile, few).unwrap();
        let handle = Handle::new(&self.options.worker).unwrap();
        let soon = Some(Duration::from_millis(20));
        let peers: Vec<_> = (0..6).filter_map(|_| Connection::connect_on(&handle, &*self.address, soon).ok()).collect();
        for number in 0..20 {
            let sum = within(self.honest.add(number, 1)).await;
            assert_eq!(sum, Ok(number + 1));
        }
        prlimit(id, Resource::Nofile, whole).unwrap();
        drop(peers);
    }

    /// Waits until the server's resources are back.
    async fn settle(&mut self, before: &Usage, what: &str) {
        let begun = Instant::now();
        while !self.usage().is_back(before, TOLERANCE.0, TOLERANCE.1) {
            assert!(begun.elapsed() < LONG, "after {what}: {:?}, before: {before:?}", self.usage());
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(self.honest.add(1, 1).await, Ok(2));
        }
    }
}

/// Runs in a child process: the disturbances in turn, and then as many more as the environment states.
#[test]
fn child() {
    let Some(transport) = transport_of(CHILD) else { return };
    end_with_parent();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let (seed, rounds) = (number("TRESPASS_SEED").unwrap_or(1), number("TRESPASS_HOSTILE").unwrap_or(6));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(transport, seed as u64).await;
        world.call().await;
        let mut before = None;
        for round in 0..NAMES.len() + rounds {
            // The first rounds allocate what stays.
            let which = if round < NAMES.len() { round } else { world.random.usize(..NAMES.len()) };
            println!("{transport:?} round {round}: {}", NAMES[which]);
            world.disturb(which).await;
            world.call().await;
            if round + 1 >= NAMES.len() {
                if before.is_none() {
                    // The linger time of the disturbances has passed.
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    before = Some(world.usage());
                }
                world.settle(&before.unwrap(), NAMES[which]).await;
            }
        }
        world.latencies.sort_unstable();
        let at = |share: usize| world.latencies[(world.latencies.len() - 1) * share / 1_000];
        let text = format!("p50 {:?}, p99 {:?}, p99.9 {:?}, longest {:?}", at(500), at(990), at(999), at(1_000));
        println!("{transport:?}: {} calls: {text}; {before:?}", world.latencies.len());
    });
}

/// Returns the latencies. The device is chosen by the environment, so each run is a process.
fn run_on(transport: Transport, devices: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["neighbours::child", "--exact", "--nocapture"]).env(CHILD, format!("{transport:?}"));
    // With one arena, the allocator's mappings do not depend on which threads allocate.
    command.env("SOFTRNIC_DEVICES", devices).env("MALLOC_ARENA_MAX", "1").env("RUST_BACKTRACE", "0");
    let ran = command.output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{}\n{text}\n{}", ran.status, String::from_utf8_lossy(&ran.stderr));
    text.lines().filter(|line| line.contains("calls")).collect()
}

#[test]
fn server_with_hostile_neighbours_on_tcp_serves_its_client() {
    println!("{}", run_on(Transport::Tcp, "0"));
}

#[test]
fn server_with_hostile_neighbours_on_soft0_serves_its_client() {
    println!("{}", run_on(Transport::Rdma, "soft0"));
}

#[test]
fn server_with_hostile_neighbours_on_iwarp_serves_its_client() {
    println!("{}", run_on(Transport::Rdma, "softiw0"));
}
