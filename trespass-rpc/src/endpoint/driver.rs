//! The driver: it has the worker, and moves frames between worker, callers and handlers.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;
use trespass::{Buf, ConnectionId, Kind, ListenId, Transferring, Transport, Wait, Worker};

use crate::body::Body;
use crate::core::{BulkOperation, Connection, Event, Side, Violation};
use crate::error::{Certainty, RpcError, Status};
use crate::memory::MemoryPool;
use crate::wire::{Flags, Frame, HEADER, Hello, META_LIMIT, write_header};

use super::bulk::{Expected, Keys};
use super::link::{Readable, Serving, State};
use super::tasks::Arrived;
use super::{Command, Link, Linked, Listened, Runner, Shared, Signal, TransportInfo, driver_ended};

/// Bytes of frames that are packed into a message: one SEND.
const PACK: usize = (16 << 10) - 64;
/// Messages that are read from a link before the next link.
const TURN: usize = 64;
/// A body of this length is not copied out of a message that has it last.
const KEEP: usize = 4 << 10;
/// Bytes of a memory in a frame.
const PIECE: usize = (16 << 10) - 64 - HEADER;
/// How long a peer has for its hello, in microseconds.
const HELLO: u64 = 10_000_000;

/// Runs the connections of an [`Endpoint`](super::Endpoint).
pub struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) worker: Worker,
    /// What was left, while it is worked on.
    signal: Signal,
    links: Vec<Option<Entry>>,
    free: Vec<u32>,
    listeners: Vec<Listening>,
    runners: Vec<Option<Box<dyn Runner>>>,
    connecting: Vec<Connecting>,
    transfers: Vec<(Transferring, oneshot::Sender<io::Result<()>>)>,
    /// Memory for attachments: on the heap, registered.
    heap: Arc<MemoryPool>,
    registered: Option<Arc<MemoryPool>>,
    /// No time-out is earlier.
    next: u64,
    arrived: Vec<Arrived>,
    expired: Vec<u32>,
    /// No endpoint is left: it ends with the last connection.
    is_ending: bool,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("links", &(self.links.len() - self.free.len())).finish_non_exhaustive()
    }
}

/// Takes the link of a caller that connects.
type Ready = oneshot::Sender<io::Result<Linked>>;

struct Entry {
    link: Arc<Link>,
    id: ConnectionId,
    runner: Option<u32>,
    listener: Option<u32>,
    /// Handlers that run, by request.
    tasks: HashMap<u32, u32>,
    readable: Waker,
    /// Waits for the peer's hello.
    ready: Option<Ready>,
    hello_until: u64,
}

struct Listening {
    id: Option<ListenId>,
    runner: u32,
    drain: Option<(u64, oneshot::Sender<usize>)>,
}

