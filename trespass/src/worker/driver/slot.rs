//! The entry of a connection in the driver's table.

use crate::backend::{Established, ListenerId};
use crate::proto::{Agreement, Failure, Hello, Protocol, Stock};

use super::super::waiters::{Awaited, Waiters, Woken};

#[derive(Debug)]
pub(in crate::worker) struct Slot {
    pub(super) generation: u32,
    pub(super) due: Due,
    /// Whether the program has released the connection, which is then freed when its link has ended.
    pub(super) is_forgotten: bool,
    pub(super) is_ending: bool,
    pub(in crate::worker) facts: Option<Established>,
    pub(super) waiters: Waiters,
    pub(super) state: State,
}

/// What the next turn has to do for a connection. If it is anything, the connection is in the table's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Nothing,
    /// Tasks and calls may have to be woken.
    Wakes,
    /// The whole state may have changed, so requests may wait to be posted.
    Work,
}

#[derive(Debug)]
pub(super) enum State {
    Free,
    Connecting(Hello),
    Accepting(ListenerId, Agreement),
    Open(Box<Protocol>),
    Failed(Failure),
}

impl Slot {
    pub(super) fn new() -> Slot {
        Slot {
            generation: 0,
            due: Due::Nothing,
            is_forgotten: false,
            is_ending: false,
            facts: None,
            waiters: Waiters::default(),
            state: State::Free,
        }
    }

    #[inline]
    pub(super) fn mark(&mut self, index: u32, dirty: &mut Vec<u32>) {
        mark(Due::Work, &mut self.due, index, dirty);
    }

    /// Wakes the tasks and calls whose condition the connection now fulfils.
    #[inline]
    pub(super) fn wake(&mut self, stock: &mut Stock, woken: &mut Woken) {
        if !self.waiters.is_empty() {
            self.wake_some(stock, woken);
        }
    }

    pub(super) fn wake_some(&mut self, stock: &mut Stock, woken: &mut Woken) {
        let State::Open(protocol) = &mut self.state else { return };
        if self.waiters.has(Awaited::Message) && protocol.can_receive(stock) {
            self.waiters.wake(Awaited::Message, woken);
        }
        if protocol.can_progress() && !protocol.lacks_memory(stock) {
            self.waiters.wake(Awaited::Room, woken);
        }
        // If the link has failed, a transfer fails when it is posted, so the tasks that wait for transfers are woken.
        self.waiters.wake(Awaited::Transfer, woken);
    }
}

/// Adds a connection to the list of the next turn, unless it is in the list.
#[inline(always)]
pub(super) fn mark(what: Due, due: &mut Due, index: u32, dirty: &mut Vec<u32>) {
    if *due == Due::Nothing {
        dirty.push(index);
    }
    *due = what.max(*due);
}
