//! Another process with a QP. This test program starts itself a second time, and sends commands to the new process.

#![expect(clippy::unwrap_used, reason = "a panic in a helper fails the test")]

use std::env;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr;

use crate::common::{Setup, Side, open};
use rdma_mummy_sys::*;

/// Name of the environment variable that makes `follow` execute commands.
const ROLE: &str = "SOFTRNIC_TEST_FOLLOWS";
/// Name of the environment variable that contains the ID of the process from which the multicast groups are derived.
const OWNER: &str = "SOFTRNIC_TEST_OWNER";
/// The prefix of the lines that the child prints.
const OUTPUT: &str = "OUTPUT:";
/// The ID of the receives for messages that are echoed.
pub(crate) const ECHO: u64 = 1 << 31;
const BYTES: usize = 9 << 20;

pub(crate) fn setup(kind: ibv_qp_type) -> Setup {
    Setup { kind, bytes: BYTES, timeout: 10, retry_cnt: 3, ..Setup::default() }
}

/// Returns the transport service that a role tests.
fn kind_of(role: &str) -> ibv_qp_type {
    match role {
        "uc" => ibv_qp_type::IBV_QPT_UC,
        "ud" => ibv_qp_type::IBV_QPT_UD,
        "xrc" => ibv_qp_type::IBV_QPT_XRC_SEND,
        _ => ibv_qp_type::IBV_QPT_RC,
    }
}

/// Returns a multicast group that only this test uses. It has the address family of this end. All processes derive the
/// group from the ID of the process that started the others.
pub(crate) fn group(side: &Side, last: u8) -> ibv_gid {
    let owner = env::var(OWNER).map_or(std::process::id(), |owner| owner.parse().unwrap());
    let [_, _, a, b] = owner.to_be_bytes();
    // SAFETY: all bytes of a GID are valid.
    let own = unsafe { side.gid().raw };
    let is_ipv4 = own[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let (start, first) = if is_ipv4 { ([0, 0], [0xff, 0xff, 239]) } else { ([0xff, 0x1e], [0, 0, 0]) };
    let (mut raw, [c, d, e]) = ([0; 16], first);
    raw[..2].copy_from_slice(&start);
    raw[10..].copy_from_slice(&[c, d, e, a, b, last]);
    ibv_gid { raw }
}

/// Joins or leaves a group.
pub(crate) fn join(side: &Side, last: u8, is_in: bool) {
    let group = group(side, last);
    // SAFETY: the QP is alive, and the GID exists during the call.
    let result = unsafe {
        if is_in {
            ibv_attach_mcast(side.qp, &raw const group, 0)
        } else {
            ibv_detach_mcast(side.qp, &raw const group, 0)
        }
    };
    assert_eq!(result, 0);
}

/// Returns the byte at an offset of memory that was filled with `seed`.
pub(crate) fn byte(seed: usize, place: usize) -> u8 {
    (place.wrapping_mul(31) ^ place >> 8 ^ seed) as u8
}

pub(crate) fn fill(side: &mut Side, from: usize, length: usize, seed: usize) {
    for place in from..from + length {
        side.buffer[place] = byte(seed, place - from);
    }
}

pub(crate) fn holds(side: &Side, from: usize, length: usize, seed: usize) -> bool {
    (from..from + length).all(|place| side.buffer[place] == byte(seed, place - from))
}

/// This is not a test. It runs in the other process, which executes commands and prints their results.
#[test]
fn follow() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let role = env::var(ROLE).unwrap();
    let mut setup = setup(kind_of(&role));
    let mut side = Side::new(open(c"soft0"), setup);
    let (mut srq, mut shared) = (ptr::null_mut(), 0);
    match role.as_str() {
        "shared" => srq = side.share(setup),
        "xrc" => {
            setup.kind = ibv_qp_type::IBV_QPT_XRC_RECV;
            (_, srq, shared) = side.target(setup);
        }
        "ud" => side.ready_for_datagrams(),
        _ => {}
    }
    println!("{OUTPUT}{} {} {} {shared}", side.number(), side.rkey(), side.address());
    for line in io::stdin().lock().lines() {
        let line = line.unwrap();
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        if verb == "control" {
            rest.parse::<softrnic::control::Command>().unwrap().run().unwrap();
            println!("{OUTPUT}done");
            continue;
        }
        let numbers: Vec<usize> = rest.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let mut result = String::from("done");
        match (verb, &numbers[..]) {
            ("connect", &[peer]) => side.connect(peer as u32, setup),
            ("join" | "leave", &[last]) => join(&side, last as u8, verb == "join"),
            ("fill", &[from, length, seed]) => fill(&mut side, from, length, seed),
            ("holds", &[from, length, seed]) => result = holds(&side, from, length, seed).to_string(),
            ("receive", &[id, from, length]) if !srq.is_null() => {
                side.receive_shared(srq, id as u64, &mut [side.piece(from, length as u32)]);
            }
            ("receive", &[id, from, length]) => side.receive(id as u64, &mut [side.piece(from, length as u32)]),
            ("send", &[id, from, length]) => {
                side.send(ibv_wr_opcode::IBV_WR_SEND, id as u64, &mut [side.piece(from, length as u32)], |_| {});
            }
            ("datagram", &[number, from, length]) => {
                let handle = side.address_handle(side.gid());
                side.send_datagram(handle, number as u32, 0, &mut [side.piece(from, length as u32)]);
                side.done(0);
                // SAFETY: the request that refers to the handle has completed.
                assert_eq!(unsafe { ibv_destroy_ah(handle) }, 0);
            }
            // This command echoes messages of this length.
            ("echo", &[count, length]) => {
                for _ in 0..count {
                    while side.wait().wr_id != ECHO {}
                    let piece = &mut [side.piece(0, length as u32)];
                    side.receive(ECHO, piece);
                    side.send(ibv_wr_opcode::IBV_WR_SEND, 0, piece, |_| {});
                }
            }
            ("wait" | "sleep", &[]) => {
                let wc = if verb == "wait" { side.wait() } else { side.sleep() };
                result = format!("{} {} {} {}", wc.wr_id, wc.status.0, wc.byte_len, wc.opcode.0);
            }
            _ => panic!("unknown command {line}"),
        }
        println!("{OUTPUT}{result}");
    }
}

