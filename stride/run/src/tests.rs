//! Tests of the loops on two softrnic queue pairs, whose completion queues report completions late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::completion::BasicCompletionQueue;
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::queue_pair::{BasicQueuePair, QueuePair, QueuePairAttribute, QueuePairState, QueuePairType};

use super::*;
use crate::bandwidth::{Send, send};
use crate::latency::{Turns, Until, acknowledged, by_memory, by_receives};
use crate::poll::{Done, Poll};
use crate::qp_driver::{Drive, Places, Posting, QpDriver};
use crate::receive::{Receives, Refill, take_count};
use crate::request::{Memory, SendPlain, Write};
use crate::signal::Idle;

/// Number of requests in flight.
const DEPTH: u32 = 16;

/// One side of a test. The fields are dropped in order, so the memory is dropped after the queue pair.
struct End {
    pair: BasicQueuePair,
    sends: BasicCompletionQueue,
    receives: BasicCompletionQueue,
    memory: OwnedMemoryRegion,
}

/// Creates two sides that are connected.
fn two_ends(service: QueuePairType) -> [End; 2] {
    softrnic::register().unwrap();
    let context = DeviceList::new().unwrap().find("soft0").unwrap().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let remote = AccessFlags::RemoteRead | AccessFlags::RemoteWrite;
    let end = || {
        let queue = || context.create_cq_builder().setup_cqe(4 * DEPTH).build().unwrap();
        let (sends, receives) = (queue(), queue());
        let mut builder = pd.create_qp_builder();
        builder.setup_qp_type(service).setup_max_send_wr(2 * DEPTH).setup_max_recv_wr(DEPTH);
        let pair = builder.setup_send_cq(&sends).setup_recv_cq(&receives).build().unwrap();
        End { pair, sends, receives, memory: pd.reg_owned_mr(4096, remote | AccessFlags::LocalWrite).unwrap() }
    };
    let ends = [end(), end()];
    connect(&context, &ends[0].pair, ends[1].pair.qp_number());
    connect(&context, &ends[1].pair, ends[0].pair.qp_number());
    ends
}

fn connect(context: &Arc<DeviceContext>, pair: &BasicQueuePair, peer: u32) {
    let is_reliable = pair.qp_type() == QueuePairType::ReliableConnection;
    let mut way = AddressHandleAttribute::new();
    way.setup_port(1).setup_grh(&context.query_gid(1, 0).unwrap(), 0, 0, 64, 0);
    let mut to = QueuePairAttribute::new();
    to.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(1);
    to.setup_access_flags(AccessFlags::RemoteRead | AccessFlags::RemoteWrite);
    pair.modify(&to).unwrap();
    let mut to = QueuePairAttribute::new();
    to.setup_state(QueuePairState::ReadyToReceive).setup_address_vector(&way).setup_path_mtu(Mtu::Mtu1024);
    to.setup_dest_qp_num(peer).setup_rq_psn(0);
    if is_reliable {
        to.setup_max_dest_read_atomic(1).setup_min_rnr_timer(12);
    }
    pair.modify(&to).unwrap();
    let mut to = QueuePairAttribute::new();
    to.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(0);
    if is_reliable {
        to.setup_timeout(14).setup_retry_cnt(7).setup_rnr_retry(7).setup_max_read_atomic(1);
    }
    pair.modify(&to).unwrap();
}

/// Creates a driver for the queue pair of the near side, with messages of 64 bytes.
macro_rules! qp {
    ($near:expr, $far:expr, $request:expr, $moderation:expr) => {
        qp!($near, $far, $request, $moderation, 1)
    };
    ($near:expr, $far:expr, $request:expr, $moderation:expr, $list:expr) => {{
        let (local, remote) = ($near.memory.addr(), $far.memory.addr());
        let memory = Memory { lkey: $near.memory.lkey(), rkey: $far.memory.rkey(), length: 64, is_inline: false };
        let places = Places::new(64, local, remote);
        let posting = Posting { moderation: $moderation, list: $list, visits_all: true };
        // SAFETY: both regions are one page, outlive the queue pairs, and no code reads their bytes.
        unsafe { QpDriver::new($near.pair.queues().0, &$request, memory, places, 0, posting) }.unwrap()
    }};
}

