use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use proptest::prelude::*;
use rdma_mummy_sys::{ibv_wc_opcode, ibv_wc_status};

use super::{Armed, Clocks, Completion, CompletionQueue, Slots};
use crate::cq::CompletionEvents;
use crate::sys::errno::Errno;

/// Counts the events that a completion queue reports.
#[derive(Clone, Debug, Default)]
struct EventCount(Arc<[AtomicUsize; 2]>);

impl EventCount {
    /// The numbers of completions and overruns.
    fn counts(&self) -> (usize, usize) {
        (self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed))
    }
}

impl CompletionEvents for EventCount {
    fn completed(&self) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
    }

    fn overrun(&self) {
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }
}

fn queue(capacity: u32, ignores_overrun: bool) -> (CompletionQueue, EventCount) {
    let events = EventCount::default();
    (CompletionQueue::new(capacity, ignores_overrun, Box::new(events.clone())), events)
}

fn completion(wr_id: u64) -> Completion {
    Completion {
        wr_id,
        status: ibv_wc_status::IBV_WC_SUCCESS,
        opcode: ibv_wc_opcode::IBV_WC_SEND,
        byte_len: 0,
        flags: 0,
        immediate: 0,
        number: 7,
        source_number: 0,
        service_level: 0,
        timestamp: 0,
        wall_clock: 0,
        slots: None,
    }
}

fn failed(wr_id: u64) -> Completion {
    Completion { status: ibv_wc_status::IBV_WC_WR_FLUSH_ERR, ..completion(wr_id) }
}

fn all(queue: &CompletionQueue) -> Vec<u64> {
    std::iter::from_fn(|| queue.pop()).map(|completion| completion.wr_id).collect()
}

#[test]
fn completions_keep_their_order() {
    let (queue, _) = queue(3, false);
    assert!(queue.is_empty() && queue.pop().is_none());
    for round in 0..10 {
        for wr_id in 0..3 {
            queue.push(completion(round * 3 + wr_id), false);
        }
        assert_eq!(all(&queue), [round * 3, round * 3 + 1, round * 3 + 2]);
    }
    assert!(!queue.is_overrun());
}

#[test]
fn drain_polls_many_completions() {
    let (queue, _) = queue(8, false);
    assert!((0..5).all(|wr_id| queue.push(completion(wr_id), false)));
    let mut seen = Vec::new();
    assert_eq!(queue.drain(3, |at, completion| seen.push((at, completion.wr_id))), 3);
    assert_eq!(queue.drain(0, |at, completion| seen.push((at, completion.wr_id))), 0);
    assert_eq!(queue.drain(3, |at, completion| seen.push((at, completion.wr_id))), 2);
    assert_eq!(seen, [(0, 0), (1, 1), (2, 2), (0, 3), (1, 4)]);
    assert!(queue.is_empty());
}

#[test]
fn overrun_loses_completions_and_is_reported_once() {
    let (queue, events) = queue(2, false);
    let used = Arc::new(AtomicU32::new(4));
    for wr_id in 0..4 {
        let slots = Some(Slots { used: Arc::clone(&used), back: 1 });
        let is_added = queue.push(Completion { slots, ..completion(wr_id) }, false);
        assert_eq!(is_added, wr_id < 2);
    }
    assert_eq!((events.counts(), queue.is_overrun()), ((0, 1), true));
    assert_eq!(used.load(Ordering::Relaxed), 2, "lost completions release their slots");
    // The completions in the queue can still be polled. The queue accepts no further completion, although it has space
    // again.
    assert_eq!(queue.pop().map(|completion| completion.wr_id), Some(0));
    queue.arm(Armed::Next);
    queue.push(completion(9), false);
    assert_eq!((all(&queue), events.counts()), (vec![1], (1, 1)), "the event is that of the first completion");
    assert_eq!(used.load(Ordering::Relaxed), 0);
}

