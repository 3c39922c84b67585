//! Tests how calls and connections end: the results that callers and handlers get, and the release of all resources.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use trespass_rpc::{
    CallOptions, Certainty, Channel, Endpoint, Handler, Items, MethodInfo, Options, Postcard, Request, Response,
    Server, Serving, Status, Stream,
};
use trespass_rpc_ecosystem::{ADDRESS, LONG, Listed, Service, SumsClient, SumsServer, on_both, pair};

/// A hand-written handler for `Sums`.
struct ByHand {
    methods: SumsServer<Service>,
    begun: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
    /// Receives the results of the task that reads the caller's items outside of the handler. A result is the number of
    /// items, and whether the stream ended without an error.
    read: mpsc::UnboundedSender<(usize, bool)>,
}

impl Handler for ByHand {
    fn methods(&self) -> Vec<MethodInfo> {
        self.methods.methods()
    }

    async fn call(&self, request: Request) -> Response {
        let method = request.method();
        let methods = self.methods.methods();
        let name = methods.iter().find(|known| known.id == method).map_or("", |known| known.name);
        let (context, _) = request.into_parts();
        self.begun.fetch_add(1, Ordering::SeqCst);
        match name {
            "test.Sums/zeros" => {
                drop(self.gate.acquire().await);
                Response::of::<Postcard, Vec<u8>, ()>(&Ok(vec![0; (1 << 20) - 100]))
            }
            "test.Sums/sum" => {
                let (mut items, read) = (Items::<i64>::of::<Postcard>(&context), self.read.clone());
                tokio::spawn(async move {
                    let mut count = 0;
                    loop {
                        match items.next().await {
                            Some(Ok(_)) => count += 1,
                            end => return read.send((count, end.is_none())),
                        }
                    }
                });
                std::future::pending().await
            }
            _ => Response::failed(Status::UNAVAILABLE, "the backend is gone"),
        }
    }
}

struct Setting {
    serving: Serving,
    client: SumsClient,
    begun: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
    read: mpsc::UnboundedReceiver<(usize, bool)>,
}

async fn by_hand(options: &Options, server: Endpoint) -> Setting {
    let (sender, read) = mpsc::unbounded_channel();
    let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let methods = SumsServer::new(Service::default());
    let handler = ByHand { methods, begun: Arc::clone(&begun), gate: Arc::clone(&gate), read: sender };
    let serving = Server::new(handler).bind_on(&server, &ADDRESS).await.unwrap();
    let endpoint = Endpoint::spawn(options).unwrap();
    let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
    Setting { serving, client: SumsClient::over(channel).unwrap(), begun, gate, read }
}

async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn answers_in_flight_arrive_after_a_drain() {
    const CALLS: usize = 8;
    on_both(|options| async move {
        let Setting { serving, client, begun, gate, .. } = by_hand(&options, Endpoint::thread(&options).unwrap()).await;
        let calls: Vec<_> = (0..CALLS)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.zeros(1).await })
            })
            .collect();
        until(|| begun.load(Ordering::SeqCst) == CALLS).await;
        gate.add_permits(CALLS);
        let draining = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serving.drain(LONG))
        });
        // This side reads nothing during this time.
        std::thread::sleep(Duration::from_millis(200));
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap().len(), (1 << 20) - 100);
        }
        until(|| draining.is_finished()).await;
        assert_eq!(draining.join().unwrap(), 0);
    });
}

#[test]
fn reader_of_items_gets_an_error_when_the_call_has_ended() {
    /// A stream that returns five items and then stays pending.
    struct Endless(Listed<std::ops::Range<i64>>);

    impl Stream for Endless {
        type Item = i64;

        fn poll_next(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<i64>> {
            match Pin::new(&mut self.0).poll_next(task) {
                Poll::Ready(None) => Poll::Pending,
                other => other,
            }
        }
    }

    on_both(|options| async move {
        let Setting { client, begun, mut read, serving, .. } =
            by_hand(&options, Endpoint::spawn(&options).unwrap()).await;
        // The call ends in three ways: the caller cancels it, its deadline passes, or the connection ends.
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.sum(0, Endless(Listed(0..5))).await }
        });
        until(|| begun.load(Ordering::SeqCst) == 1).await;
        call.abort();
        assert!(!read.recv().await.unwrap().1);
        let hurried = client.clone().with(CallOptions::default().timeout(Duration::from_millis(50)));
        hurried.sum(0, Endless(Listed(0..5))).await.unwrap_err();
        assert!(!read.recv().await.unwrap().1);
        let call = tokio::spawn(async move { client.sum(0, Endless(Listed(0..5))).await });
        until(|| begun.load(Ordering::SeqCst) == 3).await;
        drop(serving);
        assert!(!read.recv().await.unwrap().1);
        call.await.unwrap().unwrap_err();
    });
}

