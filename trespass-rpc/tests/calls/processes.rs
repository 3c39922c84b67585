//! Kills processes during calls, and checks that nothing hangs and that the calls of other processes do not fail.

use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use crate::bulk::{Kept, StoreClient, StoreServer};
use sideway_tests::process::{Lines, alone, end_with_parent};
use trespass::Transport;
use trespass_rpc::blocking::wait;
use trespass_rpc::{Attachment, Certainty, Channel, Endpoint, Error, Pool, Server, Serving, Stream, Target};
use trespass_rpc_ecosystem::{ADDRESS, LONG, Listed, Service, SumsClient, SumsServer, options, transport_of, within};

/// The variable with the role of the test `child` in a child process: a server, or the address of the server to which a
/// client connects. The second variable selects the transport.
const ROLE: &str = "TRESPASS_RPC_TEST_ROLE";
const TRANSPORT: &str = "TRESPASS_RPC_TEST_TRANSPORT";

/// Kills the process when dropped.
pub(crate) struct Process(Child);

impl Process {
    /// Starts the process, and returns its first line of output.
    pub(crate) fn start(role: &str, transport: Transport) -> (Self, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["processes::child", "--exact", "--nocapture"]);
        command.env(ROLE, role).env(TRANSPORT, format!("{transport:?}"));
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let text = Lines::of(process.stdout.take().unwrap()).after("ready: ");
        (Self(process), text)
    }
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn ready(text: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "\nready: {text}").unwrap();
    out.flush().unwrap();
}

async fn serve(endpoint: &Endpoint) -> Serving {
    let server = Server::new(SumsServer::new(Service::default())).and(StoreServer::new(Kept::default()));
    server.bind_on(endpoint, &ADDRESS).await.unwrap()
}

/// Returns the address of the other process.
#[test]
fn child() {
    let Some(transport) = transport_of(TRANSPORT) else { return };
    end_with_parent();
    let role = std::env::var(ROLE).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut options = options(transport);
        // What a peer has left behind returns soon, except this much in the pool.
        options.worker.linger = Duration::from_secs(1);
        options.watermark = 8 << 20;
        let endpoint = Endpoint::spawn(&options).unwrap();
        if role == "server" {
            let serving = serve(&endpoint).await;
            ready(&serving.local_addr().to_string());
            std::future::pending().await
        }
        let channel = Channel::connect_on(&endpoint, &role).await.unwrap();
        ready("");
        for kind in 0..2 * KINDS {
            let channel = channel.clone();
            tokio::spawn(async move {
                // The calls repeat until the process is killed.
                while call(&channel, kind % KINDS).await.is_ok() {}
            });
        }
        std::future::pending().await
    })
}

/// The number of kinds of [`call`].
const KINDS: usize = 7;

/// Makes a call of one kind: short, a stream to the server, an attachment, a stream from the server, both streams, a long
/// answer, a target.
async fn call(channel: &Channel, kind: usize) -> Result<(), Option<Certainty>> {
    fn certainty<E>(error: Error<E>) -> Option<Certainty> {
        error.rpc().map(|error| error.certainty)
    }
    let sums = SumsClient::new(channel.clone());
    let store = StoreClient::new(channel.clone());
    const LENGTH: usize = 200_000;
    match kind {
        0 => assert_eq!(sums.add(1, 2).await.map_err(certainty)?, 3),
        1 => assert_eq!(sums.sum(0, Listed(0..500)).await.map_err(certainty)?, 124_750),
        2 => {
            let (value, mark) = (Attachment::from(vec![7; LENGTH]), Attachment::from(&[5; 5][..]));
            assert_eq!(store.put(value, 5, mark).await.map_err(certainty)?, LENGTH as u64);
        }
        3 => {
            let mut items = sums.count(100, 20_000);
            for number in 0..100 {
                assert_eq!(items.next().await.unwrap().map_err(certainty)?.0, number);
            }
        }
        4 => {
            let mut items = sums.double(Listed(0..500));
            for number in 0..500 {
                assert_eq!(items.next().await.unwrap().map_err(certainty)?, 2 * number);
            }
        }
        5 => assert_eq!(sums.zeros(3 * LENGTH).await.map_err(certainty)?.len(), 3 * LENGTH),
        _ => {
            let value = (Attachment::from(vec![7; LENGTH]), Attachment::from(&[5; 5][..]));
            store.put(value.0, 5, value.1).await.map_err(certainty)?;
            let memory = channel.alloc(LENGTH).unwrap();
            let target = Target::of(&memory, 0..LENGTH).unwrap();
            assert_eq!(store.get(0, target).await.map_err(certainty)?, LENGTH as u64);
            assert!(memory.to_vec().unwrap() == vec![7; LENGTH]);
        }
    }
    Ok(())
}

