//! The latency loops, which have one message in flight at a time.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::gap::Gap;
use crate::poll::Poll;
use crate::qp_driver::Drive;
use crate::receive::Receives;
use crate::signal::{Idle, LOOKS, SampleWindow, Signal};
use crate::tally::Tally;
use crate::tsc::{Scale, Tsc};
use crate::wait::LONGEST;

/// When a loop ends: after a number of messages, or at a point in time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Count(u64),
    Time(Tsc),
}

impl Until {
    #[inline]
    pub(crate) fn is_reached(self, count: u64, now: Tsc) -> bool {
        match self {
            Self::Count(end) => count >= end,
            Self::Time(end) => now >= end,
        }
    }
}

/// How both sides send in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// Whether this side sends first.
    pub(crate) begins: bool,
    pub(crate) until: Until,
    /// How long to wait for a missing message, if the transport may lose messages.
    pub(crate) loss_timeout: Option<LossTimeout>,
    /// The pause before each message except the first. Only the side that sends first pauses.
    pub(crate) gap: Option<Gap>,
}

/// The time limit of a wait for a message that may have been lost.
#[derive(Clone, Copy, Debug)]
pub struct LossTimeout {
    /// The time after which the message counts as lost.
    pub most: Duration,
    /// Name of the transport, for the error text.
    pub transport: &'static str,
}

/// The state of a wait for the peer's message.
struct Wait {
    turns: Turns,
    /// Number of round trips that have completed.
    count: u64,
    looks: u32,
    since: Option<Instant>,
}

/// Number of polls between two reads of the clock.
const SELDOM: u32 = 1024;

impl Wait {
    fn new(turns: Turns, count: u64) -> Self {
        Self { turns, count, looks: 0, since: None }
    }

    /// Called when a poll has found nothing. Fails when the time limit has passed.
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
        let Some(LossTimeout { most, transport }) = self.turns.loss_timeout else { return Ok(()) };
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
            "{what} was lost: nothing arrived for {most:?}, and {transport} does not retransmit; run again, give \
             --transport rc, or raise --timeout if the peer may pause that long"
        )
    }
}

/// The samples of a test. Each sample is the number of ticks from one time stamp to the next.
#[derive(Debug)]
pub struct Samples {
    /// Samples in memory. Each sample is below `u32::MAX`, and the number of samples never exceeds the initial
    /// capacity.
    times: Vec<u32>,
    /// Samples that were moved out of memory because it was full, and samples that are too long for it.
    older: Option<Tally>,
    last: Option<Tsc>,
    /// Number of samples at the start to discard. Samples that start before `begin` are also discarded.
    skip: u64,
    begin: Option<Tsc>,
    reporting: Reporting,
}

/// The reports of intervals while the loop runs. A report is computed from the stored samples when it is due. Until
/// then, each message costs only one comparison.
#[derive(Debug)]
struct Reporting {
    length: Duration,
    /// When the next report is due. If no sample exists yet, a report is due at once.
    due: Tsc,
    has_begun: bool,
    /// Summary of the samples since the last report, except for those in `times[from..]`.
    window: SampleWindow,
    from: usize,
}

impl Samples {
    /// Creates memory for `capacity` samples. The first `skip` samples will be discarded.
    pub(crate) fn new(capacity: usize, skip: u64) -> Self {
        // The memory is written once, so that no page fault occurs during the measurement.
        let mut times = vec![1; capacity];
        times.clear();
        let window = SampleWindow::new(Tsc::default());
        let reporting =
            Reporting { length: Duration::from_secs(1), due: Tsc::default(), has_begun: false, window, from: 0 };
        Self { times, older: None, last: None, skip, begin: None, reporting }
    }

    /// Creates an object that keeps no samples, for a side whose samples are not used.
    pub(crate) fn none() -> Self {
        Self::new(0, u64::MAX)
    }

    /// Discards samples that start before `begin`.
    pub(crate) fn from(self, begin: Tsc) -> Self {
        Self { begin: Some(begin), ..self }
    }

    /// Sets the length of the intervals that are reported.
    pub(crate) fn with_interval(mut self, length: Duration) -> Self {
        self.reporting.length = length;
        self
    }

    #[inline]
    pub(crate) fn stamp(&mut self, signal: &Signal) -> Tsc {
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
            if now >= self.reporting.due {
                self.report(last, now, signal);
            }
        }
        now
    }

    /// Reports the samples since the last report as an interval. No sample includes the time that this takes.
    #[cold]
    #[inline(never)]
    fn report(&mut self, last: Tsc, now: Tsc, signal: &Signal) {
        if self.reporting.has_begun {
            self.gather();
            signal.add_samples(self.reporting.window.until(now));
            self.reporting.window = SampleWindow::new(now);
        } else {
            // Samples that `fold` has added before belong to the first interval too.
            self.reporting.window.start = last;
            self.reporting.has_begun = true;
        }
        self.reporting.due = now.after(self.reporting.length);
        self.last = Some(Tsc::now());
    }

    /// Adds the stored samples to the summary of the current interval.
    fn gather(&mut self) {
        let Reporting { window, from, .. } = &mut self.reporting;
        let more = self.times.get(*from..).unwrap_or_default();
        *window = more.iter().fold(*window, |window, &time| window.with(time.into()));
        *from = self.times.len();
    }

    /// Reports the samples since the last report, if they span at least half of the length of an interval.
    pub(crate) fn end(&mut self, signal: &Signal) {
        let Some(last) = self.last.filter(|_| self.reporting.has_begun) else { return };
        self.gather();
        let window = self.reporting.window.until(last);
        if window.samples > 0 && last.since(window.start) >= Scale::now().ticks(self.reporting.length / 2) {
            signal.add_samples(window);
        }
    }

    /// Adds a sample that is too long for the memory, or for which the memory has no space. No sample includes the time
    /// that this takes.
    #[cold]
    #[inline(never)]
    fn fold(&mut self, time: u64) {
        self.gather();
        self.reporting.window = self.reporting.window.with(time);
        let older = self.older.get_or_insert_default();
        if self.times.len() == self.times.capacity() {
            self.reporting.from = 0;
            older.add(self.times.iter().map(|&time| time.into()));
            self.times.clear();
        }
        older.add(std::iter::once(time));
        self.last = Some(Tsc::now());
    }

    /// Starts the next sample now. The time since the last stamp is part of no sample.
    pub(super) fn begin_anew(&mut self) {
        self.last = Some(Tsc::now());
    }

    /// Sets the first time stamp.
    #[cfg(test)]
    pub(crate) fn since(self, first: Tsc) -> Self {
        Self { last: Some(first), ..self }
    }

    /// Returns the number of samples that fit in memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.times.capacity()
    }

    /// Returns a tally of all samples.
    pub fn tally(self) -> Tally {
        let mut all = self.older.unwrap_or_default();
        all.add(self.times.iter().map(|&time| time.into()));
        all
    }
}

