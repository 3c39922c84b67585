//! The connections of the process to other hosts, and the thread that serves these connections.
//!
//! The thread waits for all sockets. While a program polls empty completion queues or waits for completion events, the
//! program [attends](super::attendance) to the sockets instead.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};

use super::attendance::{Attendance, Checks};
use super::connect::Agreed;
use super::connection::Connection;
use super::fpdu::max_segment;
use super::stream::Stream;
use crate::sys::descriptor::Descriptor;
use crate::sys::reactor::{PAUSE, Reactor, TICK};
use crate::sys::{signals, tcp, unpoisoned};
use crate::wire::address::Path;
use crate::wire::message::Request;
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::STREAM_PEER;
use crate::wire::transport::Deliver;

/// The interval at which connections are checked that are ending and that the peer does not close.
const ENDING_TICK: Duration = Duration::from_secs(1);
/// When a connection whose peer sends nothing is nudged for the first time, and for the last time. The time between two
/// nudges is the time since the connection began.
const NUDGES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3)];
/// A connection is lost if the peer is unreachable or acknowledges no data for this time.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// The connections of the process.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) deliver: &'static dyn Deliver,
    pub(super) reactor: OnceLock<Reactor>,
    /// Whether the thread was started.
    is_started: Mutex<bool>,
    pub(super) connections: RwLock<BTreeMap<u64, Arc<Connection>>>,
    pub(super) has_connections: AtomicBool,
    /// The sockets whose TCP connections are being established, and the first bytes to send on each.
    connecting: Mutex<BTreeMap<u64, First>>,
    last_id: AtomicU64,
    /// The connections that must be served although their sockets may not be ready.
    pub(super) notified: Mutex<Vec<u64>>,
    /// The number of connections that are ending.
    ending: AtomicUsize,
    /// The number of connections on which a message waits until a receive is posted.
    waiting: AtomicUsize,
    /// The connections that this process has initiated and whose peers have sent nothing.
    unheard: Mutex<Vec<Unheard>>,
    has_unheard: AtomicBool,
    pub(super) attendance: Attendance,
}

/// A connection whose peer has sent nothing since `began`. The peer is nudged at the time `at`.
///
/// The kernel's siw does not read a frame that arrives just after it has accepted the connection, until another frame
/// arrives (Linux 6.1, `siw_accept`). If that frame is the RTR frame, the peer waits for it, and this end for the peer.
#[derive(Debug)]
struct Unheard {
    connection: Weak<Connection>,
    began: Instant,
    at: Instant,
}

/// A socket whose TCP connection is being established, and the first bytes to send on it.
type First = (Weak<Descriptor>, Vec<u8>);

impl Engine {
    pub(crate) const fn new(deliver: &'static dyn Deliver) -> Self {
        Self {
            deliver,
            reactor: OnceLock::new(),
            is_started: Mutex::new(false),
            connections: RwLock::new(BTreeMap::new()),
            has_connections: AtomicBool::new(false),
            connecting: Mutex::new(BTreeMap::new()),
            last_id: AtomicU64::new(0),
            notified: Mutex::new(Vec::new()),
            ending: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            unheard: Mutex::new(Vec::new()),
            has_unheard: AtomicBool::new(false),
            attendance: Attendance::new(),
        }
    }

    /// Creates the connection of the QP `number` after its set-up. The bytes of `first` are sent before all others. The
    /// connection is served only after [`begin`](Self::begin).
    ///
    /// # Errors
    ///
    /// No descriptor or thread is available.
    pub(crate) fn connection(
        &'static self,
        socket: Arc<Descriptor>,
        agreed: &Agreed,
        is_initiator: bool,
        mut first: Vec<u8>,
        (number, path): (u32, &Path),
    ) -> Result<Arc<Connection>, Errno> {
        self.start()?;
        if is_initiator {
            prepare(&socket)?;
        }
        let segment = max_segment(tcp::max_segment(&*socket));
        let stream = match is_initiator {
            true => Stream::initiator(agreed, segment, &mut first),
            false => Stream::responder(agreed, segment),
        };
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let template = template(path);
        Ok(Connection::new(self, (id, socket), agreed, stream, first, (number, template)))
    }

    /// Sends bytes as soon as TCP has connected. They fit into the buffer of a new socket. If TCP cannot connect, the
    /// owner of the socket detects this.
    ///
    /// # Errors
    ///
    /// No descriptor or thread is available.
    pub(crate) fn send_once_connected(&'static self, socket: &Arc<Descriptor>, bytes: Vec<u8>) -> Result<(), Errno> {
        self.start()?;
        let reactor = self.reactor.get().ok_or(Errno::NXIO)?;
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let mut connecting = unpoisoned(self.connecting.lock());
        // This removes the sockets that their owners have closed.
        connecting.retain(|_, (socket, _)| socket.strong_count() > 0);
        let flags = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
        epoll::add(&reactor.sockets, &**socket, epoll::EventData::new_u64(id), flags)?;
        connecting.insert(id, (Arc::downgrade(socket), bytes));
        Ok(())
    }

