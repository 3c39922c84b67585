//! The connections of a driver, and the work that the events of the backend have left pending.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::net::SocketAddr;

use crate::backend::{Ended, Established, Events, IncomingId, LinkId, ListenerId};
use crate::memory::{Buf, check_spare};
use crate::proto::{Agreement, FLOOR, Failure, Hello, Protocol, Refusal, RefusalCode, Settings, Stock};

use super::super::waiters::{Awaited, Waiters, Woken};
use super::slot::{Due, Slot, State, mark};

/// The connections, and the work that the events of the backend have left pending.
#[derive(Debug)]
pub(in crate::worker) struct Table {
    pub(in crate::worker) stock: Stock,
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<u32>,
    pub(super) dirty: Vec<u32>,
    pub(super) incoming: VecDeque<Incoming>,
    /// Requests to connect that wait until the program has accepted earlier connections of their listener.
    pub(super) held: VecDeque<Incoming>,
    /// The number of connections of each listener that the program has not accepted yet.
    pub(super) unaccepted: HashMap<ListenerId, u32>,
    /// Maximum number of these connections of a listener.
    pub(super) backlog: u32,
    /// Wakers that must be called.
    pub(in crate::worker) woken: Woken,
    /// Established connections that wait for `accept`.
    pub(in crate::worker) accepted: Vec<(ListenerId, LinkId)>,
    /// Whether a connection was added to `accepted` since the waiting calls were last woken.
    pub(in crate::worker) has_new_accepted: bool,
    pub(super) settings: Settings,
    pub(super) limits: Limits,
    /// Number of receives that are added at a time.
    pub(super) step: u32,
    pub(super) now: u64,
    pub(in crate::worker) next_tick: u64,
    pub(super) epoch: u64,
}

/// A request to connect.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) listener: ListenerId,
    pub(super) id: IncomingId,
    pub(super) peer: SocketAddr,
    pub(super) hello: Vec<u8>,
}

/// The values that this side puts into its hello.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) segment: u32,
    pub(super) receives: u32,
    pub(super) reads: u16,
    /// The newest version of the protocol that the backend supports.
    pub(super) version: u8,
}

/// An open connection, and what an operation on it uses.
pub(super) struct Open<'t> {
    pub(super) protocol: &'t mut Protocol,
    pub(super) stock: &'t mut Stock,
    has_waiters: bool,
    due: &'t mut Due,
    dirty: &'t mut Vec<u32>,
    index: u32,
}

impl Open<'_> {
    /// Marks the connection for the next turn.
    #[inline(always)]
    pub(super) fn mark(&mut self) {
        mark(Due::Work, self.due, self.index, self.dirty);
    }

    /// Marks the connection for the next turn if it needs one.
    #[inline(always)]
    pub(super) fn mark_if_needed(&mut self) {
        if *self.due != Due::Work && self.protocol.needs_turn(self.stock) {
            self.mark();
        }
    }

    /// Does the same after an event, which may also be one for which a task or a call waits.
    #[inline(always)]
    fn mark_if_due(&mut self) {
        self.mark_if_needed();
        if self.has_waiters {
            mark(Due::Wakes, self.due, self.index, self.dirty);
        }
    }
}

