//! Tests connections and acceptors as futures, also with futures that are dropped at any await.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::common::{bytes, device, on_both, worker};
use fastrand::Rng;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use trespass::tokio::{Acceptor, Connection, revoke};
use trespass::{Grant, Handle, RegionKey, Transport};

/// A time limit that only a hung operation reaches.
const LONG: Duration = Duration::from_secs(60);

fn runtimes() -> [Runtime; 2] {
    [
        Builder::new_current_thread().enable_all().build(),
        Builder::new_multi_thread().worker_threads(2).enable_all().build(),
    ]
    .map(Result::unwrap)
}

/// Runs a test over both transports.
fn on_all<F: Future<Output = ()> + Send + 'static>(test: impl Fn(Transport) -> F) {
    on_both(|transport| on_runtimes(|| test(transport)));
}

/// Runs a test on both kinds of runtime. The time limit does not poll the test: that would hide a lost wake-up.
pub(crate) fn on_runtimes<F: Future<Output = ()> + Send + 'static>(test: impl Fn() -> F) {
    for runtime in runtimes() {
        runtime.block_on(async { timeout(LONG, tokio::spawn(test())).await.expect("the test hangs").unwrap() });
    }
}

pub(crate) async fn pair(transport: Transport) -> (Connection, Connection) {
    let [server, client] = [(); 2].map(|()| worker(transport));
    let acceptor = Acceptor::bind_on(&server, device()).await.unwrap();
    let near = Connection::connect_on(&client, acceptor.local_addr(), None).await.unwrap();
    (near, acceptor.accept().await.unwrap())
}

/// Polls a future once, and after this many wake-ups at most; then drops it.
pub(crate) async fn polled<T>(mut most: u64, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match (most, future.as_mut().poll(context)) {
        (_, Poll::Ready(value)) => Poll::Ready(Some(value)),
        (0, Poll::Pending) => Poll::Ready(None),
        (_, Poll::Pending) => {
            most -= 1;
            Poll::Pending
        }
    })
    .await
}

#[test]
fn messages_are_exchanged_and_the_end_is_received() {
    on_all(|transport| async move {
        let (near, far) = pair(transport).await;
        let echo = async {
            while let Some(message) = far.recv().await.unwrap() {
                far.send_buf(message).await.unwrap();
            }
            far.shutdown().await.unwrap();
        };
        let calls = async {
            for length in [0, 1, 100, 16_384, 300_000, 3 << 20] {
                let sent = bytes(length, length);
                near.send(&sent).await.unwrap();
                let mut received = vec![0; length + 1];
                let error = near.recv_into(&mut received[..length / 2]).await.err().map(|error| error.kind());
                assert_eq!(error, (length != 0).then_some(io::ErrorKind::InvalidInput), "{length}");
                if length != 0 {
                    assert_eq!(near.recv_into(&mut received).await.unwrap(), Some(length));
                    assert!(received[..length] == sent, "{length}");
                }
            }
            near.flush().await.unwrap();
            near.shutdown().await.unwrap();
            assert!(near.recv().await.unwrap().is_none());
        };
        tokio::join!(echo, calls);
        let (closed, peer) = tokio::join!(near.close(7, "done"), far.recv());
        closed.unwrap();
        assert!(peer.unwrap().is_none());
        assert_eq!(near.close(0, "").await.unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert_eq!(far.close(0, "").await.map_err(|error| error.kind()), Ok(()));
    });
}

#[test]
fn tasks_share_a_connection() {
    on_all(|transport| async move {
        let (near, far) = pair(transport).await;
        let (near, far) = (Arc::new(near), Arc::new(far));
        let senders: Vec<_> = (0..4_u32)
            .map(|sender| {
                let near = Arc::clone(&near);
                tokio::spawn(async move {
                    for number in 0..100 {
                        near.send(&(sender * 100 + number).to_le_bytes()).await.unwrap();
                    }
                })
            })
            .collect();
        let receivers: Vec<_> = (0..4)
            .map(|_| {
                let far = Arc::clone(&far);
                tokio::spawn(async move {
                    let mut received = Vec::new();
                    while let Some(message) = far.recv().await.unwrap() {
                        received.push(u32::from_le_bytes(message[..].try_into().unwrap()));
                    }
                    received
                })
            })
            .collect();
        for sender in senders {
            sender.await.unwrap();
        }
        near.shutdown().await.unwrap();
        let mut all = Vec::new();
        for receiver in receivers {
            all.extend(receiver.await.unwrap());
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..400));
    });
}

