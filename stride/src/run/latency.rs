//! One message under way at a time.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use anyhow::Result;
use sideway::ibverbs::queue_pair::SendQueue;

use super::lane::Lane;
use super::poll::Poll;
use super::receive::Receives;
use super::request::Request;
use super::signal::{Idle, LOOKS, Signal};
use super::wait::LONGEST;

/// When to end: after so many messages, or at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Count(u64),
    Time(Instant),
}

impl Until {
    #[inline]
    fn is_reached(self, count: u64, now: Instant) -> bool {
        match self {
            Self::Count(end) => count >= end,
            Self::Time(end) => now >= end,
        }
    }
}

/// Nanoseconds from stamp to stamp.
#[derive(Debug)]
pub(crate) struct Samples {
    times: Vec<u32>,
    last: Option<Instant>,
    /// Samples that are not kept, and the time before which none is.
    skip: u64,
    begin: Option<Instant>,
}

impl Samples {
    /// With room for so many; more are kept too, and then the memory grows. The first `skip` are left out.
    pub(crate) fn new(room: usize, skip: u64) -> Self {
        // Written once, so that no page is missing while it is measured.
        let mut times = vec![1; room];
        times.clear();
        Self { times, last: None, skip, begin: None }
    }

    /// For the side of which nobody asks.
    pub(crate) fn none() -> Self {
        Self::new(0, u64::MAX)
    }

    /// Those before `begin` are left out too.
    pub(crate) fn from(self, begin: Instant) -> Self {
        Self { begin: Some(begin), ..self }
    }

    #[inline]
    fn stamp(&mut self) -> Instant {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            if self.skip > 0 {
                self.skip -= 1;
                return now;
            }
            if self.begin.is_some_and(|begin| last < begin) {
                return now;
            }
            self.times.push(u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX));
        }
        now
    }

    pub(crate) fn into_times(self) -> Vec<u32> {
        self.times
    }
}

/// Each message to its completion here.
pub(crate) fn acknowledged<S, R, C>(
    lane: &mut Lane<'_, S, R>,
    queue: &mut C,
    until: Until,
    samples: &mut Samples,
    signal: &Signal,
) -> Result<()>
where
    S: SendQueue,
    R: Request<Service = S::Service>,
    C: Poll,
{
    let mut count = 0;
    while !until.is_reached(count, samples.stamp()) && !signal.has_stopped() {
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
    lane: &mut Lane<'_, S, R>,
    queue: &mut C,
    (out, back): (*mut u8, *mut u8),
    begins: bool,
    until: Until,
    samples: &mut Samples,
    signal: &Signal,
) -> Result<()>
where
    S: SendQueue,
    R: Request<Service = S::Service>,
    C: Poll,
{
    // SAFETY: the caller's promise; the device writes single bytes too.
    let (out, back) = unsafe { (AtomicU8::from_ptr(out), AtomicU8::from_ptr(back)) };
    let (mut count, mut turn) = (0_u64, 0_u8);
    loop {
        let now = samples.stamp();
        if begins && until.is_reached(count, now) {
            return Ok(());
        }
        turn = turn.wrapping_add(1);
        if !begins && !comes(back, turn, queue, lane, signal)? {
            return Ok(());
        }
        out.store(turn, Ordering::Release);
        lane.post(1, true)?;
        wait_own(lane, queue, signal)?;
        if begins && !comes(back, turn, queue, lane, signal)? {
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
fn comes<S, R, C>(byte: &AtomicU8, turn: u8, queue: &mut C, lane: &mut Lane<'_, S, R>, signal: &Signal) -> Result<bool>
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
        }
    }
    Ok(true)
}

/// Two sides in turn, of which each sees the other's message by the completion of a receive.
pub(crate) fn by_receives<S, R, C>(
    lane: &mut Lane<'_, S, R>,
    queue: &mut C,
    receives: &mut Receives<'_, C>,
    begins: bool,
    until: Until,
    samples: &mut Samples,
    signal: &Signal,
) -> Result<()>
where
    S: SendQueue,
    R: Request<Service = S::Service>,
    C: Poll,
{
    let mut count = 0;
    let mut expected = receives.taken;
    let mut arrives = |receives: &mut Receives<'_, C>| -> Result<bool> {
        expected += 1;
        let mut idle = Idle::default();
        while receives.taken < expected {
            if receives.take()? == 0 {
                if signal.has_stopped() {
                    return Ok(false);
                }
                receives.rest(&mut idle)?;
            }
        }
        Ok(true)
    };
    loop {
        let now = samples.stamp();
        if begins && until.is_reached(count, now) || !begins && !arrives(receives)? {
            return Ok(());
        }
        lane.post(1, true)?;
        wait_own(lane, queue, signal)?;
        if begins && !arrives(receives)? {
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
fn wait_own<S, R, C>(lane: &mut Lane<'_, S, R>, queue: &mut C, signal: &Signal) -> Result<()>
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