impl Table {
    /// Returns a connection, if it is open.
    #[inline(always)]
    pub(super) fn open(&mut self, link: LinkId) -> Option<Open<'_>> {
        let Table { slots, stock, dirty, .. } = self;
        match slots.get_mut(link.index as usize) {
            Some(Slot { generation, state: State::Open(protocol), due, waiters, .. })
                if *generation == link.generation =>
            {
                let has_waiters = !waiters.is_empty();
                Some(Open { protocol, stock, has_waiters, due, dirty, index: link.index })
            }
            _ => None,
        }
    }

    pub(in crate::worker) fn get(&self, link: LinkId) -> Option<&Slot> {
        self.slots.get(link.index as usize).filter(|slot| slot.generation == link.generation)
    }

    pub(in crate::worker) fn get_mut(&mut self, link: LinkId) -> Option<&mut Slot> {
        self.slots.get_mut(link.index as usize).filter(|slot| slot.generation == link.generation)
    }

    /// Returns why a connection is not open.
    #[cold]
    pub(super) fn refusal(&self, link: LinkId) -> io::Error {
        match self.get(link).map(|slot| &slot.state) {
            Some(State::Failed(failure)) => failure.clone().into(),
            Some(State::Connecting(_) | State::Accepting(..)) => io::ErrorKind::WouldBlock.into(),
            Some(State::Open(_) | State::Free) | None => io::ErrorKind::NotConnected.into(),
        }
    }

    /// Returns the tasks and calls that wait for a connection, and the list of wakers to call.
    pub(in crate::worker) fn waiters(&mut self, link: LinkId) -> Option<(&mut Waiters, &mut Woken)> {
        let slot = self.slots.get_mut(link.index as usize).filter(|slot| slot.generation == link.generation)?;
        Some((&mut slot.waiters, &mut self.woken))
    }

    /// Leases credits for a new connection, and returns the hello that grants them.
    pub(super) fn hello(&mut self) -> io::Result<Hello> {
        check_spare()?;
        let ledger = &self.stock.ledger;
        if ledger.total - ledger.leased < u32::from(FLOOR) {
            self.stock.add_receives(self.step.min(self.limits.receives.saturating_sub(ledger.total)));
        }
        if !self.stock.ledger.open() {
            let text = "no buffers are left for another connection; close some connections, or raise the limits of memory (ulimit -l, -v)";
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        self.epoch = self.epoch.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let hello = Hello::new(self.epoch);
        Ok(Hello {
            versions: (hello.versions.0, hello.versions.1.min(self.limits.version)),
            segment: self.limits.segment,
            credits: FLOOR,
            reads: self.limits.reads,
            rendezvous: self.settings.rendezvous,
            message: self.settings.message,
            ..hello
        })
    }

    pub(super) fn slot(&mut self, state: State) -> LinkId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new());
            self.slots.len() as u32 - 1
        });
        if let State::Accepting(listener, _) = &state {
            *self.unaccepted.entry(*listener).or_default() += 1;
        }
        let slot = &mut self.slots[index as usize];
        slot.state = state;
        LinkId { index, generation: slot.generation }
    }

    /// Frees the slot of a connection that has ended or was never established. The caller has released the connection's
    /// lease.
    pub(super) fn free_slot(&mut self, link: LinkId) {
        let Table { slots, stock, free, woken, .. } = self;
        let Some(slot) = slots.get_mut(link.index as usize).filter(|slot| slot.generation == link.generation) else {
            return;
        };
        let (generation, due) = (slot.generation.wrapping_add(1), slot.due);
        slot.waiters.wake_all(woken);
        let old = mem::replace(slot, Slot { generation, due, ..Slot::new() });
        match old.state {
            State::Open(mut protocol) => protocol.whole().forget(stock),
            State::Connecting(_) => stock.ledger.release(FLOOR),
            State::Accepting(listener, _) => {
                stock.ledger.release(FLOOR);
                self.leave_backlog(listener);
                return self.free.push(link.index);
            }
            State::Failed(_) | State::Free => {}
        }
        free.push(link.index);
    }

    pub(super) fn free_if_over(&mut self, link: LinkId) {
        let over = self.get(link).is_some_and(|slot| match &slot.state {
            State::Open(protocol) => slot.is_forgotten && protocol.has_ended(),
            _ => false,
        });
        if over {
            self.free_slot(link);
        }
    }

    /// Ends a connection that was not established. An incoming connection has no owner yet, so it is freed.
    pub(super) fn fail(&mut self, link: LinkId, failure: Failure) {
        let Table { slots, stock, woken, .. } = self;
        let Some(slot) = slots.get_mut(link.index as usize).filter(|slot| slot.generation == link.generation) else {
            return;
        };
        match slot.state {
            State::Connecting(_) if !slot.is_forgotten => {
                slot.state = State::Failed(failure);
                slot.waiters.wake_all(woken);
                stock.ledger.release(FLOOR);
            }
            State::Connecting(_) | State::Accepting(..) => self.free_slot(link),
            State::Open(_) | State::Failed(_) | State::Free => {}
        }
    }

    /// Returns the next established connection of a listener, which the program then owns.
    pub(in crate::worker) fn accept(&mut self, listener: ListenerId) -> Option<LinkId> {
        let at = self.accepted.iter().position(|(of, _)| *of == listener)?;
        let (_, link) = self.accepted.remove(at);
        self.leave_backlog(listener);
        if let Some(mut open) = self.open(link) {
            open.protocol.whole().claim(true);
            open.mark();
        }
        Some(link)
    }

    /// Whether the program must accept connections of this listener before another one is answered.
    pub(super) fn is_full(&self, listener: ListenerId) -> bool {
        self.unaccepted.get(&listener).is_some_and(|unaccepted| *unaccepted >= self.backlog.max(1))
    }

    /// Counts a connection of a listener no longer. The next request that waits is then answered.
    fn leave_backlog(&mut self, listener: ListenerId) {
        if let Some(unaccepted) = self.unaccepted.get_mut(&listener) {
            *unaccepted = unaccepted.saturating_sub(1);
        }
        if let Some(at) = self.held.iter().position(|held| held.listener == listener) {
            self.incoming.extend(self.held.remove(at));
        }
    }

    /// Returns the connections of a listener that are not established yet.
    pub(super) fn accepting(&self, listener: ListenerId) -> Vec<LinkId> {
        let slots = self.slots.iter().enumerate();
        let of = slots.filter(|(_, slot)| matches!(slot.state, State::Accepting(of, _) if of == listener));
        of.map(|(index, slot)| LinkId { index: index as u32, generation: slot.generation }).collect()
    }

    /// Forgets the requests to a listener that was closed.
    pub(super) fn unlisten(&mut self, listener: ListenerId) {
        self.incoming.retain(|incoming| incoming.listener != listener);
        self.held.retain(|held| held.listener != listener);
        self.unaccepted.remove(&listener);
    }

    /// Returns a connection that has an event, if it is open. The next turn processes the connection.
    fn touch(&mut self, link: LinkId) -> Option<Open<'_>> {
        let mut open = self.open(link)?;
        open.mark();
        Some(open)
    }

    /// Processes a SEND in all cases.
    #[inline(never)]
    fn received_any(&mut self, link: LinkId, mut message: Buf, length: usize) -> bool {
        let Some(mut open) = self.open(link) else {
            self.stock.free(message);
            return true;
        };
        match open.protocol.received_alone(message, length, false) {
            Ok(()) => {
                if open.has_waiters {
                    mark(Due::Wakes, open.due, open.index, open.dirty);
                }
                return true;
            }
            Err(unread) => message = unread,
        }
        let received = open.protocol.whole().received(message, length, open.stock);
        let is_sound = received.map_err(|violation| violated(open.protocol, violation)).is_ok();
        open.mark_if_due();
        is_sound
    }
}

