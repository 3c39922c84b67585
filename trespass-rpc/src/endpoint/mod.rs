//! Endpoints run connections. Each endpoint has one driver for all of its connections. The driver runs on one thread at
//! a time.
//!
//! Callers and handlers access a connection through its [`Link`], under the link's lock; only the driver uses the
//! worker of `trespass`. [`Signal`] queues work for the driver: links with frames to send, tasks to poll, commands.

mod bulk;
mod driver;
mod home;
mod link;
mod options;
mod parts;
mod reply;
mod run;
mod state;
mod tasks;
mod thread;
mod turns;

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use rdma_mummy_sys::program::Held;
use tokio::sync::oneshot;
use trespass::{Generation, Kind, OpenRegion, PerProcess, RegionKey, Transport};

use crate::core::micros;
use crate::error::{Certainty, RpcError, Status};
use crate::memory::Memory;

pub use driver::Driver;
#[cfg(feature = "tls")]
pub use driver::Tls;
pub(crate) use link::{Link, ReplyItem};
pub use options::Options;
pub(crate) use parts::{Keys, Local, Parts};
pub(crate) use reply::Reply;
pub(crate) use run::has_timer;
use tasks::Task;
pub(crate) use tasks::{Arrived, Outcome, Runner, runner};
pub(crate) use turns::Turns;

/// The transport of a connection.
#[derive(Clone, Debug)]
pub struct TransportInfo {
    /// RDMA or TCP.
    pub kind: Kind,
    /// Device, port and addresses, as text.
    pub path: String,
    /// The reason why the connection uses TCP although the options allow RDMA; `None` in all other cases.
    pub fallback: Option<String>,
    /// This side's address, and the peer's address.
    pub addresses: (SocketAddr, SocketAddr),
    /// The protection of the connection.
    pub security: Security,
}

/// The protection of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// The connection is not protected: use it only in a trusted network.
    None,
    /// RDMA with TLS: the peer was authenticated when the connection began. Later frames and RDMA transfers are neither
    /// encrypted nor authenticated.
    Authenticated,
    /// TCP with TLS: all frames are authenticated and encrypted.
    Encrypted,
}

impl std::fmt::Display for TransportInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.path)?;
        f.write_str(match self.security {
            Security::None => "",
            Security::Authenticated => ", peer authenticated by TLS, not encrypted",
            Security::Encrypted => ", encrypted by TLS",
        })?;
        match &self.fallback {
            Some(reason) => write!(f, " (no RDMA: {reason})"),
            None => Ok(()),
        }
    }
}

/// A driver and its connections, for use by any thread. Clones refer to the same endpoint, which ends when the last
/// clone, connection and server are dropped.
#[derive(Clone, Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
    alive: Arc<Alive>,
}

/// Ends the driver when the last user drops this value.
#[derive(Debug)]
struct Alive(Arc<Shared>);

impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signal").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.command(Command::End);
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    signal: Mutex<Signal>,
    /// Whether work may be queued. An idle turn of the driver reads only this flag, without the lock.
    has_signal: AtomicBool,
    options: Options,
    epoch: Instant,
    /// The process that runs the driver. In its children, nothing may take a lock, which a thread of the parent may
    /// have held at the fork.
    process: Generation,
}

/// The queues of work for the driver.
#[derive(Default)]
pub(crate) struct Signal {
    /// The links with frames to send, and the links with messages to read.
    pub(crate) dirty: Vec<u32>,
    pub(crate) readable: Vec<u32>,
    /// The tasks to continue.
    tasks: Vec<Arc<dyn Task>>,
    pub(crate) commands: Vec<Command>,
    /// The waker of the driver, while the driver sleeps.
    waker: Option<Waker>,
    has_ended: bool,
}

/// An established connection, which is passed to the caller that requested it. Dropping this value closes the
/// connection.
#[derive(Debug)]
pub(crate) struct Linked(Option<Arc<Link>>);

/// The channel through which a caller receives the connection that it requested. Dropping it ends the attempt.
pub(crate) type Linking = oneshot::Receiver<io::Result<Linked>>;

impl Linked {
    fn new(link: &Arc<Link>) -> Self {
        Self(Some(Arc::clone(link)))
    }

    pub(crate) fn into_link(mut self) -> io::Result<Arc<Link>> {
        self.0.take().ok_or_else(ended)
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            let shared = Arc::clone(&link.shared);
            shared.command(Command::Close { link, code: 0, reason: String::new() });
        }
    }
}

/// A listener. Dropping this value stops listening and closes the connections that the listener has accepted.
#[derive(Debug)]
pub(crate) struct Listened {
    shared: Arc<Shared>,
    pub(crate) number: u32,
    pub(crate) address: SocketAddr,
}

impl Drop for Listened {
    fn drop(&mut self) {
        let (reply, _) = Reply::channel();
        self.shared.command(Command::Drain { listener: self.number, deadline: self.shared.now(), reply });
    }
}

