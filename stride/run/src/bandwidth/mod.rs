//! The bandwidth loop, which keeps many messages in flight.

mod pace;
pub(crate) mod watch;
pub(crate) mod window;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use self::pace::Pace;
use self::watch::Watch;
use self::window::{Clock, interval_buffer};
pub use self::window::{Window, in_pairs};
use crate::amount::Amount;
use crate::poll::Poll;
use crate::qp_driver::{Drive, qp_index};
use crate::receive::Receives;
use crate::signal::{Idle, Signal};
use crate::wait::LONGEST;

/// How long requests may take to complete after the last one was posted.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long requests may take to complete after a step was cut short. The time is shorter than [`DRAIN_TIMEOUT`],
/// because the peer may no longer receive and no further step follows.
const CUT_SHORT_TIMEOUT: Duration = Duration::from_secs(1);
/// A timed window starts and ends with a completion. If none arrives within the run's time divided by this number, the
/// window starts or ends without one.
const SHARE: u32 = 10;

/// Parameters of the bandwidth loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Send {
    pub(crate) amount: Amount,
    /// Number of requests in flight per queue pair.
    pub(crate) depth: u64,
    /// Number of requests that are posted together.
    pub(crate) list: u32,
    /// Length of the intervals in which messages are counted. If absent, the intervals are short at first, and become
    /// longer in a long run.
    pub(crate) interval: Option<Duration>,
    /// Maximum number of messages per second, over all queue pairs.
    pub(crate) rate: Option<f64>,
    /// Number of messages that may be sent in one burst under the rate limit.
    pub(crate) burst: u32,
}

/// Sends until the run length is reached or the loop is stopped. If messages arrive too, the same loop receives them.
pub(crate) fn send<'f, D: Drive, C: Poll>(
    qps: &'f mut [D],
    queue: &'f mut C,
    receives: Option<&'f mut Receives<'_, C>>,
    rules: &Send,
    signal: &'f Signal,
) -> Result<Window> {
    let mut flow = Flow::new(qps, queue, receives, rules, signal);
    let buffer = interval_buffer();
    match rules.amount {
        Amount::Messages { count, warm_up } => {
            flow.burst(&flow.ends(warm_up))?;
            let (before, ends) = (flow.done, flow.ends(count));
            flow.rehearse()?;
            let total = count * flow.qps.len() as u64;
            flow.begin(Clock::begin(rules.interval, before, buffer), total);
            flow.burst(&ends)?;
            let window = flow.end(flow.done - before);
            flow.drain()?;
            Ok(window)
        }
        Amount::Time { time, warm_up } => {
            flow.all_ready();
            flow.until(Instant::now() + warm_up)?;
            flow.until_completion(time / SHARE)?;
            // At the end of the window, the queues are as full as they are now. Messages that were posted before the
            // window but complete in it therefore balance those that are still in flight at its end.
            let before = flow.done;
            let clock = Clock::begin(rules.interval, before, buffer);
            let end = clock.started + time;
            flow.begin(clock, u64::MAX);
            // If the loop was stopped before the window started, nothing was measured.
            if !flow.is_cut {
                flow.until(end)?;
                flow.until_completion(time / SHARE)?;
            }
            let window = flow.end(flow.done - before);
            flow.drain()?;
            Ok(window)
        }
    }
}

/// The state of the loop of one thread.
struct Flow<'f, 'r, D, C> {
    qps: &'f mut [D],
    queue: &'f mut C,
    receives: Option<&'f mut Receives<'r, C>>,
    depth: u64,
    list: u32,
    signal: &'f Signal,
    /// The queue pairs whose send queues may have free entries. Each queue pair is listed at most once.
    ready: Vec<usize>,
    is_ready: Vec<bool>,
    /// Number of messages that have completed on all queue pairs.
    done: u64,
    reported: u64,
    watch: Watch,
    clock: Option<Clock>,
    pace: Option<Pace>,
    idle: Idle,
    /// Whether the loop was stopped before the run length was reached.
    is_cut: bool,
}

