//! Tests with another process. It is this test program, which is started again to run one test with a task.

use std::env;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering;

use super::{End, gid, packet, route, until};
use crate::net::roce::packet::Packet;
use crate::net::roce::socket::arrival::{Arrival, Receiver};
use crate::net::roce::socket::{Owner, Sockets};
use crate::wire::packet::BLOCK;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

const TASK: &str = "SOFTRNIC_TEST_TASK";

/// Another process, which ends when this value is dropped.
struct Other {
    child: Child,
    _input: ChildStdin,
}

impl Drop for Other {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Starts a process that owns block 2, and replies to its packets.
fn start(port: u16) -> Other {
    let mut command = Command::new(env::current_exe().unwrap());
    let name = "net::roce::socket::tests::processes::owner_of_block_2";
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env(TASK, port.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The child prints this when it owns the block.
    let (mut output, mut text) = (child.stdout.take().unwrap(), Vec::new());
    while !text.ends_with(b"ready") {
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    let input = child.stdin.take().unwrap();
    Other { child, _input: input }
}

/// This is not a test. It runs in the other process.
#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn owner_of_block_2() {
    let Some(port) = env::var(TASK).ok().and_then(|port| port.parse().ok()) else { return };
    let sockets = Sockets::open_at(port).unwrap();
    sockets.own(2).unwrap();
    print!("ready");
    std::io::stdout().flush().unwrap();
    // This process waits for packets until the one that started it ends.
    let input = std::thread::spawn(|| std::io::stdin().read(&mut [0]));
    let mut receiver = Receiver::new();
    let mut batch = sockets.batch(&route("127.0.0.1", "127.0.0.1"));
    while !input.is_finished() {
        sockets
            .receive_each(&mut receiver, |arrival| {
                serve(&sockets, &arrival, 2, |packet, payload| {
                    batch.restart(&sockets.header(&route("127.0.0.2", "127.0.0.1")));
                    batch.add(&Packet { destination: BLOCK + 1, ..packet }, payload).unwrap();
                    sockets.send(&mut batch).unwrap();
                })
            })
            .unwrap();
        std::thread::yield_now();
    }
}

/// Forwards a packet of another block, and passes one of this block to `handle`.
fn serve(sockets: &Sockets, arrival: &Arrival<'_>, block: u32, handle: impl FnOnce(Packet, &[u8])) {
    if arrival.queue_pair() / BLOCK == block {
        let (packet, payload) = Packet::read(arrival.bytes).unwrap();
        handle(packet, payload);
    } else {
        sockets.forward(arrival);
    }
}

#[test]
#[cfg_attr(miri, ignore = "creates processes")]
fn packets_reach_the_process_that_owns_their_block() {
    let mut here = End::open();
    here.sockets.own(1).unwrap();
    let other = start(here.port.number());
    assert_eq!(here.sockets.own(2), Err(Errno::ADDRINUSE));
    // The kernel selects one of the two processes by the addresses. With these, each process receives some.
    for last in 1..=32_u32 {
        let mut batch = here.sockets.batch(&route(&format!("127.0.1.{last}"), "127.0.0.1"));
        batch.add(&Packet { destination: 2 * BLOCK + last, ..packet(last) }, &last.to_ne_bytes()).unwrap();
        here.sockets.send(&mut batch).unwrap();
        let mut seen = Vec::new();
        until(|| {
            let sockets = &here.sockets;
            let handle = |packet: Packet, payload: &[u8]| seen.push((packet.psn, packet.destination, payload.to_vec()));
            let mut handle = Some(handle);
            sockets
                .receive_each(&mut here.receiver, |arrival| {
                    serve(sockets, &arrival, 1, |packet, payload| {
                        assert_eq!((arrival.source, arrival.destination), (gid("127.0.0.2"), gid("127.0.0.1")));
                        handle.take().unwrap()(packet, payload);
                    });
                })
                .unwrap();
            !seen.is_empty()
        });
        assert_eq!(seen, [(last, BLOCK + 1, last.to_ne_bytes().to_vec())]);
    }
    assert_eq!(here.sockets.dropped().not_forwarded.load(Ordering::Relaxed), 0);
    drop(other);
    // The block is free again, and packets for it are dropped.
    let mut bytes = Vec::new();
    Packet { destination: 2 * BLOCK, ..packet(0) }.write(b"lost", &mut bytes);
    let (source, destination) = (gid("127.0.0.1"), gid("127.0.0.1"));
    let lost = Arrival { source, destination, source_port: 1, traffic_class: 0, bytes: &bytes };
    here.sockets.forward(&lost);
    assert_eq!(here.sockets.dropped().not_forwarded.load(Ordering::Relaxed), 1);
    // A new owner is found.
    let new = Sockets::open_at(here.port.number()).unwrap();
    new.own(2).unwrap();
    here.sockets.forward(&lost);
    let mut count = 0;
    assert_eq!(
        new.receive_each(&mut here.receiver, |arrival| {
            assert_eq!(arrival, lost);
            count += 1;
        }),
        Ok(1)
    );
    assert_eq!(count, 1);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn listeners_of_one_service_have_names() {
    let (mut here, bytes) = (End::open(), bytes_for(1));
    let arrival = arrival(&bytes);
    let other = Sockets::open_at(here.port.number()).unwrap();
    here.sockets.own_service("1067471/10.0.0.1").unwrap();
    assert_eq!(other.own_service("1067471/10.0.0.1"), Err(Errno::ADDRINUSE));
    other.own_service("1067471/10.0.0.2").unwrap();
    let mut receive = |sockets: &Sockets| sockets.receive_each(&mut here.receiver, |seen| assert_eq!(seen, arrival));
    for (name, expected) in [("10.0.0.1", [1, 0]), ("10.0.0.2", [0, 1])] {
        let name = format!("1067471/{name}");
        here.sockets.forward_to(Owner::Service(&name), &arrival).unwrap();
        assert_eq!([receive(&here.sockets), receive(&other)], expected.map(Ok), "{name}");
    }
    here.sockets.disown_service("1067471/10.0.0.1");
    let gone = other.forward_to(Owner::Service("1067471/10.0.0.1"), &arrival);
    assert_eq!(gone, Err(Errno::CONNREFUSED));
    other.own_service("1067471/10.0.0.1").unwrap();
}

/// The bytes of a packet for a block.
fn bytes_for(block: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Packet { destination: block * BLOCK, ..packet(0) }.write(&[0; 16], &mut bytes);
    bytes
}

fn arrival(bytes: &[u8]) -> Arrival<'_> {
    Arrival { source: gid("::1"), destination: gid("::1"), source_port: 1, traffic_class: 7, bytes }
}

/// The thread of softrnic would use a whole processor.
#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn connection_without_a_descriptor_waits_and_is_not_ready() {
    const NAME: &str = "net::roce::socket::tests::processes::connection_without_a_descriptor_waits_and_is_not_ready";
    if env::var(TASK).is_err() {
        // The limit applies to a whole process.
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", NAME, "--test-threads=1"]).env(TASK, "limit");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let (mut end, bytes) = (End::open(), bytes_for(4));
    end.sockets.own(4).unwrap();
    end.sockets.forward(&arrival(&bytes));
    let old = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(1), ..old }).unwrap();
    for _ in 0..2 {
        assert_eq!(end.sockets.receive_each(&mut end.receiver, |seen| panic!("{seen:?}")), Ok(0));
        for descriptor in end.sockets.descriptors() {
            let mut poll = [PollFd::new(descriptor, PollFlags::IN)];
            assert_eq!(rustix::event::poll(&mut poll, Some(&Timespec::default())), Ok(0));
        }
    }
    assert_eq!(end.sockets.own(5), Err(Errno::MFILE));
    rustix::process::setrlimit(Resource::Nofile, old).unwrap();
    end.sockets.own(5).unwrap();
    let received = end.sockets.receive_each(&mut end.receiver, |seen| assert_eq!(seen, arrival(&bytes)));
    assert_eq!(received, Ok(1));
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn packet_is_dropped_if_the_owner_does_not_receive() {
    let mut end = End::open();
    end.sockets.own(3).unwrap();
    let mut bytes = Vec::new();
    Packet { destination: 3 * BLOCK, ..packet(0) }.write(&[0; 4096], &mut bytes);
    let (source, destination) = (gid("::1"), gid("::1"));
    let arrival = Arrival { source, destination, source_port: 1, traffic_class: 7, bytes: &bytes };
    let dropped = || end.sockets.dropped().not_forwarded.load(Ordering::Relaxed);
    let sent = (0..100_000)
        .take_while(|_| {
            end.sockets.forward(&arrival);
            dropped() == 0
        })
        .count();
    // net.unix.max_dgram_qlen does not limit the queue.
    assert!(sent > 16 && dropped() == 1, "{sent}");
    let mut count = 0;
    until(|| {
        end.sockets
            .receive_each(&mut end.receiver, |seen| {
                assert_eq!(seen, arrival);
                count += 1;
            })
            .unwrap();
        count == sent
    });
    // The callback of a receiver may forward. One call receives at most 64 packets of a connection.
    end.sockets.forward(&arrival);
    let again = |seen: Arrival<'_>| end.sockets.forward(&seen);
    assert_eq!(end.sockets.receive_each(&mut end.receiver, again), Ok(64));
}