/// A request to the driver.
pub(crate) enum Command {
    Connect {
        /// The name that the peer's certificate must have.
        host: String,
        addresses: Vec<SocketAddr>,
        /// The transports to try for each address, in this order.
        kinds: &'static [Kind],
        runner: Option<Box<dyn Runner>>,
        reply: Reply<io::Result<Linked>>,
    },
    Listen {
        addresses: Vec<SocketAddr>,
        runner: Box<dyn Runner>,
        reply: Reply<io::Result<Listened>>,
    },
    /// Stops accepting connections. The running calls of the listener's connections may continue until the deadline.
    Drain {
        listener: u32,
        /// By the endpoint's clock.
        deadline: u64,
        reply: Reply<usize>,
    },
    Close {
        link: Arc<Link>,
        code: u32,
        reason: String,
    },
    /// Grants keys to memory, and revokes keys.
    Open {
        link: Arc<Link>,
        parts: Parts,
        reply: Reply<Keys>,
    },
    Revoke {
        link: Arc<Link>,
        open: Vec<Option<OpenRegion>>,
    },
    /// Reads or writes the peer's memory, for a handler.
    Transfer {
        link: Arc<Link>,
        id: u32,
        is_put: bool,
        memory: (Memory, Range<usize>),
        remote: (RegionKey, u64),
        reply: Reply<io::Result<()>>,
    },
    /// Wakes the thread that runs the driver for its owner: the owner is free again.
    Return,
    End,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect { .. } => "Connect",
            Self::Listen { .. } => "Listen",
            Self::Drain { .. } => "Drain",
            Self::Close { .. } => "Close",
            Self::Open { .. } => "Open",
            Self::Revoke { .. } => "Revoke",
            Self::Transfer { .. } => "Transfer",
            Self::Return => "Return",
            Self::End => "End",
        })
    }
}

impl Endpoint {
    /// Creates an endpoint and its driver. The caller must run the driver: with [`Driver::run`] in tokio, or with
    /// [`Driver::run_until`] on a thread that polls.
    ///
    /// # Errors
    ///
    /// The system has no descriptors left.
    pub fn new(options: &Options) -> io::Result<(Self, Driver)> {
        let (signal, has_signal) = (Mutex::default(), AtomicBool::new(false));
        let (options, epoch, process) = (options.clone(), Instant::now(), Generation::this());
        let shared = Arc::new(Shared { signal, has_signal, options, epoch, process });
        let driver = Driver::new(Arc::clone(&shared))?;
        Ok((Self { alive: Arc::new(Alive(Arc::clone(&shared))), shared }, driver))
    }

    /// Creates an endpoint whose driver is a task of the current tokio runtime.
    ///
    /// # Errors
    ///
    /// The caller does not run in a tokio runtime, the runtime has no I/O or no timers, or the system has no descriptors
    /// left.
    pub fn spawn(options: &Options) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let (endpoint, driver) = Self::new(options)?;
        runtime.spawn(driver.in_tokio()?);
        Ok(endpoint)
    }

    /// Creates an endpoint whose driver runs on its own thread, for programs without tokio.
    ///
    /// # Errors
    ///
    /// The system has no descriptors or threads left.
    pub fn thread(options: &Options) -> io::Result<Self> {
        let (endpoint, driver) = Self::new(options)?;
        let builder = std::thread::Builder::new().name("trespass-rpc".to_owned());
        trespass::without_signals(|| builder.spawn(move || driver.run_thread()))?;
        Ok(endpoint)
    }

    /// Returns the default endpoint of the current tokio runtime. The endpoint starts when it is first used, and ends
    /// after its last use.
    ///
    /// # Errors
    ///
    /// See [`Endpoint::spawn`].
    pub fn current() -> io::Result<Self> {
        type Known = Vec<(tokio::runtime::Id, Weak<Shared>, Weak<Alive>)>;
        static KNOWN: PerProcess<Mutex<Known>> = PerProcess::new(Mutex::new(Vec::new()), Box::default);
        let id = tokio::runtime::Handle::try_current().map_err(io::Error::other)?.id();
        let _held = Held::new();
        let mut known = KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().filter(|(runtime, ..)| *runtime == id);
        for (_, shared, alive) in found {
            if let (Some(shared), Some(alive)) = (shared.upgrade(), alive.upgrade())
                && !shared.lock().has_ended
            {
                return Ok(Self { shared, alive });
            }
        }
        known.retain(|(.., alive)| alive.strong_count() != 0);
        let endpoint = Self::spawn(&Options::default())?;
        known.push((id, Arc::downgrade(&endpoint.shared), Arc::downgrade(&endpoint.alive)));
        Ok(endpoint)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Connects to one of the addresses of a host.
    pub(crate) async fn link(
        &self,
        host: String,
        addresses: Vec<SocketAddr>,
        runner: Option<Box<dyn Runner>>,
    ) -> io::Result<Arc<Link>> {
        self.shared.process.check()?;
        let kinds: &'static [Kind] = match self.shared.options.worker.transport {
            Transport::Rdma => &[Kind::Rdma],
            Transport::Tcp => &[Kind::Tcp],
            _ => &[Kind::Rdma, Kind::Tcp],
        };
        self.begin_link(host, addresses, kinds, runner).await.map_err(|_| ended())??.into_link()
    }

    /// Requests the driver to connect over one of these transports.
    pub(crate) fn begin_link(
        &self,
        host: String,
        addresses: Vec<SocketAddr>,
        kinds: &'static [Kind],
        runner: Option<Box<dyn Runner>>,
    ) -> Linking {
        let (reply, linking) = Reply::channel();
        self.shared.command(Command::Connect { host, addresses, kinds, runner, reply });
        linking
    }

    pub(crate) async fn listen(&self, addresses: Vec<SocketAddr>, runner: Box<dyn Runner>) -> io::Result<Listened> {
        self.shared.process.check()?;
        let (reply, answer) = Reply::channel();
        self.shared.command(Command::Listen { addresses, runner, reply });
        answer.await.map_err(|_| ended())?
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the driver has ended; keep its runtime or thread running")
}

