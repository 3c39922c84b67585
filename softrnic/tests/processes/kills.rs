//! Kills or stops peers in other processes at random moments. In the remaining process, each request ends, all objects
//! can be destroyed, no resources of the peer remain, and the next peer works.
//!
//! `SOFTRNIC_KILLS` sets the number of peers.

#![expect(clippy::unwrap_used, reason = "a panic in a helper fails the test")]

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::is_alone;
use crate::common::party::{Name, Party, RC, SHARED, parse};
use crate::common::{LONG, open};
use fastrand::Rng;
use rdma_mummy_sys::*;

/// Name of the environment variable that makes `follow` a peer. It contains the role, and then the QP numbers, the keys
/// and the addresses of the process that starts the peer.
const ROLE: &str = "SOFTRNIC_TEST_DIES";
const COUNT: &str = "SOFTRNIC_KILLS";
/// The prefix of the line that the child prints.
const OUTPUT: &str = "OUTPUT:";
/// This is not a test. It runs in the other process. In the role `first`, it connects and sends at once. In the role
/// `both`, it prints its data first. In the role `takes`, it never sends.
#[test]
fn follow() {
    let Ok(role) = env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let peer = parse(&words[1..]);
    let mut party = Party::new(open(c"soft0"), 14, 7, u64::from(std::process::id()));
    party.connect(&peer);
    if words[0] != "first" {
        println!("{OUTPUT}{}", party.name());
        io::stdin().lock().lines().next().unwrap().unwrap();
    }
    loop {
        party.poll_all();
        if words[0] != "takes" {
            party.post(&peer);
        }
        thread::yield_now();
    }
}

