//! Tests handlers that block their threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::{Builder, Runtime};
use trespass_rpc::{Channel, Endpoint, Error, Handler, Options, Server, Serving, Status};
use trespass_rpc_ecosystem::{ADDRESS, LONG, Service, SumsClient, SumsServer, on_both};

#[trespass_rpc::service(name = "test.Blocking")]
trait Blocking {
    /// Blocks its thread until the gate is open.
    async fn block(&self) -> Result<(), ()>;
}

#[derive(Default)]
struct Gate {
    /// How many handlers have begun, and how many of these may go on.
    begun_and_open: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Blocking for Arc<Gate> {
    async fn block(&self) -> Result<(), ()> {
        let mut state = self.begun_and_open.lock().unwrap();
        state.0 += 1;
        let number = state.0;
        drop(self.changed.wait_while(state, |(_, open)| *open < number).unwrap());
        Ok(())
    }
}

impl Gate {
    /// Waits until this number of handlers has begun.
    async fn begun(&self, count: usize) {
        while self.begun_and_open.lock().unwrap().0 < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn open(&self, count: usize) {
        self.begun_and_open.lock().unwrap().1 = count;
        self.changed.notify_all();
    }
}

/// The threads of a server, which runs beside the test.
enum Runs {
    /// The driver has a thread of its own.
    Alone,
    /// The driver is a task of a runtime.
    In(Runtime),
}

impl Runs {
    fn all() -> [Self; 3] {
        let one = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let two = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        [Self::Alone, Self::In(one.unwrap()), Self::In(two.unwrap())]
    }

    async fn serve(&self, options: &Options, gate: &Arc<Gate>) -> Serving {
        let server = Server::new(BlockingServer::new(Arc::clone(gate))).and(SumsServer::new(Service::default()));
        self.bind(options, server).await
    }

