//! A malicious process attacks a victim, which must continue to work with other peers. `SOFTRNIC_FUZZ_SECONDS` sets the
//! duration.

#[path = "../../../tests/common/mod.rs"]
pub(super) mod common;

use std::env;
use std::ffi::c_int;
use std::io::{BufRead, BufReader, Write, stdin};
use std::mem::zeroed;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::kinds::QKEY;
use common::party::{Party, RC, SHARED, parse};
use common::{ACCESS, LONG, Setup, Side, open};
use rdma_mummy_sys::*;

use super::malicious_peer::{MaliciousPeer, SECRET, Target, Targets};
use crate::qp::registry::QpRegistry;
use crate::wire::address::Gid;
use crate::wire::operation::Service;
use crate::wire::packet::BLOCK;

const TASK: &str = "SOFTRNIC_TEST_FUZZ";
const SECONDS: &str = "SOFTRNIC_FUZZ_SECONDS";
const SEED: &str = "SOFTRNIC_FUZZ_SEED";
/// The length of the granted memory. Memory of the same length before it and after it is not granted.
const GRANTED: usize = 64 << 10;
const MOST: usize = 8;
const RECEIVES: usize = 16;

fn start(test: &str, task: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &format!("ipc::tests::fuzz::{test}"), "--nocapture", "--test-threads=1"]);
    command.env(TASK, task);
    command
}

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

/// This is not a test. It runs a well-behaved peer in a process of its own.
#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn good() {
    let Some(name) = env::var(TASK).ok().and_then(|task| task.strip_prefix("good ").map(str::to_owned)) else { return };
    let peer = parse(&name.split(' ').collect::<Vec<_>>());
    let mut party = Party::new(open(c"soft0"), 14, 7, 5);
    party.connect(&peer);
    println!("OUTPUT:{}", party.name());
    stdin().lock().lines().next().unwrap().unwrap();
    while party.ends.iter().all(Vec::is_empty) {
        party.poll_all();
        party.post(&peer);
        thread::yield_now();
    }
    panic!("{:?}", party.ends);
}

/// An end that is connected to the malicious peer.
struct Victim {
    side: Side,
    setup: Setup,
    handle: *mut ibv_ah,
    peer: u32,
    sent: usize,
    received: usize,
    resets: u64,
    done: u64,
}

impl Victim {
    fn new(context: *mut ibv_context, kind: ibv_qp_type, peer: u32) -> Self {
        let setup = Setup { kind, bytes: 3 * GRANTED, timeout: 8, retry_cnt: 1, rnr_retry: 3, ..Setup::default() };
        let mut side = Side::new(context, setup);
        side.buffer.fill(SECRET);
        side.buffer[GRANTED..2 * GRANTED].fill(0);
        // SAFETY: the region is unused; the replacement has the same lifetime.
        unsafe {
            assert_eq!(ibv_dereg_mr(side.mr), 0);
            let start = side.buffer.as_mut_ptr().add(GRANTED).cast();
            side.mr = ibv_reg_mr(side.pd, start, GRANTED, ACCESS as c_int);
            assert!(!side.mr.is_null());
        }
        let handle = side.address_handle(side.gid());
        let victim = Self { side, setup, handle, peer, sent: 0, received: 0, resets: 0, done: 0 };
        victim.connect();
        victim
    }

    fn connect(&self) {
        if self.setup.kind == ibv_qp_type::IBV_QPT_UD {
            self.side.ready_for_datagrams();
        } else {
            // A malicious message may end the QP while it connects. The next step detects this.
            self.side.try_connect(self.peer, self.setup);
        }
    }

    fn target(&self, service: Service) -> Target {
        let (start, length) = (self.side.address() + GRANTED as u64, GRANTED as u64);
        Target { number: self.side.number(), peer: self.peer, service, rkey: self.side.rkey(), start, length }
    }