impl Events for Table {
    fn incoming(&mut self, listener: ListenerId, id: IncomingId, peer: SocketAddr, hello: &[u8]) {
        self.incoming.push_back(Incoming { listener, id, peer, hello: hello.to_vec() });
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
                if !slot.is_forgotten {
                    self.accepted.push((listener, link));
                    self.has_new_accepted = true;
                }
                Ok(agreement)
            }
            _ => return,
        };
        let (agreement, refusal) = match agreed {
            Ok(agreement) => (agreement, None),
            // The failed connection is freed later, when its link has ended.
            Err(refusal) => (
                Agreement { version: 1, segment: 512, credits: FLOOR, reads: 0, rendezvous: 0, message: 0 },
                Some(io::Error::new(io::ErrorKind::Unsupported, refusal.to_string())),
            ),
        };
        let mut protocol = Box::new(Protocol::new(settings, agreement, FLOOR, now));
        protocol.whole().claim(!is_accepted);
        if let Some(refusal) = refusal {
            protocol.whole().fail(refusal.into());
        }
        let Table { slots, woken, .. } = self;
        let Some(slot) = slots.get_mut(link.index as usize) else { return };
        slot.state = State::Open(protocol);
        slot.waiters.wake_all(woken);
        _ = self.touch(link);
    }

    #[inline(always)]
    fn received(&mut self, link: LinkId, message: Buf, length: usize) -> bool {
        match self.open(link).filter(|open| !open.has_waiters) {
            Some(open) => match open.protocol.received_alone(message, length, true) {
                Ok(()) => true,
                Err(message) => self.received_any(link, message, length),
            },
            None => self.received_any(link, message, length),
        }
    }

    fn returned(&mut self, receive: Buf) {
        self.stock.free(receive);
    }

    #[inline]
    fn sent(&mut self, link: LinkId, requests: u32) {
        if let Some(mut open) = self.open(link) {
            open.protocol.sent(requests);
            open.mark_if_due();
        }
    }

    fn read(&mut self, link: LinkId, token: u32, into: Buf, whole: bool) {
        if let Some(open) = self.touch(link) {
            open.protocol.whole().read_done(token, into, whole);
        }
    }

    fn wrote(&mut self, link: LinkId, bytes: usize) {
        if let Some(open) = self.touch(link) {
            open.protocol.whole().wrote(bytes);
        }
    }

    fn landed(&mut self, link: LinkId, token: u32, message: Buf) {
        if let Some(open) = self.touch(link) {
            open.protocol.whole().landed(token, message, open.stock);
        }
    }

    fn moved(&mut self, link: LinkId) {
        if let Some(mut open) = self.open(link)
            && open.protocol.is_placing()
        {
            open.protocol.whole().moved();
            open.mark();
        }
        let Table { slots, woken, .. } = self;
        if let Some(slot) = slots.get_mut(link.index as usize).filter(|slot| slot.generation == link.generation) {
            slot.waiters.wake(Awaited::Transfer, woken);
        }
    }

    fn probed(&mut self, link: LinkId) {
        if let Some(open) = self.touch(link) {
            open.protocol.whole().probed();
        }
    }

    fn ended(&mut self, link: LinkId, why: Ended) {
        let failure = match why {
            Ended::Closed | Ended::PeerClosed => None,
            Ended::Rejected(bytes) => Some(rejected(&bytes).into()),
            Ended::Failed(error) => Some(Failure::from(error)),
        };
        if let Some(open) = self.touch(link) {
            open.protocol.whole().ended(failure, open.stock);
        } else {
            let aborted =
                || Failure::new(io::ErrorKind::ConnectionAborted, "the connection ended before it was established");
            self.fail(link, failure.unwrap_or_else(aborted));
        }
    }
}

#[cold]
fn violated(protocol: &mut Protocol, violation: Failure) {
    rdma_mummy_sys::log!(warn, "ended a connection: {violation}");
    protocol.whole().fail(violation);
}

/// Returns the error that the program receives for a rejection.
fn rejected(bytes: &[u8]) -> io::Error {
    match Refusal::parse(bytes) {
        Some(refusal) if refusal.code == RefusalCode::BUSY => {
            io::Error::new(io::ErrorKind::ConnectionRefused, refusal.to_string())
        }
        Some(refusal) => io::Error::new(io::ErrorKind::Unsupported, refusal.to_string()),
        None => io::ErrorKind::ConnectionRefused.into(),
    }
}
