//! Connections between two processes, one of which is killed.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{bytes, device, on_both, pair, worker};
use sideway_tests::requirements::may_not_run;
use tokio::io::AsyncWriteExt;
use trespass::{Acceptor, Connection, Grant, Handle, Kind, Options, RegionKey, Transport};

/// A time limit that only a hung operation reaches.
const LONG: Duration = Duration::from_secs(60);
/// If set, the test `child` is a server that uses this transport.
const TRANSPORT: &str = "TRESPASS_TEST_TRANSPORT";

/// If set, the test `hasty_child` is a client: the transport, and the server's address.
const HASTY: &str = "TRESPASS_TEST_HASTY";

/// A server process, which is killed when this value is dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(transport: Transport) -> Self {
        Self::started(Command::new(std::env::current_exe().unwrap()), transport)
    }

    /// Starts the server with a command that runs this program.
    fn started(mut command: Command, transport: Transport) -> Self {
        command.args(["processes::child", "--exact", "--nocapture"]).env(TRANSPORT, format!("{transport:?}"));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("listens at ")?.1.to_owned()));
        Self { process, address: address.unwrap() }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have been killed already.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// The transport that a variable names for a child process; `None` if it is not set.
pub(crate) fn transport_of(variable: &str) -> Option<Transport> {
    match std::env::var(variable).ok()?.as_str() {
        "Rdma" => Some(Transport::Rdma),
        "Tcp" => Some(Transport::Tcp),
        "Any" => Some(Transport::Any),
        other => panic!("{variable}={other} names no transport"),
    }
}

/// Runs in the child process: echoes messages.
#[test]
fn child() {
    let Some(transport) = transport_of(TRANSPORT) else { return };
    let acceptor = Acceptor::bind_on(&worker(transport), device()).unwrap();
    let mut out = io::stdout();
    writeln!(out, "\nlistens at {}", acceptor.local_addr()).unwrap();
    out.flush().unwrap();
    let connection = acceptor.accept().unwrap();
    while let Some(message) = connection.recv().unwrap() {
        connection.send(&message).unwrap();
    }
}

/// Writes a stream of tokio, sends messages, or submits a batch, and ends its process at once.
#[test]
fn hasty_child() {
    let Ok(job) = std::env::var(HASTY) else { return };
    let (transport, address) = job.split_once(' ').unwrap();
    let transport = if transport.contains("Rdma") { Transport::Rdma } else { Transport::Tcp };
    let (worker, data) = (worker(transport), bytes(2 << 20, 9));
    if let Some(address) = address.strip_prefix('+') {
        // Nothing but the end of the process asks whether a short message has arrived.
        let mut options = Options::default();
        (options.transport, options.keepalive, options.linger) = (transport, Duration::ZERO, Duration::MAX);
        let connection = Connection::connect_on(&Handle::new(&options).unwrap(), address, Some(LONG)).unwrap();
        if let Ok(region) = connection.region(64) {
            Grant::readable(&connection, &region, 0..64).unwrap().revoke().unwrap();
        }
        connection.send(b"short").unwrap();
        std::process::exit(0);
    }
    if let Some(address) = address.strip_prefix('-') {
        let connection = Connection::connect_on(&worker, address, Some(LONG)).unwrap();
        data.chunks(100_000).for_each(|message| connection.send(message).unwrap());
        std::process::exit(0);
    }
    if let Some(address) = address.strip_prefix('*') {
        let connection = Connection::connect_on(&worker, address, Some(LONG)).unwrap();
        let key = RegionKey::from_bytes(&connection.recv().unwrap().unwrap()).unwrap();
        let region = connection.region(data.len()).unwrap();
        region.write_at(0, &data).unwrap();
        let mut batch = connection.batch();
        for at in (0..data.len()).step_by(64) {
            batch = batch.put((&region, at..at + 64), (&key, at as u64));
        }
        // The drop of the connection would wait for them.
        std::mem::forget(batch.submit().unwrap());
        std::process::exit(0);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut stream = trespass::tokio::Stream::connect_on(&worker, address).await.unwrap();
        stream.write_all(&data).await.unwrap();
    });
}

