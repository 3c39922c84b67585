//! A backend with its connections.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::task::Waker;

use crate::backend::{Backend, Ended, Established, Events, IncomingId, LinkId, ListenerId, RegionPart};
use crate::memory::Buf;
use crate::proto::{
    Agreement, Connection, FLOOR, Failure, HEADER, Hello, Port, Refusal, RefusalCode, Remote, Settings, Stock,
};

/// Milliseconds between looks at all connections.
const TICK: u64 = 500;
/// Receives that are posted together while nothing waits for their credits.
const REFILL: usize = 8;
/// A message that is READ has this part of the pool at most.
const SHARE: usize = 16;

/// A backend and the connections that run over it.
#[derive(Debug)]
pub(super) struct Domain<B> {
    pub(super) backend: B,
    pub(super) table: Table,
    /// Buffers that the backend has done with.
    spare: Vec<Buf>,
}

/// The connections, and what the backend's events leave to be done.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) stock: Stock,
    slots: Vec<Slot>,
    free: Vec<u32>,
    dirty: Vec<u32>,
    incoming: Vec<(ListenerId, IncomingId, SocketAddr, Vec<u8>)>,
    /// Connections that are established, and wait for `accept`.
    pub(super) accepted: Vec<(ListenerId, LinkId)>,
    settings: Settings,
    limits: Limits,
    /// Receives that are added at a time.
    step: u32,
    now: u64,
    next_tick: u64,
    epoch: u64,
}

/// This side's values for the hello.
#[derive(Clone, Copy, Debug)]
struct Limits {
    segment: u32,
    receives: u32,
    reads: u16,
}

#[derive(Debug)]
pub(super) struct Slot {
    generation: u32,
    is_dirty: bool,
    /// The program has given it up: freed when the link has ended.
    is_forgotten: bool,
    is_ending: bool,
    pub(super) facts: Option<Established>,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    Connecting(Hello),
    Accepting(ListenerId, Agreement),
    Open(Box<Connection>),
    Failed(Failure),
}

/// Exposes buffers to one link.
pub(super) struct Link<'b, B> {
    backend: &'b mut B,
    id: LinkId,
}

impl<B: Backend> Port for Link<'_, B> {
    fn expose(&mut self, message: Buf) -> Result<Remote, Buf> {
        self.backend.expose(self.id, message)
    }

    #[inline]
    fn send_now(&mut self, header: &[u8; HEADER], payload: &[u8]) -> bool {
        self.backend.send_now(self.id, header, payload)
    }
}

impl<B: Backend> Link<'_, B> {
    pub(super) fn grant(&mut self, part: RegionPart) -> io::Result<Remote> {
        self.backend.grant(self.id, part)
    }
}

impl<B: Backend> Domain<B> {
    /// `step` is how many receives are added at a time.
    pub(super) fn new(backend: B, settings: Settings, step: u32, now: u64) -> Domain<B> {
        let abilities = backend.abilities();
        // One message takes a small share of the pool: its length is the peer's choice.
        let share = u32::try_from(backend.pool().limit() / SHARE).unwrap_or(u32::MAX);
        let settings = Settings { rendezvous: settings.rendezvous.min(share.max(1 << 20)), ..settings };
        let table = Table {
            stock: Stock::new(backend.pool().clone()),
            slots: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            incoming: Vec::new(),
            accepted: Vec::new(),
            settings,
            limits: Limits { segment: abilities.segment, receives: abilities.receives, reads: abilities.reads },
            step,
            now,
            next_tick: now + TICK,
            epoch: now << 20 ^ u64::from(std::process::id()),
        };
        Domain { backend, table, spare: Vec::new() }
    }

    /// Starts to connect.
    pub(super) fn connect(&mut self, address: SocketAddr) -> io::Result<LinkId> {
        let hello = self.table.hello()?;
        let link = self.table.slot(State::Connecting(hello));
        self.refill();
        let started = self.backend.connect(link, address, &hello.emit());
        started.inspect_err(|_| self.table.free_slot(link))?;
        Ok(link)
    }

