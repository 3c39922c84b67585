//! Waiting for the worker threads of a step, and for messages of the peer meanwhile.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, write};

/// The least time between two looks at the control channel: longer than the pause of its reader, so that what is left at one look is read at
/// the next.
const PAUSE: Duration = Duration::from_millis(15);

/// Counts the worker threads that run or are about to start; the last one to end signals an eventfd.
#[derive(Debug)]
pub(super) struct WorkerCount {
    left: AtomicUsize,
    bell: OwnedFd,
}

/// Counts one worker until it is dropped.
#[derive(Debug)]
pub(super) struct WorkerGuard<'c>(&'c WorkerCount);

impl WorkerCount {
    pub(super) fn new() -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
        let bell = bell.context("cannot create an eventfd (raise the limit: `ulimit -n`)")?;
        Ok(Self { left: AtomicUsize::new(0), bell })
    }

    /// Counts one more worker. A caller that starts several holds a guard of its own meanwhile.
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
            // A failed write delays the wait until its next look.
            let _ = write(&self.0.bell, &1_u64.to_ne_bytes());
        }
    }
}

/// Waits for the workers. It wakes up for events, and else rarely, as each wake-up is part of the measurement on a machine with few
/// processors.
#[derive(Debug)]
pub(super) struct WorkerWait<'c> {
    workers: &'c WorkerCount,
    /// Readable when a message of the peer has arrived.
    readable_fd: Option<BorrowedFd<'c>>,
    /// The longest time between two looks, and when the next of those is due.
    tick: Duration,
    next: Instant,
    /// When a message of the peer last woke it.
    heard: Option<Instant>,
}

impl<'c> WorkerWait<'c> {
    pub(super) fn new(workers: &'c WorkerCount, readable_fd: Option<BorrowedFd<'c>>, tick: Duration) -> Self {
        Self { workers, readable_fd, tick, next: Instant::now() + tick, heard: None }
    }

    /// From now on messages of the peer do not wake it.
    pub(super) fn ignore_peer(&mut self) {
        self.readable_fd = None;
    }

    /// Sleeps until there is a reason to look, or it is `due`; `false` once all threads are done.
    pub(super) fn wait(&mut self, due: Option<Instant>) -> bool {
        let until = due.map_or(self.next, |due| due.min(self.next));
        if self.sleep(self.readable_fd, until) {
            // What is there still was not taken in at the last look, or more has come.
            if let Some(pause) = self.heard.map(|heard| heard + PAUSE) {
                self.sleep(None, pause.min(until));
            }
            self.heard = Some(Instant::now());
        }
        let now = Instant::now();
        if now >= self.next {
            self.next = now + self.tick;
        }
        !self.workers.is_gone()
    }

    /// Sleeps until then or an event; whether a message of the peer has arrived.
    fn sleep(&self, readable_fd: Option<BorrowedFd<'_>>, until: Instant) -> bool {
        let bell = PollFd::new(&self.workers.bell, PollFlags::IN);
        let mut both = [
            bell.clone(),
            readable_fd.map_or(bell, |readable_fd| PollFd::from_borrowed_fd(readable_fd, PollFlags::IN)),
        ];
        let time = until.saturating_duration_since(Instant::now());
        match poll(&mut both, Timespec::try_from(time).ok().as_ref()) {
            Ok(_) => readable_fd.is_some() && !both[1].revents().is_empty(),
            // It may be the user who ends it.
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
    fn it_is_over_when_the_last_is_done_also_by_a_panic() {
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
    fn what_is_said_wakes_it_once_and_what_stays_there_not_at_once_again() {
        let workers = WorkerCount::new().unwrap();
        let member = workers.join();
        let (mut reader, mut writer) = pipe().unwrap();
        let readable_fd = reader.try_clone().unwrap();
        let mut wait = WorkerWait::new(&workers, Some(readable_fd.as_fd()), LONG);
        writer.write_all(b"ab").unwrap();
        assert!(wait.wait(None));
        let heard = wait.heard.unwrap();
        reader.read_exact(&mut [0]).unwrap();
        assert!(wait.wait(None));
        assert!(wait.heard.unwrap() - heard >= PAUSE);
        reader.read_exact(&mut [0]).unwrap();
        // It has all, and sleeps until it is due.
        let (heard, due) = (wait.heard, Instant::now() + 2 * PAUSE);
        assert!(wait.wait(Some(due)) && wait.heard == heard && Instant::now() >= due);
        // The end is there for ever.
        drop(writer);
        assert!(wait.wait(None) && wait.heard > heard);
        wait.ignore_peer();
        let (heard, due) = (wait.heard, Instant::now() + SHORT);
        assert!(wait.wait(Some(due)) && wait.heard == heard && Instant::now() >= due);
        drop(member);
        assert!(!wait.wait(None));
    }

    #[test]
    fn where_nothing_happens_it_wakes_up_by_the_clock() {
        let workers = WorkerCount::new().unwrap();
        let _member = workers.join();
        let (reader, mut writer) = pipe().unwrap();
        for readable_fd in [None, Some(reader.as_fd())] {
            let mut wait = WorkerWait::new(&workers, readable_fd, SHORT);
            let next = wait.next;
            assert!(wait.wait(None) && wait.heard.is_none());
            assert!(wait.next >= next + SHORT);
        }
        // What it hears in between does not put that off.
        writer.write_all(b"a").unwrap();
        let mut wait = WorkerWait::new(&workers, Some(reader.as_fd()), LONG);
        let next = wait.next;
        assert!(wait.wait(None) && wait.heard.is_some());
        assert_eq!(wait.next, next);
    }
}