impl<'f, 'r, D: Drive, C: Poll> Flow<'f, 'r, D, C> {
    fn new(
        qps: &'f mut [D],
        queue: &'f mut C,
        receives: Option<&'f mut Receives<'r, C>>,
        rules: &Send,
        signal: &'f Signal,
    ) -> Self {
        let count = qps.len();
        Self {
            qps,
            queue,
            receives,
            depth: rules.depth,
            list: rules.list,
            signal,
            ready: Vec::with_capacity(count),
            is_ready: vec![false; count],
            done: 0,
            reported: 0,
            watch: Watch::new(),
            clock: None,
            pace: rules.rate.map(|rate| Pace::new(rate, rules.burst)),
            idle: Idle::default(),
            is_cut: false,
        }
    }

    /// Returns the value that the `posted` count of each queue pair will have after `count` more messages.
    fn ends(&self, count: u64) -> Vec<u64> {
        self.qps.iter().map(|qp| qp.posted() + count).collect()
    }

    /// Runs the code that precedes the first message, without posting a request. Code takes longer when it runs for the
    /// first time. If this happened inside the window, the figures would be wrong.
    fn rehearse(&mut self) -> Result<()> {
        let ends = self.ends(0);
        self.burst(&ends)?;
        self.fill(Some(&ends))
    }

    /// Sends until the `posted` count of each queue pair has reached its entry in `ends`, and all posted requests have
    /// completed.
    fn burst(&mut self, ends: &[u64]) -> Result<()> {
        let goal = self.done + ends.iter().sum::<u64>() - self.qps.iter().map(D::posted).sum::<u64>();
        self.all_ready();
        while self.done < goal && !self.signal.has_stopped() {
            self.fill(Some(ends))?;
            self.poll()?;
            self.look();
        }
        self.is_cut |= self.done < goal;
        self.report();
        Ok(())
    }

    /// Starts the window, in which at most `total` messages are sent.
    fn begin(&mut self, clock: Clock, total: u64) {
        self.report();
        self.signal.open(clock.started);
        if let Some(pace) = &mut self.pace {
            pace.begin(clock.started, total);
        }
        self.watch.begin(clock.started);
        self.clock = Some(clock);
    }

    /// Ends the window.
    fn end(&mut self, messages: u64) -> Window {
        let clock = self.clock.take().unwrap_or_else(|| Clock::begin(None, 0, Vec::new()));
        let window = clock.end(messages);
        self.report();
        self.signal.close(window.ended);
        window
    }

    /// Sends until the time `end`.
    fn until(&mut self, end: Instant) -> Result<()> {
        loop {
            self.fill(None)?;
            self.poll()?;
            if self.look().is_some_and(|now| now >= end) {
                return Ok(());
            }
            if self.signal.has_stopped() {
                self.is_cut = true;
                return Ok(());
            }
        }
    }

    /// Sends until the next completion, or until the time `most` has passed. A completion may cover several messages.
    /// Because the window starts and ends at completions, it counts either all messages of a completion or none.
    #[cold]
    #[inline(never)]
    fn until_completion(&mut self, most: Duration) -> Result<()> {
        let (before, end) = (self.done, Instant::now() + most);
        while self.done == before && !self.signal.has_stopped() {
            self.fill(None)?;
            self.poll()?;
            if self.look().is_some_and(|now| now >= end) {
                break;
            }
        }
        self.is_cut |= self.signal.has_stopped();
        Ok(())
    }

    /// Waits until no request is in flight, because the queue pairs are used again for the next size.
    fn drain(&mut self) -> Result<()> {
        for qp in self.qps.iter_mut().filter(|qp| !qp.is_last_signaled()) {
            qp.post(1, true)?;
        }
        let end = Instant::now() + if self.is_cut { CUT_SHORT_TIMEOUT } else { DRAIN_TIMEOUT };
        while self.qps.iter().any(|qp| qp.in_flight() > 0) {
            self.poll()?;
            if self.look().is_some_and(|now| now > end) {
                if self.is_cut {
                    return Ok(());
                }
                bail!(
                    "requests are still in flight {} s after the last post; check the peer and the link",
                    DRAIN_TIMEOUT.as_secs()
                );
            }
        }
        Ok(())
    }

