//! The other side of messages that take receives: posts them again, in batches, as they are used.

use std::time::{Duration, Instant};

use anyhow::Result;
use sideway::ibverbs::memory_region::LocalKey;
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::ibverbs::work_request::ReceiveQueue;

use super::bandwidth::watch::Watch;
use super::bandwidth::window::{Clock, Window, room};
use super::cause::of_receive;
use super::poll::Poll;
use super::qp_driver::lane_of;
use super::signal::{Idle, Signal};
use super::wait::LONGEST;
use crate::plan::RunLength;

/// The receives of a thread's lanes, which complete on one queue.
#[derive(Debug)]
pub(crate) struct Receives<'q, C> {
    queue: &'q mut C,
    lanes: Vec<Refill<'q>>,
    /// Messages that have come.
    pub(crate) taken: u64,
}

/// Where a lane's receives are posted.
#[derive(Debug)]
pub(crate) enum Intake<'q> {
    /// To its queue pair.
    Own(&'q mut ReceiveQueue),
    /// To the queue that the other side's messages name.
    Named(&'q mut SharedReceiveQueue),
}

/// The receives of a lane, which all have the same place: nobody reads what comes there.
#[derive(Debug)]
pub(crate) struct Refill<'q> {
    intake: Intake<'q>,
    lkey: LocalKey,
    address: u64,
    length: u32,
    /// To be posted again.
    used: u32,
    /// So many are posted together.
    batch: u32,
}

impl<'q> Refill<'q> {
    /// Receives of so many bytes at this address, of which `batch` are posted together.
    ///
    /// # Safety
    ///
    /// The memory there is registered as long as receives wait for messages, and nobody refers to it.
    pub(crate) unsafe fn new(intake: Intake<'q>, lkey: LocalKey, address: u64, length: u32, batch: u32) -> Self {
        Self { intake, lkey, address, length, used: 0, batch: batch.max(1) }
    }