#[test]
fn ignored_overrun_replaces_the_oldest() {
    let (queue, events) = queue(2, true);
    let used = Arc::new(AtomicU32::new(3));
    for wr_id in 0..3 {
        let slots = Some(Slots { used: Arc::clone(&used), back: 1 });
        assert!(queue.push(Completion { slots, ..completion(wr_id) }, false));
    }
    assert_eq!((events.counts(), queue.is_overrun()), ((0, 0), false));
    assert_eq!(used.load(Ordering::Relaxed), 2);
    assert_eq!(all(&queue), [1, 2]);
    assert_eq!(used.load(Ordering::Relaxed), 0);
}

#[test]
fn slots_are_released_by_polling() {
    let (queue, _) = queue(4, false);
    let used = Arc::new(AtomicU32::new(10));
    for (wr_id, back) in [(0, 3), (1, 1)] {
        queue.push(Completion { slots: Some(Slots { used: Arc::clone(&used), back }), ..completion(wr_id) }, false);
    }
    assert_eq!(used.load(Ordering::Relaxed), 10);
    let taken = queue.pop().expect("two entries");
    assert!(taken.slots.is_none(), "slots are released once");
    assert_eq!(used.load(Ordering::Relaxed), 7);
    drop(taken);
    assert_eq!(queue.drain(5, |_, completion| assert!(completion.slots.is_none())), 1);
    assert_eq!(used.load(Ordering::Relaxed), 6);
}

#[test]
fn event_is_raised_once_per_request() {
    // Each case contains the requests for events, the completion, whether the completion is solicited, and whether it
    // raises an event.
    let cases: [(&[Armed], Completion, bool, bool); 11] = [
        (&[], completion(0), true, false),
        (&[], failed(0), true, false),
        (&[Armed::Next], completion(0), false, true),
        (&[Armed::Next], completion(0), true, true),
        (&[Armed::Next], failed(0), false, true),
        (&[Armed::Solicited], completion(0), false, false),
        (&[Armed::Solicited], completion(0), true, true),
        (&[Armed::Solicited], failed(0), false, true),
        (&[Armed::Solicited, Armed::Next], completion(0), false, true),
        (&[Armed::Next, Armed::Solicited], completion(0), false, true),
        (&[Armed::Next, Armed::Next], completion(0), false, true),
    ];
    for (asked, first, is_solicited, is_reported) in cases {
        let (queue, events) = queue(8, false);
        // A completion that was polled raises no event.
        queue.push(completion(100), true);
        assert_eq!(all(&queue), [100]);
        asked.iter().for_each(|&armed| queue.arm(armed));
        assert_eq!(events.counts(), (0, 0), "{asked:?}");
        let status = first.status;
        queue.push(first, is_solicited);
        assert_eq!(events.counts().0, usize::from(is_reported), "{asked:?} {status:?} {is_solicited}");
        if is_reported {
            queue.push(failed(1), true);
            assert_eq!(events.counts().0, 1, "{asked:?}: the request was not one-shot");
        } else if !asked.is_empty() {
            queue.push(completion(1), true);
            assert_eq!(events.counts().0, 1, "{asked:?}: the request is no longer armed");
        }
    }
}

#[test]
fn completion_between_the_last_poll_and_the_request_raises_an_event() {
    let (queue, events) = queue(8, false);
    queue.push(completion(0), false);
    queue.arm(Armed::Solicited);
    assert_eq!(events.counts().0, 0, "the completion is not solicited");
    queue.arm(Armed::Next);
    assert_eq!(events.counts().0, 1);
    // An event announces all completions before it, so programs that request the next one before they poll get one
    // event for each completion.
    queue.arm(Armed::Next);
    assert_eq!(events.counts().0, 1);
    queue.push(completion(1), false);
    assert_eq!(events.counts().0, 2);
    queue.push(completion(2), true);
    assert_eq!(queue.pop().map(|completion| completion.wr_id), Some(0));
    queue.arm(Armed::Solicited);
    assert_eq!((events.counts().0, all(&queue)), (3, vec![1, 2]));
    queue.push(failed(3), false);
    queue.forget(failed(3).number);
    queue.arm(Armed::Next);
    assert_eq!((events.counts().0, queue.is_empty()), (3, true));
}