#[test]
fn end_of_the_process_sends_what_was_accepted() {
    on_both(|transport| {
        let server = worker(transport);
        // The worker of the child has as many messages as it accepts when the child ends.
        for sign in ["", "-"] {
            let acceptor = Acceptor::bind_on(&server, device()).unwrap();
            let mut child = hasty(transport, sign, &acceptor);
            let connection = acceptor.accept_until(Some(Instant::now() + LONG)).unwrap();
            let mut received = Vec::new();
            while received.len() < 2 << 20 {
                let message = connection.recv_until(Some(Instant::now() + LONG));
                received.extend_from_slice(&message.unwrap().expect("the end, before everything arrived"));
            }
            assert!(received == bytes(2 << 20, 9));
            let end = connection.recv_until(Some(Instant::now() + LONG)).map(|message| message.is_some());
            let is_right = if sign.is_empty() { matches!(end, Ok(false)) } else { end.is_err() };
            assert!(is_right, "{transport:?} {sign}: {end:?}");
            assert!(child.wait().unwrap().success());
        }
    });
}

#[test]
fn process_ends_when_its_last_short_message_has_arrived() {
    on_both(|transport| {
        let acceptor = Acceptor::bind_on(&worker(transport), device()).unwrap();
        let mut child = hasty(transport, "+", &acceptor);
        let connection = acceptor.accept_until(Some(Instant::now() + LONG)).unwrap();
        assert_eq!(connection.recv_until(Some(Instant::now() + LONG)).unwrap().as_deref(), Some(&b"short"[..]));
        let limit = Instant::now() + LONG;
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < limit, "the process does not end");
            thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn end_of_the_process_completes_its_batches() {
    let acceptor = Acceptor::bind_on(&worker(Transport::Rdma), device()).unwrap();
    let mut child = hasty(Transport::Rdma, "*", &acceptor);
    let connection = acceptor.accept_until(Some(Instant::now() + LONG)).unwrap();
    let region = connection.region(2 << 20).unwrap();
    let grant = Grant::writable(&connection, &region, 0..2 << 20).unwrap();
    connection.send(&grant.key().to_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let mut received = vec![0; 2 << 20];
    region.read_at(0, &mut received).unwrap();
    assert!(received == bytes(2 << 20, 9));
}

fn hasty(transport: Transport, sign: &str, acceptor: &Acceptor) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["processes::hasty_child", "--exact", "--nocapture"]);
    child.env(HASTY, format!("{transport:?} {sign}{}", acceptor.local_addr()));
    child.stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn idle_peer_that_is_killed_resets_the_connection() {
    on_both(|transport| {
        let mut server = Server::start(transport);
        let client = worker(transport);
        let connection = Connection::connect_on(&client, server.address.as_str(), Some(LONG)).unwrap();
        for length in [1, 100, 100_000] {
            connection.send(&bytes(length, length)).unwrap();
            assert!(connection.recv().unwrap().unwrap()[..] == bytes(length, length));
        }
        server.kill();
        let received = connection.recv_until(Some(Instant::now() + LONG)).map(drop);
        assert_eq!(received.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
        assert_eq!(connection.send(b"x").map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    });
}

#[test]
fn peer_killed_while_sending_resets_and_the_worker_continues() {
    on_both(|transport| {
        let client = worker(transport);
        // If each kill leaked buffers, many kills would use up the worker's 64 MiB of buffers.
        let kills = std::env::var("TRESPASS_KILLS").map_or(6, |count| count.parse().unwrap());
        for round in 0..kills {
            let mut server = Server::start(transport);
            let connection = Connection::connect_on(&client, server.address.as_str(), Some(LONG)).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0.. {
                        if connection.send(&bytes(1 + (number * 7_919) % 60_000, number)).is_err() {
                            break;
                        }
                    }
                });
                let kill = if round < 6 { 10 << round } else { round * 7_919 % 400 };
                for number in 0.. {
                    if number == kill {
                        server.kill();
                    }
                    match connection.recv_until(Some(Instant::now() + LONG)) {
                        Ok(Some(message)) => {
                            assert!(message[..] == bytes(1 + (number * 7_919) % 60_000, number), "message {number}")
                        }
                        Ok(None) => panic!("received an end that the peer did not send"),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                            break;
                        }
                    }
                }
            });
        }
    });
}