/// The handlers of a connection read in turn, so that the memory of a few attachments suffices.
#[test]
fn long_attachments_of_many_calls_take_little_memory() {
    const LENGTH: usize = 32 << 20;
    for transport in [Transport::Rdma, Transport::Tcp] {
        let (server, address) = Process::start("server", transport);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let endpoint = Endpoint::spawn(&options(transport)).unwrap();
            let channel = Channel::connect_on(&endpoint, &address).await.unwrap();
            let memory = channel.alloc(LENGTH).unwrap();
            memory.write_at(0, &vec![7; LENGTH]).unwrap();
            let calls = (0..20).map(|_| {
                let (client, value) = (StoreClient::new(channel.clone()), Attachment::of(&memory, 0..LENGTH).unwrap());
                tokio::spawn(async move { client.put(value, 7, Attachment::from(&[7; 5][..])).await })
            });
            for call in calls.collect::<Vec<_>>() {
                assert_eq!(call.await.unwrap(), Ok(LENGTH as u64));
            }
        });
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak = peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10;
        assert!(peak < 8 * LENGTH, "{transport:?}: {} MiB of memory", peak >> 20);
    }
}

fn kills() -> u64 {
    std::env::var("TRESPASS_KILLS").map_or(6, |count| count.parse().unwrap())
}

/// Repeats calls on a connection of the same endpoint until `stop` is set. Each call must succeed.
fn neighbour(channel: &Channel, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<u64> {
    let (channel, stop) = (channel.clone(), Arc::clone(stop));
    tokio::spawn(async move {
        let mut calls = 0;
        while !stop.load(Ordering::SeqCst) {
            call(&channel, calls as usize % KINDS).await.unwrap();
            calls += 1;
        }
        calls
    })
}

fn on_each(test: impl AsyncFn(Transport)) {
    for transport in [Transport::Rdma, Transport::Tcp] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(transport));
    }
}

#[test]
fn killed_server_fails_its_calls_and_no_others() {
    on_each(async |transport| {
        let options = options(transport);
        let serving = serve(&Endpoint::thread(&options).unwrap()).await;
        let endpoint = Endpoint::spawn(&options).unwrap();
        let beside = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
        for round in 0..kills() {
            let (server, address) = Process::start("server", transport);
            let channel = Channel::connect_on(&endpoint, &address).await.unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let neighbour = neighbour(&beside, &stop);
            let calls: Vec<_> = (0..8)
                .map(|kind| {
                    let channel = channel.clone();
                    tokio::spawn(async move {
                        loop {
                            if let Err(certainty) = call(&channel, kind % KINDS).await {
                                return certainty;
                            }
                        }
                    })
                })
                .collect();
            tokio::time::sleep(Duration::from_millis(round * 7 % 40)).await;
            drop(server);
            for call in calls {
                let certainty = within(call).await.unwrap();
                // The handlers never return an error, so the call failed because the connection was lost. The certainty
                // must be that of a lost connection, also for attachments over TCP.
                assert!(matches!(certainty, Some(Certainty::Unknown | Certainty::NotSent)), "{certainty:?}");
            }
            let error = SumsClient::new(channel).ping().await.unwrap_err();
            assert_eq!(error.rpc().unwrap().certainty, Certainty::NotSent);
            stop.store(true, Ordering::SeqCst);
            assert!(within(neighbour).await.unwrap() > 0);
        }
        assert_eq!(serving.drain(LONG).await, 0);
    });
}

#[test]
fn killed_client_ends_its_handlers_and_no_others() {
    on_each(async |transport| {
        let options = options(transport);
        let serving = serve(&Endpoint::spawn(&options).unwrap()).await;
        let address = serving.local_addr().to_string();
        let beside = Channel::connect_on(&Endpoint::spawn(&options).unwrap(), &address).await.unwrap();
        for round in 0..kills() {
            let stop = Arc::new(AtomicBool::new(false));
            let neighbour = neighbour(&beside, &stop);
            let role = address.clone();
            // The process is started on another thread, because its client connects while this runtime serves.
            let starting = tokio::task::spawn_blocking(move || Process::start(&role, transport));
            let (client, _) = within(starting).await.unwrap();
            tokio::time::sleep(Duration::from_millis(round * 7 % 40)).await;
            drop(client);
            stop.store(true, Ordering::SeqCst);
            assert!(within(neighbour).await.unwrap() > 0);
        }
        drop(beside);
        // The connections of the killed clients have ended.
        assert_eq!(within(serving.drain(LONG)).await, 0);
    });
}