    /// Polls and posts requests. If the QP has failed, starts again.
    fn step(&mut self) {
        while let Some(wc) = self.side.poll() {
            if wc.wr_id == 1 {
                self.received -= 1;
            } else {
                self.sent -= 1;
                self.done += u64::from(wc.status == ibv_wc_status::IBV_WC_SUCCESS);
            }
        }
        if self.side.state() != ibv_qp_state::IBV_QPS_RTS {
            // SAFETY: the attributes are numbers.
            let mut attr: ibv_qp_attr = unsafe { zeroed() };
            attr.qp_state = ibv_qp_state::IBV_QPS_RESET;
            assert_eq!(self.side.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0), 0);
            assert!(self.side.poll().is_none());
            (self.sent, self.received, self.resets) = (0, 0, self.resets + 1);
            self.connect();
            if self.side.state() != ibv_qp_state::IBV_QPS_RTS {
                return;
            }
        }
        let whole = |length: u32| [self.side.piece(GRANTED, length)];
        while self.received < RECEIVES {
            self.side.receive(1, &mut whole(GRANTED as u32));
            self.received += 1;
        }
        while self.sent < MOST {
            let piece = &mut whole([8, 100, 16_385, GRANTED as u32][self.sent % 4]);
            let memory = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: 4096, rkey: 77 };
            match (self.setup.kind, self.sent % 4) {
                (ibv_qp_type::IBV_QPT_UD, _) => self.side.send_datagram(self.handle, self.peer, 0, &mut whole(1000)),
                (ibv_qp_type::IBV_QPT_RC, 1 | 2) => {
                    self.side.send(ibv_wr_opcode::IBV_WR_RDMA_READ, 0, piece, |wr| wr.wr.rdma = memory);
                }
                (ibv_qp_type::IBV_QPT_RC, 0) => {
                    self.side.send(ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, 0, piece, |wr| {
                        let (remote_addr, rkey) = (4096, 77);
                        wr.wr.atomic =
                            ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add: 1, swap: 0, rkey };
                    });
                }
                _ => self.side.send(ibv_wr_opcode::IBV_WR_SEND, 0, piece, |_| {}),
            }
            self.sent += 1;
        }
    }

    fn is_whole(&self) -> bool {
        let around = [&self.side.buffer[..GRANTED], &self.side.buffer[2 * GRANTED..]];
        around.iter().all(|bytes| bytes.iter().all(|&byte| byte == SECRET))
    }

    fn close(self) {
        // SAFETY: the handle is no longer used.
        assert_eq!(unsafe { ibv_destroy_ah(self.handle) }, 0);
        self.side.close();
    }
}

/// Returns the PSN that a QP of this process expects.
fn expected(number: u32) -> u32 {
    QpRegistry::of_process().find(number).map_or(0, |pair| pair.attributes().rq_psn)
}

/// Stops the malicious peer, even if the test fails.
struct Last<'l>(&'l AtomicBool);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The process of the well-behaved peer, which is killed when the test ends.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[cfg_attr(miri, ignore = "creates processes")]
fn malicious_peer_harms_no_other_process() {
    match env::var(TASK).ok().as_deref() {
        None => {
            let output = start("malicious_peer_harms_no_other_process", "alone").output().unwrap();
            let output_text =
                String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{output_text}");
            output_text.lines().filter(|line| line.starts_with("The malicious")).for_each(|line| println!("{line}"));
        }
        Some("alone") => run(Duration::from_secs(number(SECONDS, 2)), number(SEED, 1)),
        Some(_) => {}
    }
}

