use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::mem::Piece;

/// Counts the events that a receive queue reports.
#[derive(Debug, Default, Clone)]
struct EventCount(Arc<AtomicU32>);

impl ReceiveEvents for EventCount {
    fn limit_reached(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl EventCount {
    fn times(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn shared(max_wr: u32) -> (ReceiveQueue, EventCount) {
    let events = EventCount::default();
    (ReceiveQueue::shared(Arc::new(Domain::new()), max_wr, 3, Box::new(events.clone())), events)
}

fn post(queue: &ReceiveQueue, wr_id: u64) -> Result<(), Errno> {
    queue.post(|work| {
        assert!(work.pieces.is_empty());
        work.wr_id = wr_id;
        work.pieces.push(Piece { address: wr_id, length: 1, lkey: 2 });
        Ok(())
    })
}

fn take(queue: &ReceiveQueue) -> Option<u64> {
    let work = queue.take()?;
    assert_eq!(work.pieces[..], [Piece { address: work.wr_id, length: 1, lkey: 2 }]);
    assert!(!work.pieces.spilled(), "a receive with one piece needs no memory of its own");
    let wr_id = work.wr_id;
    queue.recycle(work);
    Some(wr_id)
}

#[test]
fn receives_keep_their_order() {
    let queue = ReceiveQueue::new(3, 4);
    assert_eq!((queue.max_wr(), queue.max_sge()), (3, 4));
    assert_eq!(take(&queue), None);
    for round in 0..5 {
        for wr_id in 0..3 {
            assert_eq!(post(&queue, round * 3 + wr_id), Ok(()));
        }
        assert_eq!(post(&queue, 99), Err(Errno::NO_MEMORY));
        for wr_id in 0..3 {
            assert_eq!(take(&queue), Some(round * 3 + wr_id));
        }
        assert_eq!(take(&queue), None);
    }
}

#[test]
fn full_queue_refuses_posts() {
    let queue = ReceiveQueue::new(0, 0);
    assert_eq!(post(&queue, 1), Err(Errno::NO_MEMORY));
    queue.recycle(ReceiveWork::default());
    assert!(queue.take().is_none());
}

#[test]
fn failed_fill_posts_nothing() {
    let queue = ReceiveQueue::new(1, 1);
    let refused = queue.post(|work| {
        work.pieces.push(Piece { address: 1, length: 1, lkey: 1 });
        Err(Errno::INVALID)
    });
    assert_eq!(refused, Err(Errno::INVALID));
    assert_eq!(take(&queue), None);
    assert_eq!(post(&queue, 5), Ok(()));
    assert_eq!(take(&queue), Some(5));
}

#[test]
fn memory_of_a_receive_is_reused() {
    let queue = ReceiveQueue::new(2, 8);
    queue
        .post(|work| {
            work.pieces.reserve(8);
            Ok(())
        })
        .unwrap();
    let work = queue.take().unwrap();
    let (memory, room) = (work.pieces.as_ptr(), work.pieces.capacity());
    queue.recycle(work);
    for _ in 0..3 {
        queue
            .post(|work| {
                assert_eq!((work.pieces.as_ptr(), work.pieces.capacity()), (memory, room));
                work.pieces.push(Piece { address: 0, length: 0, lkey: 0 });
                Ok(())
            })
            .unwrap();
        queue.recycle(queue.take().unwrap());
    }
}

#[test]
fn drain_takes_all_in_order_and_keeps_the_queue_usable() {
    let (queue, events) = shared(4);
    queue.change(None, Some(4)).unwrap();
    (1..=4).for_each(|wr_id| post(&queue, wr_id).unwrap());
    let mut drained = Vec::new();
    queue.drain(|work| drained.push(work.wr_id));
    assert_eq!(drained, [1, 2, 3, 4]);
    assert_eq!((queue.take().map(|work| work.wr_id), events.times()), (None, 0));
    post(&queue, 5).unwrap();
    assert_eq!(take(&queue), Some(5));
}

#[test]
fn limit_is_reported_once() {
    let (queue, events) = shared(4);
    (1..=4).for_each(|wr_id| post(&queue, wr_id).unwrap());
    queue.change(None, Some(3)).unwrap();
    assert_eq!((take(&queue), events.times(), queue.limit()), (Some(1), 0, 3));
    assert_eq!((take(&queue), events.times(), queue.limit()), (Some(2), 1, 0));
    assert_eq!((take(&queue), events.times()), (Some(3), 1));
    queue.change(None, Some(1)).unwrap();
    assert_eq!((take(&queue), events.times(), queue.limit()), (Some(4), 2, 0));
}

#[test]
fn disarmed_limit_is_not_reported() {
    let (queue, events) = shared(2);
    post(&queue, 1).unwrap();
    queue.change(None, Some(2)).unwrap();
    queue.change(None, Some(0)).unwrap();
    assert_eq!((take(&queue), events.times()), (Some(1), 0));
}

#[test]
fn limit_above_the_size_is_refused() {
    let (queue, _) = shared(4);
    assert_eq!(queue.change(None, Some(5)), Err(Errno::INVALID));
    assert_eq!(queue.change(None, Some(4)), Ok(()));
    assert_eq!(queue.change(Some(3), None), Err(Errno::INVALID));
    assert_eq!(queue.change(Some(8), None), Ok(()));
    assert_eq!((queue.max_wr(), queue.limit()), (8, 4));
    assert_eq!(queue.change(Some(0), None), Err(Errno::INVALID));
    assert_eq!(queue.change(Some(MAX_SRQ_WR + 1), None), Err(Errno::INVALID));
    assert_eq!(queue.change(Some(MAX_SRQ_WR), None), Ok(()));
    assert_eq!(queue.change(Some(2), Some(3)), Err(Errno::INVALID));
    assert_eq!((queue.max_wr(), queue.limit()), (MAX_SRQ_WR, 4));
    assert_eq!(queue.change(Some(2), Some(2)), Ok(()));
    assert_eq!((queue.max_wr(), queue.limit()), (2, 2));
}

#[test]
fn shrunk_queue_keeps_its_receives() {
    let (queue, _) = shared(8);
    (1..=5).for_each(|wr_id| post(&queue, wr_id).unwrap());
    (1..=2).for_each(|wr_id| assert_eq!(take(&queue), Some(wr_id)));
    assert_eq!(queue.change(Some(2), None), Err(Errno::INVALID));
    assert_eq!(queue.change(Some(3), None), Ok(()));
    assert_eq!(post(&queue, 6), Err(Errno::NO_MEMORY));
    assert_eq!(queue.change(Some(4), None), Ok(()));
    assert_eq!(post(&queue, 6), Ok(()));
    (3..=6).for_each(|wr_id| assert_eq!(take(&queue), Some(wr_id)));
}

#[test]
fn only_shared_queues_can_change() {
    let queue = ReceiveQueue::new(4, 1);
    assert_eq!(queue.change(None, Some(1)), Err(Errno::INVALID));
    assert_eq!(queue.change(Some(8), None), Err(Errno::INVALID));
    assert!(queue.domain().is_none());
    let domain = Arc::new(Domain::new());
    let shared = ReceiveQueue::shared(Arc::clone(&domain), 1, 1, Box::new(EventCount::default()));
    assert!(shared.domain().is_some_and(|of| of.is(&domain)));
}

#[test]
fn each_receive_is_taken_by_one_of_many_threads() {
    const EACH: u64 = if cfg!(miri) { 20 } else { 2000 };
    let (queue, _) = shared(64);
    let sum = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for wr_id in 1..=EACH {
                    while post(&queue, wr_id) == Err(Errno::NO_MEMORY) {
                        std::thread::yield_now();
                    }
                }
            });
            scope.spawn(|| {
                for _ in 0..EACH {
                    let wr_id = loop {
                        match take(&queue) {
                            Some(wr_id) => break wr_id,
                            None => std::thread::yield_now(),
                        }
                    };
                    sum.fetch_add(wr_id as u32, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), 2 * (EACH * (EACH + 1) / 2) as u32);
    assert_eq!(take(&queue), None);
}
