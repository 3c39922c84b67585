//! Waits for the worker threads of a step, and for messages of the peer.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, write};

/// Minimum time between two wake-ups for messages of the peer. This time is longer than the minimum time between two
/// reads of the control channel. Each wake-up can therefore read what the previous read has left.
const PAUSE: Duration = Duration::from_millis(15);

/// Counts the worker threads that run or are about to start. When the last one ends, it signals an eventfd.
#[derive(Debug)]
pub(super) struct WorkerCount {
    left: AtomicUsize,
    event: OwnedFd,
}

/// Counts one worker until it is dropped.
#[derive(Debug)]
pub(super) struct WorkerGuard<'c>(&'c WorkerCount);

impl WorkerCount {
    pub(super) fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
        let event = event.context("cannot create an eventfd (raise the limit: `ulimit -n`)")?;
        Ok(Self { left: AtomicUsize::new(0), event })
    }

    /// Counts one more worker. A caller that starts several workers should keep a guard of its own until all are
    /// started.
    pub(super) fn join(&self) -> WorkerGuard<'_> {
        self.left.fetch_add(1, Ordering::Relaxed);
        WorkerGuard(self)
    }

    fn is_gone(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

impl Drop for WorkerGuard<'_> {
    fn drop(&mut self) {
        if self.0.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Ignores the error, because a failed write only delays the waiting thread until its next tick.
            let _ = write(&self.0.event, &1_u64.to_ne_bytes());
        }
    }
}

/// Waits for the workers. If nothing happens, the waiting thread wakes up only rarely, because each wake-up disturbs
/// the measurement on a machine with few processors.
#[derive(Debug)]
pub(super) struct WorkerWait<'c> {
    workers: &'c WorkerCount,
    /// A descriptor that is readable when a message of the peer has arrived.
    readable_fd: Option<BorrowedFd<'c>>,
    /// Maximum time between two reports. `next` is the time at which the next report is due.
    tick: Duration,
    next: Instant,
    /// The time at which a message of the peer last woke the thread.
    last_message: Option<Instant>,
}

impl<'c> WorkerWait<'c> {
    pub(super) fn new(workers: &'c WorkerCount, readable_fd: Option<BorrowedFd<'c>>, tick: Duration) -> Self {
        Self { workers, readable_fd, tick, next: Instant::now() + tick, last_message: None }
    }

    /// From now on, messages of the peer do not wake the thread.
    pub(super) fn ignore_peer(&mut self) {
        self.readable_fd = None;
    }

    /// Sleeps until there is something to do, or until `due`. Returns `false` when all workers have ended.
    pub(super) fn wait(&mut self, due: Option<Instant>) -> bool {
        let until = due.map_or(self.next, |due| due.min(self.next));
        if self.sleep(self.readable_fd, until) {
            // Either the last read has left data, or more data has arrived since.
            if let Some(pause) = self.last_message.map(|last_message| last_message + PAUSE) {
                self.sleep(None, pause.min(until));
            }
            self.last_message = Some(Instant::now());
        }
        let now = Instant::now();
        if now >= self.next {
            self.next = now + self.tick;
        }
        !self.workers.is_gone()
    }

    /// Sleeps until the time `until`, or until an event. Returns whether a message of the peer has arrived.
    fn sleep(&self, readable_fd: Option<BorrowedFd<'_>>, until: Instant) -> bool {
        let event = PollFd::new(&self.workers.event, PollFlags::IN);
        let mut both = [
            event.clone(),
            readable_fd.map_or(event, |readable_fd| PollFd::from_borrowed_fd(readable_fd, PollFlags::IN)),
        ];
        let time = until.saturating_duration_since(Instant::now());
        match poll(&mut both, Timespec::try_from(time).ok().as_ref()) {
            Ok(_) => readable_fd.is_some() && !both[1].revents().is_empty(),
            // The signal may be that of the user's Ctrl-C.
            Err(Errno::INTR) => false,
            Err(error) => {
                log::debug!("poll: {error}");
                thread::sleep(PAUSE.min(time));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};
    use std::os::fd::AsFd;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn wait_ends_after_the_last_worker_even_if_one_panics() {
        let workers = WorkerCount::new().unwrap();
        thread::scope(|scope| {
            let first = workers.join();
            let mut wait = WorkerWait::new(&workers, None, LONG);
            let member = workers.join();
            let panics = scope.spawn(move || {
                let _member = member;
                std::panic::resume_unwind(Box::new("as asked for"));
            });
            assert!(panics.join().is_err());
            assert!(!workers.is_gone());
            let member = workers.join();
            scope.spawn(move || drop(member));
            drop(first);
            assert!(!wait.wait(None));
        });
        let _member = workers.join();
        assert!(!workers.is_gone());
    }

    #[test]
    fn unread_message_wakes_the_thread_after_a_pause() {
        let workers = WorkerCount::new().unwrap();
        let member = workers.join();
        let (mut reader, mut writer) = pipe().unwrap();
        let readable_fd = reader.try_clone().unwrap();
        let mut wait = WorkerWait::new(&workers, Some(readable_fd.as_fd()), LONG);
        writer.write_all(b"ab").unwrap();
        assert!(wait.wait(None));
        let last_message = wait.last_message.unwrap();
        reader.read_exact(&mut [0]).unwrap();
        assert!(wait.wait(None));
        assert!(wait.last_message.unwrap() - last_message >= PAUSE);
        reader.read_exact(&mut [0]).unwrap();
        // All data has been read, so the thread sleeps until `due`.
        let (last_message, due) = (wait.last_message, Instant::now() + 2 * PAUSE);
        assert!(wait.wait(Some(due)) && wait.last_message == last_message && Instant::now() >= due);
        // A descriptor stays readable after its connection is closed.
        drop(writer);
        assert!(wait.wait(None) && wait.last_message > last_message);
        wait.ignore_peer();
        let (last_message, due) = (wait.last_message, Instant::now() + SHORT);
        assert!(wait.wait(Some(due)) && wait.last_message == last_message && Instant::now() >= due);
        drop(member);
        assert!(!wait.wait(None));
    }

    #[test]
    fn wait_returns_at_each_tick() {
        let workers = WorkerCount::new().unwrap();
        let _member = workers.join();
        let (reader, mut writer) = pipe().unwrap();
        for readable_fd in [None, Some(reader.as_fd())] {
            let mut wait = WorkerWait::new(&workers, readable_fd, SHORT);
            let next = wait.next;
            assert!(wait.wait(None) && wait.last_message.is_none());
            assert!(wait.next >= next + SHORT);
        }
        // A message of the peer does not postpone the next tick.
        writer.write_all(b"a").unwrap();
        let mut wait = WorkerWait::new(&workers, Some(reader.as_fd()), LONG);
        let next = wait.next;
        assert!(wait.wait(None) && wait.last_message.is_some());
        assert_eq!(wait.next, next);
    }
}