    fn send_first(&self, reactor: &Reactor, id: u64) {
        let Some((socket, bytes)) = unpoisoned(self.connecting.lock()).remove(&id) else { return };
        let Some(socket) = socket.upgrade() else { return };
        let _ = epoll::delete(&reactor.sockets, &*socket);
        // If TCP has not connected, no other call is made on the socket, because a call would clear the error that the
        // owner must read.
        if rustix::net::getpeername(&*socket).is_err() {
            return;
        }
        if let Err(error) = rustix::net::send(&*socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            rdma_mummy_sys::log!(debug, "cannot connect: {error}");
        }
    }

    /// Begins to serve a connection. If this end is its initiator, the peer is nudged until it sends something.
    pub(crate) fn begin(&self, connection: &Arc<Connection>) -> Result<(), Errno> {
        let reactor = self.reactor.get().ok_or(Errno::NXIO)?;
        unpoisoned(self.connections.write()).insert(connection.id, Arc::clone(connection));
        self.has_connections.store(true, Ordering::Relaxed);
        if let Err(error) = connection.add_to(&reactor.sockets) {
            self.remove(connection);
            return Err(error);
        }
        connection.serve(true);
        if connection.is_initiator() {
            let (connection, began) = (Arc::downgrade(connection), Instant::now());
            unpoisoned(self.unheard.lock()).push(Unheard { connection, began, at: began + NUDGES[0] });
            if !self.has_unheard.swap(true, Ordering::Relaxed) {
                self.wake();
            }
        }
        Ok(())
    }

    /// Nudges the peers that have sent nothing.
    fn nudge(&self, now: Instant) {
        let mut unheard = unpoisoned(self.unheard.lock());
        unheard.retain_mut(|entry| {
            if now < entry.at {
                return true;
            }
            let age = now - entry.began;
            entry.at = now + age;
            entry.connection.upgrade().is_some_and(|connection| connection.nudge()) && age < NUDGES[1]
        });
        self.has_unheard.store(!unheard.is_empty(), Ordering::Relaxed);
    }

    /// Starts the thread if it is not running.
    fn start(&'static self) -> Result<(), Errno> {
        self.start_by(|reactor| {
            let builder = thread::Builder::new().name("softrnic-iwarp".to_owned()).stack_size(512 << 10);
            signals::without_signals(|| builder.spawn(|| self.run(reactor))).map(drop)
        })
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.all().len()
    }

    #[cfg(test)]
    pub(super) fn has_unheard(&self) -> bool {
        self.has_unheard.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn connecting(&self) -> usize {
        unpoisoned(self.connecting.lock()).len()
    }

    pub(super) fn start_by(&'static self, spawn: impl FnOnce(&'static Reactor) -> io::Result<()>) -> Result<(), Errno> {
        let mut is_started = unpoisoned(self.is_started.lock());
        if *is_started {
            return Ok(());
        }
        let reactor = match self.reactor.get() {
            Some(reactor) => reactor,
            None => {
                let reactor = Reactor::new()?;
                self.reactor.get_or_init(|| reactor)
            }
        };
        spawn(reactor).map_err(|_| Errno::AGAIN)?;
        *is_started = true;
        Ok(())
    }

    fn run(&self, reactor: &Reactor) {
        let mut now = Instant::now();
        let (mut next_sweep, mut next_nudge, mut checks) = (now, now, Checks::new(now));
        loop {
            let timeout = match (self.waiting.load(Ordering::Relaxed), self.ending.load(Ordering::Relaxed)) {
                (1.., _) => Some(TICK),
                _ if self.attendance.is_checked() => Some(checks.next.saturating_duration_since(now)),
                (0, 1..) => Some(ENDING_TICK),
                (0, 0) => None,
            };
            let nudge = self.has_unheard.load(Ordering::Relaxed).then_some(NUDGES[0]);
            reactor.wait(timeout.into_iter().chain(nudge).min(), |_| ());
            now = Instant::now();
            if nudge.is_some() && now >= next_nudge {
                next_nudge = now + NUDGES[0] / 2;
                self.nudge(now);
            }
            // A program that attends to the only connection does not serve the sockets that are being connected.
            if self.attendance.check(reactor, &mut checks, now) || !unpoisoned(self.connecting.lock()).is_empty() {
                // If this thread waited for the lock of a connection that the program serves, both would switch.
                self.serve_ready(reactor, !self.attendance.is_attended());
            }
            self.serve_notified();
            if self.waiting.load(Ordering::Relaxed) > 0 {
                let waiting = self.all().into_iter().filter(|connection| connection.is_waiting());
                waiting.for_each(|connection| _ = connection.serve(true));
            }
            if self.ending.load(Ordering::Relaxed) > 0 && now >= next_sweep {
                next_sweep = now + ENDING_TICK;
                self.all().iter().for_each(|connection| _ = connection.serve(true));
            }
        }
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        unpoisoned(self.connections.read()).values().cloned().collect()
    }

