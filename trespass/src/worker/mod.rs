//! The loop that drives connections over the backends.

/// Evaluates an expression with the driver of a connection, whichever of the two transports it uses.
macro_rules! on {
    ($worker:expr, $id:expr, $driver:ident => $body:expr) => {
        match $worker.verbs.get_mut($id.device) {
            Some($driver) => $body,
            None if $id.kind() == Kind::Tcp => {
                // The next turn posts the requests.
                $worker.look_next();
                let $driver = &mut $worker.tcp;
                $body
            }
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    };
}

mod devices;
mod driver;
mod event;
mod fork;
mod options;
mod shared;
mod signals;
mod spin;
mod stats;
#[cfg(test)]
mod tests;
mod traffic;
mod waiters;
mod waiting;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};

use crate::backend::tcp::Tcp;
use crate::backend::verbs::{Sleeper, Verbs};
use crate::backend::{Backend, LinkId, ListenerId, turns_until_look};

use devices::{Devices, NO_DEVICE};
use driver::{Driver, Slot};
use waiters::{Waiters, Woken};

#[doc(hidden)]
pub use event::Event;
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub use event::Readable;
#[doc(hidden)]
pub use fork::{Generation, PerProcess};
pub use options::{Options, Transport};
pub(crate) use shared::would_block;
pub use shared::{Handle, Wait};
#[doc(hidden)]
pub use signals::without_signals;
pub use spin::Spin;
pub use stats::{Kind, Stats};
pub(crate) use waiters::Awaited;
pub(crate) use waiting::{Registration, Source};

/// Maximum number of events that a turn takes from a backend.
const BUDGET: usize = 64;
/// After `LOOKS` polls without events, TCP counts as silent. The worker then polls TCP only every `SILENT`
/// milliseconds, which limits the number of system calls.
const LOOKS: u32 = 64;
const SILENT: u64 = 1;
/// Number of receives that are added at a time. Over RDMA, these are more than the requests in flight of a link.
const VERBS_STEP: u32 = 96;
const TCP_STEP: u32 = 32;

/// A connection of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// The index of the device in [`Worker::verbs`], or [`NO_DEVICE`] over TCP.
    device: u8,
    link: LinkId,
}

/// A listener of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenId(ListenerId);

/// The connections of one thread, and their event loop. No call blocks. If a call returns `WouldBlock`, retry it after
/// the next turn.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use std::io::ErrorKind;
/// use std::time::Duration;
/// use trespass::{Kind, Options, Worker};
///
/// let mut worker = Worker::new(&Options::default())?;
/// let listener = worker.listen("127.0.0.1:0".parse().unwrap())?;
/// let address = worker.local_addr(listener).unwrap();
/// let client = worker.connect(Kind::Tcp, address)?; // Kind::Rdma needs a device
/// let server = loop {
///     worker.poll(); // a turn
///     if let Some(accepted) = worker.accept(listener) {
///         break accepted;
///     }
///     worker.wait(Duration::from_secs(1))?;
/// };
/// while !worker.is_established(client)? {
///     worker.poll();
/// }
/// worker.try_send(client, b"hello")?;
/// let message = loop {
///     worker.poll();
///     match worker.try_recv(server) {
///         Err(error) if error.kind() == ErrorKind::WouldBlock => worker.wait(Duration::from_secs(1))?,
///         message => break message?,
///     }
/// };
/// assert_eq!(&message[..], b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Worker {
    /// The open devices.
    verbs: Devices,
    tcp: Driver<Tcp>,
    options: Options,
    listeners: HashMap<ListenId, Listening>,
    next_listener: u32,
    fallbacks: HashMap<ConnectionId, String>,
    /// Tasks that wait for connections to accept, for each listener that has some.
    acceptors: HashMap<ListenId, Waiters>,
    /// The number of the last call or future that waited.
    last_call: u64,
    epoll: OwnedFd,
    /// Number of turns until the worker next reads the clock and polls TCP; at least 1. While the worker has a device,
    /// the device's counter replaces it.
    quiet: u32,
    /// Number of consecutive TCP polls without events; after `LOOKS` of them, TCP is polled less often.
    tcp_silence: u32,
    /// Time of the last TCP poll, in milliseconds.
    looked: u64,
}

