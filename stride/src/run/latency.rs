//! One message under way at a time.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sideway::ibverbs::queue_pair::SendQueue;

use super::gap::Gap;
use super::poll::Poll;
use super::qp_driver::QpDriver;
use super::receive::Receives;
use super::request::Request;
use super::signal::{Idle, LOOKS, SampleWindow, Signal};
use super::tsc::{Scale, Tsc};
use super::wait::LONGEST;
use crate::plan::{Transport, time};
use crate::stats::Tally;

/// When to end: after so many messages, or at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Count(u64),
    Time(Tsc),
}

impl Until {
    #[inline]
    fn is_reached(self, count: u64, now: Tsc) -> bool {
        match self {
            Self::Count(end) => count >= end,
            Self::Time(end) => now >= end,
        }
    }
}

/// How two sides take turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// This side has the first.
    pub(crate) begins: bool,
    pub(crate) until: Until,
    /// Where messages may be lost.
    pub(crate) patience: Option<Patience>,
    /// The pause before each message but the first, of the side that begins.
    pub(crate) gap: Option<Gap>,
}

/// How long a message is waited for that may have been lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) most: Duration,
    pub(crate) service: Transport,
}

/// A side that waits for the other's message.
struct Wait {
    turns: Turns,
    /// Messages that have gone there and back.
    count: u64,
    looks: u32,
    since: Option<Instant>,
}

/// Between two looks at the clock pass so many looks for a message.
const SELDOM: u32 = 1024;

impl Wait {
    fn new(turns: Turns, count: u64) -> Self {
        Self { turns, count, looks: 0, since: None }
    }

    /// Nothing was there. Fails where that has been so for too long.
    #[inline]
    fn look(&mut self, has_slept: bool) -> Result<()> {
        self.looks = self.looks.wrapping_add(1);
        if has_slept || self.looks.is_multiple_of(SELDOM) {
            self.consider()?;
        }
        Ok(())
    }

    #[cold]
    fn consider(&mut self) -> Result<()> {
        let Some(Patience { most, service }) = self.turns.patience else { return Ok(()) };
        let now = Instant::now();
        if now - *self.since.get_or_insert(now) < most {
            return Ok(());
        }
        let what = match (self.turns.begins, self.count) {
            (true, count) => format!("message {}, or its reply,", count + 1),
            (false, 0) => "message 1".to_owned(),
            (false, count) => format!("message {}, or the reply to the previous one,", count + 1),
        };
        bail!(
            "{what} was lost: nothing arrived for {}, and {service} does not retransmit; run again, give --transport \
             rc, or raise --timeout if the peer may pause that long",
            time::show(most)
        )
    }
}

/// Ticks from stamp to stamp.
#[derive(Debug)]
pub(crate) struct Samples {
    /// As far as there is room for them; each is below `u32::MAX`.
    times: Vec<u32>,
    /// Those for which there was no room any more, and those that are longer.
    older: Option<Tally>,
    last: Option<Tsc>,
    /// Samples that are not kept, and the time before which none is.
    skip: u64,
    begin: Option<Tsc>,
    telling: Telling,
}

/// What of the times is told while the loop runs: reckoned when it is due, from the times that are kept, so that a message takes one look at
/// whether it is.
#[derive(Debug)]
struct Telling {
    length: Duration,
    /// When it is due: at once, where no time is kept yet.
    due: Tsc,
    has_begun: bool,
    /// What is not told yet, but for the times from an index on.
    spell: SampleWindow,
    from: usize,
}

impl Samples {
    /// With room for so many at a time. The first `skip` are left out.
    pub(crate) fn new(room: usize, skip: u64) -> Self {
        // Written once, so that no page is missing while it is measured.
        let mut times = vec![1; room];
        times.clear();
        let spell = SampleWindow::new(Tsc::default());
        let telling = Telling { length: Duration::from_secs(1), due: Tsc::default(), has_begun: false, spell, from: 0 };
        Self { times, older: None, last: None, skip, begin: None, telling }
    }

    /// For the side of which nobody asks.
    pub(crate) fn none() -> Self {
        Self::new(0, u64::MAX)
    }

    /// Those before `begin` are left out too.
    pub(crate) fn from(self, begin: Tsc) -> Self {
        Self { begin: Some(begin), ..self }
    }

    /// Told as often as that.
    pub(crate) fn told_each(mut self, length: Duration) -> Self {
        self.telling.length = length;
        self
    }