    async fn bind(&self, options: &Options, server: Server<impl Handler>) -> Serving {
        let endpoint = match self {
            Self::Alone => Endpoint::thread(options),
            Self::In(runtime) => {
                let _inside = runtime.enter();
                Endpoint::spawn(options)
            }
        };
        server.bind_on(&endpoint.unwrap(), &ADDRESS).await.unwrap()
    }
}

async fn connect(options: &Options, serving: &Serving) -> (BlockingClient<Channel>, SumsClient) {
    let (endpoint, address) = (Endpoint::spawn(options).unwrap(), serving.local_addr().to_string());
    let channel = Channel::connect_on(&endpoint, &address).await.unwrap();
    (BlockingClient::new(channel.clone()), SumsClient::over(channel).unwrap())
}

#[test]
fn blocked_handlers_stop_no_other_call() {
    on_both(|mut options| async move {
        // A peer that is silent for three times as long is dead.
        options.limits.keepalive = Duration::from_millis(200);
        for runs in Runs::all() {
            let gate = Arc::new(Gate::default());
            let serving = runs.serve(&options, &gate).await;
            let (blocking, beside) = connect(&options, &serving).await;
            let (_, elsewhere) = connect(&options, &serving).await;
            let mut blocked = vec![tokio::spawn({
                let blocking = blocking.clone();
                async move { blocking.block().await }
            })];
            gate.begun(1).await;
            assert_eq!(tokio::join!(beside.add(1, 2), elsewhere.add(3, 4)), (Ok(3), Ok(7)));
            for count in 2..10 {
                let blocking = blocking.clone();
                blocked.push(tokio::spawn(async move { blocking.block().await }));
                gate.begun(count).await;
                assert_eq!(tokio::join!(beside.add(1, 2), elsewhere.add(3, 4)), (Ok(3), Ok(7)));
            }
            // Longer than the time after which a silent peer is dead.
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(tokio::join!(beside.add(1, 2), elsewhere.add(3, 4)), (Ok(3), Ok(7)));
            gate.open(20);
            for blocked in blocked {
                assert_eq!(blocked.await.unwrap(), Ok(()));
            }
            // The method is suspected, and no longer blocks.
            for _ in 0..5 {
                assert_eq!(tokio::join!(blocking.block(), beside.add(1, 2)), (Ok(()), Ok(3)));
            }
            drop(serving);
            if let Runs::In(runtime) = runs {
                runtime.shutdown_background();
            }
        }
    });
}

#[test]
fn cancelled_call_of_a_blocked_handler_leaves_its_connection() {
    on_both(|options| async move {
        for runs in Runs::all() {
            let gate = Arc::new(Gate::default());
            let serving = runs.serve(&options, &gate).await;
            let (blocking, beside) = connect(&options, &serving).await;
            for count in [1, 2] {
                let call = tokio::spawn({
                    let blocking = blocking.clone();
                    async move { blocking.block().await }
                });
                gate.begun(count).await;
                call.abort();
                assert!(call.await.unwrap_err().is_cancelled());
                assert_eq!(beside.add(1, 2).await, Ok(3));
            }
            gate.open(20);
            assert_eq!(tokio::join!(blocking.block(), beside.add(1, 2)), (Ok(()), Ok(3)));
            if let Runs::In(runtime) = runs {
                runtime.shutdown_background();
            }
        }
    });
}

#[test]
fn end_of_the_runtime_ends_a_server_whose_handler_was_blocked() {
    on_both(|options| async move {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let runs = Runs::In(runtime);
        let gate = Arc::new(Gate::default());
        let serving = runs.serve(&options, &gate).await;
        let (blocking, beside) = connect(&options, &serving).await;
        let blocked = tokio::spawn(async move { blocking.block().await });
        gate.begun(1).await;
        // Another thread runs the connections now.
        assert_eq!(beside.add(1, 2).await, Ok(3));
        let Runs::In(runtime) = runs else { unreachable!() };
        let ending = thread::spawn(move || drop(runtime));
        gate.open(1);
        ending.join().unwrap();
        // The handler may have ended before its server or with it.
        assert!(matches!(blocked.await.unwrap(), Ok(()) | Err(Error::Rpc(_))));
        let error = beside.wait(60_000).await.unwrap_err();
        assert_eq!(error.rpc().unwrap().status, Status::UNAVAILABLE);
    });
}

#[trespass_rpc::service(name = "test.Mixed")]
trait Mixed {
    /// Blocks its thread, then awaits other tasks this number of times.
    async fn work(&self, blocks: u64, yields: u64) -> Result<u64, ()>;
}

#[derive(Default)]
struct Works {
    begun: AtomicU64,
    ended: AtomicU64,
}

struct Working(Arc<Works>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

impl Mixed for Arc<Works> {
    async fn work(&self, blocks: u64, yields: u64) -> Result<u64, ()> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _working = Working(Arc::clone(self));
        for _ in 0..=yields {
            thread::sleep(Duration::from_millis(blocks));
            tokio::task::yield_now().await;
        }
        Ok(blocks * 1000 + yields)
    }
}

/// Each call that its caller waits for is answered, each handler ends, and the connections stay usable, whichever of the
/// threads has the driver. `TRESPASS_SEED` chooses the calls.
#[test]
fn random_handlers_and_callers_that_give_up_lose_no_call() {
    const CALLERS: u64 = 6;
    let seed = std::env::var("TRESPASS_SEED").map_or(1, |seed| seed.parse().unwrap());
    on_both(|options| async move {
        for (number, runs) in (0..).zip(Runs::all()) {
            let works = Arc::new(Works::default());
            let serving = runs.bind(&options, Server::new(MixedServer::new(Arc::clone(&works)))).await;
            let mut callers = Vec::new();
            for caller in 0..CALLERS {
                let (endpoint, address) = (Endpoint::spawn(&options).unwrap(), serving.local_addr().to_string());
                let client = MixedClient::new(Channel::connect_on(&endpoint, &address).await.unwrap());
                callers.push(tokio::spawn(async move {
                    let mut random = Rng::with_seed(seed * 100 + number * CALLERS + caller);
                    for _ in 0..15 {
                        let blocks = [0, 0, 0, 0, 1, 20, 130, 220][random.usize(..8)];
                        let yields = random.u64(..4) * u64::from(blocks < 100);
                        let patience = [LONG, LONG, LONG, Duration::from_millis(random.u64(..150))];
                        let call = client.work(blocks, yields);
                        match tokio::time::timeout(patience[random.usize(..4)], call).await {
                            Ok(answer) => assert_eq!(answer, Ok(blocks * 1000 + yields)),
                            Err(_) => tokio::task::yield_now().await,
                        }
                    }
                    assert_eq!(client.work(0, 7).await, Ok(7));
                }));
            }
            for caller in callers {
                caller.await.unwrap();
            }
            while works.begun.load(Ordering::SeqCst) != works.ended.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(works.begun.load(Ordering::SeqCst) > CALLERS);
            if let Runs::In(runtime) = runs {
                runtime.shutdown_background();
            }
        }
    });
}

/// A service whose calls no other test makes.
#[trespass_rpc::service(name = "test.Logged")]
trait Logged {
    async fn block(&self, millis: u64) -> Result<(), ()>;
}

struct Blocks;

impl Logged for Blocks {
    async fn block(&self, millis: u64) -> Result<(), ()> {
        thread::sleep(Duration::from_millis(millis));
        Ok(())
    }
}

static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LOGGED.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

#[test]
fn handler_that_blocks_its_thread_is_logged_once_by_name() {
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    on_both(|options| async move {
        LOGGED.lock().unwrap().clear();
        let endpoint = Endpoint::thread(&options).unwrap();
        let serving = Server::new(LoggedServer::new(Blocks)).bind_on(&endpoint, &ADDRESS).await.unwrap();
        let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
        let client = LoggedClient::new(channel);
        for millis in [300, 300, 1, 300] {
            assert_eq!(client.block(millis).await, Ok(()));
        }
        let logged = LOGGED.lock().unwrap().iter().filter(|line| line.contains("test.Logged/block")).count();
        assert_eq!(logged, 1, "{:?}", LOGGED.lock().unwrap());
    });
}
