//! Completions of one completion queue that are held back, in the order in which the device reported them. Those of a
//! work queue keep their order; those of different ones may overtake each other, as verbs allow.

use std::collections::VecDeque;

/// A work queue of a queue pair, or one of both, if it is not known which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkQueue {
    pair: usize,
    queues: u8,
}

impl WorkQueue {
    const SENDS: u8 = 1;
    const RECEIVES: u8 = 2;

    /// The sends or the receives of a queue pair.
    pub(super) const fn of(pair: usize, is_receive: bool) -> Self {
        Self { pair, queues: if is_receive { Self::RECEIVES } else { Self::SENDS } }
    }

    pub(super) const fn either(pair: usize) -> Self {
        Self { pair, queues: Self::SENDS | Self::RECEIVES }
    }

    /// Whether both may be the same queue.
    fn meets(self, other: Self) -> bool {
        self.pair == other.pair && self.queues & other.queues != 0
    }
}

#[derive(Debug)]
pub(super) struct Line<T> {
    entries: VecDeque<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    of: WorkQueue,
    until: Until,
    item: T,
}

/// How long a completion is held back. Times are nanoseconds since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Until this time.
    Time(u64),
    /// Until a completion of another work queue has overtaken it, or this time, at which the device has no others.
    Overtaken(u64),
    /// Until the failed request of its queue pair has completed.
    Failure,
    /// Until the earlier ones of its work queue.
    Earlier,
}

impl<T> Line<T> {
    pub(super) const fn new() -> Self {
        Self { entries: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether completions of this work queue are held back, so that later ones must wait.
    pub(super) fn has(&self, of: WorkQueue) -> bool {
        self.entries.iter().any(|entry| entry.of.meets(of))
    }

    pub(super) fn hold(&mut self, of: WorkQueue, until: Until, item: T) {
        self.entries.push_back(Entry { of, until, item });
    }

    /// Records that the program gets a completion of this work queue.
    pub(super) fn pass(&mut self, of: WorkQueue) {
        for entry in &mut self.entries {
            if !entry.of.meets(of) && matches!(entry.until, Until::Overtaken(_)) {
                entry.until = Until::Earlier;
            }
        }
    }

    /// Takes the first completion that the program may get now. `is_free` decides about [`Until::Failure`]. The device has
    /// no other completions if `is_empty` is set.
    pub(super) fn take(&mut self, now: u64, is_empty: bool, is_free: impl Fn(&T) -> bool) -> Option<T> {
        let index = self.free(now, is_empty, is_free)?;
        let Entry { of, item, .. } = self.entries.remove(index)?;
        self.pass(of);
        Some(item)
    }

    /// Whether the program may get a completion now.
    pub(super) fn is_due(&self, now: u64, is_free: impl Fn(&T) -> bool) -> bool {
        self.free(now, true, is_free).is_some()
    }

    fn free(&self, now: u64, is_empty: bool, is_free: impl Fn(&T) -> bool) -> Option<usize> {
        self.entries.iter().enumerate().position(|(index, entry)| {
            let is_over = match entry.until {
                Until::Time(time) => time <= now,
                Until::Overtaken(time) => is_empty && time <= now,
                Until::Failure => is_free(&entry.item),
                Until::Earlier => true,
            };
            is_over && !self.entries.iter().take(index).any(|earlier| earlier.of.meets(entry.of))
        })
    }

    /// The next time after `now` at which a completion is no longer held back.
    pub(super) fn next_time(&self, now: u64) -> Option<u64> {
        let times = self.entries.iter().filter_map(|entry| match entry.until {
            Until::Time(time) | Until::Overtaken(time) => Some(time).filter(|time| *time > now),
            Until::Failure | Until::Earlier => None,
        });
        times.min()
    }

    /// Holds nothing back any more.
    pub(super) fn release(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.until = Until::Earlier);
    }

    /// Removes the completions of a queue pair.
    pub(super) fn remove(&mut self, pair: usize) {
        self.entries.retain(|entry| entry.of.pair != pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDS: WorkQueue = WorkQueue::of(1, false);
    const RECEIVES: WorkQueue = WorkQueue::of(1, true);
    const OTHER: WorkQueue = WorkQueue::of(2, false);

    fn all(line: &mut Line<u32>, now: u64) -> Vec<u32> {
        std::iter::from_fn(|| line.take(now, true, |_| false)).collect()
    }

    #[test]
    fn work_queue_keeps_its_order_and_others_overtake() {
        let mut line = Line::new();
        line.hold(SENDS, Until::Time(5), 1);
        assert!(line.has(SENDS) && !line.has(RECEIVES) && !line.has(OTHER));
        // Its own time is over, but not that of the one before.
        line.hold(SENDS, Until::Time(3), 2);
        line.hold(SENDS, Until::Earlier, 3);
        line.hold(OTHER, Until::Time(4), 4);
        assert_eq!((all(&mut line, 3), line.next_time(3)), (vec![], Some(4)));
        assert_eq!((all(&mut line, 4), line.next_time(4)), (vec![4], Some(5)));
        assert!(line.is_due(5, |_| false));
        assert_eq!((all(&mut line, 5), line.len()), (vec![1, 2, 3], 0));
    }

    #[test]
    fn completion_of_either_queue_keeps_its_place_in_both() {
        let mut line = Line::new();
        let either = WorkQueue::either(1);
        line.hold(RECEIVES, Until::Time(5), 1);
        assert!(line.has(either) && !line.has(SENDS));
        line.hold(either, Until::Earlier, 2);
        assert!(line.has(SENDS) && !line.has(OTHER));
        line.hold(SENDS, Until::Earlier, 3);
        assert_eq!(all(&mut line, 4), Vec::<u32>::new());
        assert_eq!(all(&mut line, 5), [1, 2, 3]);
    }

    #[test]
    fn only_another_work_queue_overtakes() {
        let mut line = Line::new();
        line.hold(SENDS, Until::Overtaken(9), 1);
        line.pass(SENDS);
        assert_eq!(all(&mut line, 1), Vec::<u32>::new());
        line.pass(RECEIVES);
        assert_eq!(all(&mut line, 1), [1]);
        // Nothing overtakes it: the time ends.
        line.hold(OTHER, Until::Overtaken(9), 2);
        assert_eq!(line.take(9, false, |_| false), None);
        assert_eq!((all(&mut line, 8), all(&mut line, 9)), (vec![], vec![2]));
    }

    #[test]
    fn two_that_are_to_be_overtaken_leave_one_after_the_other() {
        let mut line = Line::new();
        line.hold(SENDS, Until::Overtaken(9), 1);
        line.hold(OTHER, Until::Overtaken(5), 2);
        assert_eq!(all(&mut line, 5), [2, 1]);
    }

    #[test]
    fn flushed_receive_waits_for_the_failed_request() {
        let mut line = Line::new();
        line.hold(RECEIVES, Until::Failure, 1);
        assert_eq!((line.take(u64::MAX, true, |_| false), line.next_time(0)), (None, None));
        assert_eq!(line.take(0, false, |_| true), Some(1));
    }

    #[test]
    fn completions_of_a_destroyed_queue_pair_are_removed() {
        let mut line = Line::new();
        line.hold(SENDS, Until::Time(5), 1);
        line.hold(OTHER, Until::Time(5), 2);
        line.hold(RECEIVES, Until::Time(5), 3);
        line.remove(1);
        assert_eq!(all(&mut line, 5), [2]);
    }
}
