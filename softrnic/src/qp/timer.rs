//! Alarms of QPs, for retries. The thread runs them.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
#[cfg(test)]
use std::ptr;
use std::sync::atomic::{self, AtomicBool};
use std::sync::{Mutex, Weak};
use std::time::Instant;

use rdma_mummy_sys::program::Held;

use crate::qp::QueuePair;
use crate::sys::fork::PerProcess;
use crate::sys::thread::{Next, Place, Reactor, Task};
use crate::sys::unpoisoned;

#[derive(Debug)]
struct Queue {
    /// The alarms, of which the earliest comes first.
    alarms: BinaryHeap<Reverse<Alarm>>,
    /// The next sequence number. Sequence numbers order alarms of the same time, so that the heap never compares QPs.
    next: u64,
    /// When there are this many alarms, those of dropped QPs are removed.
    prune_at: usize,
    /// The place in the thread, which is taken when the first alarm is set.
    place: Option<Place>,
    /// Whether the thread runs alarms. It then looks for further ones.
    is_awake: bool,
}

/// The minimum number of alarms at which the alarms of dropped QPs are removed.
const MIN_PRUNE: usize = 64;

static QUEUE: PerProcess<Mutex<Queue>> =
    PerProcess::new(Mutex::new(Queue::new()), || Box::new(Mutex::new(Queue::new())));
/// Whether polls must run the alarms because the thread could not be started.
static NEEDS_POLLING: AtomicBool = AtomicBool::new(false);

impl Queue {
    const fn new() -> Self {
        Self { alarms: BinaryHeap::new(), next: 0, prune_at: MIN_PRUNE, place: None, is_awake: false }
    }

    /// Adds an alarm. Returns whether the alarm is the earliest.
    fn add(&mut self, when: Instant, pair: Weak<QueuePair>) -> bool {
        let is_earliest = self.alarms.peek().is_none_or(|Reverse(first)| when < first.when);
        let order = self.next;
        self.next = self.next.wrapping_add(1);
        self.alarms.push(Reverse(Alarm { when, order, pair }));
        self.prune();
        is_earliest
    }

