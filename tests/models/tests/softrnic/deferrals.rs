//! Tests deferred runs of a requester in all interleavings of threads with a limited number of preemptions. When all
//! threads have ended, every run that was requested must have happened.

#[path = "../../../../softrnic/src/qp/deferred_run.rs"]
mod deferred_run;

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;

use crate::sys::sync::{AtomicBool, AtomicU8, Mutex};

/// The data that the lock protects: the bits that were taken so far, and whether the work has run.
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

    fn run_requester(&self) {
        deferred_run::request(&self.deferred, || self.run_deferred());
    }

    fn request_run(&self, kind: u8) {
        deferred_run::set(&self.pending, kind);
        self.run_requester();
    }

    /// Simulates that the program posts a request.
    fn batch(&self) {
        let mut requester = self.requester.lock().unwrap();
        requester.kinds |= deferred_run::take(&self.pending);
        deferred_run::unlock(requester, || self.run_deferred());
    }

    /// Asserts that all work that was requested was done.
    fn assert_done(&self, kinds: u8) {
        let requester = self.requester.lock().unwrap();
        assert!(requester.has_run && !self.deferred.load(Ordering::Relaxed));
        assert_eq!((requester.kinds, self.pending.load(Ordering::Relaxed)), (kinds, 0));
    }
}

#[test]
fn unlock_runs_requested_work() {
    loom::model(|| {
        let pair = Arc::new(Pair::default());
        let other = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || pair.request_run(1))
        };
        pair.batch();
        other.join().unwrap();
        pair.assert_done(1);
    });
}

#[test]
fn requests_of_several_threads_are_all_run() {
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(3);
    orders.check(|| {
        let pair = Arc::new(Pair::default());
        let others = [0, 1].map(|kind| {
            let pair = Arc::clone(&pair);
            // The first thread sets no bit, as a responder does.
            thread::spawn(move || if kind == 0 { pair.run_requester() } else { pair.request_run(kind) })
        });
        pair.batch();
        others.into_iter().for_each(|other| other.join().unwrap());
        pair.assert_done(1);
    });
}
