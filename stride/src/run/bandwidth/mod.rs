//! Many messages under way, as fast as they go.

mod pace;
pub(super) mod watch;
pub(super) mod window;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sideway::ibverbs::queue_pair::SendQueue;

use self::pace::Pace;
use self::watch::Watch;
pub(crate) use self::window::Window;
use self::window::{Clock, room};
use super::poll::Poll;
use super::qp_driver::{QpDriver, lane_of};
use super::receive::Receives;
use super::request::Request;
use super::signal::{Idle, Signal};
use super::wait::LONGEST;
use crate::plan::RunLength;

/// By when requests have ended, one way or the other, after the last was posted.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same where the step is cut short: the other side may take in nothing any more, and there is no further step.
const HASTE: Duration = Duration::from_secs(1);
/// A window of a time begins and ends with a completion, unless none comes in this part of the time.
const SHARE: u32 = 10;

/// How the messages are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Send {
    pub(crate) amount: RunLength,
    /// Requests under way on a lane.
    pub(crate) depth: u64,
    /// Requests that are posted together.
    pub(crate) list: u32,
    /// The length of an interval, of which the messages are counted; none is short at first, and longer in a long run.
    pub(crate) interval: Option<Duration>,
    /// Messages a second of all lanes together, at most.
    pub(crate) rate: Option<f64>,
    /// And so many of them at once.
    pub(crate) burst: u32,
}

