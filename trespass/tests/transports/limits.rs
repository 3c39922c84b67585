//! A process that is short of memory refuses what is new, keeps what stands, and continues when it has memory again.

use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::{device, try_worker, worker};
use crate::processes::transport_of;
use trespass::{Acceptor, Connection, Handle, Transport};

const LONG: Duration = Duration::from_secs(60);
/// The transport of the test `child` in a child process, because the limits apply to the process.
const CHILD: &str = "TRESPASS_TEST_LIMITS";
/// How much more address space than it has the test `narrow_child` may use, in KiB.
const NARROW: &str = "TRESPASS_TEST_NARROW";
/// How much more address space than it has the process may use.
const MORE: u64 = 40 << 20;

/// A connection within this process.
struct Pair {
    near: Connection,
    far: Connection,
}

impl Pair {
    fn new(client: &Handle, acceptor: &Acceptor) -> io::Result<Pair> {
        let near = Connection::connect_on(client, acceptor.local_addr(), Some(LONG))?;
        let far = acceptor.accept_until(Some(Instant::now() + LONG))?;
        Ok(Pair { near, far })
    }

    fn echo(&self, message: &[u8]) -> io::Result<()> {
        self.near.send(message)?;
        let received = self.far.recv_until(Some(Instant::now() + LONG))?.unwrap();
        assert_eq!(received.len(), message.len());
        self.far.send(&received)?;
        assert_eq!(self.near.recv_until(Some(Instant::now() + LONG))?.unwrap().len(), message.len());
        Ok(())
    }
}

fn limit_address_space(more: u64) -> Rlimit {
    let before = getrlimit(Resource::As);
    let pages: u64 = fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    setrlimit(Resource::As, Rlimit { current: Some(pages * 4096 + more), maximum: before.maximum }).unwrap();
    before
}

/// Allocates memory until less than 1 MiB is left.
fn fill() -> Vec<Vec<u8>> {
    let mut filling = Vec::with_capacity(1_000);
    loop {
        let mut part = Vec::new();
        if part.try_reserve_exact(1 << 20).is_err() {
            return filling;
        }
        filling.push(part);
    }
}

/// Makes new ones until one is refused, and returns them with the error.
fn until_refused<T>(most: usize, mut make: impl FnMut() -> io::Result<T>) -> (Vec<T>, Option<io::Error>) {
    let mut made = Vec::with_capacity(most);
    while made.len() < most {
        match make() {
            Ok(one) => made.push(one),
            Err(error) => return (made, Some(error)),
        }
    }
    (made, None)
}

