//! Tests with another process. It is this test program, which is started again to run one test with a task.

use std::io::{BufRead, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{env, fs};

use super::{end, host, part, until};
use crate::ipc::{Peers, Processes};
use crate::sys::fork;
use crate::sys::fork::PerProcess;
use crate::sys::thread::Reactor;
use crate::wire::address::Gid;
use crate::wire::bytes::Segment;
use crate::wire::packet::{BLOCK, Packet, Part, Payload, Response, ResponseKind};
use crate::wire::transport::{Carrier, Deliver, Routes, Stuck, Transport};

/// The peers of this program and of its children.
static PEERS: PerProcess<Peers> = PerProcess::new(peers(), || Box::new(peers()));

const fn peers() -> Peers {
    Peers::new(&Echo, Reactor::of_process)
}

const TASK: &str = "SOFTRNIC_TEST_TASK";

/// Starts this program again to run one test with a task.
fn start(test: &str, task: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &format!("ipc::tests::processes::{test}"), "--nocapture", "--test-threads=1"]);
    command.env(TASK, task).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn task() -> Option<String> {
    env::var(TASK).ok()
}

/// Reads the block that another process prints.
fn block_of(child: &mut Child) -> u32 {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let line = lines.map(Result::unwrap).find_map(|line| line.split_once("block ").map(|(_, block)| block.to_owned()));
    line.unwrap().parse().unwrap()
}

/// Sends the data of each part back to the requester.
#[derive(Debug)]
struct Echo;

impl Deliver for Echo {
    fn part(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>) {
        let Part { number, length, attempt, offset, .. } = *part;
        let kind = ResponseKind::Data { offset, length };
        let response = Response { number: 7, source_number: number, psn: 1, attempt, kind };
        assert_eq!(back.put(&Packet::Response(response), Payload::Memory(payload)), Ok(()));
    }

    fn response(&self, _: &Response, _: &[Segment]) -> bool {
        true
    }
    fn is_settled(&self, _: u32) -> bool {
        true
    }
    fn lost(&self, _: &Arc<dyn Carrier>) {}
}

/// This is not a test. It runs in the other process.
#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn echo() {
    if task().as_deref() != Some("echo") {
        return;
    }
    let host = host(&Echo);
    println!("block {}", host.claim().unwrap());
    // This process waits until the one that started it ends or writes a byte.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
