//! When links send: at their times, and in their turns.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use rdma_mummy_sys::program::Held;

use super::Engine;
use crate::net::roce::window::Window;
use crate::sys::unpoisoned;
use crate::wire::address::Gid;

impl Engine {
    /// Returns the window of all connections to a host.
    pub(super) fn window(&self, host: Gid) -> Arc<Mutex<Window>> {
        let mut windows = unpoisoned(self.windows.lock());
        if let Some(window) = windows.get(&host).and_then(Weak::upgrade) {
            return window;
        }
        windows.retain(|_, window| window.strong_count() > 0);
        let window = Window::new();
        windows.insert(host, Arc::downgrade(&window));
        window
    }

    /// Makes the connections send whose turns have come.
    pub(in crate::net::roce) fn pass_turns(&self, window: &Mutex<Window>, now: Instant) {
        loop {
            let next = unpoisoned(window.lock()).next_turn();
            let Some(number) = next else { return };
            if let Some(link) = self.link(number) {
                link.take_turn(now);
            }
        }
    }

    /// Calls [`Link::expired`] of the QP `number` at a time.
    pub(in crate::net::roce) fn schedule(&self, when: Instant, number: u32) {
        let is_earliest = {
            let mut timers = unpoisoned(self.timers.lock());
            let is_earliest = timers.peek().is_none_or(|Reverse((first, _))| when < *first);
            timers.push(Reverse((when, number)));
            is_earliest
        };
        if is_earliest && let Some(sockets) = self.sockets.get() {
            sockets.place.wake();
        }
    }

    /// Returns how many times links must be called.
    #[cfg(test)]
    pub(in crate::net::roce) fn times(&self) -> usize {
        unpoisoned(self.timers.lock()).len()
    }

    /// Calls the links whose times have come. Returns the next time.
    pub(super) fn run_due(&self, now: Instant) -> Option<Instant> {
        let is_due = unpoisoned(self.timers.lock()).peek().is_some_and(|Reverse((when, _))| *when <= now);
        // The acknowledgement for which a link waits may have arrived.
        if is_due {
            self.receive(true);
        }
        loop {
            let number = {
                let mut timers = unpoisoned(self.timers.lock());
                match timers.peek() {
                    Some(Reverse((when, number))) if *when <= now => {
                        let number = *number;
                        timers.pop();
                        number
                    }
                    first => return first.map(|Reverse((when, _))| *when),
                }
            };
            if let Some(link) = self.link(number) {
                let _held = Held::new();
                link.expired(now);
            }
        }
    }
}