/// Runs in the child process.
#[test]
fn child() {
    let Some(transport) = transport_of(CHILD) else { return };
    // softrnic needs no locked memory.
    let memlock = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(0), ..memlock }).unwrap();
    let (server, client) = (worker(transport), worker(transport));
    let acceptor = Acceptor::bind_on(&server, device()).unwrap();
    let established = Pair::new(&client, &acceptor).unwrap();
    let (other, third) = (Pair::new(&client, &acceptor).unwrap(), Pair::new(&client, &acceptor).unwrap());
    let message = vec![7; 32 << 20];
    for pair in [&established, &other, &third] {
        pair.echo(b"before").unwrap();
    }

    let new_worker = || try_worker(transport, LONG);

    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let running = threads();
    let before = limit_address_space(MORE);
    let (workers, refused) = until_refused(200, new_worker);
    println!("{} workers, then: {}", workers.len(), refused.as_ref().unwrap());
    assert_eq!(refused.unwrap().kind(), io::ErrorKind::OutOfMemory);
    established.echo(b"after workers").unwrap();
    drop(workers);
    // A worker returns its memory before its own thread ends, which takes time on a busy machine.
    let begun = Instant::now();
    while threads() > running {
        assert!(begun.elapsed() < LONG, "the threads of the workers do not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (pairs, refused) = until_refused(400, || Pair::new(&client, &acceptor));
    println!("{} connections, then: {refused:?}", pairs.len());
    established.echo(b"after connections").unwrap();
    let refused = other.echo(&message).unwrap_err();
    println!("a long message: {refused}");
    assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
    established.echo(b"after a long message").unwrap();
    if transport == Transport::Rdma {
        let refused = established.near.region(64 << 20).unwrap_err();
        println!("a region: {refused}");
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
    }
    (0..100).for_each(|_| established.echo(b"after all").unwrap());
    // What cannot be refused may take the last of the memory.
    let mut filling = fill();
    filling.pop();
    assert_eq!(established.near.alloc(200 << 10).len(), 200 << 10);
    // A message for which the receiver has no memory waits.
    drop(filling);
    let waiting = other.near.alloc(100_000);
    let mut filling = fill();
    filling.pop();
    other.near.send_buf(waiting).unwrap();
    let refused = other.far.recv_until(Some(Instant::now() + LONG)).unwrap_err();
    println!("a message: {refused}");
    assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
    established.echo(b"after a message").unwrap();
    drop(filling);
    assert_eq!(other.far.recv_until(Some(Instant::now() + LONG)).unwrap().unwrap().len(), 100_000);

    if transport == Transport::Tcp {
        // What arrives after the message waits too, so the connection ends if there is no memory for long.
        let waiting = third.near.alloc(250_000);
        let mut filling = fill();
        filling.pop();
        third.near.send_buf(waiting).unwrap();
        let ended = third.near.recv_until(Some(Instant::now() + LONG));
        drop(filling);
        println!("a message that waits for long: {ended:?}");
        assert!(!ended.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut));
        established.echo(b"after a connection has ended").unwrap();
    }

    setrlimit(Resource::As, before).unwrap();
    other.echo(&message).unwrap();
    drop(new_worker().unwrap());
    Pair::new(&client, &acceptor).unwrap().echo(b"new").unwrap();
    established.echo(&message).unwrap();
}

/// Runs in a child process.
#[test]
fn narrow_child() {
    let Ok(more) = std::env::var(NARROW) else { return };
    limit_address_space(more.parse::<u64>().unwrap() << 10);
    if let Ok(handle) = Handle::new(&trespass::Options::default()) {
        // The thread of the worker begins meanwhile.
        std::thread::sleep(Duration::from_millis(5));
        if let Ok((near, far)) = Connection::pair_on(&handle) {
            _ = near.send(b"a message").and_then(|()| far.recv_until(Some(Instant::now() + LONG)));
        }
    }
    // The end of the test's thread would need memory.
    std::process::exit(0);
}

/// Starts workers with different amounts of memory. None of them ends its process.
#[test]
fn worker_without_memory_for_its_thread_is_refused() {
    device();
    for more in (1_000..6_000).step_by(50) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["limits::narrow_child", "--exact", "--nocapture"]).env(NARROW, more.to_string());
        let ran = command.env("MALLOC_ARENA_MAX", "1").output().unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        // The child ends itself.
        let is_well = text.contains("running 1 test") && !text.contains("panicked");
        assert!(ran.status.success() && is_well, "{more} KiB: {}: {text}", ran.status);
    }
}

#[test]
fn process_without_memory_keeps_its_connections() {
    device();
    for (transport, devices) in [("Tcp", "soft0"), ("Rdma", "soft0"), ("Rdma", "softiw0")] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["limits::child", "--exact", "--nocapture"]).env(CHILD, transport);
        // A thread's own arena would reserve 64 MiB of address space. With a fixed threshold, `fill` frees what it drops.
        command.env("MALLOC_ARENA_MAX", "1").env("MALLOC_MMAP_THRESHOLD_", "131072");
        let ran = command.env("SOFTRNIC_DEVICES", devices).output().unwrap();
        let [text, printed] = [&ran.stderr, &ran.stdout].map(|bytes| String::from_utf8_lossy(bytes));
        println!("{transport} {devices}: {printed}");
        let is_well = ran.status.success() && printed.contains("1 passed");
        assert!(is_well, "{transport} {devices}: {}: {text}", ran.status);
    }
}