#[cfg_attr(miri, ignore = "creates processes")]
fn other_process_echoes_until_killed() {
    let mut child = start("echo", "echo");
    let block = block_of(&mut child);
    let here = end();
    here.host.claim().unwrap();
    let carrier = here.host.carrier(block * BLOCK + 5).unwrap();
    for round in 0..1000u32 {
        let bytes: Vec<u8> = (0..round * 17 % 16384).map(|index| (index * 7 + round) as u8).collect();
        let packet = Packet::Part(part(block * BLOCK + 5, bytes.len() as u32));
        carrier.put(&packet, Payload::Bytes(&bytes)).unwrap();
        // In some rounds this test polls and in others it sleeps, as programs do.
        until(|| {
            if round % 3 != 0 {
                here.host.progress();
            }
            !here.seen.responses.lock().unwrap().is_empty()
        });
        let (response, back) = here.seen.responses.lock().unwrap().remove(0);
        assert_eq!(response.source_number, block * BLOCK + 5);
        assert!(back == bytes);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    until(|| here.seen.lost.load(Ordering::SeqCst) == 1);
    let packet = Packet::Part(part(block * BLOCK + 5, 0));
    assert_eq!(carrier.put(&packet, Payload::Bytes(&[])), Err(Stuck::Lost));
    assert!(here.host.carrier(block * BLOCK + 5).is_none());
}

#[test]
#[cfg_attr(miri, ignore = "creates processes")]
fn limit_for_files_refuses_a_session() {
    const TEST: &str = "limit_for_files_refuses_a_session";
    let Some(block) = task() else {
        let mut other = start("echo", "echo");
        let status = start(TEST, &block_of(&mut other).to_string()).wait().unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(status.success(), "{status}");
        return;
    };
    let limit = rustix::process::Rlimit { current: Some(4096), maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    let here = end();
    here.host.claim().unwrap();
    assert!(here.host.carrier(block.parse::<u32>().unwrap() * BLOCK + 5).is_none());
}

/// Returns the number of context switches of all threads of softrnic.
fn switches() -> u64 {
    let mut all = 0;
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if fs::read_to_string(path.join("comm")).unwrap().trim() == "softrnic" {
            let status = fs::read_to_string(path.join("status")).unwrap();
            let lines = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
            all += lines.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum::<u64>();
        }
    }
    all
}

#[test]
#[cfg_attr(miri, ignore = "creates processes")]
fn idle_thread_sleeps() {
    // This part runs in a new process, which has no threads of other tests.
    if task().is_none() {
        let output = start("idle_thread_sleeps", "alone").wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let carrier = here.host.carrier(block * BLOCK).unwrap();
    carrier.put(&Packet::Part(part(block * BLOCK, 0)), Payload::Bytes(&[])).unwrap();
    until(|| there.seen.parts.lock().unwrap().len() == 1);
    for _ in 0..100_000 {
        here.host.progress();
    }
    // The thread continues its checks for a while after the last poll. On a busy machine this can take long.
    until(|| {
        let before = switches();
        std::thread::sleep(Duration::from_millis(300));
        before == switches()
    });
    assert_ne!(switches(), 0);
    carrier.put(&Packet::Part(part(block * BLOCK, 0)), Payload::Bytes(&[])).unwrap();
    until(|| there.seen.parts.lock().unwrap().len() == 2);
}

#[test]
#[cfg_attr(miri, ignore = "creates processes")]
fn child_starts_over_and_keeps_no_descriptor() {
    // This part runs in a new process, because threads of other tests might hold locks that the child needs.
    if task().is_none() {
        let test = "child_starts_over_and_keeps_no_descriptor";
        let output = start(test, "alone").wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let there = end();
    let block = there.host.claim().unwrap();
    let number = block * BLOCK;
    let host = Processes(&PEERS);
    fork::watch();
    let ours = host.claim().unwrap();
    host.joined(Gid([0xff; 16]));
    let carrier = host.carrier(number).unwrap();
    carrier.put(&Packet::Part(part(number, 0)), Payload::Bytes(&[])).unwrap();
    until(|| there.seen.parts.lock().unwrap().len() == 1);
    let sockets = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten().flat_map(|entry| fs::read_link(entry.path()));
        links
            .filter(|link| ["socket:", "anon_inode:"].iter().any(|kind| link.to_string_lossy().starts_with(kind)))
            .count()
    };
    let before = sockets();
    // SAFETY: the child calls only what glibc supports after a fork, and exits without running destructors of its
    // parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = catch_unwind(AssertUnwindSafe(|| {
            // The child has closed a listener and the descriptors of the thread for each end, both ends of a session,
            // and a group.
            assert_eq!(before - sockets(), 11);
            assert_eq!(carrier.put(&Packet::Part(part(number, 0)), Payload::Bytes(&[])), Err(Stuck::Lost));
            drop(carrier);
            // The child starts over with blocks of its own.
            let new = host.claim().unwrap();
            assert!(new != ours && new != block);
            let carrier = host.carrier(number).unwrap();
            assert_eq!(carrier.put(&Packet::Part(part(number, 0)), Payload::Bytes(&[])), Ok(()));
            host.progress();
        }));
        // SAFETY: `_exit` takes a number, and ends the child.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the child belongs to this process, and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    carrier.put(&Packet::Part(part(number, 0)), Payload::Bytes(&[])).unwrap();
    // This waits for the packet of the child and for the packet that was sent above.
    until(|| there.seen.parts.lock().unwrap().len() == 3);
    assert!(there.seen.lost.load(Ordering::SeqCst) <= 1, "only the child's session may end");
}
