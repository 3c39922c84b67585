//! The receiver of sends and of writes with immediate data. The receiver posts used receives again, in batches.

use std::time::{Duration, Instant};

use anyhow::Result;
use sideway::ibverbs::memory_region::LocalKey;
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::ibverbs::work_request::ReceiveQueue;

use crate::amount::Amount;
use crate::bandwidth::watch::Watch;
use crate::bandwidth::window::{Clock, Window, interval_buffer};
use crate::cause::of_receive;
use crate::poll::Poll;
use crate::qp_driver::qp_index;
use crate::signal::{Idle, Signal};
use crate::wait::LONGEST;

/// The receives of all queue pairs of a thread, which complete on one completion queue.
#[derive(Debug)]
pub(crate) struct Receives<'q, C> {
    queue: &'q mut C,
    qps: Vec<Refill<'q>>,
    /// Number of messages that have been received.
    pub(crate) taken: u64,
}

/// The queue to which receives are posted: a receive queue or a shared receive queue.
#[derive(Debug)]
pub enum Intake<'q> {
    /// The receive queue of the queue pair itself.
    Own(&'q mut ReceiveQueue),
    /// A shared receive queue, whose number the peer's messages contain.
    Named(&'q mut SharedReceiveQueue),
}

/// Posts the receives of one queue pair. All receives use the same buffer, because no code reads the contents.
#[derive(Debug)]
pub(crate) struct Refill<'q> {
    intake: Intake<'q>,
    lkey: LocalKey,
    address: u64,
    length: u32,
    /// Number of used receives that have to be posted again.
    used: u32,
    /// Number of receives posted together.
    batch: u32,
}

impl<'q> Refill<'q> {
    /// Creates receives for messages of up to `length` bytes at `address`. `batch` receives are posted together.
    ///
    /// # Safety
    ///
    /// The memory must be registered while receives are outstanding, and no reference to it may exist.
    pub(crate) unsafe fn new(intake: Intake<'q>, lkey: LocalKey, address: u64, length: u32, batch: u32) -> Self {
        Self { intake, lkey, address, length, used: 0, batch: batch.max(1) }
    }

    /// Posts `count` receives, whose `wr_id` contains the index of the queue pair.
    pub(super) fn post(&mut self, number: usize, count: u32) -> Result<()> {
        /// Posts the receives to a queue of either type.
        macro_rules! post {
            ($queue:expr) => {{
                let mut batch = $queue.start_post_recv();
                for _ in 0..count {
                    let request = batch.construct_wr((number as u64) << 32);
                    // SAFETY: the caller of `new` guarantees that the memory is registered and not referenced.
                    unsafe { request.setup_sge(self.lkey, self.address, self.length) };
                }
                Ok(batch.post()?)
            }};
        }
        match &mut self.intake {
            Intake::Own(queue) => post!(queue),
            Intake::Named(queue) => post!(queue),
        }
    }
}

impl<'q, C: Poll> Receives<'q, C> {
    pub(crate) fn new(queue: &'q mut C, qps: Vec<Refill<'q>>) -> Self {
        Self { queue, qps, taken: 0 }
    }

    /// Returns the completion queue of the receives.
    pub(crate) fn queue(&self) -> &C {
        self.queue
    }

    /// Called when a poll has found nothing. Yields the processor or sleeps.
    #[inline(always)]
    pub(crate) fn rest(&mut self, idle: &mut Idle) -> Result<bool> {
        self.queue.rest(None, || LONGEST, idle)
    }

    /// Posts more receives on each queue pair. `counts` contains the number for each queue pair.
    pub(crate) fn add(&mut self, counts: &mut [u32]) -> Result<()> {
        for ((number, qp), count) in self.qps.iter_mut().enumerate().zip(counts) {
            qp.post(number, std::mem::take(count))?;
        }
        Ok(())
    }

    /// Receives messages that have arrived since an earlier step ended. Returns how many receives they used on each
    /// queue pair.
    pub(crate) fn clear(&mut self) -> Result<Vec<u32>> {
        while self.take_only()? > 0 {}
        Ok(self.qps.iter_mut().map(|qp| std::mem::take(&mut qp.used)).collect())
    }

    fn take_only(&mut self) -> Result<u32> {
        let Self { queue, qps, .. } = self;
        let taken = queue.poll(|done| {
            // Ignores completions whose `wr_id` belongs to no queue pair, because a driver may return such a `wr_id`.
            if let Some(qp) = qps.get_mut(qp_index(done.wr_id)) {
                qp.used += 1;
            }
        });
        taken.map_err(of_receive)
    }