    /// Posts so many, whose number is that of the lane.
    pub(super) fn post(&mut self, number: usize, count: u32) -> Result<()> {
        /// Posts to either kind of queue.
        macro_rules! post {
            ($queue:expr) => {{
                let mut batch = $queue.start_post_recv();
                for _ in 0..count {
                    let request = batch.construct_wr((number as u64) << 32);
                    // SAFETY: the promise of `new`.
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
    pub(crate) fn new(queue: &'q mut C, lanes: Vec<Refill<'q>>) -> Self {
        Self { queue, lanes, taken: 0 }
    }

    /// The queue on which they complete.
    pub(crate) fn queue(&self) -> &C {
        self.queue
    }

    /// Nothing has come.
    #[inline(always)]
    pub(crate) fn rest(&mut self, idle: &mut Idle) -> Result<bool> {
        self.queue.rest(None, || LONGEST, idle)
    }

    /// Posts so many more on each lane.
    pub(crate) fn add(&mut self, counts: &mut [u32]) -> Result<()> {
        for ((number, lane), count) in self.lanes.iter_mut().enumerate().zip(counts) {
            lane.post(number, std::mem::take(count))?;
        }
        Ok(())
    }

    /// Takes what has come of an earlier step; how many receives of each lane are used.
    pub(crate) fn clear(&mut self) -> Result<Vec<u32>> {
        while self.take_only()? > 0 {}
        Ok(self.lanes.iter_mut().map(|lane| std::mem::take(&mut lane.used)).collect())
    }

    fn take_only(&mut self) -> Result<u32> {
        let Self { queue, lanes, .. } = self;
        let taken = queue.poll(|done| {
            // What a driver makes up is of no lane.
            if let Some(lane) = lanes.get_mut(lane_of(done.wr_id)) {
                lane.used += 1;
            }
        });
        taken.map_err(of_receive)
    }

    /// Takes what has come, and posts as many receives again; how many messages there were.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<u32> {
        let count = self.take_only()?;
        if count > 0 {
            self.taken += u64::from(count);
            for (number, lane) in self.lanes.iter_mut().enumerate() {
                if lane.used >= lane.batch {
                    let used = std::mem::take(&mut lane.used);
                    lane.post(number, used)?;
                }
            }
        }
        Ok(count)
    }
}

/// When what comes begins to count: after as many messages, or as much time, as with who sends them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    after: u64,
    at: Instant,
}

impl Opening {
    /// Of a loop that begins now, over so many lanes.
    pub(crate) fn new(amount: RunLength, lanes: u64) -> Self {
        let now = Instant::now();
        match amount {
            RunLength::Messages { warm_up, .. } => Self { after: warm_up * lanes, at: now },
            RunLength::Time { warm_up, .. } => Self { after: 0, at: now + warm_up },
        }
    }

    /// The moment, where it has come with so many messages.
    fn now(&self, taken: u64) -> Option<Instant> {
        (taken >= self.after).then(Instant::now).filter(|now| *now >= self.at)
    }
}

/// Receives until so many have come, or nothing has for so long, or the loop is to stop. Where the messages are all that this side has to
/// tell of, it opens the signal.
pub(crate) fn receive<C: Poll>(
    receives: &mut Receives<'_, C>,
    messages: u64,
    quiet: Option<Duration>,
    mut opening: Option<Opening>,
    signal: &Signal,
) -> Result<()> {
    let (mut told, mut rounds, mut last) = (receives.taken, 0_u32, Instant::now());
    let mut idle = Idle::default();
    while receives.taken < messages && !signal.has_stopped() {
        if receives.take()? == 0 {
            if receives.rest(&mut idle)? {
                // Who sleeps looks at the time whenever it wakes up.
                rounds |= 1023;
            }
        } else if let Some(now) = opening.and_then(|opening| opening.now(receives.taken)) {
            signal.add(receives.taken - told);
            (told, last, opening) = (receives.taken, now, None);
            signal.open(now);
        }
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(1024) {
            let more = receives.taken - told;
            if more > 0 {
                signal.add(more);
                (told, last) = (receives.taken, Instant::now());
            } else if quiet.is_some_and(|quiet| last.elapsed() > quiet) {
                break;
            }
        }
    }
    signal.add(receives.taken - told);
    Ok(())
}

/// When nothing has come for so long after the other side has ended, nothing will.
const LINGER: Duration = Duration::from_millis(20);
/// And what still comes after so long is of others.
const LONGEST_LINGER: Duration = Duration::from_secs(1);

/// What arrives of messages that may be lost: how many in the whole step, and in which time those came that count.
///
/// The window begins after as many messages, or as much time, as the other side's; it ends with the last message, as what does not come has
/// no time. A thread that was too late to see one has a window of no length.
pub(crate) fn take_count<C: Poll>(
    receives: &mut Receives<'_, C>,
    amount: RunLength,
    interval: Option<Duration>,
    signal: &Signal,
) -> Result<Window> {
    let (lanes, mut room) = (receives.lanes.len() as u64, room());
    let begun = Instant::now();
    let (all, warm_up, begin, end) = match amount {
        RunLength::Messages { count, warm_up } => ((count + warm_up) * lanes, warm_up * lanes, begun, None),
        RunLength::Time { time, warm_up } => (u64::MAX, 0, begun + warm_up, Some(begun + warm_up + time)),
    };
    let (mut watch, mut idle, mut clock) = (Watch::new(), Idle::default(), None::<Clock>);
    // Messages when the window began, and when there were last more of them within it.
    let (mut before, mut counted, mut last) = (0, 0, begun);
    let (mut told, mut quiet, mut stopped) = (0, None, None);
    // The last look, which is not late where nothing has come.
    let mut looked = begun;
    while receives.taken < all {
        if receives.take()? == 0 && receives.rest(&mut idle)? {
            watch.is_due_next();
        }
        let taken = receives.taken;
        // By number it begins with a message, which does not wait for the next look.
        if clock.is_none() && end.is_none() && taken > 0 && taken >= warm_up {
            let new = Clock::begin(interval, taken, std::mem::take(&mut room));
            (before, counted, last) = (taken, taken, new.started);
            signal.add(taken - told);
            told = taken;
            signal.open(new.started);
            clock = Some(new);
        }
        let Some(now) = watch.look() else { continue };
        let before_now = std::mem::replace(&mut looked, now);
        if signal.has_stopped() && now.duration_since(*stopped.get_or_insert(now)) > LONGEST_LINGER {
            break;
        }
        if taken > told {
            signal.add(taken - told);
            (told, quiet) = (taken, None);
            let is_within = end.is_none_or(|end| now <= end);
            match &mut clock {
                Some(clock) if is_within => {
                    clock.look(before_now, counted);
                    clock.look(now, taken);
                    (counted, last) = (taken, now);
                }
                // Of a number it has begun above, or not yet.
                None if end.is_some() && is_within && now >= begin => {
                    let new = Clock::begin(interval, taken, std::mem::take(&mut room));
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
    signal.add(receives.taken - told);
    let clock = clock.unwrap_or_else(|| Clock::begin(interval, counted, room));
    let last = last.max(clock.started);
    signal.close(last);
    let window = clock.end_at(last, counted.saturating_sub(before));
    let window = if end.is_none() { with_first(window, counted.saturating_sub(warm_up)) } else { window };
    Ok(Window { arrived: Some(receives.taken), ..window })
}

/// A window by number with all of its messages. More of them may have been there than the warm-up's when it began: they have come at the
/// rate of the others. Where these are less than half, the thread was late, and has no window of its own.
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
    use super::super::poll::Done;
    use super::*;

    /// A message at each look, until the signal is open and so many more have come.
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

    fn opened(amount: RunLength) -> (super::super::signal::Moment, u64) {
        let signal = Signal::default();
        let mut queue = Steady { signal: &signal, more: 10 };
        let mut receives = Receives::new(&mut queue, Vec::new());
        receive(&mut receives, u64::MAX, None, Some(Opening::new(amount, 3)), &signal).unwrap();
        (signal.opened().unwrap(), signal.done())
    }

    #[test]
    fn what_comes_in_the_warm_up_is_of_no_interval() {
        let (moment, done) = opened(RunLength::Messages { count: 10, warm_up: 500 });
        assert_eq!((moment.done, done), (1500, 1510));
        let (begin, warm_up) = (Instant::now(), Duration::from_millis(20));
        let (moment, done) = opened(RunLength::Time { time: warm_up, warm_up });
        assert!(moment.at >= begin + warm_up && moment.done + 10 == done, "{moment:?} {done}");
    }
}
