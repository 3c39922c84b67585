//! Run-down: in every order of two threads, and in those of three with up to two interruptions. Running down waits for each use and
//! ends after the last, and what is run down does not change while it is in use.

#[path = "../../src/sys/rundown.rs"]
mod rundown;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::rundown::{Rundown, Waiting};

/// Something that is run down.
struct Room {
    rundown: Rundown,
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
        let room = Self { rundown: Rundown::closed(), waiting, inside: UnsafeCell::new(1) };
        room.rundown.open();
        Arc::new(room)
    }

    fn enter(&self) -> bool {
        self.rundown.enter(|| &self.waiting)
    }

    fn leave(&self) {
        self.rundown.leave(|| &self.waiting);
    }

    fn close(&self) -> bool {
        self.rundown.close(|| &self.waiting)
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
        room.rundown.open();
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
                    room.rundown.enter_again();
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
