//! The driver owns the worker, and transfers frames between the worker on one side and the callers and handlers on the
//! other.

mod connect;
mod end;
mod read;
mod send;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use trespass::{ConnectionId, ListenId, Transferring, Worker};

use crate::core::IdMap;
use crate::error::{Certainty, RpcError, Status};
use crate::memory::{Memory, MemoryPool};
use crate::wire::{HEADER, META_LIMIT};

use super::home::{Begun, Due, Ended, Results};
use super::parts::Keys;
use super::tasks::{Arrived, Task};
use super::{Command, Link, Linked, Listened, Reply, Runner, Shared, Signal};

use connect::Connecting;
use tls::Session;
#[cfg(feature = "tls")]
pub use tls::Tls;

/// Runs the connections of an [`Endpoint`](super::Endpoint).
pub struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) worker: Worker,
    /// The commands and links that were taken from the queue and are being processed.
    signal: Signal,
    links: Vec<Option<Entry>>,
    free: Vec<u32>,
    listeners: Vec<Listening>,
    runners: Vec<Option<Box<dyn Runner>>>,
    connecting: Vec<Connecting>,
    transfers: Vec<Transfer>,
    /// The pools of memory for attachments and targets. One allocates on the heap, the others allocate memory that is
    /// registered, each with one device.
    heap: Arc<MemoryPool>,
    registered: Vec<Arc<MemoryPool>>,
    /// The time at which this turn began, by the endpoint's clock.
    now: u64,
    /// A lower bound: no time-out is due before this time.
    next: u64,
    /// The requests of the message that is being read.
    arrived: Vec<Arrived>,
    /// The handlers to run after this turn.
    pub(super) ready: VecDeque<Due>,
    /// What has become of handlers, until [`settle`](Self::settle) records it.
    pub(super) results: Results,
    /// The link whose hello has arrived, with the reply to the caller that connects, which is sent without the link's lock.
    established: Option<(Ready, Arc<Link>)>,
    expired: Vec<u32>,
    /// Whether all endpoints were dropped; the driver then ends after the last connection.
    is_ending: bool,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("links", &(self.links.len() - self.free.len())).finish_non_exhaustive()
    }
}

/// The channel through which a caller that connects receives its link.
type Ready = Reply<io::Result<Linked>>;

struct Entry {
    link: Arc<Link>,
    id: ConnectionId,
    tls: Option<Session>,
    runner: Option<u32>,
    listener: Option<u32>,
    /// The tasks of the running handlers, by the number of their request.
    tasks: IdMap<Arc<dyn Task>>,
    readable: Waker,
    /// While the link waits for the peer's hello: the channel to the caller that connects, and the time limit.
    ready: Option<Ready>,
    hello_until: u64,
}

/// An RDMA request of a handler: the link, and the number of the peer's request.
struct Transfer {
    transferring: Transferring,
    reply: Reply<io::Result<()>>,
    link: Arc<Link>,
    id: u32,
    /// The memory on this side, which its pool must not reuse and its budget must count until the end.
    _memory: Memory,
}

