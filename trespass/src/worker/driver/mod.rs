//! A driver is a backend together with its connections.

mod slot;
mod table;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::net::SocketAddr;

use bytes::BufMut;

use crate::backend::tcp::Tcp;
use crate::backend::verbs::{Incoming, Verbs};
use crate::backend::{Backend, LinkId, ListenerId};
use crate::memory::Buf;
use crate::proto::{FLOOR, Hello, Protocol, Refusal, RefusalCode, Settings, Stock};

use self::slot::{Due, State};
use self::table::Limits;
use super::waiters::Woken;

pub(super) use self::slot::Slot;
pub(super) use self::table::Table;

/// The interval, in milliseconds, at which all connections are checked.
const TICK: u64 = 500;
/// Number of receives that are posted together while no connection waits for their credits.
const REFILL: usize = 8;
/// A message that is fetched with a READ may use 1/`SHARE` of the pool, or 1 MiB if that is larger.
const SHARE: usize = 16;

/// A backend and its connections.
#[derive(Debug)]
pub(super) struct Driver<B> {
    pub(super) backend: B,
    pub(super) table: Table,
    /// Buffers that the backend no longer uses.
    spare: Vec<Buf>,
}

impl Driver<Verbs> {
    /// Runs a turn that only processes completions.
    #[inline]
    pub(super) fn turn_quickly(&mut self) -> usize {
        let count = self.backend.poll_quickly(&mut self.table, &mut self.spare);
        self.end_turn(count)
    }

    /// Takes a request to connect that has arrived at a listener of another device.
    pub(super) fn adopt(&mut self, incoming: Incoming) -> io::Result<()> {
        self.backend.adopt(incoming, &mut self.table)?;
        self.flush();
        Ok(())
    }
}

impl Driver<Tcp> {
    /// Records the SENDs that have completed, so that the worker can sleep without a turn that asks the kernel. Returns
    /// false if a turn is due because of them.
    pub(super) fn settle(&mut self) -> bool {
        let mut is_quiet = true;
        for (link, sent) in self.backend.take_sent() {
            let Some(mut open) = self.table.open(link) else { continue };
            open.protocol.sent(sent);
            // A connection that has waiters, but needs no turn, has nothing for them.
            if open.protocol.needs_turn(open.stock) {
                open.mark();
                is_quiet = false;
            }
        }
        if !is_quiet {
            // The next turn may leave TCP out.
            self.flush();
        }
        is_quiet
    }
}