/// A completion queue that reports its completions only from time to time.
struct Late<'q> {
    queue: &'q mut BasicCompletionQueue,
    period: Duration,
    next: Instant,
    kept: Vec<Done>,
    /// For each report: its time, its number of completions, and the time of the next poll.
    reported: Vec<(Instant, usize, Option<Instant>)>,
}

impl Poll for Late<'_> {
    fn poll(&mut self, mut each: impl FnMut(Done)) -> Result<u32> {
        let kept = &mut self.kept;
        self.queue.poll(|done| kept.push(done))?;
        let now = Instant::now();
        if let Some((.., next @ None)) = self.reported.last_mut() {
            *next = Some(now);
        }
        if now < self.next || self.kept.is_empty() {
            return Ok(0);
        }
        self.next = now + self.period;
        self.reported.push((now, self.kept.len(), None));
        let count = self.kept.len() as u32;
        self.kept.drain(..).for_each(&mut each);
        Ok(count)
    }

    fn rest(&mut self, _: Option<&Self>, _: impl FnOnce() -> Duration, _: &mut Idle) -> Result<bool> {
        Ok(false)
    }
}

#[test]
fn timed_window_counts_completions_whenever_posted() {
    let [mut near, far] = two_ends(QueuePairType::ReliableConnection);
    let mut qp = [qp!(near, far, Write, 4)];
    // The loop waits for a completion for up to a tenth of the test's duration, which is far longer than this.
    let period = Duration::from_millis(2);
    let mut late =
        Late { queue: &mut near.sends, period, next: Instant::now(), kept: Vec::new(), reported: Vec::new() };
    let rules = Send {
        amount: Amount::Time { time: Duration::from_millis(200), warm_up: Duration::from_millis(10) },
        depth: DEPTH.into(),
        list: 1,
        interval: Some(Duration::from_millis(4)),
        rate: None,
        burst: 1,
    };
    let window = send(&mut qp, &mut late, None, &rules, &Signal::default()).unwrap();
    let Late { reported, .. } = late;
    // One in four requests is signaled, so each completion covers four messages.
    let within = |at: Instant| window.started < at && at < window.ended;
    let done: usize = reported.iter().filter(|reported| within(reported.0)).map(|reported| reported.1).sum();
    assert!(done > 0 && window.ended - window.started >= Duration::from_millis(200), "{window:?}");
    assert_eq!(window.messages, 4 * done as u64, "{window:?} {reported:?}");
    assert!(window.intervals.iter().sum::<u64>() <= window.messages, "{window:?}");
    // The window starts and ends when completions are reported, not between two reports.
    for edge in [window.started, window.ended] {
        let is_at = reported.iter().any(|reported| reported.0 <= edge && reported.2.is_none_or(|next| edge <= next));
        assert!(is_at, "{window:?} {reported:?}");
    }
}

#[test]
fn rate_limit_holds_in_a_short_run() {
    let [mut near, far] = two_ends(QueuePairType::ReliableConnection);
    let mut qp = [qp!(near, far, Write, 1)];
    for (warm_up, burst) in [(0, 1), (8, 1), (8, 5)] {
        let rules = Send {
            amount: Amount::Messages { count: 10, warm_up },
            depth: DEPTH.into(),
            list: 1,
            interval: None,
            rate: Some(1000.0),
            burst,
        };
        let window = send(&mut qp, &mut near.sends, None, &rules, &Signal::default()).unwrap();
        let length = window.ended - window.started;
        assert!(window.messages == 10 && length >= Duration::from_millis(10), "{window:?}");
    }
}

#[test]
fn window_ends_without_further_completions() {
    let [mut near, far] = two_ends(QueuePairType::ReliableConnection);
    let mut qp = [qp!(near, far, Write, 1)];
    let next = Instant::now() + Duration::from_millis(400);
    let mut late =
        Late { queue: &mut near.sends, period: Duration::ZERO, next, kept: Vec::new(), reported: Vec::new() };
    let rules = Send {
        amount: Amount::Time { time: Duration::from_millis(40), warm_up: Duration::ZERO },
        depth: DEPTH.into(),
        list: 1,
        interval: None,
        rate: None,
        burst: 1,
    };
    let window = send(&mut qp, &mut late, None, &rules, &Signal::default()).unwrap();
    assert!(window.messages == 0 && window.ended < next, "{window:?}");
}

