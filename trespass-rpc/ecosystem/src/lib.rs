//! The service of the tests of trespass-rpc, and pairs of server and client.

#![expect(clippy::unwrap_used, reason = "for tests")]

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trespass::Transport;
use trespass_rpc::Stream;
use trespass_rpc::{CallOptions, Channel, Context, Endpoint, Items, Options, Server, Serving};

/// A time limit that only a hung operation reaches.
pub const LONG: Duration = Duration::from_secs(120);

/// The error of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Refusal {
    /// An argument is negative, or an item or a call has failed.
    Negative {
        /// The argument, or the number of the failure.
        number: i64,
    },
}

/// The service of the tests.
#[trespass_rpc::service(name = "test.Sums")]
pub trait Sums {
    /// Returns the sum of two numbers.
    #[idempotent]
    async fn add(&self, cx: &Context, left: i64, right: i64) -> Result<i64, Refusal>;
    /// Returns the same text.
    async fn echo(&self, text: &str) -> Result<String, Refusal>;
    /// Does nothing.
    async fn ping(&self) -> Result<(), Refusal>;
    /// Waits for this number of milliseconds.
    async fn wait(&self, cx: &Context, millis: u64) -> Result<u64, Refusal>;
    /// Panics.
    async fn panic(&self) -> Result<(), Refusal>;
    /// Returns the metadata value of a key.
    async fn header(&self, cx: &Context, key: &str) -> Result<Option<Vec<u8>>, Refusal>;
    /// Returns this number of zero bytes.
    async fn zeros(&self, length: usize) -> Result<Vec<u8>, Refusal>;
    /// Streams the numbers below `to`, beginning with 0. If `to` is odd, an error follows the last number.
    fn count(&self, to: u64, length: usize) -> impl Stream<Item = Result<(u64, Vec<u8>), Refusal>>;
    /// Returns the sum of the items.
    async fn sum(&self, cx: &Context, first: i64, items: Items<i64>) -> Result<i64, Refusal>;
    /// Streams the double of each item.
    fn double(&self, items: Items<i64>) -> impl Stream<Item = Result<i64, Refusal>>;
    /// Calls the method `add` of the caller, which also serves calls.
    async fn back(&self, cx: &Context, number: i64) -> Result<i64, Refusal>;
}

/// The server's side of [`Sums`].
#[derive(Debug, Default)]
pub struct Service {
    /// The number of handlers of `wait` that have started.
    pub begun: AtomicUsize,
    /// The number of handlers of `wait` that were dropped before they returned.
    pub dropped: AtomicUsize,
}

struct Dropped<'s>(&'s Service, bool);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Sums for Service {
    async fn add(&self, _: &Context, left: i64, right: i64) -> Result<i64, Refusal> {
        match left {
            ..0 => Err(Refusal::Negative { number: left }),
            left => Ok(left + right),
        }
    }

    async fn echo(&self, text: &str) -> Result<String, Refusal> {
        Ok(text.to_owned())
    }

    async fn ping(&self) -> Result<(), Refusal> {
        Ok(())
    }

    async fn wait(&self, _: &Context, millis: u64) -> Result<u64, Refusal> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut dropped = Dropped(self, false);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        dropped.1 = true;
        Ok(millis)
    }

    async fn panic(&self) -> Result<(), Refusal> {
        panic!("of the test")
    }

    async fn header(&self, cx: &Context, key: &str) -> Result<Option<Vec<u8>>, Refusal> {
        Ok(cx.metadata().get(key).map(<[u8]>::to_vec))
    }

    async fn zeros(&self, length: usize) -> Result<Vec<u8>, Refusal> {
        Ok(vec![0; length])
    }

    fn count(&self, to: u64, length: usize) -> impl Stream<Item = Result<(u64, Vec<u8>), Refusal>> {
        let numbers = (0..to).map(move |number| Ok((number, vec![number as u8; length])));
        let odd = (to % 2 == 1).then_some(Err(Refusal::Negative { number: 1 }));
        Listed(numbers.chain(odd))
    }

    async fn sum(&self, _: &Context, first: i64, mut items: Items<i64>) -> Result<i64, Refusal> {
        let mut sum = first;
        while let Some(item) = items.next().await {
            sum += item.map_err(|_| Refusal::Negative { number: 0 })?;
        }
        Ok(sum)
    }

    fn double(&self, items: Items<i64>) -> impl Stream<Item = Result<i64, Refusal>> {
        Doubled(items)
    }

    async fn back(&self, cx: &Context, number: i64) -> Result<i64, Refusal> {
        let caller = SumsClient::over(cx.caller()).map_err(|_| Refusal::Negative { number: -1 })?;
        caller
            .with(CallOptions::default().within(cx))
            .add(number, 1)
            .await
            .map_err(|_| Refusal::Negative { number: -2 })
    }
}