impl<B: Backend> Driver<B> {
    /// Creates a driver without connections. `step` is the number of receives that are added at a time, and `backlog`
    /// the number of connections that a listener establishes before the program accepts them.
    pub(super) fn new(backend: B, settings: Settings, step: u32, backlog: u32, now: u64) -> Driver<B> {
        let abilities = backend.abilities();
        // The peer chooses a message's length, so one message may use only a small share of the pool.
        let share = u32::try_from(backend.pool().limit() / SHARE).unwrap_or(u32::MAX);
        let settings = Settings {
            rendezvous: settings.rendezvous.min(share.max(1 << 20)),
            announces: abilities.announces,
            ..settings
        };
        let table = Table {
            stock: Stock::new(backend.pool().clone()),
            slots: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            incoming: VecDeque::new(),
            held: VecDeque::new(),
            unaccepted: HashMap::new(),
            backlog,
            woken: Woken::default(),
            accepted: Vec::new(),
            has_new_accepted: false,
            settings,
            limits: Limits {
                segment: abilities.segment,
                receives: abilities.receives,
                reads: abilities.reads,
                version: if abilities.writes { 2 } else { 1 },
            },
            step,
            now,
            next_tick: now + TICK,
            epoch: now << 20 ^ u64::from(std::process::id()),
        };
        Driver { backend, table, spare: Vec::new() }
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

    /// Returns whether the link is established. Returns an error if the attempt to connect has failed.
    pub(super) fn is_established(&self, link: LinkId) -> io::Result<bool> {
        match self.table.get(link).map(|slot| &slot.state) {
            Some(State::Open(_)) => Ok(true),
            Some(State::Failed(failure)) => Err(failure.clone().into()),
            Some(State::Connecting(_) | State::Accepting(..)) => Ok(false),
            Some(State::Free) | None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Runs a function on a connection. The next turn processes the connection if it has work.
    #[inline]
    pub(super) fn with<T>(
        &mut self,
        link: LinkId,
        act: impl FnOnce(&mut Protocol, &mut Stock, &mut B) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(mut open) = self.table.open(link) else { return Err(self.table.refusal(link)) };
        let result = act(open.protocol, open.stock, &mut self.backend);
        if open.stock.receives.len() >= REFILL {
            self.backend.post_receives(&mut open.stock.receives);
        }
        if open.stock.starved {
            open.mark();
        } else {
            open.mark_if_needed();
        }
        result
    }

    /// Looks for the next message of a connection. Unlike `with`, this leads to no turn, unless receives are free again.
    pub(super) fn look(&mut self, link: LinkId, look: impl FnOnce(&mut Protocol, &mut Stock) -> bool) -> bool {
        let Some(mut open) = self.table.open(link) else { return false };
        let free = open.stock.receives.len();
        let found = look(open.protocol, open.stock);
        if open.stock.receives.len() != free {
            open.mark_if_needed();
        }
        found
    }

    /// Returns a connection, which can only be read.
    pub(super) fn get(&self, link: LinkId) -> io::Result<&Protocol> {
        match self.table.get(link).map(|slot| &slot.state) {
            Some(State::Open(protocol)) => Ok(protocol),
            _ => Err(self.table.refusal(link)),
        }
    }

    /// Sends a message. This is a function of its own, so that the program's loop stays small.
    #[inline(never)]
    pub(super) fn send(&mut self, link: LinkId, message: &[u8]) -> io::Result<()> {
        let Some(mut open) = self.table.open(link) else { return Err(self.table.refusal(link)) };
        let backend = &mut self.backend;
        if open.protocol.send_now(message, open.stock, |header, message| backend.send_now(link, header, message)) {
            return Ok(());
        }
        let result = open.protocol.whole().try_send(message, open.stock, |message| backend.expose(link, message));
        open.mark_if_needed();
        result
    }

    /// Reads bytes of a stream.
    #[inline(never)]
    pub(super) fn read(&mut self, link: LinkId, mut out: &mut [u8]) -> io::Result<Option<usize>> {
        if let Some(mut open) = self.table.open(link)
            && let Some(count) = open.protocol.read_alone(out, open.stock)
        {
            if open.stock.receives.len() >= REFILL {
                self.backend.post_receives(&mut open.stock.receives);
            }
            if open.protocol.needs_turn(open.stock) {
                open.mark();
            }
            return Ok(Some(count));
        }
        self.read_to(link, &mut out)
    }

    /// Does the same as `read`. The memory may be uninitialised.
    #[inline(never)]
    pub(super) fn read_to(&mut self, link: LinkId, out: &mut impl BufMut) -> io::Result<Option<usize>> {
        self.with(link, |protocol, stock, _| protocol.read_to(out, stock))
    }

    /// Releases a connection. Sent messages still arrive, within the linger time.
    pub(super) fn forget(&mut self, link: LinkId, code: u32, reason: &str) {
        let now = self.table.now;
        let Some(slot) = self.table.get_mut(link) else { return };
        slot.is_forgotten = true;
        match &slot.state {
            State::Open(_) => {
                _ = self.with(link, |protocol, stock, _| {
                    protocol.whole().close(code, reason, now, stock);
                    Ok(())
                });
                self.table.free_if_over(link);
            }
            State::Failed(_) => self.table.free_slot(link),
            State::Connecting(_) | State::Accepting(..) => self.backend.disconnect(link),
            State::Free => {}
        }
    }

    /// Closes a listener. Nothing can accept the connections that are not established yet, so they end.
    pub(super) fn unlisten(&mut self, listener: ListenerId) {
        for link in self.table.accepting(listener) {
            self.forget(link, 0, "");
        }
        self.backend.unlisten(listener);
        self.table.unlisten(listener);
    }

    /// Runs one turn: processes events, answers requests to connect, and posts receives and requests. Returns the
    /// number of events.
    pub(super) fn turn(&mut self, budget: usize) -> usize {
        let count = self.backend.poll(budget, &mut self.table, &mut self.spare);
        self.end_turn(count)
    }

    /// Processes the events of a turn, and the program's calls since the last turn.
    #[inline]
    fn end_turn(&mut self, count: usize) -> usize {
        self.table.stock.turn = self.table.stock.turn.wrapping_add(1);
        if (count != 0 || !self.table.dirty.is_empty()) && self.has_work() {
            self.flush();
        }
        count
    }

    /// Whether requests wait to be posted, or buffers wait to be returned.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        let table = &self.table;
        // This is a single branch for several queues, because this code runs in each turn.
        table.dirty.len() | self.spare.len() | table.incoming.len() != 0 || table.stock.receives.len() >= REFILL
    }

    /// Posts the pending requests.
    pub(super) fn flush(&mut self) {
        if !self.table.incoming.is_empty() {
            self.answer();
        }
        if self.table.stock.receives.len() >= REFILL {
            self.refill();
        }
        if !self.table.dirty.is_empty() {
            self.service();
        }
        self.spare.drain(..).for_each(|buffer| self.table.stock.give(buffer));
    }

    /// Advances the time to `now`, in milliseconds.
    pub(super) fn tick(&mut self, now: u64) {
        let table = &mut self.table;
        table.now = now;
        if now < table.next_tick {
            return;
        }
        table.next_tick = now + TICK;
        for (index, slot) in table.slots.iter_mut().enumerate() {
            if let State::Open(protocol) = &mut slot.state {
                protocol.whole().tick(now, &mut table.stock);
                // Most connections are idle, so processing all of them would take most of the time of this loop.
                if protocol.needs_turn(&table.stock) || !slot.waiters.is_empty() {
                    slot.mark(index as u32, &mut table.dirty);
                }
            }
        }
        table.stock.trim();
        self.refill();
        self.flush();
    }

    /// Returns the time, in milliseconds, at which the driver needs its next turn even without events.
    pub(super) fn deadline(&self) -> u64 {
        let starved = if self.table.stock.starved { self.table.now + 1 } else { u64::MAX };
        let backend = self.backend.deadline().map_or(u64::MAX, |nanoseconds| nanoseconds / 1_000_000 + 1);
        self.table.next_tick.min(starved).min(backend)
    }

    pub(super) fn connections(&self) -> usize {
        self.table.slots.len() - self.table.free.len()
    }

    /// Returns the number of connections that are closing, have sent what their peers have not received, or have transfers
    /// that have not ended. The next flush makes the links report what was received.
    pub(super) fn unfinished(&mut self) -> usize {
        let Table { slots, dirty, .. } = &mut self.table;
        let mut count = 0;
        for (index, slot) in slots.iter_mut().enumerate() {
            if let State::Open(protocol) = &mut slot.state
                && !protocol.has_ended()
                && (slot.is_forgotten || !protocol.has_sent_all() || !protocol.has_moved_all())
            {
                protocol.whole().flush();
                slot.mark(index as u32, dirty);
                count += 1;
            }
        }
        count
    }

    #[inline]
    fn refill(&mut self) {
        if !self.table.stock.receives.is_empty() {
            self.backend.post_receives(&mut self.table.stock.receives);
        }
    }

    fn service(&mut self) {
        let Table { slots, stock, dirty, now, woken, .. } = &mut self.table;
        stock.starved = false;
        let mut over = Vec::new();
        let mut again = 0;
        for at in 0..dirty.len() {
            let index = dirty[at];
            let Some(slot) = slots.get_mut(index as usize) else { continue };
            let due = mem::replace(&mut slot.due, Due::Nothing);
            let State::Open(protocol) = &mut slot.state else { continue };
            if due == Due::Wakes {
                slot.wake(stock, woken);
                if stock.starved {
                    slot.due = Due::Work;
                    dirty[again] = index;
                    again += 1;
                }
                continue;
            }
            // Only posted receives may be announced.
            if !stock.receives.is_empty() {
                self.backend.post_receives(&mut stock.receives);
            }
            let link = LinkId { index, generation: slot.generation };
            let whole = protocol.whole();
            whole.transmit(stock, |buffer| self.backend.announce(link, buffer));
            if !whole.requests.is_empty() {
                self.backend.post(link, &mut whole.requests, &mut self.spare);
            }
            if !slot.is_ending && protocol.wants_disconnect(*now) {
                slot.is_ending = true;
                self.backend.disconnect(link);
            }
            let is_full = !protocol.requests.is_empty();
            if slot.is_forgotten && protocol.has_ended() {
                over.push(link);
            } else {
                slot.wake(stock, woken);
            }
            if is_full || stock.starved {
                // The connection stays marked for the next turn, because the send queue is full or no memory is free.
                slot.due = Due::Work;
                dirty[again] = index;
                again += 1;
            }
        }
        dirty.truncate(again);
        over.into_iter().for_each(|link| self.table.free_if_over(link));
    }

    /// Answers the requests to connect. If the backlog of a listener is full, its requests wait.
    fn answer(&mut self) {
        for incoming in mem::take(&mut self.table.incoming) {
            let listener = incoming.listener;
            let waiting = self.table.held.iter().filter(|held| held.listener == listener).count();
            if self.table.is_full(listener) && waiting < self.table.backlog.max(1) as usize {
                self.table.held.push_back(incoming);
                self.backend.hold(listener, true);
                continue;
            }
            if waiting == 0 {
                self.backend.hold(listener, false);
            }
            let busy = |text: &str| Refusal::new(RefusalCode::BUSY, text);
            let own = if self.table.is_full(listener) {
                Err(busy("the backlog of the listener is full"))
            } else {
                self.table.hello().map_err(|error| busy(&error.to_string()))
            };
            let agreed = own.and_then(|own| {
                let agreed = Hello::parse(&incoming.hello).and_then(|hello| own.agree(&hello));
                agreed.map(|agreement| (own, agreement)).inspect_err(|_| self.table.stock.ledger.release(FLOOR))
            });
            match agreed {
                Ok((hello, agreement)) => {
                    let link = self.table.slot(State::Accepting(listener, agreement));
                    self.refill();
                    self.backend.accept(incoming.id, link, &hello.emit());
                }
                Err(refusal) => {
                    rdma_mummy_sys::log!(info, "rejected a connection from {}: {refusal}", incoming.peer);
                    self.backend.reject(incoming.id, &refusal.emit());
                }
            }
        }
    }
}
