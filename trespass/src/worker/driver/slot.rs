//! The entry of a connection in the driver's table.

use crate::backend::{Established, ListenerId};
use crate::proto::{Agreement, Failure, Hello, Protocol, Stock};

use super::super::waiters::{Awaited, Waiters, Woken};

#[derive(Debug)]
pub(in crate::worker) struct Slot {
    pub(super) generation: u32,
    pub(super) is_dirty: bool,
    /// Whether the program has released the connection, which is then freed when its link has ended.
    pub(super) is_forgotten: bool,
    pub(super) is_ending: bool,
    pub(in crate::worker) facts: Option<Established>,
    pub(super) waiters: Waiters,
    pub(super) state: State,
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
            is_dirty: false,
            is_forgotten: false,
            is_ending: false,
            facts: None,
            waiters: Waiters::default(),
            state: State::Free,
        }
    }

    #[inline]
    pub(super) fn mark(&mut self, index: u32, dirty: &mut Vec<u32>) {
        if !self.is_dirty {
            self.is_dirty = true;
            dirty.push(index);
        }
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
