//! Workers, connections and transfers leave nothing after them. `TRESPASS_WORKERS` is the number of workers.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{bytes, device, worker};
use crate::processes::transport_of;
use sideway_tests::usage::Usage;
use trespass::{Acceptor, Connection, Grant, Handle, RegionKey, Transport};

const LONG: Duration = Duration::from_secs(60);
/// The transport of the test `child` in a child process, because other tests use resources of this process.
const CHILD: &str = "TRESPASS_TEST_GROWTH";

/// How many mappings and how many KiB of resident memory this process may have more than before, apart from which nothing
/// may grow. A leak of a page or of a mapping by each worker or connection exceeds this.
const TOLERANCE: (usize, usize) = (8, 2 << 10);

/// A worker that connects twice, sends and receives messages, transfers regions, and ends.
fn visit(transport: Transport, acceptor: &Acceptor, number: usize) {
    let handle = worker(transport);
    for length in [100, 100_000] {
        let near = Connection::connect_on(&handle, acceptor.local_addr(), Some(LONG)).unwrap();
        let far = acceptor.accept_until(Some(Instant::now() + LONG)).unwrap();
        let message = bytes(length, number);
        near.send(&message).unwrap();
        assert!(far.recv_until(Some(Instant::now() + LONG)).unwrap().unwrap()[..] == message);
        far.send(&message).unwrap();
        assert!(near.recv_until(Some(Instant::now() + LONG)).unwrap().unwrap()[..] == message);
        if transport == Transport::Rdma {
            transfer(&near, &far);
        }
        // The handle may end before its last connection.
        match number % 3 {
            0 => near.close(0, "").unwrap(),
            1 => drop((far, near)),
            _ => near.abandon(7, "enough"),
        }
    }
}

/// Writes a region of the far side, and reads it again.
fn transfer(near: &Connection, far: &Connection) {
    let (from, to) = (near.region(64 << 10).unwrap(), far.region(64 << 10).unwrap());
    from.write_at(0, b"one-sided").unwrap();
    let grant = Grant::writable(far, &to, 0..64 << 10).unwrap();
    far.send(&grant.key().to_bytes()).unwrap();
    let key = RegionKey::from_bytes(&near.recv_until(Some(Instant::now() + LONG)).unwrap().unwrap()).unwrap();
    near.batch().put((&from, 0..64 << 10), (&key, 0)).notify(7).submit().unwrap().wait().unwrap();
    // Over iWARP, only the notification shows that the bytes have arrived.
    assert_eq!(far.recv_until(Some(Instant::now() + LONG)).unwrap().unwrap().notification(), Some(7));
    let mut read = [0; 9];
    to.read_at(0, &mut read).unwrap();
    assert_eq!(&read, b"one-sided");
    grant.revoke().unwrap();
}

fn usage() -> Usage {
    Usage::of("self")
}

/// Runs in the child process.
#[test]
fn child() {
    let Some(transport) = transport_of(CHILD) else { return };
    let count = std::env::var("TRESPASS_WORKERS").map_or(60, |count| count.parse().unwrap());
    let server: Handle = worker(transport);
    let acceptor = Acceptor::bind_on(&server, device()).unwrap();
    // The first workers allocate what stays.
    (0..20).for_each(|number| visit(transport, &acceptor, number));
    let settle = || thread::sleep(Duration::from_millis(500));
    settle();
    let mut before = usage();
    // softrnic numbers queue pairs in blocks of 4,096, each with a socket. It uses a number again only after four blocks,
    // the first of which is in use already.
    if transport == Transport::Rdma {
        before.descriptors += 3;
    }
    (0..count).for_each(|number| visit(transport, &acceptor, number));
    let begun = Instant::now();
    while !usage().is_back(&before, TOLERANCE.0, TOLERANCE.1) {
        assert!(begun.elapsed() < LONG, "{:?} after {count} workers, {before:?} before", usage());
        settle();
    }
    println!("{:?} after {count} workers, {before:?} before", usage());
}

#[test]
fn workers_connections_and_transfers_leave_nothing() {
    device();
    for (transport, devices) in [("Tcp", "soft0"), ("Rdma", "soft0"), ("Rdma", "softiw0")] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["growth::child", "--exact", "--nocapture"]).env(CHILD, transport);
        // With one arena, the allocator's memory does not depend on which threads allocate.
        let ran = command.env("SOFTRNIC_DEVICES", devices).env("MALLOC_ARENA_MAX", "1").output().unwrap();
        let text = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{transport} {devices}: {}: {text}", ran.status);
        println!("{transport} {devices}: {}", String::from_utf8_lossy(&ran.stdout));
    }
}
