//! What is to happen later: retries. One thread of the process waits for all of it; it begins with the first, and sleeps while
//! there is none.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
#[cfg(test)]
use std::ptr;
use std::sync::atomic::{self, AtomicBool};
use std::sync::{Condvar, Mutex, MutexGuard, Weak};
use std::time::Instant;
use std::{io, thread};

use crate::qp::QueuePair;
use crate::sys::fork::PerProcess;
use crate::sys::{signals, unpoisoned};

/// What the thread waits for.
#[derive(Debug)]
struct Queue {
    /// The earliest first.
    alarms: BinaryHeap<Reverse<Alarm>>,
    /// Orders those of the same time, so that the heap never compares queue pairs.
    next: u64,
    /// The thread waits.
    is_begun: bool,
    /// With so many alarms those of queue pairs that are gone are thrown out.
    prune_at: usize,
}

/// Fewer alarms than this are never looked through.
const FEW: usize = 64;

/// What waits, and what tells the thread of something earlier.
static QUEUE: PerProcess<(Mutex<Queue>, Condvar)> = PerProcess::new(queue(), || Box::new(queue()));
/// There are alarms, and no thread waits for them.
static IS_HELPLESS: AtomicBool = AtomicBool::new(false);

const fn queue() -> (Mutex<Queue>, Condvar) {
    (Mutex::new(Queue { alarms: BinaryHeap::new(), next: 0, is_begun: false, prune_at: FEW }), Condvar::new())
}

impl Queue {
    /// Adds an alarm; whether it is the earliest.
    fn add(&mut self, when: Instant, pair: Weak<QueuePair>) -> bool {
        let is_earliest = self.alarms.peek().is_none_or(|Reverse(first)| when < first.when);
        let order = self.next;
        self.next = self.next.wrapping_add(1);
        self.alarms.push(Reverse(Alarm { when, order, pair }));
        self.prune();
        is_earliest
    }

    /// Throws out alarms of queue pairs that are gone, once they may be half of all.
    fn prune(&mut self) {
        if self.alarms.len() >= self.prune_at {
            self.alarms.retain(|Reverse(alarm)| alarm.pair.strong_count() > 0);
            self.prune_at = (2 * self.alarms.len()).max(FEW);
        }
    }
}

#[derive(Debug)]
struct Alarm {
    when: Instant,
    order: u64,
    pair: Weak<QueuePair>,
}

impl Alarm {
    fn key(&self) -> (Instant, u64) {
        (self.when, self.order)
    }
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Alarm {}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// Calls `QueuePair::expired` at that time, unless the queue pair is gone.
pub(crate) fn at(when: Instant, pair: Weak<QueuePair>) {
    let (queue, earlier) = QUEUE.get();
    let mut queue = unpoisoned(queue.lock());
    let is_earliest = queue.add(when, pair);
    if !queue.is_begun {
        match begin() {
            Ok(()) => queue.is_begun = true,
            // The next one tries again; until then who polls looks after them.
            Err(error) => log::error!("cannot start the thread that retries: {error}"),
        }
        IS_HELPLESS.store(!queue.is_begun, atomic::Ordering::Relaxed);
    } else if is_earliest {
        earlier.notify_one();
    }
}

/// When the queue pair is called, where that is still to come. What waits may have changed meanwhile, also by a reset: the alarm is
/// there nevertheless, and another only where it is to ring earlier.
#[derive(Debug, Default)]
pub(crate) struct NextCall(Option<Instant>);

impl NextCall {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Has the queue pair called at `until`, or earlier: who is called too early sets it again.
    pub(crate) fn set(&mut self, pair: &QueuePair, until: Instant, now: Instant) {
        if self.0.is_none_or(|set| set <= now || set > until) {
            self.0 = Some(until);
            at(until, pair.this.clone());
        }
    }
}

/// How many alarms a queue pair has.
#[cfg(test)]
pub(crate) fn pending(pair: &QueuePair) -> usize {
    let queue = unpoisoned(QUEUE.get().0.lock());
    queue.alarms.iter().filter(|Reverse(alarm)| ptr::eq(alarm.pair.as_ptr(), pair)).count()
}

/// Does what the thread does, now, where it could not be started: called by who polls in vain.
#[inline]
pub(crate) fn help() {
    if IS_HELPLESS.load(atomic::Ordering::Relaxed) {
        ring_due();
    }
}

#[cold]
fn ring_due() {
    let now = Instant::now();
    loop {
        let Ok(mut queue) = QUEUE.get().0.try_lock() else { return };
        if queue.alarms.peek().is_none_or(|Reverse(first)| first.when > now) {
            return;
        }
        let alarm = queue.alarms.pop();
        drop(queue);
        tell(alarm);
    }
}

/// Starts the thread.
fn begin() -> io::Result<()> {
    signals::without_signals(|| thread::Builder::new().name("softrnic".to_owned()).stack_size(256 << 10).spawn(wait))
        .map(drop)
}

/// The thread: for ever, as the process may need it again.
fn wait() {
    let (queue, earlier) = QUEUE.get();
    let mut queue = unpoisoned(queue.lock());
    loop {
        let now = Instant::now();
        queue = match queue.alarms.peek() {
            None => unpoisoned(earlier.wait(queue)),
            Some(Reverse(first)) if first.when > now => {
                let rest = first.when - now;
                unpoisoned(earlier.wait_timeout(queue, rest)).0
            }
            Some(_) => ring(queue),
        };
    }
}

/// Takes the earliest and tells its queue pair, with the lock let go.
fn ring(mut queue: MutexGuard<'static, Queue>) -> MutexGuard<'static, Queue> {
    let alarm = queue.alarms.pop();
    drop(queue);
    tell(alarm);
    unpoisoned(QUEUE.get().0.lock())
}

fn tell(alarm: Option<Reverse<Alarm>>) {
    if let Some(pair) = alarm.and_then(|Reverse(alarm)| alarm.pair.upgrade()) {
        pair.expired();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::qp::tests::End;
    use crate::wire::operation::Service;

    /// None that the thread looks at.
    fn own() -> Queue {
        queue().0.into_inner().unwrap()
    }

    #[test]
    fn the_earliest_alarm_comes_first() {
        let (mut queue, now) = (own(), Instant::now());
        let is_earliest = [30, 10, 20, 10].map(|delay| queue.add(now + Duration::from_millis(delay), Weak::new()));
        assert_eq!(is_earliest, [true, true, false, false]);
        let orders: Vec<_> = std::iter::from_fn(|| queue.alarms.pop()).map(|Reverse(alarm)| alarm.order).collect();
        assert_eq!(orders, [1, 3, 2, 0]);
    }

    #[test]
    fn alarms_of_queue_pairs_that_are_gone_are_thrown_out() {
        let (mut queue, now) = (own(), Instant::now());
        let end = End::new(Service::ReliableConnection);
        let live = Arc::downgrade(&end.pair);
        for _ in 1..FEW {
            queue.add(now, Weak::new());
        }
        assert_eq!(queue.alarms.len(), FEW - 1);
        queue.add(now, live.clone());
        assert_eq!(queue.alarms.len(), 1);
        // Those that live stay, and are not looked through again until they are twice as many.
        for _ in 1..2 * FEW - 1 {
            queue.add(now, live.clone());
        }
        assert_eq!((queue.alarms.len(), queue.prune_at), (2 * FEW - 1, 2 * FEW));
        drop(end);
        assert_eq!(live.strong_count(), 0);
        queue.add(now, Weak::new());
        assert_eq!((queue.alarms.len(), queue.prune_at), (0, FEW));
    }
}