/// A child of a fork has no thread that drives its parent's connections, and another thread may have held a lock.
#[test]
fn child_of_a_fork_gets_errors_and_its_parent_loses_nothing() {
    // A thread that starts or ends holds a lock of std, which the threads of a child could then wait for without end.
    if !alone("processes::child_of_a_fork_gets_errors_and_its_parent_loses_nothing", &[]) {
        return;
    }
    on_each(async |transport| {
        let options = options(transport);
        let serving = serve(&Endpoint::thread(&options).unwrap()).await;
        let address = serving.local_addr().to_string();
        let endpoint = Endpoint::thread(&options).unwrap();
        let channel = Channel::connect_on(&endpoint, &address).await.unwrap();
        let pool = Pool::new(&endpoint, address.as_str());
        let (sums, pooled) = (SumsClient::new(channel.clone()), SumsClient::new(pool));
        pooled.ping().await.unwrap();
        let memory = channel.alloc(10_000).unwrap();
        let mut numbers = pin!(sums.count(1_000_000, 100));
        assert_eq!(poll_fn(|task| numbers.as_mut().poll_next(task)).await.unwrap().unwrap().0, 0);
        let mut answer = pin!(sums.wait(3_600_000));
        let is_pending = poll_fn(|task| Poll::Ready(answer.as_mut().poll(task).is_pending())).await;
        assert!(is_pending);
        for round in 0..forks() {
            // Threads hold the locks of the connection now and then.
            let busy = channel.clone();
            let (begun, has_begun) = mpsc::channel();
            let (forked, has_forked) = mpsc::channel();
            let neighbour = std::thread::spawn(move || {
                begun.send(()).unwrap();
                let is_well = (0..8).all(|kind| wait(call(&busy, kind % 2)).is_ok());
                is_well && has_forked.recv().is_ok()
            });
            has_begun.recv().unwrap();
            // SAFETY: the child calls only functions of this crate, which take no lock that a thread of the parent may
            // hold, and the allocator, which is usable after a fork.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: a plain system call. A child that hangs ends.
                unsafe { libc::alarm(60) };
                let tried = catch_unwind(AssertUnwindSafe(|| {
                    for kind in 0..3 {
                        assert_eq!(wait(call(&channel, kind)), Err(Some(Certainty::NotSent)));
                    }
                    let is_fork = |error: std::io::Error| {
                        assert_eq!(error.kind(), ErrorKind::Unsupported);
                        assert!(error.to_string().contains("fork"), "{error}");
                    };
                    assert!(wait(pooled.ping()).unwrap_err().rpc().unwrap().to_string().contains("fork"));
                    is_fork(wait(Channel::connect_on(&endpoint, &address)).map(drop).unwrap_err());
                    let server = Server::new(SumsServer::new(Service::default()));
                    is_fork(wait(server.bind_on(&endpoint, &ADDRESS)).map(drop).unwrap_err());
                    is_fork(channel.alloc(10_000).map(drop).unwrap_err());
                    is_fork(memory.read_at(0, &mut [0; 8]).unwrap_err());
                    assert!(!channel.is_open());
                    let next = wait(poll_fn(|task| numbers.as_mut().poll_next(task))).unwrap();
                    assert!(next.unwrap_err().rpc().unwrap().to_string().contains("fork"));
                    assert!(wait(answer.as_mut()).unwrap_err().rpc().unwrap().to_string().contains("fork"));
                    drop((channel.clone(), memory.clone()));
                    let own = Endpoint::thread(&trespass_rpc_ecosystem::options(Transport::Tcp)).unwrap();
                    let serving = wait(serve(&own));
                    let channel = wait(Channel::connect_on(&own, &serving.local_addr().to_string())).unwrap();
                    assert_eq!(wait(call(&channel, 0)), Ok(()));
                }));
                // SAFETY: a plain system call, without the parent's exit handlers.
                unsafe { libc::_exit(i32::from(tried.is_err())) };
            }
            forked.send(()).unwrap();
            call(&channel, round as usize % KINDS).await.unwrap();
            pooled.ping().await.unwrap();
            let mut status = 0;
            // SAFETY: the child is this process's own, and the status is written to the integer.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
            assert!(neighbour.join().unwrap());
        }
        assert!(poll_fn(|task| numbers.as_mut().poll_next(task)).await.unwrap().is_ok());
    });
}

fn forks() -> u64 {
    std::env::var("TRESPASS_FORKS").map_or(6, |count| count.parse().unwrap())
}
