//! The gates of registered memory, in every order in which two threads can come by, and in those of three with up to two interruptions: deregistering waits for those who use a region, ends
//! once they have left, and what is behind a gate is never changed while anybody looks.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../src/sys/rundown.rs"]
mod rundown;

/// What gates are built from: here, of a model that tries all orders.
mod sys {
    pub(super) mod sync {
        use std::sync::LockResult;

        pub(crate) use loom::hint::spin_loop;
        pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
        pub(crate) use loom::sync::{Condvar, Mutex};

        /// Each look is one more order, and the first shows what the others do.
        pub(crate) const SPINS: u32 = 1;

        pub(crate) fn unpoisoned<T>(result: LockResult<T>) -> T {
            result.unwrap()
        }
    }
}

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::rundown::{Rundown, Waiting};

/// Something behind a gate.
struct Room {
    gate: Rundown,
    waiting: Waiting,
    inside: UnsafeCell<u32>,
}

// SAFETY: the model looks who uses the cell when, which is what is tested.
unsafe impl Sync for Room {}
// SAFETY: as above.
unsafe impl Send for Room {}

impl Room {
    /// An open one, with 1 inside.
    fn new() -> Arc<Self> {
        let waiting = Waiting { lock: Mutex::new(()), left: Condvar::new() };
        let room = Self { gate: Rundown::closed(), waiting, inside: UnsafeCell::new(1) };
        room.gate.open();
        Arc::new(room)
    }

    fn enter(&self) -> bool {
        self.gate.enter(|| &self.waiting)
    }

    fn leave(&self) {
        self.gate.leave(|| &self.waiting);
    }

    fn close(&self) -> bool {
        self.gate.close(|| &self.waiting)
    }

    fn look(&self) -> u32 {
        // SAFETY: the model ends the test where another changes it meanwhile.
        self.inside.with(|inside| unsafe { *inside })
    }

    fn change(&self, value: u32) {
        // SAFETY: the model ends the test where another uses it meanwhile.
        self.inside.with_mut(|inside| unsafe { *inside = value });
    }
}

/// Who enters sees what is there, and nothing that is gone.
fn visit(room: &Room) {
    if room.enter() {
        let seen = room.look();
        assert!(seen == 1 || seen == 2, "{seen}");
        room.leave();
    }
}

#[test]
fn who_closes_waits_for_all_who_are_in() {
    // All orders of three threads take minutes; those with so many interruptions, seconds.
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(2);
    orders.check(|| {
        let room = Room::new();
        let visitors = [0, 1].map(|_| {
            let room = Arc::clone(&room);
            thread::spawn(move || visit(&room))
        });
        assert!(room.close());
        room.change(3);
        room.change(2);
        room.gate.open();
        visit(&room);
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
    });
}

#[test]
fn one_who_is_in_may_enter_again_while_it_is_closed() {
    loom::model(|| {
        let room = Room::new();
        let visitor = {
            let room = Arc::clone(&room);
            thread::spawn(move || {
                if room.enter() {
                    room.gate.enter_again();
                    room.leave();
                    assert_eq!(room.look(), 1);
                    room.leave();
                }
            })
        };
        assert!(room.close());
        room.change(3);
        visitor.join().unwrap();
        assert!(!room.enter(), "it is closed");
    });
}

#[test]
fn of_two_who_close_one_has_it() {
    loom::model(|| {
        let room = Room::new();
        let closers = [0, 1].map(|_| {
            let room = Arc::clone(&room);
            thread::spawn(move || {
                let is_mine = room.close();
                if is_mine {
                    room.change(3);
                }
                is_mine
            })
        });
        visit(&room);
        let count = closers.map(|closer| closer.join().unwrap()).into_iter().filter(|&is_mine| is_mine).count();
        assert_eq!(count, 1);
    });
}