    /// Receives the messages that have arrived. When a batch of receives is used, posts as many again. Returns the
    /// number of messages.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<u32> {
        let count = self.take_only()?;
        if count > 0 {
            self.taken += u64::from(count);
            for (number, qp) in self.qps.iter_mut().enumerate() {
                if qp.used >= qp.batch {
                    let used = std::mem::take(&mut qp.used);
                    qp.post(number, used)?;
                }
            }
        }
        Ok(count)
    }
}

/// The condition under which the receiver's window starts: after the sender's warm-up, which is a number of messages or
/// a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    after: u64,
    at: Instant,
}

impl Opening {
    /// Creates the condition for a loop that starts now and has `qps` queue pairs.
    pub(crate) fn new(amount: Amount, qps: u64) -> Self {
        let now = Instant::now();
        match amount {
            Amount::Messages { warm_up, .. } => Self { after: warm_up * qps, at: now },
            Amount::Time { warm_up, .. } => Self { after: 0, at: now + warm_up },
        }
    }

    /// Returns the current time if the window starts now, after `taken` messages have arrived.
    fn now(&self, taken: u64) -> Option<Instant> {
        (taken >= self.after).then(Instant::now).filter(|now| *now >= self.at)
    }
}

/// Receives until `messages` messages have arrived, until nothing has arrived for the time `quiet`, or until the loop
/// is stopped. With `opening`, also opens the window of the signal, which is needed if this side only receives.
pub(crate) fn receive<C: Poll>(
    receives: &mut Receives<'_, C>,
    messages: u64,
    quiet: Option<Duration>,
    mut opening: Option<Opening>,
    signal: &Signal,
) -> Result<()> {
    let (mut reported, mut rounds, mut last) = (receives.taken, 0_u32, Instant::now());
    let mut idle = Idle::default();
    while receives.taken < messages && !signal.has_stopped() {
        if receives.take()? == 0 {
            if receives.rest(&mut idle)? {
                // A thread that has slept reads the clock after each wake-up.
                rounds |= 1023;
            }
        } else if let Some(now) = opening.and_then(|opening| opening.now(receives.taken)) {
            signal.add(receives.taken - reported);
            (reported, last, opening) = (receives.taken, now, None);
            signal.open(now);
        }
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(1024) {
            let more = receives.taken - reported;
            if more > 0 {
                signal.add(more);
                (reported, last) = (receives.taken, Instant::now());
            } else if quiet.is_some_and(|quiet| last.elapsed() > quiet) {
                break;
            }
        }
    }
    signal.add(receives.taken - reported);
    Ok(())
}

/// After the sender has ended, the step ends when nothing has arrived for this time.
const LINGER: Duration = Duration::from_millis(20);
/// Messages that still arrive when this time has passed after the end of the sender belong to another sender.
const LONGEST_LINGER: Duration = Duration::from_secs(1);