struct Doubled(Items<i64>);

impl Stream for Doubled {
    type Item = Result<i64, Refusal>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let item = Pin::new(&mut self.0).poll_next(task);
        item.map(|item| item.map(|item| item.map(|item| 2 * item).map_err(|_| Refusal::Negative { number: 0 })))
    }
}

/// A stream that returns the items of an iterator.
#[derive(Debug)]
pub struct Listed<I>(pub I);

impl<I: Iterator + Unpin> Stream for Listed<I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.0.next())
    }
}

/// The variable with the name and the address of the RDMA device to test on, such as `rxe_0=10.71.0.1`. If it is not set,
/// the tests use softrnic's device.
const DEVICE: &str = "TRESPASS_RPC_TEST_DEVICE";

/// The address of the device to test on.
pub static HOST: LazyLock<String> = LazyLock::new(|| {
    std::env::var(DEVICE).map_or("127.0.0.1".to_owned(), |device| device.split_once('=').unwrap().1.to_owned())
});

/// The address of the device to test on, with port 0.
pub static ADDRESS: LazyLock<String> = LazyLock::new(|| format!("{}:0", *HOST));

/// Options for one transport, on the device to test on.
pub fn options(transport: Transport) -> Options {
    let mut options = Options::default();
    match std::env::var(DEVICE) {
        Ok(device) => options.worker.device = Some(device.split_once('=').unwrap().0.to_owned()),
        Err(_) => softrnic::register().unwrap(),
    }
    options.worker.transport = transport;
    options.worker.memory = 64 << 20;
    options
}

/// The transport that a variable names for a child process; `None` if it is not set.
pub fn transport_of(variable: &str) -> Option<Transport> {
    match std::env::var(variable).ok()?.as_str() {
        "Rdma" => Some(Transport::Rdma),
        "Tcp" => Some(Transport::Tcp),
        "Any" => Some(Transport::Any),
        other => panic!("{variable}={other} names no transport"),
    }
}

/// Waits for a future, at most for [`LONG`]. `tokio::time::timeout` would poll the future once more at the end of that time,
/// and so hide a lost wake-up.
pub async fn within<F: Future>(future: F) -> F::Output {
    let (mut future, mut limit) = (pin!(future), pin!(tokio::time::sleep(LONG)));
    poll_fn(|task| {
        assert!(limit.as_mut().poll(task).is_pending(), "the operation hangs");
        future.as_mut().poll(task)
    })
    .await
}

/// Runs a test over RDMA and over TCP, in a runtime of one thread.
pub fn on_both<F: Future<Output = ()>>(test: impl Fn(Options) -> F) {
    for transport in [Transport::Rdma, Transport::Tcp] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { within(test(options(transport))).await });
    }
}

/// Creates a server and a client, each on its own endpoint.
pub async fn pair(options: &Options) -> (Serving, SumsClient, std::sync::Arc<Service>) {
    let service = std::sync::Arc::new(Service::default());
    let server = Server::new(SumsServer::shared(std::sync::Arc::clone(&service)));
    let serving = server.bind_on(&Endpoint::spawn(options).unwrap(), &ADDRESS).await.unwrap();
    let endpoint = Endpoint::spawn(options).unwrap();
    let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
    (serving, SumsClient::over(channel).unwrap(), service)
}