    #[inline]
    fn stamp(&mut self, signal: &Signal) -> Tsc {
        let now = Tsc::now();
        if let Some(last) = self.last.replace(now) {
            if self.skip > 0 {
                self.skip -= 1;
                return now;
            }
            if self.begin.is_some_and(|begin| last < begin) {
                return now;
            }
            let time = now.since(last);
            match u32::try_from(time) {
                Ok(short) if short < u32::MAX && self.times.len() < self.times.capacity() => self.times.push(short),
                _ => self.fold(time),
            }
            if now >= self.telling.due {
                self.tell(last, now, signal);
            }
        }
        now
    }

    /// Tells what has come since the last time; that is part of no time.
    #[cold]
    #[inline(never)]
    fn tell(&mut self, last: Tsc, now: Tsc, signal: &Signal) {
        if self.telling.has_begun {
            self.gather();
            signal.tell(self.telling.spell.until(now));
            self.telling.spell = SampleWindow::new(now);
        } else {
            // What a fold has added is of the first time, too.
            self.telling.spell.start = last;
            self.telling.has_begun = true;
        }
        self.telling.due = now.after(self.telling.length);
        self.last = Some(Tsc::now());
    }

    /// Adds the times that are kept to what is to be told.
    fn gather(&mut self) {
        let Telling { spell, from, .. } = &mut self.telling;
        let more = self.times.get(*from..).unwrap_or_default();
        *spell = more.iter().fold(*spell, |spell, &time| spell.with(time.into()));
        *from = self.times.len();
    }

    /// Tells the rest, where it is half as long as what is told otherwise.
    pub(crate) fn end(&mut self, signal: &Signal) {
        let Some(last) = self.last.filter(|_| self.telling.has_begun) else { return };
        self.gather();
        let spell = self.telling.spell.until(last);
        if spell.samples > 0 && last.since(spell.start) >= Scale::now().ticks(self.telling.length / 2) {
            signal.tell(spell);
        }
    }

    /// Takes a time that does not go with the others: that there is room again is part of no time.
    #[cold]
    #[inline(never)]
    fn fold(&mut self, time: u64) {
        self.gather();
        self.telling.spell = self.telling.spell.with(time);
        let older = self.older.get_or_insert_with(Tally::new);
        if self.times.len() == self.times.capacity() {
            self.telling.from = 0;
            older.add(self.times.iter().map(|&time| time.into()));
            self.times.clear();
        }
        older.add(std::iter::once(time));
        self.last = Some(Tsc::now());
    }

    /// The next time is from now on, whatever has passed since the last.
    pub(super) fn begin_anew(&mut self) {
        self.last = Some(Tsc::now());
    }

    /// With a first stamp.
    #[cfg(test)]
    pub(crate) fn since(self, first: Tsc) -> Self {
        Self { last: Some(first), ..self }
    }

    /// How many have room one by one.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.times.capacity()
    }

    /// What there is of them.
    pub(crate) fn tally(self) -> Tally {
        let mut all = self.older.unwrap_or_else(Tally::new);
        all.add(self.times.iter().map(|&time| time.into()));
        all
    }
}

/// Each message to its completion here, the first of the turns alone.
pub(crate) fn acknowledged<S, R, C>(
    lane: &mut QpDriver<'_, S, R>,
    queue: &mut C,
    turns: Turns,
    samples: &mut Samples,
    signal: &Signal,
) -> Result<()>
where
    S: SendQueue,
    R: Request<Service = S::Service>,
    C: Poll,
{
    let mut count = 0;
    while !turns.until.is_reached(count, samples.stamp(signal)) && !signal.has_stopped() {
        if let Some(gap) = turns.gap.filter(|_| count > 0) {
            gap.pass(lane, queue, samples, signal)?;
        }
        lane.post(1, true)?;
        wait_own(lane, queue, signal)?;
        count += 1;
        signal.add(1);
    }
    Ok(())
}