/// Measures the time from posting each message to its local completion. One side sends, and the other is passive.
pub(crate) fn acknowledged<D: Drive, C: Poll>(
    qp: &mut D,
    queue: &mut C,
    turns: Turns,
    samples: &mut Samples,
    signal: &Signal,
) -> Result<()> {
    let mut count = 0;
    while !turns.until.is_reached(count, samples.stamp(signal)) && !signal.has_stopped() {
        if let Some(gap) = turns.gap.filter(|_| count > 0) {
            gap.pass(qp, queue, samples, signal)?;
        }
        qp.post(1, true)?;
        wait_for_completion(qp, queue, signal)?;
        count += 1;
        signal.add(1);
    }
    Ok(())
}

/// Measures latencies while both sides send in turn. Each side detects the peer's message by its last byte, which is a
/// counter.
///
/// # Safety
///
/// `out` points to the last byte of the messages that the queue pair sends, `back` to the last byte of those that it
/// receives. Both pointers are valid, and no other code of this process accesses these bytes.
pub(crate) unsafe fn by_memory<D: Drive, C: Poll>(
    qp: &mut D,
    queue: &mut C,
    (out, back): (*mut u8, *mut u8),
    turns: Turns,
    samples: &mut Samples,
    signal: &Signal,
) -> Result<()> {
    let Turns { begins, until, .. } = turns;
    // SAFETY: the caller guarantees that both are valid and unused elsewhere; devices write single bytes too.
    let (out, back) = unsafe { (AtomicU8::from_ptr(out), AtomicU8::from_ptr(back)) };
    let (mut count, mut turn) = (0_u64, 0_u8);
    loop {
        let now = samples.stamp(signal);
        if begins && until.is_reached(count, now) {
            return Ok(());
        }
        if let Some(gap) = turns.gap.filter(|_| begins && count > 0) {
            gap.pass(qp, queue, samples, signal)?;
        }
        turn = turn.wrapping_add(1);
        if !begins && !wait_for_byte(back, turn, queue, qp, Wait::new(turns, count), signal)? {
            return Ok(());
        }
        out.store(turn, Ordering::Release);
        qp.post(1, true)?;
        wait_for_completion(qp, queue, signal)?;
        if begins && !wait_for_byte(back, turn, queue, qp, Wait::new(turns, count), signal)? {
            return Ok(());
        }
        count += 1;
        signal.add(1);
        if !begins && matches!(until, Until::Count(end) if count >= end) {
            return Ok(());
        }
    }
}

/// Waits until the byte has the expected value. Returns `false` if the loop is stopped before.
#[inline]
fn wait_for_byte<D: Drive, C: Poll>(
    byte: &AtomicU8,
    turn: u8,
    queue: &mut C,
    qp: &mut D,
    mut wait: Wait,
    signal: &Signal,
) -> Result<bool> {
    let (mut looks, mut idle) = (0_u32, Idle::default());
    while byte.load(Ordering::Acquire) != turn {
        idle.look(LOOKS);
        // The loop has no pause instruction, because the measured time would include it.
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(128) {
            // The loop also polls the queue, because polling runs the code of software devices, and returns the error
            // of a queue pair that has failed.
            queue.poll(|done| {
                qp.finish(done.wr_id);
            })?;
            if signal.has_stopped() {
                return Ok(false);
            }
            wait.look(false)?;
        }
    }
    Ok(true)
}

/// Measures latencies while both sides send in turn. Each side detects the peer's message by the completion of a
/// receive.
pub(crate) fn by_receives<D: Drive, C: Poll>(
    qp: &mut D,
    queue: &mut C,
    receives: &mut Receives<'_, C>,
    turns: Turns,
    samples: &mut Samples,
    signal: &Signal,
) -> Result<()> {
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
            gap.pass(qp, queue, samples, signal)?;
        }
        qp.post(1, true)?;
        wait_for_completion(qp, queue, signal)?;
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

/// Waits until all posted requests have completed.
#[inline]
fn wait_for_completion<D: Drive, C: Poll>(qp: &mut D, queue: &mut C, signal: &Signal) -> Result<()> {
    let mut idle = Idle::default();
    while qp.in_flight() > 0 {
        let count = queue.poll(|done| {
            qp.finish(done.wr_id);
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
