//! A thread that runs a driver, and sleeps while it has nothing to do.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use trespass::{Event, Spin};

use super::Driver;

/// Maximum duration of a sleep.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// A thread that runs a driver.
pub(super) struct OnThread {
    event: Arc<Event>,
    pub(super) waker: Waker,
    spin: Spin,
}

impl OnThread {
    /// # Errors
    ///
    /// The system has no descriptors left.
    pub(super) fn new() -> io::Result<Self> {
        let event = Arc::new(Event::new()?);
        Ok(Self { waker: Waker::from(Arc::clone(&event)), event, spin: Spin::default() })
    }

    pub(super) fn wait(&self) {
        // A signal may end this early; this is harmless.
        _ = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], None);
        self.event.clear();
    }

    /// Runs one turn, in which `run` runs the handlers, and sleeps if there is nothing to do. Returns `None` if `run`
    /// has returned `None`.
    pub(super) fn step(
        &mut self,
        mut driver: Box<Driver>,
        run: impl FnOnce(Box<Driver>) -> Option<Box<Driver>>,
    ) -> Option<Box<Driver>> {
        let now = Instant::now();
        let is_busy = driver.turn(true, now);
        if !driver.ready.is_empty() {
            driver = run(driver)?;
        }
        driver.send();
        if is_busy {
            self.spin.found(driver.spin(), || now);
        } else if self.spin.goes_on(driver.spin(), || now) {
            std::hint::spin_loop();
        } else if let Some(time) = driver.armed()
            && driver.shared.set_waker(&self.waker)
        {
            let time = time.min(driver.deadline().saturating_duration_since(Instant::now())).min(LONG);
            // A signal may end the sleep early; this is harmless.
            _ = driver.worker.sleep(self.event.as_fd(), time);
            self.event.clear();
        }
        Some(driver)
    }
}

impl Driver {
    /// Returns how long to sleep at most; `None` if work is pending.
    pub(super) fn armed(&mut self) -> Option<Duration> {
        match self.arm() {
            _ if !self.ready.is_empty() => None,
            Ok(Duration::ZERO) => None,
            Ok(time) => Some(time),
            Err(error) => {
                rdma_mummy_sys::log!(error, "cannot request a wake-up of the worker: {error}");
                Some(Duration::from_millis(1))
            }
        }
    }
}
