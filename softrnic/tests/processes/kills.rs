//! Peers in other processes that die, or are stopped, at any moment: the one who is left sees each request end, can destroy
//! everything, keeps nothing of them, and works with the next.
//!
//! `SOFTRNIC_KILLS` says how many die.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test, also outside of a function marked as one")]

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::is_alone;
use crate::common::party::{Chance, Name, Party, RC, SHARED, parse};
use crate::common::{LONG, open};
use rdma_mummy_sys::*;

/// Makes `follow` a peer: what it does, and then the four numbers, keys and addresses of who started it.
const ROLE: &str = "SOFTRNIC_TEST_DIES";
const COUNT: &str = "SOFTRNIC_KILLS";
/// Stands before what it says.
const SAYS: &str = "SAYS:";
/// Not a test: the other process. `first` connects and sends at once; `both` says who it is first, and `takes` never sends.
#[test]
fn follow() {
    let Ok(role) = env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let peer = parse(&words[1..]);
    let mut party = Party::new(open(c"soft0"), 14, 7, u64::from(std::process::id()));
    party.connect(&peer);
    if words[0] != "first" {
        println!("{SAYS}{}", party.name());
        io::stdin().lock().lines().next().unwrap().unwrap();
    }
    loop {
        party.look();
        if words[0] != "takes" {
            party.post(&peer);
        }
        thread::yield_now();
    }
}

/// The other process.
struct Other {
    child: Child,
    tell: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(role: &str, party: &Party) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "kills::follow", "--nocapture"]).env(ROLE, format!("{role} {}", party.name()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (tell, says) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        Self { child, tell, says }
    }

    fn name(&mut self) -> Name {
        loop {
            let line = self.says.next().expect("it has gone").unwrap();
            if let Some((_, said)) = line.split_once(SAYS) {
                return parse(&said.split(' ').collect::<Vec<_>>());
            }
        }
    }

    /// Has it begin.
    fn begin(&mut self) {
        writeln!(self.tell).unwrap();
    }

    fn signal(&self, signal: i32) {
        // SAFETY: it is a child of this process that nobody has waited for.
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

/// What a process has: descriptors, threads, and memory that is shared with others.
fn belongings() -> [usize; 3] {
    let entries = |path: &str| fs::read_dir(path).unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:softrnic")).count();
    [entries("/proc/self/fd"), entries("/proc/self/task"), shared]
}

/// The mappings of the process.
fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// One peer, from its start to its death; whether it has worked, and how long the rest took to end.
fn round(context: *mut ibv_context, round: u64) -> (bool, Duration) {
    let mut chance = Chance(round.wrapping_mul(0xd134_2543_de82_ef95) | 1);
    chance.next(2);
    let mut party = Party::new(context, 1, 1, round);
    let (role, pause) = (round % 5, Duration::from_micros(chance.next(5000)));
    if role == 0 {
        // Amid its start, of which it connects to this process at some time.
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
        // Amid the first message to it.
        other.kill();
    } else {
        other.begin();
        // Half of them die in full work, and the others at the beginning of it.
        let (work, start) = (if chance.next(2) == 0 { 50 } else { 0 }, Instant::now());
        loop {
            party.look();
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
            party.look();
            if sends {
                party.post(&peer);
            }
            thread::yield_now();
        }
        other.kill();
    }
    let death = Instant::now();
    party.mourn(&peer);
    let time = death.elapsed();
    drop(other);
    let worked = party.done.iter().sum::<usize>() + party.received > 0;
    party.close();
    (worked, time)
}

#[test]
fn peers_that_are_killed_leave_nothing_behind() {
    // It counts what the process has.
    if !is_alone("kills::peers_that_are_killed_leave_nothing_behind") {
        return;
    }
    let count: u64 = env::var(COUNT).map_or(60, |count| count.parse().unwrap());
    let context = open(c"soft0");
    // What begins with the first peer stays.
    for number in 1..=5 {
        round(context, number);
    }
    let settled = |before: [usize; 3]| {
        let start = Instant::now();
        // Numbers come again after four blocks of them, and each of those has a listener.
        let is_left = |[now, rest @ ..]: [usize; 3]| now > before[0] + 3 || rest[..] != before[1..];
        while is_left(belongings()) {
            assert!(start.elapsed() < LONG, "{:?} are left of {before:?}", belongings());
            thread::sleep(Duration::from_millis(1));
        }
    };
    // The sessions of the last may still be there.
    let mut before = belongings();
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(1));
        let now = belongings();
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
    eprintln!("{count} died, {worked} of them at work; their peer's requests ended within {longest:?}");
    assert!(worked * 2 > count, "only {worked} of {count} have worked");
    // The allocator and the stacks of threads may have some more.
    assert!(mappings() <= maps + 32, "{maps} mappings have become {}", mappings());
    // SAFETY: nothing is on it any more.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}

#[test]
fn a_peer_that_is_stopped_for_a_while_goes_on() {
    // It counts what the process has.
    if !is_alone("kills::a_peer_that_is_stopped_for_a_while_goes_on") {
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
            party.look();
            party.post(&peer);
            assert!(party.ends.iter().all(Vec::is_empty), "{:?}", party.ends);
        }
        other.signal(libc::SIGSTOP);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            party.look();
            party.post(&peer);
        }
        other.signal(libc::SIGCONT);
    }
    party.until("requests to a peer that goes on", |party| party.sent == [0; 4]);
    assert!(party.ends.iter().all(Vec::is_empty), "{:?}", party.ends);
    drop(other);
    let context = party.context;
    party.close();
    // SAFETY: nothing is on it any more.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}

#[test]
fn a_peer_that_is_stopped_for_good_is_given_up_and_not_too_early() {
    // It counts what the process has.
    if !is_alone("kills::a_peer_that_is_stopped_for_good_is_given_up_and_not_too_early") {
        return;
    }
    let mut party = Party::new(open(c"soft0"), 1, 1, 4);
    let mut other = Other::start("takes", &party);
    let peer = other.name();
    party.connect(&peer);
    other.begin();
    while party.done[RC] < 20 || party.done[SHARED] < 20 {
        party.look();
        party.post(&peer);
    }
    other.signal(libc::SIGSTOP);
    // It stops a little later.
    let (mut done, mut last) = (party.done, Instant::now());
    while party.ends[RC].is_empty() || party.ends[SHARED].is_empty() {
        party.look();
        party.post(&peer);
        if (done[RC], done[SHARED]) != (party.done[RC], party.done[SHARED]) {
            (done, last) = (party.done, Instant::now());
        }
        assert!(last.elapsed() < LONG, "a stopped peer is not given up: {:?}", party.sent);
    }
    assert!(last.elapsed() > Duration::from_secs(3), "given up after {:?}", last.elapsed());
    party.mourn(&peer);
    drop(other);
    let context = party.context;
    party.close();
    // SAFETY: nothing is on it any more.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}