/// Runs a side whose first message gets no reply, and returns the error.
fn alone(begins: bool, until: Until, by_memory_too: bool) -> String {
    let [mut near, far] = two_ends(QueuePairType::UnreliableConnection);
    let loss_timeout = LossTimeout { most: Duration::from_millis(40), transport: "UC" };
    let turns = Turns { begins, until, loss_timeout: Some(loss_timeout), gap: None };
    let (mut samples, signal) = (Samples::new(8, 0), Signal::default());
    let bytes = (near.memory.as_ptr(), near.memory.as_ptr().wrapping_add(64));
    if by_memory_too {
        let mut qp = qp!(near, far, Write, 1);
        // SAFETY: both bytes are in the region, and only this thread uses them.
        unsafe { by_memory(&mut qp, &mut near.sends, bytes, turns, &mut samples, &signal) }
    } else {
        let mut qp = qp!(near, far, SendPlain, 1);
        let mut receives = Receives::new(&mut near.receives, Vec::new());
        by_receives(&mut qp, &mut near.sends, &mut receives, turns, &mut samples, &signal)
    }
    .unwrap_err()
    .to_string()
}

#[test]
fn lost_message_ends_the_wait_with_an_error() {
    for until in [Until::Count(5), Until::Time(Tsc::now().after(Duration::from_secs(600)))] {
        for by_memory_too in [false, true] {
            let error = alone(true, until, by_memory_too);
            assert!(error.starts_with("message 1, or its reply, was lost: nothing arrived for 40ms"), "{error}");
            assert!(error.contains("UC does not retransmit") && error.contains("--transport rc"), "{error}");
            let error = alone(false, until, by_memory_too);
            assert!(error.starts_with("message 1 was lost"), "{error}");
        }
    }
}

/// Returns turns in which only one side sends. It sends `count` messages.
fn alone_for(count: u64) -> Turns {
    Turns { begins: true, until: Until::Count(count), loss_timeout: None, gap: None }
}

#[test]
fn gap_is_excluded_from_samples() {
    let length = Duration::from_millis(2);
    for sleeps in [false, true] {
        let [mut near, far] = two_ends(QueuePairType::ReliableConnection);
        let mut qp = qp!(near, far, Write, 1);
        let (mut samples, signal, begin) = (Samples::new(16, 0), Signal::default(), Instant::now());
        let turns = Turns { gap: Some(Gap { length, sleeps }), ..alone_for(11) };
        acknowledged(&mut qp, &mut near.sends, turns, &mut samples, &signal).unwrap();
        let passed = begin.elapsed();
        let latency = samples.tally().summary().unwrap();
        assert_eq!((latency.samples, signal.done()), (11, 11));
        let times = Duration::from_secs_f64(latency.mean * Scale::now().tick() * 11.0 * 0.999 / 1e9);
        assert!(passed >= length * 10 + times, "{passed:?} with {times:?} of messages");
    }
    // Stopping the loop also ends a pause.
    let [mut near, far] = two_ends(QueuePairType::ReliableConnection);
    let mut qp = qp!(near, far, Write, 1);
    let signal = Signal::default();
    let turns = Turns { gap: Some(Gap { length: Duration::from_secs(3600), sleeps: true }), ..alone_for(2) };
    thread::scope(|scope| {
        scope.spawn(|| {
            while signal.done() == 0 {
                thread::yield_now();
            }
            signal.stop();
        });
        acknowledged(&mut qp, &mut near.sends, turns, &mut Samples::none(), &signal).unwrap();
    });
    assert!(signal.done() >= 1);
}