/// Another process with a QP.
pub(crate) struct Other {
    child: Child,
    send_command: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    pub(crate) number: u32,
    pub(crate) rkey: u32,
    pub(crate) address: u64,
    /// The number of the SRQ of the other process, if the service is XRC.
    pub(crate) shared: u32,
}

impl Other {
    pub(crate) fn start(kind: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "other_process::follow", "--nocapture"])
            .env(ROLE, kind)
            .env(OWNER, std::process::id().to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (send_command, output) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        let mut other = Self { child, send_command, output, number: 0, rkey: 0, address: 0, shared: 0 };
        let result = other.read_result();
        let numbers: Vec<u64> = result.split(' ').map(|number| number.parse().unwrap()).collect();
        (other.number, other.rkey, other.address) = (numbers[0] as u32, numbers[1] as u32, numbers[2]);
        other.shared = numbers[3] as u32;
        other
    }

    pub(crate) fn read_result(&mut self) -> String {
        loop {
            let line = self.output.next().expect("the process has ended").unwrap();
            if let Some((_, result)) = line.split_once(OUTPUT) {
                return result.to_owned();
            }
        }
    }

    pub(crate) fn send_command(&mut self, what: &str) {
        writeln!(self.send_command, "{what}").unwrap();
    }

    /// Executes a command, and returns its result.
    pub(crate) fn execute(&mut self, what: &str) -> String {
        self.send_command(what);
        self.read_result()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn rdma(&self, offset: usize) -> ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
        ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: self.address + offset as u64, rkey: self.rkey }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects a QP of this process to a QP of another process.
pub(crate) fn connected(kind: &str) -> (Side, Other) {
    let mut other = Other::start(kind);
    let setup = setup(kind_of(kind));
    let side = Side::new(open(c"soft0"), setup);
    side.connect(other.number, setup);
    assert_eq!(other.execute(&format!("connect {}", side.number())), "done");
    (side, other)
}

pub(crate) fn close(side: Side) {
    let context = side.context;
    side.close();
    // SAFETY: the device has no objects left.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}