fn run(time: Duration, seed: u64) {
    let context = open(c"soft0");
    let mut party = Party::new(context, 14, 7, seed);
    let mut command = start("good", &format!("good {}", party.name()));
    let mut child = Peer(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(child.0.stdout.as_mut().unwrap()).lines();
    let line = lines.map(Result::unwrap).find_map(|line| line.split_once("OUTPUT:").map(|(_, name)| name.to_owned()));
    let peer = parse(&line.unwrap().split(' ').collect::<Vec<_>>());
    party.connect(&peer);
    writeln!(child.0.stdin.as_mut().unwrap()).unwrap();

    let mut malicious = MaliciousPeer::new(party.sides[0].number() / BLOCK, seed, expected);
    let kinds = [
        (ibv_qp_type::IBV_QPT_RC, Service::ReliableConnection),
        (ibv_qp_type::IBV_QPT_UC, Service::UnreliableConnection),
        (ibv_qp_type::IBV_QPT_UD, Service::UnreliableDatagram),
    ];
    let block = malicious.block;
    let mut victims = [0, 1, 2].map(|place| Victim::new(context, kinds[place].0, block * BLOCK + 1 + place as u32));
    // One region is in the domain of the victim but grants no access. The other one grants access but is in another
    // domain.
    let mut secrets = [vec![SECRET; GRANTED], vec![SECRET; GRANTED]];
    // SAFETY: the context is open, and the memory outlives its regions.
    let (domain, regions) = unsafe {
        let domain = ibv_alloc_pd(context);
        let local = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        let first = ibv_reg_mr(victims[0].side.pd, secrets[0].as_mut_ptr().cast(), GRANTED, local as c_int);
        let second = ibv_reg_mr(domain, secrets[1].as_mut_ptr().cast(), GRANTED, ACCESS as c_int);
        assert!(!first.is_null() && !second.is_null());
        (domain, [first, second])
    };
    let mut places: Vec<u64> = secrets.iter().map(|secret| secret.as_ptr().addr() as u64).collect();
    places.extend(victims.iter().flat_map(|victim| [0, 2].map(|part| victim.side.address() + (part * GRANTED) as u64)));
    malicious.set_targets(Targets {
        targets: victims.iter().zip(kinds).map(|(victim, (_, service))| victim.target(service)).collect(),
        // SAFETY: the regions exist.
        keys: regions.iter().map(|&region| unsafe { (*region).rkey }).collect(),
        places,
        others: party.sides.iter().map(Side::number).collect(),
        elsewhere: vec![peer[RC].0, peer[SHARED].0],
        // SAFETY: all bytes of a GID are valid.
        gid: Gid(unsafe { victims[0].side.gid().raw }),
        qkey: QKEY,
    });

    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    // The malicious peer exists until the end, with responses that it has not read.
    let _malicious = thread::scope(|scope| {
        let end = Last(is_over);
        let malicious = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                malicious.step();
            }
            malicious
        });
        let start = Instant::now();
        let (mut last, mut done) = (start, 0);
        while start.elapsed() < time && !malicious.is_finished() {
            party.poll_all();
            party.post(&peer);
            assert!(party.ends.iter().all(Vec::is_empty), "{:?}", party.ends);
            victims.iter_mut().for_each(Victim::step);
            let now = party.done.iter().sum();
            if now != done {
                (last, done) = (Instant::now(), now);
            }
            assert!(last.elapsed() < LONG, "the well-behaved peer made no progress");
        }
        drop(end);
        let malicious = malicious.join().unwrap();
        let (sessions, packets, words) = (malicious.sessions_made, malicious.packets, malicious.words);
        println!("\nThe malicious peer made {sessions} sessions, with {packets} packets and {words} words.");
        malicious
    });
    let results: Vec<_> = victims.iter().map(|victim| (victim.done, victim.resets)).collect();
    println!(
        "\nIts victims completed (and restarted) {results:?}, and others {:?} and {}.",
        party.done, party.received
    );
    let goal = party.done.map(|done| done + 50);
    while (0..4).any(|kind| party.done[kind] < goal[kind]) {
        assert!(party.ends.iter().all(Vec::is_empty), "{:?}", party.ends);
        party.poll_all();
        party.post(&peer);
    }
    party.until("the last requests", |party| party.sent == [0; 4]);
    assert!(party.ends.iter().all(Vec::is_empty), "{:?}", party.ends);
    assert!(victims.iter().all(Victim::is_whole), "memory around the granted range has changed");
    assert!(secrets.iter().flatten().all(|&byte| byte == SECRET), "memory that was not granted has changed");
    assert!(victims[0].resets > 0, "no QP has failed");
    // SAFETY: the objects are no longer used.
    unsafe {
        assert_eq!(regions.map(|region| ibv_dereg_mr(region)), [0, 0]);
        assert_eq!(ibv_dealloc_pd(domain), 0);
    }
    victims.into_iter().for_each(Victim::close);
    drop(child);
    party.close();
    // SAFETY: the device has no objects left.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}