#[derive(Debug)]
struct Listening {
    address: SocketAddr,
    rdma: bool,
    no_rdma: Option<String>,
}

impl Worker {
    /// Creates a worker, which opens an RDMA device when an address first needs it.
    ///
    /// # Errors
    ///
    /// No file descriptors are left.
    pub fn new(options: &Options) -> io::Result<Worker> {
        let tcp = Driver::new(Tcp::new()?, options.settings(), TCP_STEP, options.backlog, now());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, tcp.backend.fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Worker {
            verbs: Devices::default(),
            tcp,
            options: options.clone(),
            listeners: HashMap::new(),
            next_listener: 0,
            fallbacks: HashMap::new(),
            acceptors: HashMap::new(),
            last_call: 0,
            epoll,
            quiet: 1,
            tcp_silence: 0,
            looked: 0,
        })
    }

    /// Runs one turn: processes events, posts sends, and calls the wakers that are due. Returns the number of events.
    #[inline]
    pub fn poll(&mut self) -> usize {
        let count = self.turn();
        if self.has_woken() {
            drop(self.take_woken());
        }
        count
    }

    /// Runs a turn without calling wakers. [`Worker::take_woken`] returns the wakers that are due.
    #[inline]
    fn turn(&mut self) -> usize {
        if let Some(verbs) = self.verbs.only()
            && !verbs.backend.is_due()
        {
            let count = verbs.turn_quickly();
            if count != 0 && !self.acceptors.is_empty() {
                self.wake_acceptors();
            }
            return count;
        }
        self.turn_all()
    }

    /// Runs a turn without a device or with several, or one that processes all events.
    #[inline(never)]
    fn turn_all(&mut self) -> usize {
        if self.verbs.is_empty() {
            self.quiet -= 1;
            return if self.quiet == 0 { self.look() } else { 0 };
        }
        let is_due = |due, verbs: &mut Driver<Verbs>| verbs.backend.is_due() | due;
        if self.verbs.only().is_none() && !self.verbs.iter_mut().fold(false, is_due) {
            let count = self.verbs.iter_mut().map(Driver::turn_quickly).sum();
            if count != 0 && !self.acceptors.is_empty() {
                self.wake_acceptors();
            }
            return count;
        }
        let count: usize = self.verbs.iter_mut().map(|verbs| verbs.turn(BUDGET)).sum();
        self.place_strays();
        count + self.look()
    }

    /// Makes the next turn process all events.
    fn look_next(&mut self) {
        self.quiet = 1;
        self.verbs.iter_mut().for_each(|verbs| verbs.backend.look_next());
    }

    /// Reads the clock and processes TCP events.
    fn look(&mut self) -> usize {
        let now = now();
        let passed = Duration::from_millis(now.saturating_sub(self.looked));
        self.tick(now);
        let mut count = 0;
        if self.tcp_silence < LOOKS || now >= self.looked + SILENT {
            self.looked = now;
            count = self.tcp.turn(BUDGET);
            self.tcp_silence = match count {
                0 if self.verbs.is_empty() => 0,
                0 if self.tcp.connections() == 0 => LOOKS,
                0 => self.tcp_silence.saturating_add(1),
                _ => 0,
            };
        }
        if self.tcp.has_work() {
            self.tcp.flush();
        }
        if !self.acceptors.is_empty() {
            self.wake_acceptors();
        }
        self.quiet = turns_until_look(passed);
        if self.tcp_silence < LOOKS {
            self.look_next();
        }
        count
    }

    /// Polls until no event has arrived for the time `budget`. Polling occupies a processor, but avoids the latency of
    /// sleeping and waking up.
    pub fn run(&mut self, budget: Duration) {
        let budget = u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX);
        let mut until = now_fine().saturating_add(budget);
        loop {
            let busy = self.poll() != 0;
            let now = now_fine();
            if busy {
                until = now.saturating_add(budget);
            } else if now >= until {
                return;
            }
        }
    }

    #[inline]
    fn has_woken(&self) -> bool {
        !self.tcp.table.woken.is_empty() || self.verbs.any(|verbs| !verbs.table.woken.is_empty())
    }

    /// Takes the wakers that are due.
    fn take_woken(&mut self) -> Woken {
        let mut woken = std::mem::take(&mut self.tcp.table.woken);
        for verbs in self.verbs.iter_mut() {
            woken.append(&mut verbs.table.woken);
        }
        woken
    }

    /// Requests wake-ups from the backends. Returns false if an event is pending already.
    pub(crate) fn arm_backends(&mut self) -> io::Result<bool> {
        let mut idle = self.tcp.settle() && self.tcp.backend.arm()?;
        for verbs in self.verbs.iter_mut() {
            idle &= verbs.backend.arm()?;
        }
        Ok(idle)
    }

    /// Whether the worker polls a device. Each poll of TCP is a system call.
    #[cfg(feature = "tokio")]
    fn has_device(&self) -> bool {
        self.verbs.any(|verbs| verbs.connections() != 0)
    }

    /// Returns the number of connections, including those that are closing.
    pub fn connections(&self) -> usize {
        self.tcp.connections() + self.verbs.iter().map(Driver::connections).sum::<usize>()
    }

    /// Returns the number of connections whose peers have not received everything yet.
    fn unfinished(&mut self) -> usize {
        self.tcp.unfinished() + self.verbs.iter_mut().map(Driver::unfinished).sum::<usize>()
    }

    /// Returns the descriptor that becomes readable, after [`Worker::arm`], when [`Worker::poll`] has work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Starts to connect over one transport. [`Worker::is_established`] returns whether the connection is ready.
    ///
    /// # Errors
    ///
    /// There is no device, or no route to the address.
    pub fn connect(&mut self, kind: Kind, address: SocketAddr) -> io::Result<ConnectionId> {
        let device = if kind == Kind::Rdma { self.device_for(Some(address))? } else { NO_DEVICE };
        self.pass_time();
        let id = ConnectionId { device, link: LinkId { index: 0, generation: 0 } };
        on!(self, id, driver => driver.connect(address)).map(|link| ConnectionId { link, ..id })
    }

    /// Returns whether a connection is established.
    ///
    /// # Errors
    ///
    /// The connection failed; the error contains the reason. `CrossesDevices`: the route to the peer is over another device
    /// than the worker has assumed. The worker has opened this device, and another call of [`Worker::connect`] uses it.
    pub fn is_established(&mut self, id: ConnectionId) -> io::Result<bool> {
        on!(self, id, driver => driver.is_established(id.link))
    }

    /// Returns the transports that `connect` tries for an address, in order.
    pub(crate) fn candidates(&self) -> &'static [Kind] {
        match self.options.transport {
            Transport::Any => &[Kind::Rdma, Kind::Tcp],
            Transport::Rdma => &[Kind::Rdma],
            Transport::Tcp => &[Kind::Tcp],
        }
    }

    /// Records that a connection fell back to TCP after RDMA was attempted.
    pub(crate) fn note_fallback(&mut self, id: ConnectionId, address: SocketAddr, reason: &io::Error) {
        rdma_mummy_sys::log!(warn, "the connection to {address} runs over TCP: no RDMA: {reason}");
        self.fallbacks.insert(id, reason.to_string());
    }

    /// Listens at an address for both RDMA and TCP, or only for the transport that the options name.
    ///
    /// # Errors
    ///
    /// The address is in use, or does not belong to this host. If the options name `Transport::Rdma`, also if there is
    /// no device.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<ListenId> {
        let id = ListenId(ListenerId(self.next_listener));
        self.next_listener += 1;
        let backlog = self.options.backlog;
        let mut listening = Listening { address, rdma: false, no_rdma: None };
        if self.options.transport != Transport::Rdma {
            listening.address = self.tcp.backend.listen(id.0, address, backlog)?;
        }
        if self.options.transport != Transport::Tcp {
            let near = (!address.ip().is_unspecified()).then_some(address);
            let at = listening.address;
            let listened = self.device_for(near).and_then(|device| match self.verbs.get_mut(device) {
                Some(verbs) => verbs.backend.listen(id.0, at, backlog),
                None => Err(io::ErrorKind::NotFound.into()),
            });
            match listened {
                Ok(address) => {
                    listening.rdma = true;
                    listening.address.set_port(address.port());
                }
                Err(error) if self.options.transport == Transport::Rdma => return Err(error),
                Err(error) => {
                    rdma_mummy_sys::log!(warn, "listening at {at} for TCP only: no RDMA: {error}");
                    listening.no_rdma = Some(error.to_string());
                }
            }
        }
        self.listeners.insert(id, listening);
        Ok(id)
    }

    /// Returns the address of a listener.
    pub fn local_addr(&self, listener: ListenId) -> Option<SocketAddr> {
        self.listeners.get(&listener).map(|listening| listening.address)
    }

    /// Closes a listener, and its connections that were not accepted.
    pub fn unlisten(&mut self, listener: ListenId) {
        self.stop_listening(listener);
        while let Some(id) = self.accept(listener) {
            self.close(id, 0, "");
        }
    }

    /// Closes a listener. Its established connections can still be accepted.
    pub(crate) fn stop_listening(&mut self, listener: ListenId) {
        if self.listeners.remove(&listener).is_none() {
            return;
        }
        self.wake_acceptor(listener);
        self.tcp.unlisten(listener.0);
        self.verbs.iter_mut().for_each(|verbs| verbs.unlisten(listener.0));
    }

    /// Returns the next established connection of a listener, if there is one.
    pub fn accept(&mut self, listener: ListenId) -> Option<ConnectionId> {
        for (device, verbs) in (0..).zip(self.verbs.iter_mut()) {
            if let Some(link) = verbs.table.accept(listener.0) {
                return Some(ConnectionId { device, link });
            }
        }
        let link = self.tcp.table.accept(listener.0)?;
        self.look_next();
        let id = ConnectionId { device: NO_DEVICE, link };
        if let Some(listening) = self.listeners.get(&listener)
            && self.options.transport == Transport::Any
        {
            let reason = listening.no_rdma.clone().unwrap_or_else(|| self.tcp.backend.why_tcp(listener.0).to_owned());
            self.fallbacks.insert(id, reason);
        }
        Some(id)
    }

    /// Returns the next established connection of a listener, or `WouldBlock`. Returns `NotConnected` if the listener was
    /// closed.
    pub(crate) fn try_accept(&mut self, listener: ListenId) -> io::Result<ConnectionId> {
        self.accept(listener).ok_or_else(|| match self.listeners.contains_key(&listener) {
            true => io::ErrorKind::WouldBlock.into(),
            false => io::Error::new(io::ErrorKind::NotConnected, "the listener was closed"),
        })
    }

    /// Advances the connections' timers.
    fn pass_time(&mut self) {
        self.tick(now());
    }

    fn tick(&mut self, now: u64) {
        self.tcp.tick(now);
        self.verbs.iter_mut().for_each(|verbs| verbs.tick(now));
    }

    fn slot(&self, id: ConnectionId) -> Option<&Slot> {
        match id.kind() {
            Kind::Rdma => self.verbs.get(id.device)?.table.get(id.link),
            Kind::Tcp => self.tcp.table.get(id.link),
        }
    }
}

/// Returns the time of CLOCK_MONOTONIC in milliseconds.
fn now() -> u64 {
    now_fine() / 1_000_000
}

fn now_fine() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
