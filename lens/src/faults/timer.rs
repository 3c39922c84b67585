//! The thread that carries out the commands of a schedule at their times.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rdma_mummy_sys::process;

use super::DeviceError;

struct Timer {
    is_ended: bool,
    thread: Option<JoinHandle<()>>,
}

static TIMER: Mutex<Timer> = Mutex::new(Timer { is_ended: false, thread: None });
static ENDED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Timer> {
    TIMER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread, with the times in their order.
pub(super) fn start(times: Vec<(usize, Duration, String)>) -> Result<(), DeviceError> {
    let (line, command) = times.first().map(|(line, _, command)| (*line, command.clone())).unwrap_or_default();
    let builder = thread::Builder::new().name("lens-faults".to_owned());
    let start = Instant::now();
    let mut timer = lock();
    timer.is_ended = false;
    let started = process::without_signals(|| builder.spawn(move || run(start, &times)));
    let refused =
        |error| DeviceError { line, command, reason: format!("cannot start the thread of the timer: {error}") };
    timer.thread = Some(started.map_err(refused)?);
    Ok(())
}

/// Ends the thread.
pub(super) fn stop() {
    let thread = {
        let mut timer = lock();
        timer.is_ended = true;
        timer.thread.take()
    };
    ENDED.notify_all();
    // A panic of the thread has been reported.
    let _ = thread.map(JoinHandle::join);
}

fn run(start: Instant, times: &[(usize, Duration, String)]) {
    for (_, time, command) in times {
        let left = |timer: &mut Timer| !timer.is_ended && start.elapsed() < *time;
        let timer = lock();
        let rest = time.saturating_sub(start.elapsed());
        let waited = ENDED.wait_timeout_while(timer, rest, |timer| left(timer));
        if waited.unwrap_or_else(PoisonError::into_inner).0.is_ended {
            return;
        }
        if let Some(plan) = super::plan() {
            super::command(&plan, command);
        }
    }
}