#[test]
fn samples_beyond_capacity_are_kept_as_a_histogram() {
    let [mut near, far] = two_ends(QueuePairType::ReliableConnection);
    let mut qp = qp!(near, far, Write, 1);
    let (mut samples, signal) = (Samples::new(16, 5).with_interval(Duration::ZERO), Signal::default());
    acknowledged(&mut qp, &mut near.sends, alone_for(105), &mut samples, &signal).unwrap();
    samples.end(&signal);
    // From the second message on, each one causes a report. Each sample is reported once, including the samples that
    // did not fit in memory.
    let intervals = signal.take_samples();
    assert_eq!((intervals.len(), intervals.iter().map(|interval| interval.samples).sum::<u64>()), (99, 100));
    assert!(intervals.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert!(samples.capacity() < 32, "{samples:?}");
    let latency = samples.tally().summary().unwrap();
    assert_eq!((latency.samples, latency.bins.iter().map(|bin| bin.1).sum::<u64>()), (100, 100));
}

#[test]
fn sample_beyond_u32_keeps_its_length() {
    let [mut near, far] = two_ends(QueuePairType::ReliableConnection);
    let mut qp = qp!(near, far, Write, 1);
    let mut samples = Samples::new(16, 0).since(Tsc::now().before(Duration::from_secs(10)));
    acknowledged(&mut qp, &mut near.sends, alone_for(1), &mut samples, &Signal::default()).unwrap();
    let latency = samples.tally().summary().unwrap();
    assert_eq!(latency.samples, 2);
    let [min, max] = [latency.min, latency.max].map(|ticks| ticks as f64 * Scale::now().tick());
    assert!(max >= 10e9 && min < 10e9, "{latency:?}");
}

/// Returns the window of the far side while the near side sends `messages` messages.
fn counted(amount: Amount, messages: u32, signal: &Signal) -> Window {
    let [near, far] = two_ends(QueuePairType::ReliableConnection);
    let (mut near, mut far) = (near, far);
    let mut qp = qp!(near, far, SendPlain, 1);
    thread::scope(|scope| {
        let End { pair, receives, memory, .. } = &mut far;
        let intake = Intake::Own(pair.queues().1);
        // SAFETY: the region is a page, outlives the queue pair, and no code reads its bytes.
        let mut refill = unsafe { Refill::new(intake, memory.lkey(), memory.addr(), 64, 1) };
        refill.post(0, DEPTH).unwrap();
        let counting = scope.spawn(move || {
            let mut receives = Receives::new(receives, vec![refill]);
            take_count(&mut receives, amount, Some(Duration::from_millis(1)), signal).unwrap()
        });
        for _ in 0..messages {
            qp.post(1, true).unwrap();
            while qp.in_flight() > 0 {
                near.sends.poll(|done| _ = qp.finish(done.wr_id)).unwrap();
            }
            thread::sleep(Duration::from_micros(200));
        }
        if matches!(amount, Amount::Time { .. }) {
            signal.stop();
        }
        counting.join().unwrap()
    })
}

#[test]
fn messages_after_the_warm_up_count() {
    let window = counted(Amount::Messages { count: 60, warm_up: 40 }, 100, &Signal::default());
    assert_eq!(window.arrived, Some(100));
    // If the thread was not scheduled for a while, several messages may have arrived when it detected the end of the
    // warm-up. If too many have arrived, there is no window.
    let length = window.ended - window.started;
    assert!(window.messages == 60 && length >= Duration::from_millis(5) || length.is_zero(), "{window:?}");
    assert!(window.intervals.iter().sum::<u64>() <= window.messages, "{window:?}");
}

#[test]
fn late_receiver_counts_all_or_has_no_window() {
    // Runs a receiver that starts when `early` messages have already arrived.
    let late = |count, warm_up, early| {
        let [mut near, mut far] = two_ends(QueuePairType::ReliableConnection);
        let mut qp = qp!(near, far, SendPlain, 1);
        let End { pair, receives, memory, .. } = &mut far;
        let intake = Intake::Own(pair.queues().1);
        // SAFETY: the region is a page, outlives the queue pair, and no code reads its bytes.
        let mut refill = unsafe { Refill::new(intake, memory.lkey(), memory.addr(), 64, 1) };
        refill.post(0, DEPTH).unwrap();
        let mut send = |count| {
            for _ in 0..count {
                qp.post(1, true).unwrap();
                while qp.in_flight() > 0 {
                    near.sends.poll(|done| _ = qp.finish(done.wr_id)).unwrap();
                }
            }
        };
        send(early);
        let amount = Amount::Messages { count, warm_up };
        thread::scope(|scope| {
            let counting = scope.spawn(move || {
                let mut receives = Receives::new(receives, vec![refill]);
                take_count(&mut receives, amount, None, &Signal::default()).unwrap()
            });
            send(count + warm_up - early);
            counting.join().unwrap()
        })
    };
    for (count, warm_up, early) in [(10, 4, 14), (10, 0, 8)] {
        let window = late(count, warm_up, early);
        assert_eq!((window.messages, window.arrived), (0, Some(count + warm_up)), "{window:?}");
        assert_eq!(window.ended, window.started);
    }
    let window = late(10_000, 4, 14);
    assert_eq!((window.messages, window.arrived), (10_000, Some(10_004)), "{window:?}");
}

#[test]
fn messages_within_the_time_count() {
    let amount = Amount::Time { time: Duration::from_millis(20), warm_up: Duration::from_millis(5) };
    let mut windows = (0..50).map(|_| {
        let window = counted(amount, 300, &Signal::default());
        assert_eq!(window.arrived, Some(300));
        let length = window.ended - window.started;
        assert!(window.messages < 300 && length <= Duration::from_millis(21), "{window:?}");
        window
    });
    // On a busy machine, the time may have passed before the first poll, so the test tries several times.
    let found = windows.find(|window| window.messages > 0);
    assert!(found.is_some_and(|window| window.ended > window.started));
}

#[test]
fn receiver_ends_despite_traffic_from_others() {
    let [mut near, mut far] = two_ends(QueuePairType::ReliableConnection);
    let mut qp = qp!(near, far, SendPlain, 1);
    let (signal, is_over) = (Signal::default(), AtomicBool::new(false));
    signal.stop();
    let End { pair, receives, memory, .. } = &mut far;
    let intake = Intake::Own(pair.queues().1);
    // SAFETY: the region is a page, outlives the queue pair, and no code reads its bytes.
    let mut refill = unsafe { Refill::new(intake, memory.lkey(), memory.addr(), 64, 1) };
    refill.post(0, DEPTH).unwrap();
    thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut receives = Receives::new(receives, vec![refill]);
            let amount = Amount::Messages { count: u64::MAX / 2, warm_up: 0 };
            let window = take_count(&mut receives, amount, None, &signal);
            is_over.store(true, Ordering::Relaxed);
            window.unwrap()
        });
        // The last message may find no receive request, because the receiver posts none after its end.
        let is_over = || is_over.load(Ordering::Relaxed);
        while !is_over() {
            qp.post(1, true).unwrap();
            while qp.in_flight() > 0 && !is_over() {
                near.sends.poll(|done| _ = qp.finish(done.wr_id)).unwrap();
            }
        }
        assert!(counting.join().unwrap().arrived > Some(0));
    });
}

