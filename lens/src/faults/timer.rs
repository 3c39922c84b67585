//! The thread that carries out the commands of a schedule at their times, and wakes programs for completions that were
//! held back.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdma_mummy_sys::process;

use super::DeviceError;
use crate::state;

/// Raises the events that are due at a time, in nanoseconds since the start. Returns the time of the next one.
pub(crate) type Wake = fn(u64) -> Option<u64>;

struct Timer {
    is_ended: bool,
    /// When the next completion is due.
    wake_at: Option<u64>,
    thread: Option<JoinHandle<()>>,
}

static TIMER: Mutex<Timer> = Mutex::new(Timer { is_ended: false, wake_at: None, thread: None });
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Timer> {
    TIMER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread, with the times in their order.
pub(super) fn start(times: Vec<(usize, Duration, String)>, wake: Wake) -> Result<(), DeviceError> {
    let (line, command) = times.first().map(|(line, _, command)| (*line, command.clone())).unwrap_or_default();
    let builder = thread::Builder::new().name("lens-faults".to_owned());
    let start = state::now();
    let mut timer = lock();
    (timer.is_ended, timer.wake_at) = (false, None);
    let started = process::without_signals(|| builder.spawn(move || run(start, &times, wake)));
    let refused =
        |error| DeviceError { line, command, reason: format!("cannot start the thread of the timer: {error}") };
    timer.thread = Some(started.map_err(refused)?);
    Ok(())
}

/// Makes the thread raise events at a time.
pub(crate) fn wake_at(time: u64) {
    let mut timer = lock();
    if timer.wake_at.is_none_or(|at| time < at) {
        timer.wake_at = Some(time);
        CHANGED.notify_all();
    }
}

/// Ends the thread.
pub(super) fn stop() {
    let thread = {
        let mut timer = lock();
        timer.is_ended = true;
        timer.thread.take()
    };
    CHANGED.notify_all();
    // A panic of the thread has been reported.
    let _ = thread.map(JoinHandle::join);
}

fn run(start: u64, times: &[(usize, Duration, String)], wake: Wake) {
    let due = |time: Duration| start.saturating_add(time.as_nanos().try_into().unwrap_or(u64::MAX));
    let mut commands = times.iter().map(|(_, time, command)| (due(*time), command)).peekable();
    let mut timer = lock();
    while !timer.is_ended {
        let now = state::now();
        if timer.wake_at.is_some_and(|at| at <= now) {
            timer.wake_at = None;
            drop(timer);
            let next = wake(now);
            next.into_iter().for_each(wake_at);
            timer = lock();
            continue;
        }
        if let Some((_, command)) = commands.next_if(|(at, _)| *at <= now) {
            drop(timer);
            if let Some(plan) = super::plan() {
                super::command(&plan, command);
            }
            timer = lock();
            continue;
        }
        let next = commands.peek().map(|(at, _)| *at).into_iter().chain(timer.wake_at).min();
        timer = match next {
            Some(next) => {
                let waited = CHANGED.wait_timeout(timer, Duration::from_nanos(next - now));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => CHANGED.wait(timer).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