    /// Removes the alarms of dropped QPs, if these may be half of all alarms.
    fn prune(&mut self) {
        if self.alarms.len() >= self.prune_at {
            self.alarms.retain(|Reverse(alarm)| alarm.pair.strong_count() > 0);
            self.prune_at = (2 * self.alarms.len()).max(MIN_PRUNE);
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

/// Sets an alarm, which calls `QueuePair::expired` at the time `when` unless the QP has been dropped.
pub(crate) fn at(when: Instant, pair: Weak<QueuePair>) {
    let _held = Held::new();
    let mut queue = unpoisoned(QUEUE.get().lock());
    let is_earliest = queue.add(when, pair);
    match queue.place {
        Some(place) if is_earliest && !queue.is_awake => place.wake(),
        Some(_) => {}
        None => {
            // The next alarm tries again. Until then, polling threads run the alarms.
            let log = |error: &_| rdma_mummy_sys::log!(error, "cannot start the thread for retries: {error}");
            queue.place = Reactor::of_process().add(|_| Ok(Box::new(Alarms(QUEUE.get())))).inspect_err(log).ok();
            NEEDS_POLLING.store(queue.place.is_none(), atomic::Ordering::Relaxed);
        }
    }
}

/// The time of a pending alarm of a QP. The alarm stays set even if the QP no longer waits, for example after a reset.
/// Another alarm is set only if its time is earlier.
#[derive(Debug, Default)]
pub(crate) struct NextCall(Option<Instant>);

impl NextCall {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Sets an alarm for `until`, unless an earlier alarm is pending. If the earlier alarm calls the QP before `until`,
    /// the QP sets another alarm.
    pub(crate) fn set(&mut self, pair: &QueuePair, until: Instant, now: Instant) {
        if self.0.is_none_or(|set| set <= now || set > until) {
            self.0 = Some(until);
            at(until, pair.this.clone());
        }
    }
}

/// Returns how many alarms of a QP are set.
#[cfg(test)]
pub(crate) fn pending(pair: &QueuePair) -> usize {
    let queue = unpoisoned(QUEUE.get().lock());
    queue.alarms.iter().filter(|Reverse(alarm)| ptr::eq(alarm.pair.as_ptr(), pair)).count()
}

/// Runs the alarms that are due, if the thread could not be started. This function is called after a poll that finds no
/// completion.
#[inline]
pub(crate) fn run_due_if_no_thread() {
    if NEEDS_POLLING.load(atomic::Ordering::Relaxed) {
        run_due();
    }
}

#[cold]
fn run_due() {
    let now = Instant::now();
    loop {
        let Ok(mut queue) = QUEUE.get().try_lock() else { return };
        if queue.alarms.peek().is_none_or(|Reverse(first)| first.when > now) {
            return;
        }
        let alarm = queue.alarms.pop();
        drop(queue);
        call(alarm);
    }
}

struct Alarms(&'static Mutex<Queue>);

impl Task for Alarms {
    /// Runs the first alarm that is due, or returns the time of the next one. An alarm may copy messages, so the other
    /// tasks have their turns between two alarms.
    fn turn(&mut self) -> Next {
        let mut queue = unpoisoned(self.0.lock());
        let next = queue.alarms.peek().map(|Reverse(first)| first.when);
        queue.is_awake = next.is_some_and(|next| next <= Instant::now());
        if !queue.is_awake {
            return next.into();
        }
        let alarm = queue.alarms.pop();
        // No lock is held while an alarm runs.
        drop(queue);
        call(alarm);
        Next::Now
    }
}

fn call(alarm: Option<Reverse<Alarm>>) {
    if let Some(pair) = alarm.and_then(|Reverse(alarm)| alarm.pair.upgrade()) {
        let _held = Held::new();
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

    #[test]
    fn earliest_alarm_is_first() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        let is_earliest = [30, 10, 20, 10].map(|delay| queue.add(now + Duration::from_millis(delay), Weak::new()));
        assert_eq!(is_earliest, [true, true, false, false]);
        let orders: Vec<_> = std::iter::from_fn(|| queue.alarms.pop()).map(|Reverse(alarm)| alarm.order).collect();
        assert_eq!(orders, [1, 3, 2, 0]);
    }

    #[test]
    fn turn_runs_one_alarm() {
        let queue: &Mutex<Queue> = Box::leak(Box::new(Mutex::new(Queue::new())));
        let now = Instant::now();
        for when in [now, now, now + Duration::from_secs(60)] {
            queue.lock().unwrap().add(when, Weak::new());
        }
        let mut alarms = Alarms(queue);
        for left in [2, 1] {
            assert!(matches!(alarms.turn(), Next::Now));
            let queue = queue.lock().unwrap();
            assert_eq!((queue.alarms.len(), queue.is_awake), (left, true));
        }
        assert!(matches!(alarms.turn(), Next::At(when) if when > now) && !queue.lock().unwrap().is_awake);
    }

    #[test]
    fn alarms_of_dropped_qps_are_removed() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        let end = End::new(Service::ReliableConnection);
        let live = Arc::downgrade(&end.pair);
        for _ in 1..MIN_PRUNE {
            queue.add(now, Weak::new());
        }
        assert_eq!(queue.alarms.len(), MIN_PRUNE - 1);
        queue.add(now, live.clone());
        assert_eq!(queue.alarms.len(), 1);
        // The alarms of QPs that still exist stay. The next removal happens when there are twice as many alarms.
        for _ in 1..2 * MIN_PRUNE - 1 {
            queue.add(now, live.clone());
        }
        assert_eq!((queue.alarms.len(), queue.prune_at), (2 * MIN_PRUNE - 1, 2 * MIN_PRUNE));
        drop(end);
        assert_eq!(live.strong_count(), 0);
        queue.add(now, Weak::new());
        assert_eq!((queue.alarms.len(), queue.prune_at), (0, MIN_PRUNE));
    }
}
