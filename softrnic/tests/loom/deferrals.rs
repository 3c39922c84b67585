//! Deferred runs of a requester, in the orders of threads with up to some interruptions: nothing that was requested is left once
//! all threads have ended.

#[path = "../../src/qp/deferred_run.rs"]
mod deferred_run;

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;

use crate::sys::sync::{AtomicBool, AtomicU8, Mutex};

/// What a lock guards: the bits that were taken, and whether it was run.
#[derive(Default)]
struct Requester {
    kinds: u8,
    has_run: bool,
}

#[derive(Default)]
struct Pair {
    deferred: AtomicBool,
    pending: AtomicU8,
    requester: Mutex<Requester>,
}

impl Pair {
    fn run(&self, requester: &mut Requester) {
        requester.kinds |= deferred_run::take(&self.pending);
        requester.has_run = true;
    }

    fn run_deferred(&self) -> bool {
        deferred_run::run(&self.deferred, &self.requester, |requester| self.run(requester))
    }

    fn look_again(&self) {
        deferred_run::request(&self.deferred, || self.run_deferred());
    }

    fn mail_came(&self, kind: u8) {
        deferred_run::set(&self.pending, kind);
        self.look_again();
    }

    /// A program posts meanwhile.
    fn batch(&self) {
        let mut requester = self.requester.lock().unwrap();
        requester.kinds |= deferred_run::take(&self.pending);
        deferred_run::unlock(requester, || self.run_deferred());
    }

    /// All have gone.
    fn assert_done(&self, kinds: u8) {
        let requester = self.requester.lock().unwrap();
        assert!(requester.has_run && !self.deferred.load(Ordering::Relaxed));
        assert_eq!((requester.kinds, self.pending.load(Ordering::Relaxed)), (kinds, 0));
    }
}

#[test]
fn unlocking_runs_what_was_requested() {
    loom::model(|| {
        let pair = Arc::new(Pair::default());
        let other = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || pair.mail_came(1))
        };
        pair.batch();
        other.join().unwrap();
        pair.assert_done(1);
    });
}

#[test]
fn of_several_who_leave_one_each_is_read() {
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(3);
    orders.check(|| {
        let pair = Arc::new(Pair::default());
        let others = [0, 1].map(|kind| {
            let pair = Arc::clone(&pair);
            // The first sets no bit, as a responder does.
            thread::spawn(move || if kind == 0 { pair.look_again() } else { pair.mail_came(kind) })
        });
        pair.batch();
        others.into_iter().for_each(|other| other.join().unwrap());
        pair.assert_done(1);
    });
}
