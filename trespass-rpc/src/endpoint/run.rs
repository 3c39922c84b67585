//! Ways to run a driver: a task of tokio, a thread that sleeps, a thread that polls.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::panic::catch_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Id};
use tokio::time::{Sleep, sleep, sleep_until};
use trespass::{Readable, Spin};

use super::Driver;
use super::home::Home;
use super::thread::{LONG, OnThread};

/// Number of turns before the driver yields to other tasks of the thread.
const TURNS: usize = 32;
impl Driver {
    /// Runs the connections in tokio until no endpoint and no connection is left. Spawn this future as a task. The
    /// runtime must have I/O and timers.
    pub async fn run(self) {
        match self.in_tokio() {
            Ok(run) => run.await,
            Err(error) => rdma_mummy_sys::log!(error, "the driver has failed: {error}"),
        }
    }

    /// Returns the task that runs the connections in the current runtime of tokio.
    pub(super) fn in_tokio(self) -> io::Result<impl Future<Output = ()> + Send + use<>> {
        let now = Instant::now();
        let fd = self.fd().try_clone_to_owned()?;
        let (fd, sleep) = Readable::new(fd, || sleep_until(now.into()))?;
        let home = Home::new(&self.shared, Handle::try_current().ok());
        let (driver, spin) = (Some(Box::new(self)), Spin::default());
        let mut task = Task { driver, home, fd, armed: None, sleeps_until: now, spin };
        Ok(async move {
            let mut sleep = pin!(sleep);
            poll_fn(|context| task.poll(context, sleep.as_mut())).await;
        })
    }

    /// Runs the connections on this thread until no endpoint and no connection is left. The thread sleeps while no
    /// event is pending.
    pub(super) fn run_thread(self) {
        let mut thread = match OnThread::new() {
            Ok(thread) => thread,
            Err(error) => return rdma_mummy_sys::log!(error, "the driver has failed: {error}"),
        };
        let home = Home::new(&self.shared, None);
        let mut driver = Some(Box::new(self));
        loop {
            match driver.take().or_else(|| home.take_back(&thread.waker)) {
                Some(driver) if driver.is_over() => return,
                Some(ours) => driver = thread.step(ours, |driver| home.run(driver)),
                None if home.is_over() => return,
                None => thread.wait(),
            }
        }
    }

    /// Runs the connections and a future on this thread until the future is ready. The thread never sleeps, so use this
    /// function only on a thread that has a processor of its own. Handlers run on this thread too. One that blocks it
    /// stops all connections of the endpoint.
    pub fn run_until<F: Future>(&mut self, future: F) -> F::Output {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        loop {
            if woken.0.swap(false, Ordering::Acquire)
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                // Sends the frames that the future queued last.
                self.whole_turn();
                return output;
            }
            if !self.whole_turn() {
                std::hint::spin_loop();
            }
        }
    }

    fn whole_turn(&mut self) -> bool {
        let is_busy = self.turn(true, Instant::now());
        self.run_handlers();
        self.send();
        is_busy
    }
}

/// Whether this thread runs in a runtime of tokio that has timers. The program may use an endpoint with a thread of its own
/// in a runtime without them.
pub(crate) fn has_timer() -> bool {
    thread_local! {
        /// The result for the last runtime, because tokio reports missing timers only by a panic, whose message is printed.
        static LAST: Cell<Option<(Id, bool)>> = const { Cell::new(None) };
    }
    let Ok(runtime) = Handle::try_current() else { return false };
    let id = runtime.id();
    match LAST.get() {
        Some((last, has_timer)) if last == id => has_timer,
        _ => {
            let has_timer = catch_unwind(|| drop(sleep(Duration::ZERO))).is_ok();
            LAST.set(Some((id, has_timer)));
            has_timer
        }
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// A driver that runs as a task of tokio.
struct Task {
    /// The driver, unless another thread runs it.
    driver: Option<Box<Driver>>,
    home: Home,
    fd: Readable,
    /// The time until which the driver may sleep; `None` if the worker's descriptor is not armed.
    armed: Option<Instant>,
    sleeps_until: Instant,
    spin: Spin,
}

impl Task {
    fn poll(&mut self, context: &mut Context<'_>, mut sleep: Pin<&mut Sleep>) -> Poll<()> {
        if self.driver.is_none() {
            self.driver = self.home.take_back(context.waker());
            self.armed = None;
            if self.driver.is_none() {
                return if self.home.is_over() { Poll::Ready(()) } else { Poll::Pending };
            }
        }
        for _ in 0..TURNS {
            let Some(driver) = &mut self.driver else { break };
            if self.armed.is_some() && self.fd.poll(context) {
                self.armed = None;
            }
            let now = Instant::now();
            // While the descriptor is armed, a turn only sends the frames of callers; it does not poll for events.
            let is_busy = driver.turn(self.armed.is_none(), now);
            if driver.is_over() {
                return Poll::Ready(());
            }
            if !driver.ready.is_empty() {
                self.driver = self.driver.take().and_then(|driver| self.home.run(driver));
                if self.driver.is_none() {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            let Some(driver) = &mut self.driver else { break };
            driver.send();
            // Without a device, the driver can sleep at once until the tasks that it woke have frames to send: the
            // descriptor reports what arrives after the turn.
            if is_busy && self.armed.is_none() && !driver.spin().is_zero() {
                self.spin.found(driver.spin(), || now);
                // The turn may have woken other tasks, which then run before the next turn.
                break;
            }
            if is_busy {
                self.spin.restart();
            }
            if (is_busy || self.armed.is_none()) && self.spin.goes_on(driver.spin(), || now) {
                self.armed = None;
                continue;
            }
            if self.armed.is_none() {
                // Earlier turns may have processed the events. But one that arrived after the last turn would be lost if
                // no turn followed.
                if self.fd.poll(context) {
                    continue;
                }
                let Some(time) = driver.armed() else { continue };
                self.armed = Some(Instant::now() + time.min(LONG));
            }
            if !driver.ready.is_empty() || !driver.shared.set_waker(context.waker()) {
                continue;
            }
            let until = self.armed.map_or(driver.deadline(), |armed| armed.min(driver.deadline()));
            if until < self.sleeps_until || self.sleeps_until <= Instant::now() {
                self.sleeps_until = until;
                sleep.as_mut().reset(until.into());
            }
            if sleep.as_mut().poll(context).is_ready() {
                self.armed = None;
                self.sleeps_until = Instant::now();
                continue;
            }
            if !self.fd.poll(context) {
                return Poll::Pending;
            }
            self.armed = None;
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
