//! Ways to run a driver: a task of tokio, a thread that sleeps, a thread that polls.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::catch_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};
use tokio::time::{Sleep, sleep, sleep_until};
use trespass::Spin;

use super::Driver;

/// Number of turns before the driver yields to other tasks of the thread.
const TURNS: usize = 32;
/// Maximum duration of a sleep.
const LONG: Duration = Duration::from_secs(60);

impl Driver {
    /// Runs the connections in tokio until no endpoint and no connection is left. Spawn this future as a task. The
    /// runtime must have I/O and timers.
    pub async fn run(self) {
        match self.in_tokio() {
            Ok(run) => run.await,
            Err(error) => log::error!("the driver has failed: {error}"),
        }
    }

    /// Returns the task that runs the connections in the current runtime of tokio.
    pub(super) fn in_tokio(self) -> io::Result<impl Future<Output = ()> + Send + use<>> {
        let now = Instant::now();
        let fd = self.fd().try_clone_to_owned()?;
        // tokio reports missing I/O and timers only by a panic.
        #[expect(deprecated, reason = "the replacement is unsafe; `OwnedFd` fulfils its condition")]
        let made = catch_unwind(|| (AsyncFd::with_interest(fd, Interest::READABLE), sleep_until(now.into())));
        let (fd, sleep) = made.map_err(|_| {
            let text = "the tokio runtime has no I/O or no timers; call enable_all() on its builder";
            io::Error::new(io::ErrorKind::Unsupported, text)
        })?;
        let mut task = Task { driver: self, fd: fd?, armed: None, sleeps_until: now, spin: Spin::default() };
        Ok(async move {
            let mut sleep = pin!(sleep);
            poll_fn(|context| task.poll(context, sleep.as_mut())).await;
        })
    }

    /// Runs the connections on this thread until no endpoint and no connection is left. The thread sleeps while no
    /// event is pending.
    pub(super) fn run_thread(mut self) {
        let event = match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(event) => Arc::new(Event(event)),
            Err(error) => return log::error!("the driver has failed: {error}"),
        };
        let waker = Waker::from(Arc::clone(&event));
        let mut spin = Spin::default();
        while !self.is_over() {
            let now = Instant::now();
            if self.turn(true, now) {
                spin.found(self.spin(), || now);
                continue;
            }
            if spin.goes_on(self.spin(), || now) {
                std::hint::spin_loop();
                continue;
            }
            let Some(time) = self.armed() else { continue };
            if !self.shared.set_waker(&waker) {
                continue;
            }
            let time = time.min(self.deadline().saturating_duration_since(Instant::now())).min(LONG);
            // A signal may end the sleep early; this is harmless.
            _ = self.worker.sleep(event.0.as_fd(), time);
            _ = rustix::io::read(&event.0, &mut [0; 8]);
        }
    }

    /// Runs the connections and a future on this thread until the future is ready. The thread never sleeps, so use this
    /// function only on a thread that has a processor of its own.
    pub fn run_until<F: Future>(&mut self, future: F) -> F::Output {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        loop {
            if woken.0.swap(false, Ordering::Acquire)
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                // Sends the frames that the future queued last.
                self.turn(true, Instant::now());
                return output;
            }
            if !self.turn(true, Instant::now()) {
                std::hint::spin_loop();
            }
        }
    }

    /// Returns how long to sleep at most; `None` if work is pending.
    fn armed(&mut self) -> Option<Duration> {
        match self.arm() {
            Ok(Duration::ZERO) => None,
            Ok(time) => Some(time),
            Err(error) => {
                log::error!("cannot request a wake-up of the worker: {error}");
                Some(Duration::from_millis(1))
            }
        }
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

struct Event(OwnedFd);

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        // The write fails only if the counter is full, and then the eventfd is readable already.
        _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
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
    driver: Driver,
    fd: AsyncFd<OwnedFd>,
    /// The time until which the driver may sleep; `None` if the worker's descriptor is not armed.
    armed: Option<Instant>,
    sleeps_until: Instant,
    spin: Spin,
}

impl Task {
    fn poll(&mut self, context: &mut Context<'_>, mut sleep: Pin<&mut Sleep>) -> Poll<()> {
        for _ in 0..TURNS {
            if self.armed.is_some() && self.is_readable(context) {
                self.armed = None;
            }
            let now = Instant::now();
            // While the descriptor is armed, a turn only sends the frames of callers; it does not poll for events.
            let is_busy = self.driver.turn(self.armed.is_none(), now);
            if self.driver.is_over() {
                return Poll::Ready(());
            }
            if is_busy && self.armed.is_none() {
                self.spin.found(self.driver.spin(), || now);
                if self.driver.spin().is_zero() {
                    // The next turn polls TCP with a system call. After it, the driver can sleep until the tasks that it
                    // woke have frames to send.
                    continue;
                }
                // The turn may have woken other tasks, which then run before the next turn.
                break;
            }
            if is_busy {
                self.spin.restart();
            }
            if (is_busy || self.armed.is_none()) && self.spin.goes_on(self.driver.spin(), || now) {
                self.armed = None;
                continue;
            }
            if self.armed.is_none() {
                // Earlier turns may have processed the events. But one that arrived after the last turn would be lost if
                // no turn followed.
                if self.is_readable(context) {
                    continue;
                }
                let Some(time) = self.driver.armed() else { continue };
                self.armed = Some(Instant::now() + time.min(LONG));
            }
            if !self.driver.shared.set_waker(context.waker()) {
                continue;
            }
            let until = self.armed.map_or(self.driver.deadline(), |armed| armed.min(self.driver.deadline()));
            if until < self.sleeps_until || self.sleeps_until <= Instant::now() {
                self.sleeps_until = until;
                sleep.as_mut().reset(until.into());
            }
            if sleep.as_mut().poll(context).is_ready() {
                self.armed = None;
                self.sleeps_until = Instant::now();
                continue;
            }
            if !self.is_readable(context) {
                return Poll::Pending;
            }
            self.armed = None;
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether the worker's descriptor has become readable.
    fn is_readable(&self, context: &mut Context<'_>) -> bool {
        match self.fd.poll_read_ready(context) {
            Poll::Ready(Ok(mut ready)) => {
                ready.clear_ready();
                true
            }
            Poll::Ready(Err(error)) => {
                log::error!("cannot wait for the driver's descriptor: {error}");
                true
            }
            Poll::Pending => false,
        }
    }
}