/// Sends and receives messages by futures of which most are dropped after some polls. Each message whose future was ready
/// arrives once, and no other.
#[test]
fn dropped_futures_lose_no_message_and_no_wake_up() {
    on_all(|transport| async move {
        for seed in 0..4 {
            let (near, far) = pair(transport).await;
            let sending = async {
                let mut random = Rng::with_seed(seed);
                let mut sent = VecDeque::new();
                for number in 0..400 {
                    let length = [0, 10, 3000, 20_000, 200_000][random.usize(..5)];
                    let message = bytes(length, number);
                    while polled(random.u64(..4), near.send(&message)).await.transpose().unwrap().is_none() {
                        tokio::task::yield_now().await;
                    }
                    sent.push_back(message);
                    if random.u64(..8) == 0 {
                        _ = polled(random.u64(..4), near.flush()).await.transpose().unwrap();
                    }
                }
                near.flush().await.unwrap();
                near.shutdown().await.unwrap();
                sent
            };
            let receiving = async {
                let mut random = Rng::with_seed(seed + 100);
                let mut received = Vec::new();
                loop {
                    match polled(random.u64(..3), far.recv()).await.transpose().unwrap() {
                        None => tokio::task::yield_now().await,
                        Some(Some(message)) => received.push(message.to_vec()),
                        Some(None) => return received,
                    }
                }
            };
            let (sent, received) = tokio::join!(sending, receiving);
            assert!(sent == received, "{transport:?}, seed {seed}");
        }
    });
}

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn dropped_future_is_not_woken() {
    on_all(|transport| async move {
        let (near, far) = pair(transport).await;
        let counter = Arc::<Counter>::default();
        let waker = Waker::from(Arc::clone(&counter));
        {
            // A future that is polled again is registered once.
            let mut receiving = pin!(far.recv());
            for _ in 0..3 {
                assert!(receiving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
        }
        near.send(b"first").await.unwrap();
        assert_eq!(far.recv().await.unwrap().as_deref(), Some(&b"first"[..]));
        assert_eq!(counter.0.load(Ordering::Relaxed), 0);
        // One is in the test, and one in `waker`.
        assert_eq!(Arc::strong_count(&counter), 2);
    });
}

#[test]
fn dropped_accept_leaves_the_connection_to_the_next_one() {
    on_all(|transport| async move {
        let [server, client] = [(); 2].map(|()| worker(transport));
        let acceptor = Acceptor::bind_on(&server, device()).await.unwrap();
        assert!(polled(0, acceptor.accept()).await.is_none());
        let connecting = async {
            let mut clients = Vec::new();
            for _ in 0..4 {
                // The attempt that is dropped may reach the listener, or not.
                _ = polled(1, Connection::connect_on(&client, acceptor.local_addr(), None)).await;
                clients.push(Connection::connect_on(&client, acceptor.local_addr(), None).await.unwrap());
            }
            clients
        };
        let (clients, first) = tokio::join!(connecting, acceptor.accept());
        let first = first.unwrap();
        acceptor.stop();
        let mut count = 1;
        while let Ok(accepted) = acceptor.accept().await {
            drop(accepted);
            count += 1;
        }
        assert!(count >= clients.len() && count <= 2 * clients.len(), "{count}");
        assert_eq!(acceptor.accept().await.unwrap_err().kind(), io::ErrorKind::NotConnected);
        // While this process has connections to the earlier listener, softrnic waits for another one on the port.
        drop((clients, first));
        let late = Connection::connect_on(&client, acceptor.local_addr(), Some(LONG)).await;
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn notifications_are_no_messages() {
    device();
    on_runtimes(|| async {
        let (near, far) = pair(Transport::Rdma).await;
        let region = far.region(1000).unwrap();
        let grant = Grant::writable(far.as_blocking(), &region, 0..1000).unwrap();
        far.send(&grant.key().to_bytes()).await.unwrap();
        let key = RegionKey::from_bytes(&near.recv().await.unwrap().unwrap()).unwrap();
        let mine = near.region(1000).unwrap();
        mine.write_at(0, &bytes(1000, 3)).unwrap();
        const COUNT: u64 = 500;
        let sending = async {
            for number in 0..COUNT {
                near.batch().put((&mine, 0..1000), (&key, 0)).notify(number).submit().await.unwrap();
                near.send(&number.to_le_bytes()).await.unwrap();
            }
            near.batch().get((&mine, 0..10), (&key, 0)).notify(COUNT).submit().await.unwrap();
            near.shutdown().await.unwrap();
        };
        let messages = async {
            for number in 0..COUNT {
                assert_eq!(far.recv().await.unwrap().as_deref(), Some(&number.to_le_bytes()[..]));
                if number % 97 == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            assert!(far.recv().await.unwrap().is_none());
        };
        let notifications = async {
            for number in 0..=COUNT {
                assert_eq!(far.notified().await.unwrap(), Some(number));
                if number % 89 == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            assert!(far.notified().await.unwrap().is_none());
        };
        tokio::join!(sending, messages, notifications);
        let mut found = vec![0; 1000];
        region.read_at(0, &mut found).unwrap();
        assert!(found == bytes(1000, 3));
        revoke(grant).await.unwrap();
    });
}

/// The peer sends more notifications than may wait. The connection stops, and goes on when they are read.
#[test]
fn unread_notifications_stop_the_peer() {
    device();
    on_runtimes(|| async {
        let (near, far) = pair(Transport::Rdma).await;
        for number in 0..200 {
            near.batch().notify(number).submit().await.unwrap();
        }
        near.send(b"after").await.unwrap();
        let waiting = async { assert_eq!(far.recv().await.unwrap().as_deref(), Some(&b"after"[..])) };
        let mut waiting = pin!(waiting);
        assert!(timeout(Duration::from_millis(50), waiting.as_mut()).await.is_err());
        let reading = async {
            for number in 0..200 {
                assert_eq!(far.notified().await.unwrap(), Some(number));
            }
        };
        tokio::join!(waiting, reading);
    });
}

/// A task polls two futures of one connection with one waker. The end of one must not take the other's place.
#[test]
fn futures_of_one_task_are_woken_separately() {
    device();
    on_runtimes(|| async {
        let (near, far) = pair(Transport::Rdma).await;
        let counter = Arc::<Counter>::default();
        let waker = Waker::from(Arc::clone(&counter));
        let woken = async |times| {
            while counter.0.load(Ordering::Relaxed) < times {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let (mut message, mut notification) = (pin!(far.recv()), pin!(far.notified()));
        assert!(message.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(notification.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        near.send(b"first").await.unwrap();
        woken(2).await;
        assert!(notification.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let seen = counter.0.load(Ordering::Relaxed);
        assert!(message.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        near.batch().notify(7).submit().await.unwrap();
        woken(seen + 1).await;
        while notification.as_mut().poll(&mut Context::from_waker(&waker)).map(Result::unwrap) != Poll::Ready(Some(7)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn limit_without_a_timer_is_an_error() {
    device();
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let handle: Handle = worker(Transport::Tcp);
        let error = Connection::connect_on(&handle, "127.0.0.1:1", Some(LONG)).await.unwrap_err();
        assert!(error.to_string().contains("call enable_time()"), "{error}");
        let error = Connection::connect_on(&handle, "127.0.0.1:1", None).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn futures_are_send() {
    fn is_send<T: Send>(_: T) {}
    fn check(connection: &Connection, acceptor: &Acceptor) {
        is_send((connection.send(b""), connection.recv(), connection.recv_into(&mut []), connection.notified()));
        is_send((connection.flush(), connection.shutdown(), connection.close(0, ""), acceptor.accept()));
        is_send((connection.batch().submit(), Connection::connect("127.0.0.1:1"), Acceptor::bind("127.0.0.1:0")));
    }
    _ = check;
}

/// The connection that the waker below uses.
static USED: Mutex<Option<Arc<Connection>>> = Mutex::new(None);

fn use_and_copy(_: *const ()) -> RawWaker {
    if let Some(used) = &*USED.lock().unwrap() {
        used.stats().unwrap();
    }
    RawWaker::new(ptr::null(), &USING)
}

static USING: RawWakerVTable = RawWakerVTable::new(use_and_copy, |_| {}, |_| {}, |_| {});

#[test]
fn waker_may_use_the_worker_while_it_is_cloned() {
    let (sender, done) = channel();
    thread::spawn(move || {
        let [runtime, _] = runtimes();
        runtime.block_on(async {
            let (near, far) = pair(Transport::Tcp).await;
            let far = Arc::new(far);
            *USED.lock().unwrap() = Some(Arc::clone(&far));
            // SAFETY: the functions ignore their pointer, so all wakers of this table are alike.
            let waker = unsafe { Waker::new(ptr::null(), &USING) };
            let mut context = Context::from_waker(&waker);
            assert!(pin!(far.recv()).poll(&mut context).is_pending());
            *USED.lock().unwrap() = None;
            drop(near);
        });
        sender.send(()).unwrap();
    });
    done.recv_timeout(LONG).expect("the waker waits for the lock of the call that clones it");
}
