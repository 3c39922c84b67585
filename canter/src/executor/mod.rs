//! The executor: tasks of one thread, which also polls the core.

mod join;
mod timer;
#[cfg(feature = "tokio")]
mod tokio;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

pub use self::join::JoinHandle;
pub use self::timer::Sleep;
use crate::Error;
use crate::core::{Core, Inner};

/// After how many polls without success the clock is read.
const CLOCK_AFTER: u32 = 16;
/// After how many turns the connection manager is asked, and the timers, while the core is busy.
const ATTEND_AFTER: u32 = 256;

impl Core {
    /// Runs a future, and the tasks that it [spawns](Self::spawn), on this thread until the future has ended. Tasks that
    /// have not ended are then dropped. The thread polls the core while there is work, and sleeps when there has been
    /// none for a while ([`Builder::spin`](crate::Builder::spin)).
    ///
    /// # Panics
    ///
    /// If a task panics, or within `run` or `drive` of this core.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let inner = &self.inner;
        let mut future = pin!(future);
        let waker = inner.tasks.main_waker();
        let Some(_running) = inner.tasks.begin() else { panic!("Core::run was called while the core runs") };
        let mut pace = Pace::new(inner.spin);
        loop {
            if inner.tasks.take_main()
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return output;
            }
            let ran = inner.tasks.run();
            if inner.progress(ran, &mut pace) {
                inner.nap(inner.timers_due());
            }
        }
    }

    /// Starts a task on this core. It runs while [`run`](Self::run) runs, or `drive`.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        join::spawn(&self.inner.tasks, future)
    }

    /// Waits for a time, at least until the other woken tasks had their turn. Timers fire while [`run`](Self::run) runs,
    /// or `drive`.
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep::new(self, time)
    }

    /// Waits for a future, but no longer than `limit`. The future is then dropped.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`].
    pub async fn timeout<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Result<T, Error> {
        let (mut future, mut sleep) = (pin!(future), pin!(self.sleep(limit)));
        std::future::poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            sleep.as_mut().poll(context).map(|()| Err(Error::TimedOut))
        })
        .await
    }
}

/// How long a core has had no work.
#[derive(Debug)]
pub(crate) struct Pace {
    spin: Duration,
    turns: u32,
    idle: u32,
    since: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(spin: Duration) -> Self {
        Self { spin, turns: 0, idle: 0, since: None }
    }

    /// Whether the last turn had work.
    #[cfg(feature = "tokio")]
    fn has_work(&self) -> bool {
        self.idle == 0
    }
}

impl Inner {
    /// Polls once. Returns whether there has been no work for so long that the thread should sleep.
    #[inline]
    pub(crate) fn progress(&self, ran: bool, pace: &mut Pace) -> bool {
        self.round.set(self.round.get().wrapping_add(1));
        // A broken queue has ended all connections; their futures report it.
        let polled = self.turn().unwrap_or(0) > 0;
        pace.turns = pace.turns.wrapping_add(1);
        if pace.turns.is_multiple_of(ATTEND_AFTER) {
            self.attend();
        }
        if polled || ran || self.tasks.has_work() {
            (pace.idle, pace.since) = (0, None);
            return false;
        }
        pace.idle += 1;
        if !pace.idle.is_multiple_of(CLOCK_AFTER) {
            std::hint::spin_loop();
            return false;
        }
        let now = Instant::now();
        let since = *pace.since.get_or_insert(now);
        if self.tasks.fire(now) {
            return false;
        }
        now.duration_since(since) >= pace.spin
    }

    /// Handles events of the connection manager and timers.
    pub(crate) fn attend(&self) {
        let manager = self.cm.borrow().clone();
        if let Some(manager) = manager {
            let is_last = manager.attend(|link, cause| self.end_in_order(link, cause));
            if is_last {
                self.sleeper.forget(manager.descriptor());
            }
        }
        self.tasks.fire_due();
        self.bury(usize::MAX);
    }

    /// How long the thread may sleep.
    pub(crate) fn timers_due(&self) -> Option<Duration> {
        let due = [self.tasks.next_timer(), self.next_burial()];
        due.into_iter().flatten().min().map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Prepares to sleep. Returns whether the thread may sleep: completions after this raise an event.
    pub(crate) fn arm(&self) -> bool {
        self.attend();
        if self.tasks.has_work() || self.notify().is_err() {
            return false;
        }
        // What completed before the queue was armed raises no event.
        if self.turn().unwrap_or(0) > 0 {
            return false;
        }
        self.rouser.fall_asleep();
        // What was woken before this.
        !self.tasks.has_work()
    }

    /// Handles what ended the sleep.
    pub(crate) fn wake_up(&self) {
        self.rouser.wake_up();
        let _ = self.sleeper.drain();
        self.attend();
    }

    fn nap(&self, limit: Option<Duration>) {
        if self.arm() {
            let _ = self.sleeper.sleep(limit);
        }
        self.wake_up();
    }
}
