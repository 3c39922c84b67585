//! A pool of connections to one server, which connects on demand.

mod pauses;

use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{Sleep, sleep};
use tower_service::Service;

use crate::call::{Call, CallFuture, Reply};
use crate::channel::Channel;
use crate::endpoint::{Endpoint, Linking, has_timer};
use crate::error::{Certainty, RpcError, Status};

use pauses::{Pauses, Returning};

/// The length of the pause after the first failed attempt to connect. After each further failure, the pause is twice as
/// long.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);
/// The pauses after failed attempts to return to RDMA. The first attempt follows a pause too.
const RETURN: Duration = Duration::from_secs(1);
const LONGEST_RETURN: Duration = Duration::from_secs(300);

/// A `tower` service that uses connections to one server. If no connection is open, a call first connects. It waits
/// until its own time limit or [`Options::connect`](crate::Options::connect) has passed, whichever is shorter. The
/// call's own limit needs the timers of tokio; outside of tokio, only `Options::connect` applies. If a call times out
/// while it connects, the next call continues the attempt. A failed attempt is followed by a pause, during which calls
/// fail with [`Certainty::NotSent`]. If a connection ends, each call in flight on it fails, and its error states
/// whether the call may have run. The pool does not retry calls.
///
/// If a connection has fallen back to TCP, calls use it, and the endpoint's driver meanwhile tries to connect over RDMA:
/// 1 s after the fall-back, and then after pauses of up to 5 minutes, one attempt at a time. A call begins an attempt
/// that is due, so an idle pool makes none. When an attempt succeeds, later calls use the connection over RDMA; the calls
/// in flight end on the one over TCP.
///
/// ```no_run
/// use trespass_rpc::{Endpoint, Pool};
///
/// # #[derive(Debug, serde::Serialize, serde::Deserialize, thiserror::Error)]
/// # #[error("failed")]
/// # pub struct Failed;
/// # #[trespass_rpc::service]
/// # pub trait Kv {
/// #     async fn get(&self, key: &str) -> Result<String, Failed>;
/// # }
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let kv = KvClient::new(Pool::new(&Endpoint::current()?, "host:7175").connections(4));
/// println!("{}", kv.get("fruit/apple").await?); // connects
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    address: String,
    slots: Vec<Slot>,
    turn: AtomicUsize,
    returning: Mutex<Returning<Linking>>,
}

struct Slot {
    state: Mutex<State>,
    /// The current attempt to connect. The call that polls the attempt holds the lock. If that call is dropped, the
    /// next call continues the attempt.
    connecting: tokio::sync::Mutex<Option<Connecting<io::Result<Channel>>>>,
}

type Connecting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
struct State {
    channel: Option<Channel>,
    pauses: Pauses,
    /// The reason for the last failure.
    reason: Option<RpcError>,
}

impl State {
    fn of(channel: Option<Channel>) -> Self {
        Self { channel, pauses: Pauses::new(PAUSE, LONGEST), reason: None }
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self { state: Mutex::new(State::of(None)), connecting: tokio::sync::Mutex::default() }
    }
}

impl Slot {
    /// Returns the channel if it is open, for a call of this pool.
    fn open(&self, pool: &Inner) -> Option<Channel> {
        let channel = lock(&self.state).channel.clone().filter(Channel::is_open)?;
        if channel.transport().fallback.is_some() {
            pool.return_to_rdma(self, &channel);
        }
        Some(channel)
    }
}

impl Inner {
    /// Begins or continues the return to RDMA, without waiting for it. After success, the slot has the new connection.
    #[cold]
    fn return_to_rdma(&self, slot: &Slot, now_used: &Channel) {
        let ended = |linking: &mut Linking| match linking.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => Some(Err(io::ErrorKind::NotConnected.into())),
            // The connection may have ended before a call came.
            Ok(linked) => Some(
                linked
                    .and_then(|linked| Channel::of_linked(&self.endpoint, linked))
                    .and_then(|channel| channel.is_open().then_some(channel).ok_or(io::ErrorKind::NotConnected.into())),
            ),
        };
        let begin = || now_used.begin_rdma(&self.endpoint, &self.address);
        let outcome = lock(&self.returning).step(Instant::now(), begin, ended);
        match outcome {
            None => {}
            Some(Ok(channel)) => {
                rdma_mummy_sys::log!(info, "the connection to {} runs over RDMA again", self.address);
                // The former channel is dropped without the lock.
                let _former = mem::replace(&mut *lock(&slot.state), State::of(Some(channel)));
            }
            Some(Err(error)) => rdma_mummy_sys::log!(debug, "the connection to {} stays on TCP: {error}", self.address),
        }
    }
}

impl Pool {
    /// Creates a pool with one connection, which the first call establishes.
    pub fn new(endpoint: &Endpoint, address: impl Into<String>) -> Self {
        Self::of(endpoint.clone(), address.into(), 1)
    }