/// The other process of a test.
struct Other {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(role: &str, party: &Party) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "kills::follow", "--nocapture"]).env(ROLE, format!("{role} {}", party.name()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        Self { child, input, output }
    }

    fn name(&mut self) -> Name {
        loop {
            let line = self.output.next().expect("the process has ended").unwrap();
            if let Some((_, text)) = line.split_once(OUTPUT) {
                return parse(&text.split(' ').collect::<Vec<_>>());
            }
        }
    }

    /// Starts the work of the other process.
    fn begin(&mut self) {
        writeln!(self.input).unwrap();
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process is a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    fn kill(&self) {
        self.signal(libc::SIGKILL);
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Counts the descriptors, threads and shared mappings of the process.
fn resources() -> [usize; 3] {
    let entries = |path: &str| fs::read_dir(path).unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:softrnic")).count();
    [entries("/proc/self/fd"), entries("/proc/self/task"), shared]
}

/// Counts the mappings of the process.
fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// Runs one peer from its start to its death. Returns whether the peer transferred data, and the time until all
/// requests ended.
fn round(context: *mut ibv_context, round: u64) -> (bool, Duration) {
    let mut random = Rng::with_seed(round);
    let mut party = Party::new(context, 1, 1, round);
    let (role, pause) = (round % 5, Duration::from_micros(random.u64(..5000)));
    if role == 0 {
        // This peer is killed during its start, while it connects to this process.
        let other = Other::start("first", &party);
        thread::sleep(4 * pause);
        other.kill();
        drop(other);
        party.close();
        return (false, Duration::ZERO);
    }
    let mut other = Other::start(if role == 2 { "takes" } else { "both" }, &party);
    let peer = other.name();
    party.connect(&peer);
    let (sends, begins) = (role != 3, role != 4);
    if !begins {
        // This peer is killed during the first message to it.
        other.kill();
    } else {
        other.begin();
        // Half of the peers are killed under load, the others when the load begins.
        let (work, start) = (if random.u64(..2) == 0 { 50 } else { 0 }, Instant::now());
        loop {
            party.poll_all();
            if sends {
                party.post(&peer);
            }
            let amount = if sends { party.done.iter().sum() } else { party.received };
            if amount >= work {
                break;
            }
            let (done, sent, received, ends) = (party.done, party.sent, party.received, &party.ends);
            assert!(start.elapsed() < LONG, "{done:?} done, {sent:?} not, {received} received: {ends:?}");
        }
        let start = Instant::now();
        while start.elapsed() < pause {
            party.poll_all();
            if sends {
                party.post(&peer);
            }
            thread::yield_now();
        }
        other.kill();
    }
    let death = Instant::now();
    party.check_dead_peer(&peer);
    let time = death.elapsed();
    drop(other);
    let worked = party.done.iter().sum::<usize>() + party.received > 0;
    party.close();
    (worked, time)
}

#[test]
fn killed_peers_leave_no_resources() {
    // This test counts resources of the process.
    if !is_alone("kills::killed_peers_leave_no_resources") {
        return;
    }
    let count: u64 = env::var(COUNT).map_or(60, |count| count.parse().unwrap());
    let context = open(c"soft0");
    // Some resources are created with the first peers and stay.
    for number in 1..=5 {
        round(context, number);
    }
    let settled = |before: [usize; 3]| {
        let start = Instant::now();
        // QP numbers are reused only after four blocks are claimed, and each block has a listener.
        let is_left = |[now, rest @ ..]: [usize; 3]| now > before[0] + 3 || rest[..] != before[1..];
        while is_left(resources()) {
            assert!(start.elapsed() < LONG, "{:?} are left of {before:?}", resources());
            thread::sleep(Duration::from_millis(1));
        }
    };
    // Sessions of the last peers may still exist.
    let mut before = resources();
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(1));
        let now = resources();
        before = std::array::from_fn(|place| now[place].min(before[place]));
    }
    settled(before);
    let maps = mappings();
    let (mut worked, mut longest) = (0, Duration::ZERO);
    for number in 0..count {
        let (has_worked, time) = round(context, number);
        worked += u64::from(has_worked);
        longest = longest.max(time);
        settled(before);
    }
    eprintln!("{count} peers were killed, {worked} of them under load; requests to them ended within {longest:?}");
    assert!(worked * 2 > count, "only {worked} of {count} peers transferred data");
    // The allocator and the stacks of threads may add some mappings.
    assert!(mappings() <= maps + 32, "the number of mappings grew from {maps} to {}", mappings());
    // SAFETY: the device has no objects left.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}

#[test]
fn peer_stopped_for_a_while_continues() {
    // This test counts resources of the process.
    if !is_alone("kills::peer_stopped_for_a_while_continues") {
        return;
    }
    let mut party = Party::new(open(c"soft0"), 10, 3, 3);
    let mut other = Other::start("both", &party);
    let peer = other.name();
    party.connect(&peer);
    other.begin();
    for _ in 0..10 {
        let until = party.done.map(|done| done + 20);
        while (0..2).any(|kind| party.done[kind] < until[kind]) {
            party.poll_all();
            party.post(&peer);
            assert!(party.ends.iter().all(Vec::is_empty), "{:?}", party.ends);
        }
        other.signal(libc::SIGSTOP);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            party.poll_all();
            party.post(&peer);
        }
        other.signal(libc::SIGCONT);
    }
    party.until("requests to a peer that continues", |party| party.sent == [0; 4]);
    assert!(party.ends.iter().all(Vec::is_empty), "{:?}", party.ends);
    drop(other);
    let context = party.context;
    party.close();
    // SAFETY: the device has no objects left.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}

#[test]
fn peer_stopped_forever_times_out_not_too_early() {
    // This test counts resources of the process.
    if !is_alone("kills::peer_stopped_forever_times_out_not_too_early") {
        return;
    }
    let mut party = Party::new(open(c"soft0"), 1, 1, 4);
    let mut other = Other::start("takes", &party);
    let peer = other.name();
    party.connect(&peer);
    other.begin();
    while party.done[RC] < 20 || party.done[SHARED] < 20 {
        party.poll_all();
        party.post(&peer);
    }
    other.signal(libc::SIGSTOP);
    // The signal takes effect only some time after the call.
    let (mut done, mut last) = (party.done, Instant::now());
    while party.ends[RC].is_empty() || party.ends[SHARED].is_empty() {
        party.poll_all();
        party.post(&peer);
        if (done[RC], done[SHARED]) != (party.done[RC], party.done[SHARED]) {
            (done, last) = (party.done, Instant::now());
        }
        assert!(last.elapsed() < LONG, "requests to a stopped peer do not end: {:?}", party.sent);
    }
    assert!(last.elapsed() > Duration::from_secs(3), "requests ended after {:?}", last.elapsed());
    party.check_dead_peer(&peer);
    drop(other);
    let context = party.context;
    party.close();
    // SAFETY: the device has no objects left.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}