    fn get(&self, id: u64) -> Option<Arc<Connection>> {
        unpoisoned(self.connections.read()).get(&id).cloned()
    }

    /// Serves the connections whose sockets are ready. If `waits` is not set, skips the connections that another thread
    /// serves. Returns whether anything has arrived.
    pub(super) fn serve_ready(&self, reactor: &Reactor, waits: bool) -> bool {
        const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = [const { MaybeUninit::uninit() }; 64];
        let events = match epoll::wait(&reactor.sockets, &mut events, Some(&NO_TIME)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return true,
            Err(error) => {
                rdma_mummy_sys::log!(error, "cannot wait for other hosts: epoll failed: {error}");
                thread::sleep(PAUSE);
                return false;
            }
        };
        let mut has_found = false;
        for event in events {
            let id = event.data.u64();
            match self.get(id) {
                Some(connection) => has_found |= connection.serve(waits),
                None => self.send_first(reactor, id),
            }
        }
        has_found
    }

    pub(super) fn serve_notified(&self) {
        // This is not in the head of the loop, because the loop would then hold this lock. Serving a connection takes
        // the lock of the connection, and may call `notify`.
        let notified = std::mem::take(&mut *unpoisoned(self.notified.lock()));
        for id in notified {
            if let Some(connection) = self.get(id) {
                connection.serve(true);
            }
        }
    }

    /// Makes the thread serve a connection soon. The caller may hold any lock.
    pub(super) fn notify(&self, id: u64) {
        let mut notified = unpoisoned(self.notified.lock());
        // If a message waits, each post to the QP calls this function, but the thread needs to serve the connection
        // only once.
        if notified.last() != Some(&id) {
            notified.push(id);
        }
        drop(notified);
        self.wake();
    }

    fn wake(&self) {
        if let Some(reactor) = self.reactor.get() {
            reactor.wake();
        }
    }

    /// Sets the events for which the engine waits on the socket of a connection.
    pub(super) fn watch(&self, connection: &Connection, flags: epoll::EventFlags) {
        if let Some(reactor) = self.reactor.get() {
            let data = epoll::EventData::new_u64(connection.id);
            // This fails if the connection is not served yet or no longer served.
            let _ = epoll::modify(&reactor.sockets, &*connection.socket, data, flags);
        }
    }

    /// Records that a message begins to wait until a receive is posted (`is_new` is set), or that it no longer waits.
    pub(super) fn waiting(&self, is_new: bool) {
        if !is_new {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        } else if self.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            self.wake();
        }
    }

    /// Records that a connection begins to end.
    pub(super) fn ending(&self) {
        if self.ending.fetch_add(1, Ordering::Relaxed) == 0 {
            self.wake();
        }
    }

    /// Stops serving a connection that has ended.
    pub(super) fn forget(&self, connection: &Connection) {
        if self.remove(connection) {
            self.ending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn remove(&self, connection: &Connection) -> bool {
        if let Some(reactor) = self.reactor.get() {
            let _ = epoll::delete(&reactor.sockets, &*connection.socket);
        }
        let mut connections = unpoisoned(self.connections.write());
        let removed = connections.remove(&connection.id);
        self.has_connections.store(!connections.is_empty(), Ordering::Relaxed);
        drop(connections);
        removed.is_some()
    }
}

/// Sets the options of a socket that will connect or listen.
pub(crate) fn prepare(socket: &Descriptor) -> Result<(), Errno> {
    const KEEPALIVES: u32 = 4;
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, PEER_TIMEOUT / 3)?;
    sockopt::set_tcp_keepintvl(socket, PEER_TIMEOUT / 3 * 2 / KEEPALIVES)?;
    // This option also ends a connection whose peer responds to no keepalive.
    sockopt::set_tcp_user_timeout(socket, PEER_TIMEOUT.as_millis() as u32)
}

/// The fields that all messages from a peer share.
fn template(path: &Path) -> Request {
    Request {
        service: Service::Iwarp,
        operation: Operation::Send,
        length: 0,
        is_solicited: false,
        psn: 0,
        packets: 1,
        source_number: STREAM_PEER,
        source: path.destination,
        destination: path.source,
        key: 0,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        flow_label: 0,
        service_level: 0,
        srq_number: 0,
    }
}
