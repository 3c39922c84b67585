//! Tests run-downs in all interleavings of two threads, and in interleavings of three threads with up to two
//! preemptions. The run-down must wait until all uses have ended, and the object must not change while it is in use.

#[path = "../../../../softrnic/src/sys/rundown.rs"]
mod rundown;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::rundown::{Rundown, Waiting};

/// An object that run-down protection guards.
struct Object {
    rundown: Rundown,
    waiting: Waiting,
    inside: UnsafeCell<u32>,
}

// SAFETY: the model checks the accesses to the cell, which is the purpose of the test.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    /// Creates an object that is open and has the value 1.
    fn new() -> Arc<Self> {
        let waiting = Waiting { lock: Mutex::new(()), left: Condvar::new() };
        let object = Self { rundown: Rundown::closed(), waiting, inside: UnsafeCell::new(1) };
        object.rundown.open();
        Arc::new(object)
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

    fn read(&self) -> u32 {
        // SAFETY: the model fails the test on a concurrent change.
        self.inside.with(|inside| unsafe { *inside })
    }

    fn change(&self, value: u32) {
        // SAFETY: the model fails the test on a concurrent use.
        self.inside.with_mut(|inside| unsafe { *inside = value });
    }
}

/// Reads the value unless the object is closed.
fn read_if_open(object: &Object) {
    if object.enter() {
        let seen = object.read();
        assert!(seen == 1 || seen == 2, "{seen}");
        object.leave();
    }
}

#[test]
fn close_waits_for_all_users() {
    // Trying all interleavings of three threads takes minutes. Trying those with a limited number of preemptions takes
    // seconds.
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(2);
    orders.check(|| {
        let object = Object::new();
        let visitors = [0, 1].map(|_| {
            let object = Arc::clone(&object);
            thread::spawn(move || read_if_open(&object))
        });
        assert!(object.close());
        object.change(3);
        object.change(2);
        object.rundown.open();
        read_if_open(&object);
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
    });
}

#[test]
fn user_may_enter_again_during_a_close() {
    loom::model(|| {
        let object = Object::new();
        let visitor = {
            let object = Arc::clone(&object);
            thread::spawn(move || {
                if object.enter() {
                    object.rundown.enter_again();
                    object.leave();
                    assert_eq!(object.read(), 1);
                    object.leave();
                }
            })
        };
        assert!(object.close());
        object.change(3);
        visitor.join().unwrap();
        assert!(!object.enter(), "the object is closed");
    });
}

#[test]
fn only_one_of_two_closers_succeeds() {
    loom::model(|| {
        let object = Object::new();
        let closers = [0, 1].map(|_| {
            let object = Arc::clone(&object);
            thread::spawn(move || {
                let is_mine = object.close();
                if is_mine {
                    object.change(3);
                }
                is_mine
            })
        });
        read_if_open(&object);
        let count = closers.map(|closer| closer.join().unwrap()).into_iter().filter(|&is_mine| is_mine).count();
        assert_eq!(count, 1);
    });
}