    /// Whether the link is established; an error if it could not be.
    pub(super) fn is_established(&self, link: LinkId) -> io::Result<bool> {
        match self.table.get(link).map(|slot| &slot.state) {
            Some(State::Open(_)) => Ok(true),
            Some(State::Failed(failure)) => Err(failure.clone().into()),
            Some(State::Connecting(_) | State::Accepting(..)) => Ok(false),
            Some(State::Free) | None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Does something with a connection, which is looked at in the next turn if there is something to do.
    #[inline]
    pub(super) fn with<T>(
        &mut self,
        link: LinkId,
        act: impl FnOnce(&mut Connection, &mut Stock, &mut Link<'_, B>) -> io::Result<T>,
    ) -> io::Result<T> {
        let Table { slots, stock, dirty, .. } = &mut self.table;
        let Some(slot) = slots.get_mut(link.index as usize).filter(|slot| slot.generation == link.generation) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        match &mut slot.state {
            State::Open(connection) => {
                if stock.receives.len() >= REFILL {
                    self.backend.post_receives(&mut stock.receives);
                }
                let result = act(connection, stock, &mut Link { backend: &mut self.backend, id: link });
                if connection.needs_turn(stock) {
                    slot.mark(link.index, dirty);
                }
                result
            }
            State::Failed(failure) => Err(failure.clone().into()),
            State::Connecting(_) | State::Accepting(..) => Err(io::ErrorKind::WouldBlock.into()),
            State::Free => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends a message.
    #[inline]
    pub(super) fn send(&mut self, link: LinkId, message: &[u8]) -> io::Result<()> {
        let Table { slots, stock, .. } = &mut self.table;
        if let Some(Slot { generation, state: State::Open(connection), .. }) = slots.get_mut(link.index as usize)
            && *generation == link.generation
            && connection.send_now(message, stock, &mut Link { backend: &mut self.backend, id: link })
        {
            return Ok(());
        }
        self.with(link, |connection, stock, port| connection.try_send(message, stock, port))
    }

    /// The program gives a connection up. What it has sent still arrives, within the linger time.
    pub(super) fn forget(&mut self, link: LinkId, code: u32, reason: &str) {
        let now = self.table.now;
        let Some(slot) = self.table.get_mut(link) else { return };
        slot.is_forgotten = true;
        match &slot.state {
            State::Open(_) => {
                _ = self.with(link, |connection, stock, _| {
                    connection.close(code, reason, now, stock);
                    Ok(())
                });
                self.table.free_if_over(link);
            }
            State::Failed(_) => self.table.free_slot(link),
            State::Connecting(_) | State::Accepting(..) => self.backend.disconnect(link),
            State::Free => {}
        }
    }

    /// One turn: what has happened, answers, receives, requests. Returns how much there was.
    #[inline]
    pub(super) fn turn(&mut self, budget: usize) -> usize {
        self.table.stock.turn = self.table.stock.turn.wrapping_add(1);
        let count = self.backend.poll(budget, &mut self.table, &mut self.spare);
        if !self.table.incoming.is_empty() {
            self.answer();
        }
        if self.has_work() {
            self.flush();
        }
        count
    }

    /// Whether there is something to post, or to put away.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        let table = &self.table;
        !table.dirty.is_empty() || table.stock.receives.len() >= REFILL || !self.spare.is_empty()
    }

    /// Posts what is to be posted.
    pub(super) fn flush(&mut self) {
        self.refill();
        if !self.table.dirty.is_empty() {
            self.service();
        }
        self.spare.drain(..).for_each(|buffer| self.table.stock.give(buffer));
    }

    /// Lets time pass; `now` in milliseconds.
    pub(super) fn tick(&mut self, now: u64) {
        let table = &mut self.table;
        table.now = now;
        if now < table.next_tick {
            return;
        }
        table.next_tick = now + TICK;
        for (index, slot) in table.slots.iter_mut().enumerate() {
            if let State::Open(connection) = &mut slot.state {
                connection.tick(now, &mut table.stock);
                slot.mark(index as u32, &mut table.dirty);
            }
        }
        table.stock.trim();
        self.flush();
    }

    /// When the domain has to have a turn although nothing happens, in milliseconds.
    pub(super) fn deadline(&self) -> u64 {
        let starved = if self.table.stock.starved { self.table.now + 1 } else { u64::MAX };
        let backend = self.backend.deadline().map_or(u64::MAX, |nanoseconds| nanoseconds / 1_000_000 + 1);
        self.table.next_tick.min(starved).min(backend)
    }

    pub(super) fn connections(&self) -> usize {
        self.table.slots.len() - self.table.free.len()
    }

    #[inline]
    fn refill(&mut self) {
        if !self.table.stock.receives.is_empty() {
            self.backend.post_receives(&mut self.table.stock.receives);
        }
    }

    fn service(&mut self) {
        let Table { slots, stock, dirty, now, .. } = &mut self.table;
        stock.starved = false;
        let mut over = Vec::new();
        let mut again = 0;
        for at in 0..dirty.len() {
            let index = dirty[at];
            let Some(slot) = slots.get_mut(index as usize) else { continue };
            slot.is_dirty = false;
            let State::Open(connection) = &mut slot.state else { continue };
            let link = LinkId { index, generation: slot.generation };
            connection.transmit(stock);
            if !connection.requests.is_empty() {
                self.backend.post(link, &mut connection.requests, &mut self.spare);
            }
            if !slot.is_ending && connection.wants_disconnect(*now) {
                slot.is_ending = true;
                self.backend.disconnect(link);
            }
            let is_full = !connection.requests.is_empty();
            if slot.is_forgotten && connection.has_ended() {
                over.push(link);
            } else {
                slot.wake(stock);
            }
            if is_full || stock.starved {
                // Kept for the next turn: the send queue is full, or memory is missing.
                slot.is_dirty = true;
                dirty[again] = index;
                again += 1;
            }
        }
        dirty.truncate(again);
        over.into_iter().for_each(|link| self.table.free_if_over(link));
    }

    /// Answers the requests to connect.
    fn answer(&mut self) {
        for (listener, incoming, peer, bytes) in mem::take(&mut self.table.incoming) {
            let agreed =
                self.table.hello().map_err(|error| Refusal::new(RefusalCode::BUSY, &error.to_string())).and_then(
                    |own| {
                        let agreed = Hello::parse(&bytes).and_then(|hello| own.agree(&hello));
                        agreed.map(|agreement| (own, agreement)).inspect_err(|_| self.table.stock.ledger.release(FLOOR))
                    },
                );
            match agreed {
                Ok((hello, agreement)) => {
                    let link = self.table.slot(State::Accepting(listener, agreement));
                    self.refill();
                    self.backend.accept(incoming, link, &hello.emit());
                }
                Err(refusal) => {
                    log::info!("refused a connection of {peer}: {refusal}");
                    self.backend.reject(incoming, &refusal.emit());
                }
            }
        }
    }
}

impl Table {
    pub(super) fn get(&self, link: LinkId) -> Option<&Slot> {
        self.slots.get(link.index as usize).filter(|slot| slot.generation == link.generation)
    }

    pub(super) fn get_mut(&mut self, link: LinkId) -> Option<&mut Slot> {
        self.slots.get_mut(link.index as usize).filter(|slot| slot.generation == link.generation)
    }

    /// This side's hello, with credits that are leased for it.
    fn hello(&mut self) -> io::Result<Hello> {
        let ledger = &self.stock.ledger;
        if ledger.total - ledger.leased < u32::from(FLOOR) {
            self.stock.add_receives(self.step.min(self.limits.receives.saturating_sub(ledger.total)));
        }
        if !self.stock.ledger.open() {
            let text = "no receives are left for another connection; close some, or raise the limit of locked memory";
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        self.epoch = self.epoch.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        Ok(Hello {
            segment: self.limits.segment,
            credits: FLOOR,
            reads: self.limits.reads,
            rendezvous: self.settings.rendezvous,
            message: self.settings.message,
            ..Hello::new(self.epoch)
        })
    }

    fn slot(&mut self, state: State) -> LinkId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.state = state;
        LinkId { index, generation: slot.generation }
    }

    /// Frees the slot of a connection that has ended, or never was one; its lease is released by then.
    fn free_slot(&mut self, link: LinkId) {
        let Table { slots, stock, free, .. } = self;
        let Some(slot) = slots.get_mut(link.index as usize).filter(|slot| slot.generation == link.generation) else {
            return;
        };
        let (generation, is_dirty) = (slot.generation.wrapping_add(1), slot.is_dirty);
        slot.wake_all();
        let old = mem::replace(slot, Slot { generation, is_dirty, ..Slot::new() });
        match old.state {
            State::Open(connection) => connection.forget(stock),
            State::Connecting(_) | State::Accepting(..) => stock.ledger.release(FLOOR),
            State::Failed(_) | State::Free => {}
        }
        free.push(link.index);
    }

    fn free_if_over(&mut self, link: LinkId) {
        let over = self.get(link).is_some_and(|slot| match &slot.state {
            State::Open(connection) => slot.is_forgotten && connection.has_ended(),
            _ => false,
        });
        if over {
            self.free_slot(link);
        }
    }

    /// Ends what was not established yet. An incoming connection has no owner yet, and is freed.
    fn fail(&mut self, link: LinkId, failure: Failure) {
        let Some(slot) = self.get_mut(link) else { return };
        match slot.state {
            State::Connecting(_) if !slot.is_forgotten => {
                slot.state = State::Failed(failure);
                slot.wake_all();
                self.stock.ledger.release(FLOOR);
            }
            State::Connecting(_) | State::Accepting(..) => self.free_slot(link),
            State::Open(_) | State::Failed(_) | State::Free => {}
        }
    }

    /// The next connection of a listener that is established. The program has it now.
    pub(super) fn accept(&mut self, listener: ListenerId) -> Option<LinkId> {
        let at = self.accepted.iter().position(|(of, _)| *of == listener)?;
        let (_, link) = self.accepted.remove(at);
        if let Some((connection, _)) = self.open(link) {
            connection.claim();
        }
        Some(link)
    }

    /// A connection to which something has happened.
    fn open(&mut self, link: LinkId) -> Option<(&mut Connection, &mut Stock)> {
        let slot = self.slots.get_mut(link.index as usize).filter(|slot| slot.generation == link.generation)?;
        slot.mark(link.index, &mut self.dirty);
        match &mut slot.state {
            State::Open(connection) => Some((connection, &mut self.stock)),
            _ => None,
        }
    }
}

impl Events for Table {
    fn incoming(&mut self, listener: ListenerId, incoming: IncomingId, peer: SocketAddr, hello: &[u8]) {
        self.incoming.push((listener, incoming, peer, hello.to_vec()));
    }

    fn established(&mut self, link: LinkId, established: Established, hello: &[u8]) {
        let (settings, now) = (self.settings, self.now);
        let Some(slot) = self.get_mut(link) else { return };
        slot.facts = Some(established);
        let is_accepted = matches!(slot.state, State::Accepting(..));
        let agreed = match &slot.state {
            State::Connecting(own) => Hello::parse(hello).and_then(|peer| own.agree(&peer)),
            State::Accepting(listener, agreement) => {
                let (listener, agreement) = (*listener, *agreement);
                self.accepted.push((listener, link));
                Ok(agreement)
            }
            _ => return,
        };
        let Some(slot) = self.get_mut(link) else { return };
        match agreed {
            Ok(agreement) => {
                let connection = Connection::new(settings, agreement, FLOOR, now);
                slot.state = State::Open(Box::new(if is_accepted { connection.unclaimed() } else { connection }));
            }
            Err(refusal) => {
                // The link still has to end: a connection that has failed waits for it.
                let text = io::Error::new(io::ErrorKind::Unsupported, refusal.to_string());
                let agreement =
                    Agreement { version: 1, segment: 512, credits: FLOOR, reads: 0, rendezvous: 0, message: 0 };
                let mut connection = Box::new(Connection::new(settings, agreement, FLOOR, now));
                connection.fail(text.into());
                slot.state = State::Open(connection);
            }
        }
        slot.wake_all();
        _ = self.open(link);
    }

    #[inline]
    fn received(&mut self, link: LinkId, message: Buf) -> bool {
        let Table { slots, stock, dirty, .. } = self;
        match slots.get_mut(link.index as usize).filter(|slot| slot.generation == link.generation) {
            Some(Slot { state: State::Open(connection), is_dirty, reader, writer, .. }) => {
                let received = connection.received(message, stock);
                let is_sound = received.is_ok();
                if let Err(violation) = received {
                    log::warn!("ended a connection: {violation}");
                    connection.fail(violation);
                }
                if !*is_dirty && (reader.is_some() || writer.is_some() || connection.needs_turn(stock)) {
                    *is_dirty = true;
                    dirty.push(link.index);
                }
                is_sound
            }
            _ => {
                self.stock.free(message);
                true
            }
        }
    }

    fn returned(&mut self, receive: Buf) {
        self.stock.free(receive);
    }

    #[inline]
    fn sent(&mut self, link: LinkId, requests: u32) {
        let Table { slots, stock, dirty, .. } = self;
        if let Some(slot) = slots.get_mut(link.index as usize).filter(|slot| slot.generation == link.generation)
            && let State::Open(connection) = &mut slot.state
        {
            connection.sent(requests);
            if slot.writer.is_some() || connection.needs_turn(stock) {
                slot.mark(link.index, dirty);
            }
        }
    }

    fn read(&mut self, link: LinkId, token: u32, into: Buf, whole: bool) {
        if let Some((connection, _)) = self.open(link) {
            connection.read_done(token, into, whole);
        }
    }

    fn probed(&mut self, link: LinkId) {
        if let Some((connection, _)) = self.open(link) {
            connection.probed();
        }
    }

    fn ended(&mut self, link: LinkId, why: Ended) {
        let failure = match why {
            Ended::Closed | Ended::PeerClosed => None,
            Ended::Rejected(bytes) => Some(rejected(&bytes).into()),
            Ended::Failed(error) => Some(Failure::from(error)),
        };
        if let Some((connection, stock)) = self.open(link) {
            connection.ended(failure, stock);
        } else {
            let aborted =
                || Failure::new(io::ErrorKind::ConnectionAborted, "the connection ended before it was established");
            self.fail(link, failure.unwrap_or_else(aborted));
        }
    }
}

/// What a rejection is for the program.
fn rejected(bytes: &[u8]) -> io::Error {
    match Refusal::parse(bytes) {
        Some(refusal) if refusal.code == RefusalCode::BUSY => {
            io::Error::new(io::ErrorKind::ConnectionRefused, refusal.to_string())
        }
        Some(refusal) => io::Error::new(io::ErrorKind::Unsupported, refusal.to_string()),
        None => io::ErrorKind::ConnectionRefused.into(),
    }
}

impl Slot {
    fn new() -> Slot {
        Slot {
            generation: 0,
            is_dirty: false,
            is_forgotten: false,
            is_ending: false,
            facts: None,
            reader: None,
            writer: None,
            state: State::Free,
        }
    }

    #[inline]
    fn mark(&mut self, index: u32, dirty: &mut Vec<u32>) {
        if !self.is_dirty {
            self.is_dirty = true;
            dirty.push(index);
        }
    }

    /// Wakes the tasks that wait for what the connection now has.
    #[inline]
    fn wake(&mut self, stock: &mut Stock) {
        let State::Open(connection) = &mut self.state else { return };
        if self.reader.is_some()
            && connection.can_receive(stock)
            && let Some(waker) = self.reader.take()
        {
            waker.wake();
        }
        if self.writer.is_some()
            && connection.can_progress()
            && (!connection.lacks_memory() || stock.has_segment())
            && let Some(waker) = self.writer.take()
        {
            waker.wake();
        }
    }

    fn wake_all(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}
