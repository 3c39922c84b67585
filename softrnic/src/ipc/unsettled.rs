//! The QPs with responses that wait for the thread that holds the send queue. Later messages of peers wait for them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::sys::unpoisoned;
use crate::wire::transport::MAX_UNSETTLED;

/// The QPs, by their numbers.
#[derive(Debug)]
pub(super) struct Unsettled {
    list: Mutex<List>,
    has_any: AtomicBool,
}

#[derive(Debug)]
struct List {
    entries: Vec<Entry>,
    /// The number of responses that have been added.
    added: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    number: u32,
    /// The number of the QP's last response. A QP that was settled before that response is not settled. No other entry
    /// has this number, because another thread may remove the entry during a check, and a response may add it again.
    last: u64,
    /// When a message first waited. Later responses do not extend the wait.
    since: Option<Instant>,
}

impl Unsettled {
    pub(super) const fn new() -> Self {
        let list = List { entries: Vec::new(), added: 0 };
        Self { list: Mutex::new(list), has_any: AtomicBool::new(false) }
    }

    /// Records a QP that will handle a response later.
    #[cold]
    pub(super) fn add(&self, number: u32) {
        let mut list = unpoisoned(self.list.lock());
        list.added += 1;
        let last = list.added;
        match list.entries.iter_mut().find(|entry| entry.number == number) {
            Some(entry) => entry.last = last,
            None => list.entries.push(Entry { number, last, since: None }),
        }
        // A thread that receives later messages has read, with acquire ordering, that this response was delivered.
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// Whether messages must wait for a QP. `is_settled` returns whether the QP with a number has handled its responses.
    ///
    /// The load and the store of `check` order the completions of those responses before the messages that the caller
    /// delivers, also if they are in another completion queue.
    #[inline]
    pub(super) fn has_any(&self, is_settled: impl Fn(u32) -> bool) -> bool {
        self.has_any.load(Ordering::Acquire) && self.check(is_settled)
    }

    #[cold]
    fn check(&self, is_settled: impl Fn(u32) -> bool) -> bool {
        let mut settled = unpoisoned(self.list.lock()).entries.clone();
        // A QP runs its send queue here, which may send packets and open sessions. During this time, the lock is free
        // for the threads that receive.
        settled.retain(|entry| is_settled(entry.number));
        let mut list = unpoisoned(self.list.lock());
        let entries = &mut list.entries;
        entries.retain(|entry| settled.iter().all(|other| other.last != entry.last));
        self.has_any.store(!entries.is_empty(), Ordering::Release);
        let now = Instant::now();
        let holds = |entry: &mut Entry| now - *entry.since.get_or_insert(now) < MAX_UNSETTLED;
        entries.iter_mut().fold(false, |any, entry| holds(entry) | any)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn qp_that_runs_its_send_queue_keeps_no_other_thread_waiting() {
        let unsettled: &'static Unsettled = Box::leak(Box::new(Unsettled::new()));
        unsettled.add(1);
        let run = |_| {
            let (sender, added) = mpsc::channel();
            // Another thread receives a response at this time.
            thread::spawn(move || {
                unsettled.add(2);
                sender.send(()).unwrap();
            });
            added.recv_timeout(Duration::from_secs(60)).expect("the lock is free");
            true
        };
        assert!(unsettled.has_any(run), "QP 2 has a response");
        assert!(unsettled.has_any(|number| number != 2));
        assert!(!unsettled.has_any(|_| true));
        assert!(!unsettled.has_any(|_| panic!("no QP is left")));
    }

    #[test]
    fn response_that_arrives_after_another_thread_has_removed_its_qp_is_not_lost() {
        let unsettled = Unsettled::new();
        unsettled.add(1);
        let during_the_check = |number| {
            // Another thread ends its check first, and then a response arrives.
            assert!(!unsettled.has_any(|_| true));
            unsettled.add(number);
            true
        };
        assert!(unsettled.has_any(during_the_check));
        assert!(!unsettled.has_any(|_| true));
    }

    #[test]
    fn response_that_arrives_during_the_check_is_not_lost() {
        let unsettled = Unsettled::new();
        unsettled.add(1);
        let settled_before_another_response = |number| {
            unsettled.add(number);
            true
        };
        assert!(unsettled.has_any(settled_before_another_response));
        assert!(unsettled.has_any(|_| false));
        assert!(!unsettled.has_any(|_| true));
    }
}