struct Listening {
    id: Option<ListenId>,
    runner: u32,
    drain: Option<(u64, Reply<usize>)>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        // No message has to be longer than the longest frame, which contains a body of the maximum length, or a hello.
        let mut options = shared.options().worker.clone();
        let longest = shared.options().limits.body.saturating_add((META_LIMIT + HEADER) as u32).max(2 << 20);
        // Each TLS record adds a header and a tag.
        let longest = longest.saturating_add(longest / 256).saturating_add(1 << 10);
        options.message = options.message.min(longest);
        let worker = Worker::new(&options)?;
        Ok(Self {
            worker,
            signal: Signal::default(),
            links: Vec::new(),
            free: Vec::new(),
            listeners: Vec::new(),
            runners: Vec::new(),
            connecting: Vec::new(),
            transfers: Vec::new(),
            heap: Arc::new(MemoryPool::new(None, shared.options().watermark, shared.options().memory)),
            registered: Vec::new(),
            now: 0,
            next: u64::MAX,
            arrived: Vec::new(),
            ready: VecDeque::new(),
            results: Results::default(),
            established: None,
            expired: Vec::new(),
            is_ending: false,
            shared,
        })
    }

    /// Returns the descriptor that, once armed, becomes readable when the worker has work.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.worker.fd()
    }

    /// Whether no user of the driver is left, so that the driver can end.
    pub(super) fn is_over(&self) -> bool {
        if self.shared.is_inherited() {
            return true;
        }
        // Data that was sent still arrives, because the worker keeps its connections until the linger time has passed.
        self.is_ending
            && self.links.len() == self.free.len()
            && self.connecting.is_empty()
            && self.worker.connections() == 0
    }

    /// Returns the time at which the next turn is due if no event arrives earlier.
    pub(super) fn deadline(&self) -> Instant {
        self.shared.instant(self.next)
    }

    /// Runs one turn, which begins at the given time. If `polls` is set, it also polls the worker. Returns whether it
    /// processed any event. The caller then runs the handlers that are [`ready`](Self::ready), and calls
    /// [`send`](Self::send).
    pub(super) fn turn(&mut self, polls: bool, now: Instant) -> bool {
        if self.shared.is_inherited() {
            return false;
        }
        self.now = self.shared.micros(now);
        let mut count = 0;
        if polls {
            count += self.worker.poll();
            self.check_transfers();
            self.accept();
            self.connect();
        }
        if self.now >= self.next {
            self.pass_time(self.now);
        }
        if self.shared.has_signal() {
            count += self.work();
        }
        count != 0
    }

    /// Ends a turn: sends the frames of all links that have any, together with the answers of its handlers.
    pub(super) fn send(&mut self) {
        if self.shared.is_inherited() {
            return;
        }
        let mut dirty = mem::take(&mut self.signal.dirty);
        self.shared.take_dirty(&mut dirty);
        for index in dirty.drain(..) {
            self.transmit(index);
        }
        self.signal.dirty = dirty;
        self.worker.flush();
    }

    /// Runs the handlers on this thread.
    pub(super) fn run_handlers(&mut self) {
        while let Some(due) = self.ready.pop_front() {
            due.run(&mut self.results);
        }
        self.settle();
    }

    /// Records what has become of handlers.
    pub(super) fn settle(&mut self) {
        let mut results = mem::take(&mut self.results);
        for Begun { link, id, task } in results.begun.drain(..) {
            match self.links.get_mut(link as usize) {
                Some(Some(entry)) => _ = entry.tasks.insert(id, task),
                _ => self.cancel(Some(task)),
            }
        }
        for Ended { task, request } in results.ended.drain(..) {
            if let Some((link, id)) = request
                && let Some(Some(entry)) = self.links.get_mut(link as usize)
                && entry.tasks.get(&id).is_some_and(|known| ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&task)))
            {
                entry.tasks.remove(&id);
            }
            self.recycle(task);
        }
        // Keeps the memory for the next turn.
        self.results = results;
    }

    fn recycle(&mut self, task: Arc<dyn Task>) {
        if let Some(runner) = self.runner(task.place().0) {
            runner.recycle(task);
        }
    }

    /// Does the queued work, except for sending. Returns the number of items in the queues.
    fn work(&mut self) -> usize {
        let mut signal = mem::take(&mut self.signal);
        self.shared.take(&mut signal);
        let count = signal.commands.len() + signal.readable.len() + signal.dirty.len() + signal.tasks.len();
        for command in signal.commands.drain(..) {
            self.execute(command);
        }
        for index in signal.readable.drain(..) {
            self.read(index);
        }
        self.ready.extend(signal.tasks.drain(..).map(|task| Due { task, request: None }));
        self.signal = signal;
        count
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Connect { host, addresses, kinds, runner, reply } => {
                let deadline = self.shared.after(self.shared.options().connect);
                self.next = self.next.min(deadline);
                self.connecting.push(Connecting {
                    host,
                    addresses,
                    kinds,
                    has_crossed: false,
                    at: (0, 0),
                    attempt: None,
                    until: 0,
                    deadline,
                    reason: None,
                    runner,
                    reply: Some(reply),
                });
                self.connect();
            }
            Command::Listen { addresses, runner, reply } => {
                let mut listened = Err(io::Error::new(io::ErrorKind::InvalidInput, "the name has no address"));
                for address in addresses {
                    listened = self.worker.listen(address).map(|id| (id, address));
                    if listened.is_ok() {
                        break;
                    }
                }
                // If the receiver was dropped, this drops the value, which ends the listener.
                reply.send(listened.map(|(id, address)| {
                    let runner = self.add_runner(runner);
                    self.listeners.push(Listening { id: Some(id), runner, drain: None });
                    let (shared, number) = (Arc::clone(&self.shared), self.listeners.len() as u32 - 1);
                    Listened { shared, number, address: self.worker.local_addr(id).unwrap_or(address) }
                }));
            }
            Command::Drain { listener, deadline, reply } => self.drain(listener, deadline, reply),
            Command::Close { link, code, reason } => {
                if let Some(Some(entry)) = self.links.get(link.index as usize)
                    && Arc::ptr_eq(&entry.link, &link)
                {
                    let failure = RpcError::new(Status::UNAVAILABLE, Certainty::Unknown, reason.clone());
                    self.transmit(link.index);
                    self.end(link.index, failure, code, &reason);
                }
            }
            Command::Open { link, parts, reply } => {
                let id = self.id_of(&link);
                let open = parts.into_iter().map(|part| {
                    let (region, range, is_writable) = part?;
                    // If the device cannot grant a key, the bytes are sent in frames.
                    self.worker.open_region(id?, &region, range, is_writable).ok()
                });
                let open = open.collect();
                // If the caller has cancelled the call, this drops the keys, which revokes them.
                reply.send(Keys { link, open });
            }
            Command::Revoke { link, open } => {
                if let Some(id) = self.id_of(&link) {
                    open.iter().flatten().for_each(|open| self.worker.close_region(id, open));
                }
            }
            Command::Transfer { link, id, is_put, memory: (memory, range), remote: (key, offset), reply } => {
                let none = || io::Error::from(io::ErrorKind::NotConnected);
                let begun = self.id_of(&link).zip(memory.region()).ok_or_else(none).and_then(|(connection, region)| {
                    match is_put {
                        // The handler has ended.
                        _ if reply.is_closed() => Err(none()),
                        true => self.worker.put(connection, (region, range), (&key, offset)),
                        false => self.worker.get(connection, (region, range), (&key, offset)),
                    }
                });
                match begun {
                    Ok(transferring) => {
                        self.transfers.push(Transfer { transferring, reply, link, id, _memory: memory })
                    }
                    Err(error) => {
                        reply.send(Err(error));
                        link.end_transfer(id);
                    }
                }
            }
            Command::Return => {}
            Command::End => self.is_ending = true,
        }
    }

    fn id_of(&self, link: &Arc<Link>) -> Option<ConnectionId> {
        let entry = self.links.get(link.index as usize)?.as_ref()?;
        Arc::ptr_eq(&entry.link, link).then_some(entry.id)
    }

    /// Reports completed transfers to their handlers.
    fn check_transfers(&mut self) {
        let mut at = 0;
        while let Some(transfer) = self.transfers.get(at) {
            let Some(is_well) = transfer.transferring.ended() else {
                at += 1;
                continue;
            };
            let Transfer { reply, link, id, .. } = self.transfers.swap_remove(at);
            let text = "the caller abandoned the call, or the connection ended";
            let outcome = if is_well { Ok(()) } else { Err(io::Error::new(io::ErrorKind::ConnectionAborted, text)) };
            reply.send(outcome);
            link.end_transfer(id);
        }
    }

    fn add_runner(&mut self, mut runner: Box<dyn Runner>) -> u32 {
        let free = self.runners.iter().position(Option::is_none).unwrap_or(self.runners.len());
        runner.place(&self.shared, free as u32);
        if free == self.runners.len() {
            self.runners.push(None);
        }
        self.runners[free] = Some(runner);
        free as u32
    }

    fn runner(&mut self, number: u32) -> Option<&mut Box<dyn Runner>> {
        self.runners.get_mut(number as usize)?.as_mut()
    }

    fn cancel(&mut self, task: Option<Arc<dyn Task>>) {
        if let Some(task) = task.filter(|task| task.cancel()) {
            self.recycle(task);
        }
    }

    /// Drops the requests of a link whose handlers have not begun: all, or the one with this number.
    fn drop_ready(&mut self, link: &Arc<Link>, id: Option<u32>) {
        for _ in 0..self.ready.len() {
            let Some(due) = self.ready.pop_front() else { return };
            let is_of = |request: &Arrived| Arc::ptr_eq(&request.link, link) && id.is_none_or(|id| id == request.id);
            match due.request.as_ref().is_some_and(is_of) {
                true => self.recycle(due.task),
                false => self.ready.push_back(due),
            }
        }
    }

    /// Drops a runner if no listener and no link uses it.
    fn free_runner(&mut self, number: u32) {
        let is_listening = self.listeners.iter().any(|listening| listening.id.is_some() && listening.runner == number);
        if !is_listening && !self.links.iter().flatten().any(|entry| entry.runner == Some(number)) {
            // The runner is dropped after the lock has been released, because the handler's `Drop` may use the
            // endpoint.
            drop(self.runners[number as usize].take());
        }
    }

    /// Returns how long the driver may poll before it sleeps. Only RDMA is polled, because each poll of TCP is a system
    /// call.
    pub(super) fn spin(&self) -> Duration {
        if !self.registered.is_empty() { self.shared.options().spin } else { Duration::ZERO }
    }

    /// Arms the worker's descriptor, so that the driver can sleep on it. Returns how long the driver may sleep, which
    /// is zero if work is pending.
    pub(super) fn arm(&mut self) -> io::Result<Duration> {
        self.worker.arm()
    }
}