    /// Sets the number of connections. Calls use the connections in turn.
    #[must_use]
    pub fn connections(self, number: usize) -> Self {
        Self::of(self.inner.endpoint.clone(), self.inner.address.clone(), number)
    }

    fn of(endpoint: Endpoint, address: String, number: usize) -> Self {
        let slots = (0..number.max(1)).map(|_| Slot::default()).collect();
        let (turn, returning) = (AtomicUsize::new(0), Mutex::new(Returning::new(Pauses::new(RETURN, LONGEST_RETURN))));
        Self { inner: Arc::new(Inner { endpoint, address, slots, turn, returning }) }
    }

    fn slot(&self) -> &Slot {
        &self.inner.slots[self.inner.turn.fetch_add(1, Ordering::Relaxed) % self.inner.slots.len()]
    }

    /// Returns an open connection, for [`Channel::alloc`] and [`Channel::transport`]; connects if none is open.
    ///
    /// # Errors
    ///
    /// [`Status::UNAVAILABLE`], with the reason why the last attempt failed.
    pub async fn channel(&self) -> Result<Channel, RpcError> {
        self.inner.endpoint.shared().check_process(Certainty::NotSent)?;
        let slot = self.slot();
        if let Some(channel) = slot.open(&self.inner) {
            return Ok(channel);
        }
        let mut attempt = slot.connecting.lock().await;
        // Another call may have connected, or failed to connect, while this one waited for the lock.
        let State { channel, mut pauses, reason } = lock(&slot.state).clone();
        if let Some(channel) = channel.filter(Channel::is_open) {
            return Ok(channel);
        }
        if let Some(reason) = reason
            && !pauses.is_over(Instant::now())
        {
            return Err(reason);
        }
        let connecting = attempt.get_or_insert_with(|| {
            let (endpoint, address) = (self.inner.endpoint.clone(), self.inner.address.clone());
            Box::pin(async move { Channel::connect_on(&endpoint, &address).await })
        });
        let connected = connecting.await;
        *attempt = None;
        match connected {
            Ok(channel) => {
                *lock(&slot.state) = State::of(Some(channel.clone()));
                lock(&self.inner.returning).restart(Instant::now());
                Ok(channel)
            }
            Err(error) => {
                let text = format!("cannot connect to {}: {error}", self.inner.address);
                // If TLS refused the connection, the error keeps that status, because a retry would not help.
                let refused = error.get_ref().and_then(|error| error.downcast_ref::<RpcError>());
                let status = refused.map_or(Status::UNAVAILABLE, |refused| refused.status);
                let reason = RpcError::new(status, Certainty::NotSent, text);
                pauses.begin(Instant::now());
                *lock(&slot.state) = State { channel: None, pauses, reason: Some(reason.clone()) };
                Err(reason)
            }
        }
    }
}

impl Service<Call> for Pool {
    type Response = Reply;
    type Error = RpcError;
    type Future = PoolFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> PoolFuture {
        if !self.inner.endpoint.shared().is_inherited()
            && let [slot] = &self.inner.slots[..]
            && let Some(channel) = slot.open(&self.inner)
        {
            return PoolFuture(Stage::Calling(CallFuture::new(channel, call)));
        }
        let pool = self.clone();
        let connecting = Box::pin(async move { pool.channel().await });
        // Without timers of tokio, only `Options::connect` limits the wait.
        let limit = call.timeout.filter(|_| has_timer()).map(|timeout| Box::pin(sleep(timeout)));
        PoolFuture(Stage::Connecting { connecting, limit, begun: Instant::now(), call: Some(call) })
    }
}

/// A call on a [`Pool`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct PoolFuture(Stage);

enum Stage {
    Connecting {
        connecting: Connecting<Result<Channel, RpcError>>,
        limit: Option<Pin<Box<Sleep>>>,
        begun: Instant,
        call: Option<Call>,
    },
    Calling(CallFuture),
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connecting { .. } => "Connecting",
            Self::Calling(_) => "Calling",
        })
    }
}

impl Future for PoolFuture {
    type Output = Result<Reply, RpcError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.0 {
                Stage::Calling(call) => return Pin::new(call).poll(task),
                Stage::Connecting { connecting, limit, begun, call } => {
                    let Poll::Ready(channel) = connecting.as_mut().poll(task) else {
                        if limit.as_mut().is_none_or(|limit| limit.as_mut().poll(task).is_pending()) {
                            return Poll::Pending;
                        }
                        let text = "the time limit of the call passed while the pool was connecting";
                        return Poll::Ready(Err(RpcError::new(Status::DEADLINE, Certainty::NotSent, text)));
                    };
                    let channel = channel?;
                    let Some(mut call) = call.take() else { return Poll::Pending };
                    // The time limit of the call includes the time for connecting.
                    call.timeout = call.timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
                    self.0 = Stage::Calling(CallFuture::new(channel, call));
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