impl Shared {
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Whether this process is a child of the process that runs the driver.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.is_over()
    }

    /// # Errors
    ///
    /// This process is a child of the process that runs the driver.
    pub(crate) fn check_process(&self, certainty: Certainty) -> Result<(), RpcError> {
        self.process.check().map_err(|error| RpcError::new(Status::UNAVAILABLE, certainty, error.to_string()))
    }

    /// Returns the time of the endpoint's clock in microseconds.
    pub(crate) fn now(&self) -> u64 {
        self.micros(Instant::now())
    }

    /// Returns the time after which this duration has passed, at most the largest value, which no clock reaches.
    pub(crate) fn after(&self, duration: Duration) -> u64 {
        self.now().saturating_add(micros(duration))
    }

    pub(crate) fn micros(&self, time: Instant) -> u64 {
        u64::try_from(time.saturating_duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX - 1)
    }

    pub(crate) fn instant(&self, micros: u64) -> Instant {
        self.epoch + Duration::from_micros(micros.min(u64::from(u32::MAX) << 16))
    }

    fn lock(&self) -> MutexGuard<'_, Signal> {
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues work for the driver, and wakes the driver if it sleeps.
    pub(crate) fn poke(&self, leave: impl FnOnce(&mut Signal)) {
        if self.is_inherited() {
            return;
        }
        let mut signal = self.lock();
        leave(&mut signal);
        self.has_signal.store(true, Ordering::Relaxed);
        let waker = signal.waker.take();
        drop(signal);
        if let Some(waker) = waker {
            reply::wake(waker);
        }
    }

    pub(crate) fn command(&self, command: Command) {
        let mut command = Some(command);
        self.poke(|signal| {
            // After the driver has ended, a command and its reply channel are dropped.
            if !signal.has_ended {
                signal.commands.extend(command.take());
            }
        });
    }

    /// Whether work may be queued. If work is queued after this check, the next turn finds the flag, or `set_waker` finds
    /// the work.
    fn has_signal(&self) -> bool {
        self.has_signal.load(Ordering::Relaxed)
    }

    /// Moves the queued work into empty vectors.
    fn take(&self, signal: &mut Signal) {
        // Dropped after the lock is released.
        let mut waker = None;
        let mut shared = self.lock();
        self.has_signal.store(false, Ordering::Relaxed);
        mem::swap(&mut shared.waker, &mut waker);
        mem::swap(&mut shared.dirty, &mut signal.dirty);
        mem::swap(&mut shared.readable, &mut signal.readable);
        mem::swap(&mut shared.tasks, &mut signal.tasks);
        mem::swap(&mut shared.commands, &mut signal.commands);
    }

    /// Adds the links with frames to send that were queued meanwhile.
    fn take_dirty(&self, dirty: &mut Vec<u32>) {
        if self.has_signal() {
            dirty.append(&mut self.lock().dirty);
        }
    }

    /// Registers the driver's waker, which is called when work is queued. Returns false if work is queued already.
    fn set_waker(&self, waker: &Waker) -> bool {
        // The clone and the drop of a waker are code of the program.
        let mut waker = Some(waker.clone());
        let mut shared = self.lock();
        let is_empty = shared.dirty.is_empty()
            && shared.readable.is_empty()
            && shared.tasks.is_empty()
            && shared.commands.is_empty();
        if is_empty {
            mem::swap(&mut shared.waker, &mut waker);
            // The next turn then removes the waker.
            self.has_signal.store(true, Ordering::Relaxed);
        }
        is_empty
    }

    fn end(&self) {
        let mut shared = self.lock();
        shared.has_ended = true;
        let rest = (mem::take(&mut shared.commands), mem::take(&mut shared.tasks));
        drop(shared);
        drop(rest);
    }
}

pub(crate) fn driver_ended() -> RpcError {
    RpcError::new(Status::UNAVAILABLE, Certainty::Unknown, "the driver has ended")
}