#[test]
fn forget_removes_the_completions_of_a_qp() {
    let (queue, _) = queue(8, false);
    let used = Arc::new(AtomicU32::new(4));
    for wr_id in 0..4 {
        let slots = Some(Slots { used: Arc::clone(&used), back: 1 });
        queue.push(Completion { number: 7 + wr_id as u32 % 2, slots, ..completion(wr_id) }, false);
    }
    queue.forget(9);
    assert_eq!(used.load(Ordering::Relaxed), 4);
    queue.forget(7);
    assert_eq!(used.load(Ordering::Relaxed), 2);
    assert_eq!(all(&queue), [1, 3]);
    queue.push(completion(5), false);
    queue.forget(7);
    assert!(queue.is_empty());
}

#[test]
fn queue_is_resized() {
    let (queue, events) = queue(2, false);
    assert_eq!(queue.capacity(), 2);
    queue.push(completion(0), false);
    queue.push(completion(1), false);
    assert_eq!((queue.resize(1), queue.resize(0)), (Err(Errno::INVALID), Err(Errno::INVALID)));
    assert_eq!(queue.resize(3), Ok(()));
    queue.push(completion(2), false);
    assert_eq!((queue.capacity(), all(&queue)), (3, vec![0, 1, 2]));
    assert_eq!(queue.resize(1), Ok(()));
    queue.push(completion(3), false);
    queue.push(completion(4), false);
    assert_eq!((all(&queue), events.counts()), (vec![3], (0, 1)));
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn only_requested_clocks_are_read() {
    for clocks in
        [(false, false), (true, false), (false, true), (true, true)].map(|(device, wall)| Clocks { device, wall })
    {
        let (queue, _) = queue(2, false);
        let queue = queue.with_clocks(clocks);
        queue.push(completion(0), false);
        queue.push(completion(1), false);
        let [first, second] = [0, 1].map(|_| queue.pop().expect("two entries"));
        assert_eq!((first.timestamp != 0, first.wall_clock != 0), (clocks.device, clocks.wall));
        assert!(second.timestamp >= first.timestamp);
    }
}

#[test]
fn threads_poll_each_completion_once() {
    const EACH: u64 = if cfg!(miri) { 50 } else { 5_000 };
    let (queue, events) = queue(2 * EACH as u32, false);
    let left = AtomicUsize::new(2 * EACH as usize);
    let mut seen: Vec<u64> = std::thread::scope(|scope| {
        for producer in 0..2 {
            let queue = &queue;
            scope.spawn(move || assert!((0..EACH).all(|at| queue.push(completion(producer * EACH + at), false))));
        }
        let consumers = [0, 1].map(|_| {
            scope.spawn(|| {
                let mut mine = Vec::new();
                while left.load(Ordering::Relaxed) > 0 {
                    match queue.pop() {
                        Some(completion) => {
                            mine.push(completion.wr_id);
                            left.fetch_sub(1, Ordering::Relaxed);
                        }
                        None => std::thread::yield_now(),
                    }
                }
                for producer in 0..2 {
                    let of_one: Vec<_> = mine.iter().filter(|&&wr_id| wr_id / EACH == producer).collect();
                    assert!(of_one.is_sorted(), "in the order of their producer");
                }
                mine
            })
        });
        consumers.into_iter().flat_map(|consumer| consumer.join().expect("a consumer")).collect()
    });
    seen.sort_unstable();
    assert_eq!(seen, (0..2 * EACH).collect::<Vec<_>>());
    assert_eq!(events.counts(), (0, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Push { number: u32, is_solicited: bool, is_error: bool, back: u32 },
    Pop,
    Drain(usize),
    Arm(Armed),
    Resize(u32),
    Forget(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_u32, any::<bool>(), any::<bool>(), 0..3_u32)
            .prop_map(|(number, is_solicited, is_error, back)| Step::Push { number, is_solicited, is_error, back }),
        3 => Just(Step::Pop),
        1 => (0..4_usize).prop_map(Step::Drain),
        2 => prop_oneof![Just(Armed::Solicited), Just(Armed::Next)].prop_map(Step::Arm),
        1 => (0..6_u32).prop_map(Step::Resize),
        1 => (0..3_u32).prop_map(Step::Forget),
    ]
}

/// A simple model of the completion queue.
#[derive(Debug, Default)]
struct Model {
    /// The request's ID, the QP's number, and its slots.
    waiting: VecDeque<(u64, u32, u32)>,
    capacity: usize,
    asked: Option<Armed>,
    used: u32,
    is_overrun: bool,
    events: (usize, usize),
    /// The completions since the last event, if the newest is not polled: whether each is solicited or failed.
    fresh: Vec<bool>,
}

impl Model {
    fn push(&mut self, entry: (u64, u32, u32), is_loud: bool, ignores_overrun: bool) {
        self.used += entry.2;
        if !self.is_overrun && self.waiting.len() == self.capacity {
            if ignores_overrun {
                self.pop();
            } else {
                self.is_overrun = true;
                self.events.1 += 1;
            }
        }
        if self.is_overrun {
            self.used -= entry.2;
            return;
        }
        self.waiting.push_back(entry);
        self.fresh.push(is_loud);
        self.raise();
    }

    fn raise(&mut self) {
        let is_due =
            self.fresh.iter().any(|is_loud| self.asked == Some(Armed::Next) || self.asked.is_some() && *is_loud);
        if is_due {
            self.asked = None;
            self.fresh.clear();
            self.events.0 += 1;
        }
    }

    fn pop(&mut self) -> Option<u64> {
        let (wr_id, _, back) = self.waiting.pop_front()?;
        self.used -= back;
        if self.waiting.is_empty() {
            self.fresh.clear();
        }
        Some(wr_id)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn queue_matches_the_model(
        capacity in 1..5_u32,
        ignores_overrun in any::<bool>(),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let (queue, events) = queue(capacity, ignores_overrun);
        let used = Arc::new(AtomicU32::new(0));
        let mut model = Model { capacity: capacity as usize, ..Model::default() };
        for (wr_id, step) in steps.into_iter().enumerate() {
            let wr_id = wr_id as u64;
            match step {
                Step::Push { number, is_solicited, is_error, back } => {
                    used.fetch_add(back, Ordering::Relaxed);
                    let base = if is_error { failed(wr_id) } else { completion(wr_id) };
                    let slots = (back > 0).then(|| Slots { used: Arc::clone(&used), back });
                    queue.push(Completion { number, slots, ..base }, is_solicited);
                    model.push((wr_id, number, back), is_solicited || is_error, ignores_overrun);
                }
                Step::Pop => prop_assert_eq!(queue.pop().map(|completion| completion.wr_id), model.pop()),
                Step::Drain(most) => {
                    let mut seen = Vec::new();
                    queue.drain(most, |_, completion| seen.push(completion.wr_id));
                    let expected: Vec<_> = (0..most).map_while(|_| model.pop()).collect();
                    prop_assert_eq!(seen, expected);
                }
                Step::Arm(armed) => {
                    queue.arm(armed);
                    if model.asked != Some(Armed::Next) {
                        model.asked = Some(armed);
                    }
                    model.raise();
                }
                Step::Resize(capacity) => {
                    let fits = capacity > 0 && capacity as usize >= model.waiting.len();
                    prop_assert_eq!(queue.resize(capacity).is_ok(), fits);
                    if fits {
                        model.capacity = capacity as usize;
                    }
                }
                Step::Forget(number) => {
                    queue.forget(number);
                    let gone: u32 = model.waiting.iter().filter(|entry| entry.1 == number).map(|entry| entry.2).sum();
                    model.waiting.retain(|entry| entry.1 != number);
                    model.used -= gone;
                    if model.waiting.is_empty() {
                        model.fresh.clear();
                    }
                }
            }
            prop_assert_eq!(events.counts(), model.events);
            prop_assert_eq!(used.load(Ordering::Relaxed), model.used);
            prop_assert_eq!(queue.is_overrun(), model.is_overrun);
            prop_assert_eq!(queue.is_empty(), model.waiting.is_empty());
            prop_assert_eq!(queue.capacity() as usize, model.capacity);
        }
    }
}