/// Two sides in turn, of which each sees the other's message by its last byte, a counter.
///
/// # Safety
///
/// `out` is the last byte of the messages of the lane, and `back` the last of those that come; both are there and nobody else of this process
/// uses them.
pub(crate) unsafe fn by_memory<S, R, C>(
    lane: &mut QpDriver<'_, S, R>,
    queue: &mut C,
    (out, back): (*mut u8, *mut u8),
    turns: Turns,
    samples: &mut Samples,
    signal: &Signal,
) -> Result<()>
where
    S: SendQueue,
    R: Request<Service = S::Service>,
    C: Poll,
{
    let Turns { begins, until, .. } = turns;
    // SAFETY: the caller's promise; the device writes single bytes too.
    let (out, back) = unsafe { (AtomicU8::from_ptr(out), AtomicU8::from_ptr(back)) };
    let (mut count, mut turn) = (0_u64, 0_u8);
    loop {
        let now = samples.stamp(signal);
        if begins && until.is_reached(count, now) {
            return Ok(());
        }
        if let Some(gap) = turns.gap.filter(|_| begins && count > 0) {
            gap.pass(lane, queue, samples, signal)?;
        }
        turn = turn.wrapping_add(1);
        if !begins && !comes((back, turn), queue, lane, Wait::new(turns, count), signal)? {
            return Ok(());
        }
        out.store(turn, Ordering::Release);
        lane.post(1, true)?;
        wait_own(lane, queue, signal)?;
        if begins && !comes((back, turn), queue, lane, Wait::new(turns, count), signal)? {
            return Ok(());
        }
        count += 1;
        signal.add(1);
        if !begins && matches!(until, Until::Count(end) if count >= end) {
            return Ok(());
        }
    }
}

/// Waits for the byte; `false` where the loop is to stop.
#[inline]
fn comes<S, R, C>(
    (byte, turn): (&AtomicU8, u8),
    queue: &mut C,
    lane: &mut QpDriver<'_, S, R>,
    mut wait: Wait,
    signal: &Signal,
) -> Result<bool>
where
    S: SendQueue,
    R: Request<Service = S::Service>,
    C: Poll,
{
    let (mut looks, mut idle) = (0_u32, Idle::default());
    while byte.load(Ordering::Acquire) != turn {
        idle.look(LOOKS);
        // Without a pause, which would be part of the time.
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(128) {
            // A device in software does its work by being polled, and a queue pair that fails says so there.
            queue.poll(|done| {
                lane.finish(done.wr_id);
            })?;
            if signal.has_stopped() {
                return Ok(false);
            }
            wait.look(false)?;
        }
    }
    Ok(true)
}

/// Two sides in turn, of which each sees the other's message by the completion of a receive.
pub(crate) fn by_receives<S, R, C>(
    lane: &mut QpDriver<'_, S, R>,
    queue: &mut C,
    receives: &mut Receives<'_, C>,
    turns: Turns,
    samples: &mut Samples,
    signal: &Signal,
) -> Result<()>
where
    S: SendQueue,
    R: Request<Service = S::Service>,
    C: Poll,
{
    let Turns { begins, until, .. } = turns;
    let mut count = 0;
    let mut expected = receives.taken;
    let mut arrives = |receives: &mut Receives<'_, C>, count: u64| -> Result<bool> {
        expected += 1;
        let (mut idle, mut wait) = (Idle::default(), Wait::new(turns, count));
        while receives.taken < expected {
            if receives.take()? == 0 {
                if signal.has_stopped() {
                    return Ok(false);
                }
                let has_slept = receives.rest(&mut idle)?;
                wait.look(has_slept)?;
            }
        }
        Ok(true)
    };
    loop {
        let now = samples.stamp(signal);
        if begins && until.is_reached(count, now) || !begins && !arrives(receives, count)? {
            return Ok(());
        }
        if let Some(gap) = turns.gap.filter(|_| begins && count > 0) {
            gap.pass(lane, queue, samples, signal)?;
        }
        lane.post(1, true)?;
        wait_own(lane, queue, signal)?;
        if begins && !arrives(receives, count)? {
            return Ok(());
        }
        count += 1;
        signal.add(1);
        if !begins && matches!(until, Until::Count(end) if count >= end) {
            return Ok(());
        }
    }
}

/// Waits until what was posted is done.
#[inline]
fn wait_own<S, R, C>(lane: &mut QpDriver<'_, S, R>, queue: &mut C, signal: &Signal) -> Result<()>
where
    S: SendQueue,
    R: Request<Service = S::Service>,
    C: Poll,
{
    let mut idle = Idle::default();
    while lane.under_way() > 0 {
        let count = queue.poll(|done| {
            lane.finish(done.wr_id);
        })?;
        if count == 0 {
            if signal.has_stopped() {
                return Ok(());
            }
            queue.rest(None, || LONGEST, &mut idle)?;
        }
    }
    Ok(())
}