    fn all_ready(&mut self) {
        self.ready.clear();
        self.ready.extend(0..self.qps.len());
        self.is_ready.fill(true);
    }

    /// Posts requests while send queues have free entries. With `ends`, each queue pair stops at its entry there.
    #[inline]
    fn fill(&mut self, ends: Option<&[u64]>) -> Result<()> {
        let mut allowed = match &mut self.pace {
            Some(pace) => pace.allowed(self.depth * self.qps.len() as u64),
            None => u64::MAX,
        };
        let list = u64::from(self.list);
        let mut kept = 0;
        for at in 0..self.ready.len() {
            let index = self.ready[at];
            let qp = &mut self.qps[index];
            let mut left = ends.map_or(u64::MAX, |ends| ends[index].saturating_sub(qp.posted()));
            let mut free = self.depth.saturating_sub(qp.in_flight());
            if self.pace.is_none() {
                // Leaves at least one request for `post`, because the last one may have to be signaled in addition.
                let count = qp.post_lists(free.min(left - left.min(1)))?;
                left -= count;
                free -= count;
            }
            while left > 0 && free >= list && allowed > 0 {
                let count = left.min(list);
                left -= count;
                free -= count;
                // The conversion is lossless: `count` is at most `list`, which was a 32-bit number.
                qp.post(count as u32, left == 0)?;
                allowed = allowed.saturating_sub(count);
                if let Some(pace) = &mut self.pace {
                    pace.sent += count;
                }
            }
            if allowed == 0 {
                // This queue pair continues when the rate limit allows further messages.
                self.ready[kept] = index;
                kept += 1;
            } else {
                self.is_ready[index] = false;
            }
        }
        self.ready.truncate(kept);
        if kept > 1 {
            // The first queue pair has sent in this round, so it comes last in the next round.
            self.ready.rotate_left(1);
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<()> {
        let Self { qps, ready, is_ready, done, .. } = self;
        let count = self.queue.poll(|completion| {
            let index = qp_index(completion.wr_id);
            // Ignores completions whose `wr_id` belongs to no queue pair, because a driver may return such a `wr_id`.
            let Some(qp) = qps.get_mut(index) else { return };
            *done += qp.finish(completion.wr_id);
            if !is_ready[index] {
                is_ready[index] = true;
                ready.push(index);
            }
        })?;
        let taken = match &mut self.receives {
            Some(receives) => receives.take()?,
            None => 0,
        };
        if count == 0 && taken == 0 {
            self.rest()?;
        }
        Ok(())
    }

    /// Called when a poll has found nothing. Yields the processor or sleeps.
    #[inline(always)]
    fn rest(&mut self) -> Result<()> {
        let Self { queue, receives, ready, pace, idle, .. } = self;
        // If queue pairs are ready, they wait until the rate limit allows another message.
        let most = || pace.as_ref().filter(|_| !ready.is_empty()).map_or(LONGEST, Pace::wait);
        if queue.rest(receives.as_deref().map(Receives::queue), most, idle)? {
            // A thread that has slept reads the clock after each wake-up.
            self.watch.is_due_next();
        }
        Ok(())
    }

    /// Returns the time in some calls and `None` in the others, so that the clock is read rarely.
    #[inline]
    fn look(&mut self) -> Option<Instant> {
        let now = self.watch.look()?;
        self.report();
        if let Some(clock) = &mut self.clock {
            clock.look(now, self.done);
        }
        Some(now)
    }

    fn report(&mut self) {
        self.signal.add(self.done - self.reported);
        self.reported = self.done;
    }
}
