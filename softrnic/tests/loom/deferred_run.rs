//! The note for whoever has a requester's lock, and its mail, in the orders in which threads can come by with up to
//! some interruptions: nothing that was left stays there once all have gone.

#[path = "../../src/qp/deferred_run.rs"]
mod deferred_run;

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;

use crate::sys::sync::{AtomicBool, AtomicU8, Mutex};

/// What a lock guards: the kinds of mail that were read, and whether it was run.
#[derive(Default)]
struct Requester {
    kinds: u8,
    has_run: bool,
}

#[derive(Default)]
struct Pair {
    note: AtomicBool,
    mail: AtomicU8,
    requester: Mutex<Requester>,
}

impl Pair {
    fn run(&self, requester: &mut Requester) {
        requester.kinds |= deferred_run::take_mail(&self.mail);
        requester.has_run = true;
    }

    fn read_note(&self) {
        deferred_run::read(&self.note, &self.requester, |requester| self.run(requester));
    }

    fn look_again(&self) {
        deferred_run::leave(&self.note, || self.read_note());
    }

    fn mail_came(&self, kind: u8) {
        deferred_run::post(&self.mail, kind);
        self.look_again();
    }

    /// A program posts meanwhile.
    fn batch(&self) {
        let mut requester = self.requester.lock().unwrap();
        requester.kinds |= deferred_run::take_mail(&self.mail);
        deferred_run::unlock(requester, || self.read_note());
    }

    /// All have gone.
    fn assert_done(&self, kinds: u8) {
        let requester = self.requester.lock().unwrap();
        assert!(requester.has_run && !self.note.load(Ordering::Relaxed));
        assert_eq!((requester.kinds, self.mail.load(Ordering::Relaxed)), (kinds, 0));
    }
}

#[test]
fn who_lets_go_finds_the_note() {
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
            // The first leaves a note alone, as a responder does.
            thread::spawn(move || if kind == 0 { pair.look_again() } else { pair.mail_came(kind) })
        });
        pair.batch();
        others.into_iter().for_each(|other| other.join().unwrap());
        pair.assert_done(1);
    });
}