struct Connecting {
    addresses: Vec<SocketAddr>,
    /// Address and transport that are tried, and when this attempt ends.
    at: (usize, usize),
    attempt: Option<ConnectionId>,
    until: u64,
    deadline: u64,
    /// Why the transport before failed.
    reason: Option<io::Error>,
    runner: Option<Box<dyn Runner>>,
    reply: Option<Ready>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        // A peer's message takes no more memory than the longest frame: a body of the limit, or a hello.
        let mut options = shared.options().worker.clone();
        let longest = shared.options().limits.body.saturating_add((META_LIMIT + HEADER) as u32).max(2 << 20);
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
            heap: Arc::new(MemoryPool::new(None, shared.options().watermark)),
            registered: None,
            next: u64::MAX,
            arrived: Vec::new(),
            expired: Vec::new(),
            is_ending: false,
            shared,
        })
    }

    /// The descriptor that is readable when the worker has something, after it was armed.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.worker.fd()
    }

    /// Whether it has no users left.
    pub(super) fn is_over(&self) -> bool {
        // What was sent still arrives: the worker keeps its connections for the linger time.
        self.is_ending
            && self.links.len() == self.free.len()
            && self.connecting.is_empty()
            && self.worker.connections() == 0
    }

    /// When it has to have a turn although nothing happens.
    pub(super) fn deadline(&self) -> Instant {
        self.shared.instant(self.next)
    }

    /// One turn. `polls` is whether the worker is asked for what has happened. Returns whether something did.
    pub(super) fn turn(&mut self, polls: bool) -> bool {
        let mut count = if polls { self.worker.poll() } else { 0 };
        let mut signal = mem::take(&mut self.signal);
        self.shared.take(&mut signal);
        for command in signal.commands.drain(..) {
            count += 1;
            self.execute(command);
        }
        self.check_transfers();
        if polls {
            self.accept();
            self.connect();
        }
        count += signal.readable.len() + signal.dirty.len() + signal.tasks.len();
        for index in signal.readable.drain(..) {
            self.read(index);
        }
        for (runner, task) in signal.tasks.drain(..) {
            if let Some((link, id)) = self.runner(runner).and_then(|runner| runner.poll(task))
                && let Some(Some(entry)) = self.links.get_mut(link as usize)
            {
                entry.tasks.remove(&id);
            }
        }
        let now = self.shared.now();
        if now >= self.next {
            self.pass_time(now);
        }
        // What handlers have answered just now leaves together.
        for index in signal.dirty.drain(..) {
            self.transmit(index, now);
        }
        mem::swap(&mut self.shared.lock().dirty, &mut signal.dirty);
        for index in signal.dirty.drain(..) {
            self.transmit(index, now);
        }
        self.signal = signal;
        self.worker.flush();
        count != 0
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Connect { addresses, runner, reply } => {
                let deadline = self.shared.now() + self.shared.options().connect.as_micros() as u64;
                self.next = self.next.min(deadline);
                self.connecting.push(Connecting {
                    addresses,
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
                // If the receiver has given up, it ends.
                _ = reply.send(listened.map(|(id, address)| {
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
                    self.transmit(link.index, self.shared.now());
                    self.end(link.index, failure, code, &reason);
                }
            }
            Command::Open { link, parts, reply } => {
                let id = self.id_of(&link);
                let open = parts.into_iter().map(|part| {
                    let (region, range, is_writable) = part?;
                    // Without a key the bytes travel in frames.
                    self.worker.open_region(id?, &region, range, is_writable).ok()
                });
                let open = open.collect();
                // If the caller has given up, the keys are taken back.
                _ = reply.send(Keys { link, open });
            }
            Command::Revoke { link, open } => {
                if let Some(id) = self.id_of(&link) {
                    open.iter().flatten().for_each(|open| self.worker.close_region(id, open));
                }
            }
            Command::Transfer { link, is_put, region: (region, range), remote: (key, offset), reply } => {
                let none = || io::Error::from(io::ErrorKind::NotConnected);
                let begun = self.id_of(&link).ok_or_else(none).and_then(|id| match is_put {
                    true => self.worker.put(id, (&region, range), (&key, offset)),
                    false => self.worker.get(id, (&region, range), (&key, offset)),
                });
                match begun {
                    Ok(transferring) => self.transfers.push((transferring, reply)),
                    // The handler may have ended.
                    Err(error) => _ = reply.send(Err(error)),
                }
            }
            Command::End => self.is_ending = true,
        }
    }

    fn id_of(&self, link: &Arc<Link>) -> Option<ConnectionId> {
        let entry = self.links.get(link.index as usize)?.as_ref()?;
        Arc::ptr_eq(&entry.link, link).then_some(entry.id)
    }

    /// Reports the transfers that have completed.
    fn check_transfers(&mut self) {
        let mut at = 0;
        while let Some((transferring, _)) = self.transfers.get(at) {
            let Some(is_well) = transferring.ended() else {
                at += 1;
                continue;
            };
            let (_, reply) = self.transfers.swap_remove(at);
            let text = "the caller gave the call up, or the connection ended";
            let outcome = if is_well { Ok(()) } else { Err(io::Error::new(io::ErrorKind::ConnectionAborted, text)) };
            // The handler may have ended.
            _ = reply.send(outcome);
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

    fn cancel(&mut self, runner: Option<u32>, task: Option<u32>) {
        if let (Some(runner), Some(task)) = (runner.and_then(|number| self.runner(number)), task) {
            runner.cancel(task);
        }
    }

    /// Drops a runner that no listener and no link has.
    fn free_runner(&mut self, number: u32) {
        let is_listening = self.listeners.iter().any(|listening| listening.id.is_some() && listening.runner == number);
        if !is_listening && !self.links.iter().flatten().any(|entry| entry.runner == Some(number)) {
            // The handler's own drop may use the endpoint.
            drop(self.runners[number as usize].take());
        }
    }

    fn accept(&mut self) {
        for number in 0..self.listeners.len() {
            let Listening { id: Some(id), runner, .. } = self.listeners[number] else { continue };
            while let Some(connection) = self.worker.accept(id) {
                self.add(connection, Side::Server, Some(runner), Some(number as u32), None);
            }
        }
    }

    /// Moves on what is connecting.
    fn connect(&mut self) {
        let mut at = 0;
        while at < self.connecting.len() {
            let mut connecting = self.connecting.swap_remove(at);
            match self.advance(&mut connecting) {
                None => {
                    self.connecting.push(connecting);
                    let last = self.connecting.len() - 1;
                    self.connecting.swap(at, last);
                    at += 1;
                }
                Some(Ok((id, fallback))) => {
                    let runner = connecting.runner.take().map(|runner| self.add_runner(runner));
                    let ready = connecting.reply.take();
                    self.add(id, Side::Client, runner, None, ready.map(|ready| (ready, fallback)));
                }
                Some(Err(error)) => {
                    if let Some(reply) = connecting.reply.take() {
                        // The receiver may have given up.
                        _ = reply.send(Err(error));
                    }
                }
            }
        }
    }

    /// Tries addresses, and for each RDMA before TCP.
    fn advance(&mut self, connecting: &mut Connecting) -> Option<io::Result<(ConnectionId, Option<String>)>> {
        let kinds: &[Kind] = match self.shared.options().worker.transport {
            Transport::Rdma => &[Kind::Rdma],
            Transport::Tcp => &[Kind::Tcp],
            _ => &[Kind::Rdma, Kind::Tcp],
        };
        loop {
            let now = self.shared.now();
            let (address, kind) = connecting.at;
            let error = if let Some(id) = connecting.attempt {
                match self.worker.is_established(id) {
                    Ok(true) => {
                        let reason = connecting.reason.take().map(|reason| reason.to_string());
                        return Some(Ok((id, reason)));
                    }
                    Ok(false) if now < connecting.until && !connecting.is_given_up() => return None,
                    Ok(false) => {
                        self.worker.close(id, 0, "");
                        io::Error::new(io::ErrorKind::TimedOut, "the peer does not answer")
                    }
                    Err(error) => {
                        self.worker.close(id, 0, "");
                        error
                    }
                }
            } else {
                let Some(&address) = connecting.addresses.get(address) else {
                    let none = || io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
                    return Some(Err(connecting.reason.take().unwrap_or_else(none)));
                };
                // Each attempt has an equal share of the time that is left.
                let left = (connecting.addresses.len() - connecting.at.0) * kinds.len() - kind;
                connecting.until = now + connecting.deadline.saturating_sub(now) / left.max(1) as u64;
                self.next = self.next.min(connecting.until);
                match self.worker.connect(kinds[kind], address) {
                    Ok(id) => {
                        connecting.attempt = Some(id);
                        continue;
                    }
                    Err(error) => error,
                }
            };
            if connecting.is_given_up() {
                return Some(Err(error));
            }
            connecting.attempt = None;
            // The peer is there, and refuses: another transport does not help.
            let next = kind + 1 < kinds.len() && error.kind() != io::ErrorKind::Unsupported;
            connecting.at = if next { (address, kind + 1) } else { (address + 1, 0) };
            connecting.reason = Some(match connecting.reason.take() {
                Some(rdma) if kind != 0 => io::Error::new(error.kind(), format!("{error}; and by RDMA: {rdma}")),
                _ => error,
            });
            if !next && connecting.at.0 < connecting.addresses.len() {
                connecting.reason = None;
            }
        }
    }

    /// A connection is established.
    fn add(
        &mut self,
        id: ConnectionId,
        side: Side,
        runner: Option<u32>,
        listener: Option<u32>,
        ready: Option<(Ready, Option<String>)>,
    ) {
        let (ready, fallback) = ready.map_or((None, None), |(ready, fallback)| (Some(ready), fallback));
        let facts = self.worker.stats(id).and_then(|stats| Ok((stats, self.worker.addresses(id)?)));
        let (stats, addresses) = match facts {
            Ok(facts) => facts,
            Err(error) => {
                self.worker.close(id, 0, "");
                if let Some(ready) = ready {
                    _ = ready.send(Err(error));
                }
                return;
            }
        };
        if let Some(reason) = &fallback {
            log::warn!("the connection to {} runs over TCP: no RDMA: {reason}", addresses.1);
        }
        let fallback = fallback.or(stats.fallback);
        let info = TransportInfo { kind: stats.transport, path: stats.path, fallback, addresses };
        let methods = runner.and_then(|runner| self.runner(runner)).map_or_else(Vec::new, |runner| runner.methods());
        let hello =
            Hello { versions: (1, 1), calls: 0, bytes: 0, body: 0, window: 0, attachment: 0, nonce: nonce(), methods };
        let now = self.shared.now();
        let core = Connection::new(side, self.shared.options().limits, &hello, now);
        let index = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() as u32 - 1
        });
        let readable = Waker::from(Arc::new(Readable { shared: Arc::clone(&self.shared), index }));
        if self.registered.is_none() && info.kind == Kind::Rdma {
            let registrar = self.worker.registrar(id).ok();
            self.registered = registrar.map(|of| Arc::new(MemoryPool::new(Some(of), self.heap.watermark())));
        }
        let memory = self.registered.as_ref().filter(|_| info.kind == Kind::Rdma).unwrap_or(&self.heap);
        let link = Arc::new(Link::new(Arc::clone(&self.shared), index, info, Arc::clone(memory), core));
        let hello_until = now + HELLO;
        self.next = self.next.min(hello_until);
        let tasks = HashMap::new();
        self.links[index as usize] = Some(Entry { link, id, runner, listener, tasks, readable, ready, hello_until });
        self.transmit(index, now);
        self.read(index);
    }

    /// Takes the messages of a link.
    fn read(&mut self, index: u32) {
        for _ in 0..TURN {
            let Some(Some(entry)) = self.links.get(index as usize) else { return };
            let failure = match self.worker.try_recv(entry.id) {
                Ok(message) => match self.message(index, message) {
                    Ok(()) => continue,
                    Err(violation) => {
                        self.arrived.clear();
                        log::warn!("ended a connection: {violation}");
                        RpcError::new(Status::PROTOCOL, Certainty::Unknown, violation.to_string())
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.worker.register(entry.id, Wait::Read, &entry.readable);
                    return;
                }
                Err(error) => {
                    let detail = match self.worker.peer_close(entry.id) {
                        Some((_, reason)) if !reason.is_empty() => format!("the peer closed the connection: {reason}"),
                        _ if error.kind() == io::ErrorKind::UnexpectedEof => {
                            "the peer closed the connection".to_owned()
                        }
                        _ => error.to_string(),
                    };
                    RpcError::new(Status::UNAVAILABLE, Certainty::Unknown, detail)
                }
            };
            let (code, text) = (failure.status.0, failure.detail.to_string());
            self.end(index, failure, code, &text);
            return;
        }
        // More later, so that other links have their turn.
        self.shared.poke(|signal| signal.readable.push(index));
    }

    /// Takes the frames of a message.
    fn message(&mut self, index: u32, mut message: Buf) -> Result<(), Violation> {
        let Some(Some(mut entry)) = self.links.get_mut(index as usize).map(Option::as_mut) else { return Ok(()) };
        let now = self.shared.now();
        let link = Arc::clone(&entry.link);
        let mut state = link.lock();
        let mut kept = None;
        let mut rest = &message[..];
        while !rest.is_empty() {
            let (frame, after) = Frame::split(rest)?;
            // A body that ends the message may keep its memory.
            let keeps = after.is_empty() && frame.body.len() >= KEEP;
            let at = message.len() - frame.body.len();
            rest = after;
            match state.core.on_frame(&frame, now)? {
                Event::None => {}
                Event::Ready => {
                    let methods = state.core.peer().map_or_else(Vec::new, |peer| peer.methods.clone());
                    link.set_methods(methods);
                    entry.hello_until = u64::MAX;
                    if let Some(ready) = entry.ready.take() {
                        // If the caller has given up, the connection closes.
                        _ = ready.send(Ok(Linked::new(&link)));
                    }
                }
                Event::Request(request) => {
                    let body = if keeps { Body::default() } else { Body::copy(request.body) };
                    if request.flags.has(Flags::STREAM_IN) || request.flags.bulks() != 0 {
                        state.serving.insert(request.id, Serving::default());
                    }
                    kept = keeps.then_some((None, at));
                    self.arrived.push(Arrived {
                        link: Arc::clone(&link),
                        id: request.id,
                        method: request.method,
                        flags: request.flags,
                        deadline: request.deadline,
                        meta: if request.meta.is_empty() { Body::default() } else { Body::copy(request.meta) },
                        body,
                    });
                }
                Event::Answer { id, status, is_refused: true, body } => {
                    let detail = String::from_utf8_lossy(body).into_owned();
                    state.on_answer(id, Err(RpcError::new(status, Certainty::Refused, detail)));
                }
                Event::Answer { id, status, body, .. } => {
                    if keeps {
                        kept = Some((Some((id, status)), at));
                    } else {
                        state.on_answer(id, Ok((status, Body::copy(body))));
                    }
                }
                Event::Item { id, body } => state.on_item(id, Body::copy(body)),
                Event::End { id } => {
                    if let Some(serving) = state.serving.get_mut(&id) {
                        serving.has_ended = true;
                    }
                    state.wake_reader(id);
                }
                Event::Room { id } => state.wake_writer(id),
                Event::Cancel { id } => {
                    state.end_serving(id);
                    if let Some(place) = self.arrived.iter().position(|request| request.id == id) {
                        // It came with the request, which does not begin.
                        self.arrived.remove(place);
                        kept = None;
                    }
                    // The handler's own drop may use the link.
                    drop(state);
                    let (runner, task) = (entry.runner, entry.tasks.remove(&id));
                    self.cancel(runner, task);
                    state = link.lock();
                    let Some(Some(again)) = self.links.get_mut(index as usize) else { return Ok(()) };
                    entry = again;
                    state.core.answer(id, Status::CANCELLED, false, &[]);
                }
                Event::Bulk(frame) => state.on_bulk(&frame)?,
                Event::GoAway { reason } => {
                    log::info!("the peer takes no more calls: {}", String::from_utf8_lossy(reason));
                }
            }
        }
        if let Some((answer, at)) = kept {
            message.advance(at);
            let body = Body::message(message);
            match answer {
                None => _ = self.arrived.last_mut().map(|request| request.body = body),
                Some((id, status)) => state.on_answer(id, Ok((status, body))),
            }
        } else {
            drop(message);
        }
        state.wake_room();
        let is_new = !state.is_dirty && state.wants_transmit();
        state.is_dirty |= is_new;
        state.looks_at = state.core.next_timeout();
        self.next = self.next.min(state.looks_at);
        drop(state);
        if is_new {
            self.shared.poke(|signal| signal.dirty.push(index));
        }
        self.begin(index);
        Ok(())
    }

    /// Begins the handlers of what arrived.
    fn begin(&mut self, index: u32) {
        let mut arrived = mem::take(&mut self.arrived);
        for request in arrived.drain(..) {
            let Some(Some(entry)) = self.links.get_mut(index as usize) else { break };
            let id = request.id;
            let runner = entry.runner.and_then(|runner| self.runners.get_mut(runner as usize)?.as_mut());
            match runner {
                None => request.link.answer(id, Status::UNIMPLEMENTED, true, &[]),
                Some(runner) => {
                    if let Some(task) = runner.start(request) {
                        entry.tasks.insert(id, task);
                    }
                }
            }
        }
        self.arrived = arrived;
    }

    /// Sends what a link has.
    fn transmit(&mut self, index: u32, now: u64) {
        let Some(Some(entry)) = self.links.get(index as usize) else { return };
        let mut state = entry.link.lock();
        state.is_dirty = false;
        let mut failed = None;
        while let Some(bytes) = state.core.poll_transmit(PACK, now) {
            match self.worker.try_send(entry.id, bytes) {
                Ok(()) => {
                    let sent = bytes.len();
                    state.core.transmitted(sent, now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // It is not announced again before there is room.
                    state.is_dirty = true;
                    self.worker.register(entry.id, Wait::Write, &writable(&self.shared, index));
                    break;
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if failed.is_none() && !state.is_dirty && !state.jobs.is_empty() {
            failed = match send_jobs(&mut self.worker, entry.id, &mut state) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    state.is_dirty = true;
                    self.worker.register(entry.id, Wait::Write, &writable(&self.shared, index));
                    None
                }
                sent => sent.err(),
            };
        }
        state.wake_room();
        state.looks_at = state.core.next_timeout();
        self.next = self.next.min(state.looks_at);
        drop(state);
        if let Some(error) = failed {
            // What the peer sent before its end is read first.
            self.read(index);
            let failure = RpcError::new(Status::UNAVAILABLE, Certainty::Unknown, error.to_string());
            self.end(index, failure, Status::UNAVAILABLE.0, "");
        }
    }

    /// Ends a link: its calls, its handlers, and its connection.
    fn end(&mut self, index: u32, failure: RpcError, code: u32, reason: &str) {
        let Some(mut entry) = self.links.get_mut(index as usize).and_then(Option::take) else { return };
        self.free.push(index);
        let mut state = entry.link.lock();
        let detail = failure.detail.to_string();
        state.fail(failure);
        let (serving, jobs) = (mem::take(&mut state.serving), mem::take(&mut state.jobs));
        drop(state);
        drop(jobs);
        for serving in serving.into_values() {
            let puller = serving.expected.and_then(Expected::into_waker);
            [serving.reader, serving.writer, puller].into_iter().flatten().for_each(Waker::wake);
        }
        for (_, task) in entry.tasks.drain() {
            self.cancel(entry.runner, Some(task));
        }
        if let Some(ready) = entry.ready.take() {
            _ = ready.send(Err(io::Error::new(io::ErrorKind::ConnectionAborted, detail)));
        }
        self.worker.close(entry.id, code, reason);
        if let Some(runner) = entry.runner {
            self.free_runner(runner);
        }
    }

    fn pass_time(&mut self, now: u64) {
        self.next = u64::MAX;
        let mut expired = mem::take(&mut self.expired);
        for index in 0..self.links.len() as u32 {
            let Some(Some(entry)) = self.links.get_mut(index as usize) else { continue };
            let (link, hello_until) = (Arc::clone(&entry.link), entry.hello_until);
            let mut state = link.lock();
            let outcome = state.on_time(now, &mut expired);
            state.wake_room();
            drop(state);
            for id in expired.drain(..) {
                let Some(Some(entry)) = self.links.get_mut(index as usize) else { continue };
                let (runner, task) = (entry.runner, entry.tasks.remove(&id));
                self.cancel(runner, task);
                link.answer(id, Status::DEADLINE, false, &[]);
            }
            let late = now >= hello_until;
            self.next = self.next.min(hello_until);
            match outcome {
                Err(failure) => {
                    let reason = failure.detail.to_string();
                    self.end(index, failure, Status::UNAVAILABLE.0, &reason);
                }
                Ok(()) if late => {
                    let text = "the peer sent no hello";
                    let failure = RpcError::new(Status::UNAVAILABLE, Certainty::Unknown, text);
                    self.end(index, failure, Status::UNAVAILABLE.0, text);
                }
                Ok(()) => self.transmit(index, now),
            }
        }
        self.expired = expired;
        self.connect();
        for connecting in &self.connecting {
            self.next = self.next.min(connecting.until);
        }
        self.check_drains(now);
    }

    fn drain(&mut self, listener: u32, deadline: Instant, reply: oneshot::Sender<usize>) {
        let Some(listening) = self.listeners.get_mut(listener as usize) else { return };
        if let Some(id) = listening.id.take() {
            self.worker.unlisten(id);
        }
        listening.drain = Some((self.shared.micros(deadline), reply));
        for entry in self.links.iter().flatten().filter(|entry| entry.listener == Some(listener)) {
            entry.link.with(|state| state.core.go_away("the server is shutting down"));
        }
        self.check_drains(self.shared.now());
    }

    /// Ends the connections of a listener that is drained, or whose deadline has passed.
    fn check_drains(&mut self, now: u64) {
        /// Microseconds between two looks.
        const LOOK: u64 = 5_000;
        for number in 0..self.listeners.len() {
            let Some((deadline, _)) = &self.listeners[number].drain else { continue };
            let deadline = *deadline;
            let (mut left, mut done) = (0, Vec::new());
            for (index, entry) in self.links.iter().enumerate() {
                let Some(entry) = entry.as_ref().filter(|entry| entry.listener == Some(number as u32)) else {
                    continue;
                };
                // The peer has all answers, or the connection is lost.
                let is_drained =
                    entry.link.lock().core.is_drained() && self.worker.is_flushed(entry.id).unwrap_or(true);
                left += usize::from(!is_drained);
                if is_drained || now >= deadline {
                    done.push(index as u32);
                }
            }
            if left != 0 && now < deadline {
                self.next = self.next.min(deadline).min(now + LOOK);
                continue;
            }
            for index in done {
                let failure = RpcError::new(Status::UNAVAILABLE, Certainty::Unknown, "the server has shut down");
                self.end(index, failure, Status::UNAVAILABLE.0, "the server has shut down");
            }
            self.free_runner(self.listeners[number].runner);
            if let Some((_, reply)) = self.listeners[number].drain.take() {
                _ = reply.send(left);
            }
        }
    }

    /// Prepares to sleep on the descriptor; zero if there is something to do.
    pub(super) fn arm(&mut self) -> io::Result<Duration> {
        self.worker.arm()
    }
}

impl Connecting {
    /// Its caller has given up.
    fn is_given_up(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.end();
        for index in 0..self.links.len() as u32 {
            self.end(index, driver_ended(), Status::UNAVAILABLE.0, "the peer's program has ended");
        }
        self.worker.flush();
    }
}

/// Sends bytes of memories in frames, until there is no room (`WouldBlock`).
fn send_jobs(worker: &mut Worker, id: ConnectionId, state: &mut State) -> io::Result<()> {
    let State { core, jobs, .. } = state;
    while let Some(job) = jobs.front_mut() {
        // The call has ended meanwhile: its bytes have no use.
        let is_live = job.done.as_ref().map_or_else(|| core.call(job.id).is_some(), |done| !done.is_closed());
        let length = job.rest.len().min(PIECE);
        if is_live && length != 0 {
            let header =
                Connection::<super::link::Call>::bulk_header(job.id, job.index, BulkOperation::Data, job.offset);
            let mut head = Vec::with_capacity(HEADER);
            write_header(&mut head, &header, length);
            let mut message = worker.alloc(id, HEADER + length);
            message[..HEADER].copy_from_slice(&head);
            job.memory.read_at(job.rest.start, &mut message[HEADER..])?;
            worker.try_send_buf(id, message).map_err(|(error, _)| error)?;
            job.rest.start += length;
            job.offset += length as u64;
        }
        if (!is_live || job.rest.is_empty())
            && let Some(job) = jobs.pop_front()
            && let Some(done) = job.done
        {
            // The handler may have ended.
            _ = done.send(());
        }
    }
    Ok(())
}

/// Puts a link among those with something to send.
fn writable(shared: &Arc<Shared>, index: u32) -> Waker {
    struct Writable(Arc<Shared>, u32);

    impl std::task::Wake for Writable {
        fn wake(self: Arc<Self>) {
            self.0.poke(|signal| signal.dirty.push(self.1));
        }
    }

    Waker::from(Arc::new(Writable(Arc::clone(shared), index)))
}

/// A number that no other connection has, and that no peer can guess from another one: the standard library's hash keys are random.
fn nonce() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(COUNT.fetch_add(1, Ordering::Relaxed));
    hasher.write_u128(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos());
    hasher.finish()
}