/// Counts the messages that arrive over an unreliable transport, both in the whole step and in the window.
///
/// The window starts after the sender's warm-up, which is a number of messages or a time. The window ends with the last
/// message that arrives, because it is unknown when a lost message would have arrived. A thread that started too late
/// has a window of zero length.
pub(crate) fn take_count<C: Poll>(
    receives: &mut Receives<'_, C>,
    amount: Amount,
    interval: Option<Duration>,
    signal: &Signal,
) -> Result<Window> {
    let (qps, mut buffer) = (receives.qps.len() as u64, interval_buffer());
    let begun = Instant::now();
    let (all, warm_up, begin, end) = match amount {
        Amount::Messages { count, warm_up } => ((count + warm_up) * qps, warm_up * qps, begun, None),
        Amount::Time { time, warm_up } => (u64::MAX, 0, begun + warm_up, Some(begun + warm_up + time)),
    };
    let (mut watch, mut idle, mut clock) = (Watch::new(), Idle::default(), None::<Clock>);
    // `before` is the number of messages when the window started, and `counted` is the number at the last update that
    // found new messages. `last` is the time of that update.
    let (mut before, mut counted, mut last) = (0, 0, begun);
    let (mut reported, mut quiet, mut stopped) = (0, None, None);
    // The time of the last update. Unlike `last`, it also changes if there were no new messages.
    let mut looked = begun;
    while receives.taken < all {
        if receives.take()? == 0 && receives.rest(&mut idle)? {
            watch.is_due_next();
        }
        let taken = receives.taken;
        // If the run length is a number of messages, the window starts with a message, without waiting for the next
        // update.
        if clock.is_none() && end.is_none() && taken > 0 && taken >= warm_up {
            let new = Clock::begin(interval, taken, std::mem::take(&mut buffer));
            (before, counted, last) = (taken, taken, new.started);
            signal.add(taken - reported);
            reported = taken;
            signal.open(new.started);
            clock = Some(new);
        }
        let Some(now) = watch.look() else { continue };
        let before_now = std::mem::replace(&mut looked, now);
        if signal.has_stopped() && now.duration_since(*stopped.get_or_insert(now)) > LONGEST_LINGER {
            break;
        }
        if taken > reported {
            signal.add(taken - reported);
            (reported, quiet) = (taken, None);
            let is_within = end.is_none_or(|end| now <= end);
            match &mut clock {
                Some(clock) if is_within => {
                    clock.look(before_now, counted);
                    clock.look(now, taken);
                    (counted, last) = (taken, now);
                }
                // If the run length is a number of messages, the window does not start here but above.
                None if end.is_some() && is_within && now >= begin => {
                    let new = Clock::begin(interval, taken, std::mem::take(&mut buffer));
                    (before, counted, last) = (taken, taken, new.started);
                    signal.open(new.started);
                    clock = Some(new);
                }
                _ => {}
            }
        } else if signal.has_stopped() && now.duration_since(*quiet.get_or_insert(now)) > LINGER {
            break;
        }
    }
    if end.is_none() && receives.taken > counted {
        (counted, last) = (receives.taken, Instant::now());
    }
    signal.add(receives.taken - reported);
    let clock = clock.unwrap_or_else(|| Clock::begin(interval, counted, buffer));
    let last = last.max(clock.started);
    signal.close(last);
    let window = clock.end_at(last, counted.saturating_sub(before));
    let window = if end.is_none() { with_first(window, counted.saturating_sub(warm_up)) } else { window };
    Ok(Window { arrived: Some(receives.taken), ..window })
}

/// Extends a window to all messages that count, if the run length is a number of messages. Messages that had arrived
/// before the window started are assumed to have arrived at the rate of the others. If more than half of all messages
/// had arrived before, the thread was late and has no window of its own.
fn with_first(window: Window, all: u64) -> Window {
    let Window { started, ended, messages, .. } = window;
    if messages == 0 || messages < all / 2 {
        return Window { started: ended, messages: 0, intervals: Vec::new(), ..window };
    }
    let length = (ended - started).mul_f64(all as f64 / messages as f64);
    Window { started: ended.checked_sub(length).unwrap_or(started), messages: all, ..window }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::Done;

    /// A completion queue that returns one message per poll until the window is open and `more` messages have arrived.
    struct Steady<'s> {
        signal: &'s Signal,
        more: u64,
    }

    impl Poll for Steady<'_> {
        fn poll(&mut self, mut each: impl FnMut(Done)) -> Result<u32> {
            if self.signal.opened().is_some() {
                self.more -= 1;
            }
            if self.more == 0 {
                self.signal.stop();
            }
            each(Done { wr_id: 0 });
            Ok(1)
        }

        fn rest(&mut self, _: Option<&Self>, _: impl FnOnce() -> Duration, _: &mut Idle) -> Result<bool> {
            Ok(false)
        }
    }

    fn opened(amount: Amount) -> (crate::signal::Moment, u64) {
        let signal = Signal::default();
        let mut queue = Steady { signal: &signal, more: 10 };
        let mut receives = Receives::new(&mut queue, Vec::new());
        receive(&mut receives, u64::MAX, None, Some(Opening::new(amount, 3)), &signal).unwrap();
        (signal.opened().unwrap(), signal.done())
    }

    #[test]
    fn warm_up_messages_belong_to_no_interval() {
        let (moment, done) = opened(Amount::Messages { count: 10, warm_up: 500 });
        assert_eq!((moment.done, done), (1500, 1510));
        let (begin, warm_up) = (Instant::now(), Duration::from_millis(20));
        let (moment, done) = opened(Amount::Time { time: warm_up, warm_up });
        assert!(moment.at >= begin + warm_up && moment.done + 10 == done, "{moment:?} {done}");
    }
}