/// Sends until the amount is done or the loop is to stop; what comes meanwhile, where anything does, is received.
pub(crate) fn send<'f, S, R, C>(
    lanes: &'f mut [QpDriver<'_, S, R>],
    queue: &'f mut C,
    receives: Option<&'f mut Receives<'_, C>>,
    rules: &Send,
    signal: &'f Signal,
) -> Result<Window>
where
    S: SendQueue,
    R: Request<Service = S::Service>,
    C: Poll,
{
    let mut flow = Flow::new(lanes, queue, receives, rules, signal);
    let room = room();
    match rules.amount {
        RunLength::Messages { count, warm_up } => {
            flow.burst(&flow.ends(warm_up))?;
            let (before, ends) = (flow.done, flow.ends(count));
            flow.rehearse()?;
            flow.begin(Clock::begin(rules.interval, before, room));
            flow.burst(&ends)?;
            let window = flow.end(flow.done - before);
            flow.drain()?;
            Ok(window)
        }
        RunLength::Time { time, warm_up } => {
            flow.all_ready();
            flow.until(Instant::now() + warm_up)?;
            flow.until_completion(time / SHARE)?;
            // The queues are as full at the end as they are now: what was posted before stands for what is still under way then.
            let before = flow.done;
            let clock = Clock::begin(rules.interval, before, room);
            let end = clock.started + time;
            flow.begin(clock);
            // Who was told to stop before has measured nothing.
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

/// The messages of a thread.
struct Flow<'f, 'q, 'r, S, R, C> {
    lanes: &'f mut [QpDriver<'q, S, R>],
    queue: &'f mut C,
    receives: Option<&'f mut Receives<'r, C>>,
    depth: u64,
    list: u32,
    signal: &'f Signal,
    /// Lanes that may have room, each once.
    ready: Vec<usize>,
    is_ready: Vec<bool>,
    /// Messages of all lanes.
    done: u64,
    told: u64,
    watch: Watch,
    clock: Option<Clock>,
    pace: Option<Pace>,
    idle: Idle,
    /// It was told to stop before the amount was done.
    is_cut: bool,
}

impl<'f, 'q, 'r, S, R, C> Flow<'f, 'q, 'r, S, R, C>
where
    S: SendQueue,
    R: Request<Service = S::Service>,
    C: Poll,
{
    fn new(
        lanes: &'f mut [QpDriver<'q, S, R>],
        queue: &'f mut C,
        receives: Option<&'f mut Receives<'r, C>>,
        rules: &Send,
        signal: &'f Signal,
    ) -> Self {
        let count = lanes.len();
        Self {
            lanes,
            queue,
            receives,
            depth: rules.depth,
            list: rules.list,
            signal,
            ready: Vec::with_capacity(count),
            is_ready: vec![false; count],
            done: 0,
            told: 0,
            watch: Watch::new(),
            clock: None,
            pace: rules.rate.map(|rate| Pace::new(rate, rules.burst)),
            idle: Idle::default(),
            is_cut: false,
        }
    }

    /// How many each lane will have posted with so many more.
    fn ends(&self, count: u64) -> Vec<u64> {
        self.lanes.iter().map(|lane| lane.posted + count).collect()
    }

    /// Goes through what comes before the first message, and posts none: code that has never run takes longer, which is no part of a window.
    fn rehearse(&mut self) -> Result<()> {
        let ends = self.ends(0);
        self.burst(&ends)?;
        self.fill(Some(&ends))
    }

    /// Messages of each lane up to these ends, to the last completion.
    fn burst(&mut self, ends: &[u64]) -> Result<()> {
        let posted = |lane: &QpDriver<'_, S, R>| lane.posted;
        let goal = self.done + ends.iter().sum::<u64>() - self.lanes.iter().map(posted).sum::<u64>();
        self.all_ready();
        while self.done < goal && !self.signal.has_stopped() {
            self.fill(Some(ends))?;
            self.poll()?;
            self.look();
        }
        self.is_cut |= self.done < goal;
        self.tell();
        Ok(())
    }

    /// Begins the window.
    fn begin(&mut self, clock: Clock) {
        self.tell();
        self.signal.open(clock.started);
        if let Some(pace) = &mut self.pace {
            pace.begin(clock.started);
        }
        self.watch.begin(clock.started);
        self.clock = Some(clock);
    }

    /// Ends the window.
    fn end(&mut self, messages: u64) -> Window {
        let clock = self.clock.take().unwrap_or_else(|| Clock::begin(None, 0, Vec::new()));
        let window = clock.end(messages);
        self.tell();
        self.signal.close(window.ended);
        window
    }

    /// Messages until then.
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

    /// Messages until the next completion, so that what stands for many counts whole or not at all; for so long at most.
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

    /// Waits for all that is under way: queue pairs are used again at the next size.
    fn drain(&mut self) -> Result<()> {
        for lane in self.lanes.iter_mut().filter(|lane| !lane.is_told_of_last()) {
            lane.post(1, true)?;
        }
        let end = Instant::now() + if self.is_cut { HASTE } else { PATIENCE };
        while self.lanes.iter().any(|lane| lane.under_way() > 0) {
            self.poll()?;
            if self.look().is_some_and(|now| now > end) {
                if self.is_cut {
                    return Ok(());
                }
                bail!("requests are still in flight {} s after the last post", PATIENCE.as_secs());
            }
        }
        Ok(())
    }

    fn all_ready(&mut self) {
        self.ready.clear();
        self.ready.extend(0..self.lanes.len());
        self.is_ready.fill(true);
    }

    /// Posts where there is room, up to `ends` where there are any.
    #[inline]
    fn fill(&mut self, ends: Option<&[u64]>) -> Result<()> {
        let mut allowed = match &mut self.pace {
            Some(pace) => pace.allowed(self.depth * self.lanes.len() as u64),
            None => u64::MAX,
        };
        let mut kept = 0;
        for at in 0..self.ready.len() {
            let index = self.ready[at];
            let lane = &mut self.lanes[index];
            let end = ends.map_or(u64::MAX, |ends| ends[index]);
            while lane.posted < end && lane.under_way() + u64::from(self.list) <= self.depth && allowed > 0 {
                // Lossless: not above the list, which has 32 bits.
                let count = (end - lane.posted).min(u64::from(self.list)) as u32;
                lane.post(count, lane.posted + u64::from(count) == end)?;
                allowed = allowed.saturating_sub(u64::from(count));
                if let Some(pace) = &mut self.pace {
                    pace.sent += u64::from(count);
                }
            }
            if allowed == 0 {
                // It has its turn when it may send again.
                self.ready[kept] = index;
                kept += 1;
            } else {
                self.is_ready[index] = false;
            }
        }
        self.ready.truncate(kept);
        if kept > 1 {
            // The first has had its turn.
            self.ready.rotate_left(1);
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<()> {
        let Self { lanes, ready, is_ready, done, .. } = self;
        let count = self.queue.poll(|completion| {
            let index = lane_of(completion.wr_id);
            // What a driver makes up is of no lane.
            let Some(lane) = lanes.get_mut(index) else { return };
            *done += lane.finish(completion.wr_id);
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

    /// Nothing was there.
    #[inline(always)]
    fn rest(&mut self) -> Result<()> {
        let Self { queue, receives, ready, pace, idle, .. } = self;
        // Lanes that are ready still wait for the time when they may send.
        let most = || pace.as_ref().filter(|_| !ready.is_empty()).map_or(LONGEST, Pace::wait);
        if queue.rest(receives.as_deref().map(Receives::queue), most, idle)? {
            // Who sleeps looks at the time whenever it wakes up.
            self.watch.is_due_next();
        }
        Ok(())
    }

    /// Now and then, the time.
    #[inline]
    fn look(&mut self) -> Option<Instant> {
        let now = self.watch.look()?;
        self.tell();
        if let Some(clock) = &mut self.clock {
            clock.look(now, self.done);
        }
        Some(now)
    }

    fn tell(&mut self) {
        self.signal.add(self.done - self.told);
        self.told = self.done;
    }
}
