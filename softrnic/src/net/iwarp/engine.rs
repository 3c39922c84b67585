//! The connections of the process to other hosts.
//!
//! The thread of softrnic waits for all sockets. While a program polls empty completion queues or waits for completion
//! events, the program serves the sockets instead, see [`attendance`](crate::net::attendance).

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};

use super::connect::Agreed;
use super::connection::Connection;
use super::fpdu::max_segment;
use super::stream::Stream;
use crate::net::attendance::{Attendance, Checks};
use crate::sys::descriptor::Descriptor;
use crate::sys::socket_set::{Reason, SocketSet, TICK, yield_if_empty};
use crate::sys::thread::{Next, Reactor, Task};
use crate::sys::{tcp, unpoisoned};
use crate::wire::address::Path;
use crate::wire::condition::Condition;
use crate::wire::message::Request;
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::STREAM_PEER;
use crate::wire::transport::{Deliver, Sockets};

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
    thread: fn() -> &'static Reactor,
    pub(super) sockets: OnceLock<SocketSet>,
    /// Held while `sockets` is set.
    starting: Mutex<()>,
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
    /// Whether a connection is cut, because the port of its device is down.
    has_cut: AtomicBool,
    /// Whether a connection was cut since the thread last looked for connections that are cut.
    has_new_cut: AtomicBool,
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
    pub(crate) const fn new(deliver: &'static dyn Deliver, thread: fn() -> &'static Reactor) -> Self {
        Self {
            deliver,
            thread,
            sockets: OnceLock::new(),
            starting: Mutex::new(()),
            connections: RwLock::new(BTreeMap::new()),
            has_connections: AtomicBool::new(false),
            connecting: Mutex::new(BTreeMap::new()),
            last_id: AtomicU64::new(0),
            notified: Mutex::new(Vec::new()),
            ending: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            unheard: Mutex::new(Vec::new()),
            has_unheard: AtomicBool::new(false),
            has_cut: AtomicBool::new(false),
            has_new_cut: AtomicBool::new(false),
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
        (number, path, condition): (u32, &Path, &'static Condition),
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
        Ok(Connection::new(self, (id, socket), agreed, stream, first, (number, template, condition)))
    }

    /// Sends bytes as soon as TCP has connected. They fit into the buffer of a new socket. If TCP cannot connect, the
    /// owner of the socket detects this.
    ///
    /// # Errors
    ///
    /// No descriptor or thread is available.
    pub(crate) fn send_once_connected(&'static self, socket: &Arc<Descriptor>, bytes: Vec<u8>) -> Result<(), Errno> {
        let sockets = self.start()?;
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let mut connecting = unpoisoned(self.connecting.lock());
        // This removes the sockets that their owners have closed.
        connecting.retain(|_, (socket, _)| socket.strong_count() > 0);
        let flags = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
        sockets.add(socket, id, flags)?;
        connecting.insert(id, (Arc::downgrade(socket), bytes));
        Ok(())
    }

    fn send_first(&self, sockets: &SocketSet, id: u64) {
        let Some((socket, bytes)) = unpoisoned(self.connecting.lock()).remove(&id) else { return };
        let Some(socket) = socket.upgrade() else { return };
        sockets.remove(&socket);
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
        let sockets = self.sockets.get().ok_or(Errno::NXIO)?;
        unpoisoned(self.connections.write()).insert(connection.id, Arc::clone(connection));
        self.has_connections.store(true, Ordering::Relaxed);
        if let Err(error) = connection.add_to(sockets) {
            self.remove(connection);
            return Err(error);
        }
        if connection.condition.cut_left().is_some() {
            self.cut(connection, true);
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

    /// Cuts or restores the connections of a device after a change of its condition.
    pub(crate) fn condition_changed(&self, condition: &'static Condition) {
        for connection in self.all() {
            if ptr::eq(connection.condition, condition) {
                self.cut(&connection, condition.cut_left().is_some());
            }
        }
    }

    fn cut(&self, connection: &Connection, is_cut: bool) {
        if is_cut {
            self.has_cut.store(true, Ordering::Relaxed);
            self.has_new_cut.store(true, Ordering::Relaxed);
        }
        connection.cut(is_cut);
        self.notify(connection.id);
    }

    /// Begins to be served by the thread.
    pub(super) fn start(&'static self) -> Result<&'static SocketSet, Errno> {
        let _starting = unpoisoned(self.starting.lock());
        SocketSet::start(&self.sockets, (self.thread)(), |sockets| Box::new(Turns::new(self, sockets)))
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

    fn all(&self) -> Vec<Arc<Connection>> {
        unpoisoned(self.connections.read()).values().cloned().collect()
    }

    fn get(&self, id: u64) -> Option<Arc<Connection>> {
        unpoisoned(self.connections.read()).get(&id).cloned()
    }

    /// Serves the connections whose sockets are ready. If `waits` is not set, skips the connections that another thread
    /// serves. Returns whether anything has arrived.
    pub(super) fn serve_ready(&self, sockets: &SocketSet, waits: bool) -> bool {
        let mut has_found = false;
        sockets.each_ready(|id, _| match self.get(id) {
            Some(connection) => has_found |= connection.serve(waits),
            None => self.send_first(sockets, id),
        });
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
        if let Some(sockets) = self.sockets.get() {
            sockets.place.wake();
        }
    }

    /// Sets the events for which the engine waits on the socket of a connection.
    pub(super) fn watch(&self, connection: &Connection, flags: epoll::EventFlags) {
        if let Some(sockets) = self.sockets.get() {
            let data = epoll::EventData::new_u64(connection.id);
            // This fails if the connection is not served yet or no longer served.
            let _ = epoll::modify(&sockets.all, &*connection.socket, data, flags);
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
        if let Some(sockets) = self.sockets.get() {
            sockets.remove(&connection.socket);
        }
        let mut connections = unpoisoned(self.connections.write());
        let removed = connections.remove(&connection.id);
        self.has_connections.store(!connections.is_empty(), Ordering::Relaxed);
        drop(connections);
        removed.is_some()
    }
}

impl Engine {
    /// Serves the sockets when a program has polled and found no completion. Returns whether anything has arrived on
    /// the sockets.
    #[inline]
    pub(crate) fn progress(&self) -> bool {
        self.has_connections.load(Ordering::Relaxed) && self.polled()
    }

    /// Records that a program will wait for an event instead of polling.
    pub(crate) fn armed(&self) {
        self.attendance.polls.reset();
        if let Some(sockets) = self.sockets.get() {
            sockets.release(Reason::Polled);
        }
    }

    fn polled(&self) -> bool {
        let Some(sockets) = self.sockets.get() else { return false };
        let attendance = &self.attendance;
        if !sockets.is_attended() && attendance.polls.count().is_lt() {
            return false;
        }
        attendance.begin(sockets);
        let only = {
            let connections = unpoisoned(self.connections.read());
            connections.first_key_value().filter(|_| connections.len() == 1).map(|(_, only)| Arc::clone(only))
        };
        let has_found = match only {
            Some(only) => only.serve(false),
            None => self.serve_ready(sockets, false),
        };
        yield_if_empty(has_found);
        has_found
    }
}

impl Sockets for Engine {
    fn attend(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.get().filter(|_| self.has_connections.load(Ordering::Relaxed))?.attend()
    }

    fn serve(&self) -> bool {
        self.sockets.get().is_some_and(|sockets| self.serve_ready(sockets, true))
    }

    fn leave(&self) {
        if let Some(sockets) = self.sockets.get() {
            sockets.release(Reason::Waits);
        }
    }
}

/// What the thread does for the engine.
struct Turns {
    engine: &'static Engine,
    sockets: &'static SocketSet,
    next_sweep: Instant,
    next_nudge: Instant,
    next_loss: Instant,
    checks: Checks,
}

impl Turns {
    fn new(engine: &'static Engine, sockets: &'static SocketSet) -> Self {
        let now = Instant::now();
        Self { engine, sockets, next_sweep: now, next_nudge: now, next_loss: now, checks: Checks::new(now) }
    }
}

impl Task for Turns {
    fn turn(&mut self) -> Next {
        let Self { engine, sockets, .. } = *self;
        let now = Instant::now();
        if engine.has_unheard.load(Ordering::Relaxed) && now >= self.next_nudge {
            self.next_nudge = now + NUDGES[0] / 2;
            engine.nudge(now);
        }
        // A program that attends to the only connection does not serve the sockets that are being connected.
        if engine.attendance.check(sockets, &mut self.checks, now) || !unpoisoned(engine.connecting.lock()).is_empty() {
            // If this thread waited for the lock of a connection that the program serves, both would switch.
            engine.serve_ready(sockets, !sockets.is_attended());
        }
        engine.serve_notified();
        if engine.waiting.load(Ordering::Relaxed) > 0 {
            let waiting = engine.all().into_iter().filter(|connection| connection.is_waiting());
            waiting.for_each(|connection| _ = connection.serve(true));
        }
        if engine.ending.load(Ordering::Relaxed) > 0 && now >= self.next_sweep {
            self.next_sweep = now + ENDING_TICK;
            engine.all().iter().for_each(|connection| _ = connection.serve(true));
        }
        let has_new_cut = engine.has_new_cut.swap(false, Ordering::Relaxed);
        if has_new_cut || engine.has_cut.load(Ordering::Relaxed) && now >= self.next_loss {
            let left = engine.all().iter().filter_map(|connection| connection.cut_left(now)).min();
            engine.has_cut.store(left.is_some(), Ordering::Relaxed);
            self.next_loss = now + left.unwrap_or(ENDING_TICK).min(ENDING_TICK);
        }
        let times = [
            (engine.waiting.load(Ordering::Relaxed) > 0).then_some(now + TICK),
            engine.attendance.is_checked().then_some(self.checks.next),
            (engine.ending.load(Ordering::Relaxed) > 0).then_some(self.next_sweep),
            engine.has_unheard.load(Ordering::Relaxed).then_some(self.next_nudge),
            engine.has_cut.load(Ordering::Relaxed).then_some(self.next_loss),
        ];
        Next::from(times.into_iter().flatten().min())
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