#[test]
fn status_of_a_handler_does_not_say_that_nothing_ran() {
    on_both(|options| async move {
        let setting = by_hand(&options, Endpoint::spawn(&options).unwrap()).await;
        let error = setting.client.ping().await.unwrap_err();
        let error = error.rpc().unwrap();
        assert_eq!((error.status, error.certainty), (Status::UNAVAILABLE, Certainty::Unknown));
        assert!(!error.is_retryable(false));
    });
}

#[test]
fn waker_may_own_the_call() {
    type Owned = Pin<Box<dyn Future<Output = ()> + Send>>;
    struct Owner(Mutex<Option<Owned>>);

    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }

    on_both(|options| async move {
        let (_serving, client, service) = pair(&options).await;
        let owned = client.clone();
        let owner = Arc::new(Owner(Mutex::new(Some(Box::pin(async move { _ = owned.wait(20).await })))));
        let waker = Waker::from(Arc::clone(&owner));
        let poll = |task: &mut TaskContext<'_>| owner.0.lock().unwrap().as_mut().unwrap().as_mut().poll(task);
        assert!(poll(&mut TaskContext::from_waker(&waker)).is_pending());
        drop(waker);
        // The connection is now the last owner, and drops the value when the answer arrives.
        let weak = Arc::downgrade(&owner);
        drop(owner);
        until(|| weak.strong_count() == 0).await;
        assert_eq!(service.begun.load(Ordering::SeqCst), 1);
        assert_eq!(client.add(1, 2).await, Ok(3));
    });
}

#[test]
fn connections_of_dropped_futures_end_with_their_driver() {
    on_both(|options| async move {
        let (server, driver) = Endpoint::new(&options).unwrap();
        let server_ends = tokio::spawn(driver.run());
        let bound = Server::new(SumsServer::new(Service::default())).bind_on(&server, &ADDRESS).await.unwrap();
        let address = bound.local_addr().to_string();
        let (endpoint, driver) = Endpoint::new(&options).unwrap();
        let client_ends = tokio::spawn(driver.run());
        for turns in 0..40 {
            let mut connecting = Box::pin(Channel::connect_on(&endpoint, &address));
            let first = std::future::poll_fn(|task| Poll::Ready(connecting.as_mut().poll(task))).await;
            assert!(first.is_pending());
            // Drops the future after a varying number of turns, when it may or may not be ready.
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            if turns % 8 == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let mut listening = Box::pin(Server::new(SumsServer::new(Service::default())).bind_on(&server, &ADDRESS));
        let first = std::future::poll_fn(|task| Poll::Ready(listening.as_mut().poll(task))).await;
        assert!(first.is_pending());
        drop(listening);
        drop(endpoint);
        client_ends.await.unwrap();
        drop((bound, server));
        server_ends.await.unwrap();
    });
}

#[test]
fn handlers_are_dropped_with_their_last_connection() {
    on_both(|options| async move {
        let (serving, client, service) = pair(&options).await;
        let own = Arc::new(Service::default());
        let endpoint = Endpoint::spawn(&options).unwrap();
        let address = serving.local_addr().to_string();
        let channel =
            Channel::connect_serving(&endpoint, &address, SumsServer::shared(Arc::clone(&own))).await.unwrap();
        assert_eq!(SumsClient::over(channel.clone()).unwrap().back(41).await, Ok(42));
        drop(channel);
        until(|| Arc::strong_count(&own) == 1).await;
        assert_eq!(client.add(1, 2).await, Ok(3));
        assert_eq!(serving.drain(LONG).await, 0);
        until(|| Arc::strong_count(&service) == 1).await;
    });
}

#[test]
fn drain_leaves_no_call_in_doubt() {
    on_both(|options| async move {
        let server = Endpoint::thread(&options).unwrap();
        let endpoint = Endpoint::spawn(&options).unwrap();
        for _ in 0..20 {
            let bound = Server::new(SumsServer::new(Service::default())).bind_on(&server, &ADDRESS);
            let serving = bound.await.unwrap();
            let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
            let client = SumsClient::over(channel).unwrap();
            let calls: Vec<_> = (0..8)
                .map(|_| {
                    let client = client.clone();
                    tokio::spawn(async move {
                        loop {
                            if let Err(error) = client.echo("not idempotent").await {
                                return error;
                            }
                        }
                    })
                })
                .collect();
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(serving.drain(LONG).await, 0);
            for call in calls {
                let error = call.await.unwrap();
                let error = error.rpc().unwrap();
                assert_ne!(error.certainty, Certainty::Unknown, "{error}");
            }
        }
    });
}