/// softrnic's shared memory connects processes of one user, so those of two users connect over TCP.
#[test]
fn process_of_another_user_is_reached_over_tcp() {
    const OTHER: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("setpriv");
    command.args(OTHER).arg(&program);
    // This needs root, and a folder that other users may read.
    let runs = |command: &mut Command| command.output().is_ok_and(|ran| ran.status.success());
    if device() != "127.0.0.1:0" || !runs(Command::new("setpriv").args(OTHER).arg(&program).arg("--list")) {
        may_not_run("no other user here");
        return;
    }
    let server = Server::started(command, Transport::Any);
    let connect = |transport| Connection::connect_on(&worker(transport), server.address.as_str(), Some(LONG));
    let error = connect(Transport::Rdma).map(drop).unwrap_err();
    assert!(error.to_string().contains("the peer does not have that GID"), "{error}");
    let connection = connect(Transport::Any).unwrap();
    assert_eq!(connection.stats().unwrap().transport, Kind::Tcp);
    connection.send(b"across users").unwrap();
    assert_eq!(&connection.recv().unwrap().unwrap()[..], b"across users");
}

/// A child shares the descriptors of its parent. It must not take what its parent waits for.
#[test]
fn child_of_a_fork_uses_only_its_own_workers() {
    const MESSAGES: u32 = 20;
    // A thread that starts or ends holds a lock of std, which the threads of a child could then wait for without end.
    if !sideway_tests::process::alone("processes::child_of_a_fork_uses_only_its_own_workers", &[]) {
        return;
    }
    on_both(|transport| {
        let (server, client) = pair(transport);
        // SAFETY: the child calls only functions of this crate, which take no lock that a thread of the parent may hold,
        // and the allocator, which is usable after a fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let inherited = server.try_recv().map(drop).unwrap_err();
            let is_refused = inherited.kind() == ErrorKind::Unsupported && inherited.to_string().contains("fork");
            drop((server, client));
            let own = worker(Transport::Tcp);
            let acceptor = Acceptor::bind_on(&own, "127.0.0.1:0").unwrap();
            let near = Connection::connect_on(&own, acceptor.local_addr(), Some(LONG)).unwrap();
            let far = acceptor.accept().unwrap();
            near.send(b"child").unwrap();
            let is_received = &far.recv().unwrap().unwrap()[..] == b"child";
            thread::sleep(Duration::from_millis(300));
            // SAFETY: a plain system call, without the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!(is_refused && is_received))) };
        }
        for number in 0..MESSAGES {
            client.send(&number.to_le_bytes()).unwrap();
            assert_eq!(server.recv().unwrap().unwrap()[..], number.to_le_bytes());
            thread::sleep(Duration::from_millis(10));
        }
        let mut status = 0;
        // SAFETY: the child is this process's own, and the status is written to the integer.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    });
}

/// A child of a process that forks while the tasks of a runtime exchange messages.
#[test]
fn futures_of_a_forked_child_fail_and_tasks_of_its_parent_go_on() {
    const FORKS: u32 = 20;
    if !sideway_tests::process::alone("processes::futures_of_a_forked_child_fail_and_tasks_of_its_parent_go_on", &[]) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    on_both(|transport| {
        let handle = worker(transport);
        let (near, far) = Connection::pair_on(&handle).unwrap();
        let (near, far) = (Arc::new(trespass::tokio::Connection::from(near)), trespass::tokio::Connection::from(far));
        runtime.spawn(async move {
            while let Some(message) = far.recv().await.unwrap() {
                far.send_buf(message).await.unwrap();
            }
        });
        let (echoed, echoes) = mpsc::channel();
        let echoing = Arc::clone(&near);
        runtime.spawn(async move {
            for number in 0_u64.. {
                echoing.send(&number.to_le_bytes()).await.unwrap();
                assert_eq!(echoing.recv().await.unwrap().unwrap()[..], number.to_le_bytes());
                if echoed.send(()).is_err() {
                    return;
                }
            }
        });
        for _ in 0..FORKS {
            // SAFETY: as in the test above.
            let child = unsafe { libc::fork() };
            if child == 0 {
                fn is_refused<T>(future: impl Future<Output = io::Result<T>>) -> bool {
                    let polled = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
                    matches!(polled, Poll::Ready(Err(error)) if error.to_string().contains("fork"))
                }
                let is_well = is_refused(near.recv()) && is_refused(near.send(b"child")) && is_refused(near.flush());
                // SAFETY: a plain system call, without the parent's exit handlers.
                unsafe { libc::_exit(i32::from(!is_well)) };
            }
            let mut status = 0;
            // SAFETY: the child is this process's own, and the status is written to the integer.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
            echoes.try_iter().for_each(drop);
            (0..3).for_each(|_| echoes.recv_timeout(LONG).unwrap());
        }
    });
}