#[test]
fn lists_post_what_single_requests_would() {
    for (list, moderation) in [(1, 1), (1, 7), (2, 1), (3, 4), (8, 3), (8, 8), (5, 16)] {
        let [mut near, far] = two_ends(QueuePairType::ReliableConnection);
        for slot in 0..64 {
            near.memory.write_at(64 * slot, &[slot as u8 + 1; 64]).unwrap();
        }
        let count = 131;
        let mut wr_ids = Vec::new();
        {
            let mut qp = qp!(near, far, Write, moderation, list);
            assert_eq!(qp.posted(), 0);
            while qp.posted() < count {
                qp.post_lists((count - 1 - qp.posted()).min(2 * u64::from(list))).unwrap();
                near.sends.poll(|done| wr_ids.push(done.wr_id)).unwrap();
                let more = (count - qp.posted()).min(list.into()) as u32;
                qp.post(more, qp.posted() + u64::from(more) == count).unwrap();
                near.sends.poll(|done| wr_ids.push(done.wr_id)).unwrap();
            }
        }
        let expected: Vec<u64> =
            (1..=count).filter(|number| number % u64::from(moderation) == 0 || *number == count).collect();
        assert_eq!(wr_ids, expected, "-l {list} -Q {moderation}");
        let mut arrived = [0; 4096];
        far.memory.read_at(0, &mut arrived).unwrap();
        let expected: Vec<u8> = (0..4096).map(|at| (at / 64 + 1) as u8).collect();
        assert_eq!(arrived[..], expected[..], "-l {list} -Q {moderation}");
    }
}
