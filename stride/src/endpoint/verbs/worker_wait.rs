//! Waiting for the threads of a step, and for what the other side says meanwhile.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, write};

/// The least time between two looks for what the other side says: longer than who listens lets pass, so that what it does not take in at one
/// look it does at the next.
const PAUSE: Duration = Duration::from_millis(15);

/// Threads that are at work, or are to be.
#[derive(Debug)]
pub(super) struct WorkerCount {
    left: AtomicUsize,
    bell: OwnedFd,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct WorkerGuard<'c>(&'c WorkerCount);

impl WorkerCount {
    pub(super) fn new() -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
        let bell = bell.context("no file to be told by that threads are done: allow more (`ulimit -n`)")?;
        Ok(Self { left: AtomicUsize::new(0), bell })
    }

    /// One more. Who makes several holds one meanwhile.
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
            // Who does not hear it looks now and then.
            let _ = write(&self.0.bell, &1_u64.to_ne_bytes());
        }
    }
}

/// Who waits for them: wakes up for what is there to be seen, and else as seldom as can be, as that is part of what is measured where
/// processors are few.
#[derive(Debug)]
pub(super) struct WorkerWait<'c> {
    crew: &'c WorkerCount,
    /// Can be read where the other side has said something.
    ear: Option<BorrowedFd<'c>>,
    /// The longest time between two looks, and when the next of those is due.
    tick: Duration,
    next: Instant,
    /// When it was last woken by what the other side has said.
    heard: Option<Instant>,
}

impl<'c> WorkerWait<'c> {
    pub(super) fn new(crew: &'c WorkerCount, ear: Option<BorrowedFd<'c>>, tick: Duration) -> Self {
        Self { crew, ear, tick, next: Instant::now() + tick, heard: None }
    }

    /// From now on it does not hear the other side.
    pub(super) fn ignore_peer(&mut self) {
        self.ear = None;
    }

    /// Sleeps until there is a reason to look, or it is `due`; `false` once all threads are done.
    pub(super) fn wait(&mut self, due: Option<Instant>) -> bool {
        let until = due.map_or(self.next, |due| due.min(self.next));
        if self.sleep(self.ear, until) {
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
        !self.crew.is_gone()
    }

    /// Sleeps until then, or something happens: whether the other side says something.
    fn sleep(&self, ear: Option<BorrowedFd<'_>>, until: Instant) -> bool {
        let bell = PollFd::new(&self.crew.bell, PollFlags::IN);
        let mut both = [bell.clone(), ear.map_or(bell, |ear| PollFd::from_borrowed_fd(ear, PollFlags::IN))];
        let time = until.saturating_duration_since(Instant::now());
        match poll(&mut both, Timespec::try_from(time).ok().as_ref()) {
            Ok(_) => ear.is_some() && !both[1].revents().is_empty(),
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
        let crew = WorkerCount::new().unwrap();
        thread::scope(|scope| {
            let first = crew.join();
            let mut lookout = WorkerWait::new(&crew, None, LONG);
            let member = crew.join();
            let panics = scope.spawn(move || {
                let _member = member;
                std::panic::resume_unwind(Box::new("as asked for"));
            });
            assert!(panics.join().is_err());
            assert!(!crew.is_gone());
            let member = crew.join();
            scope.spawn(move || drop(member));
            drop(first);
            assert!(!lookout.wait(None));
        });
        let _member = crew.join();
        assert!(!crew.is_gone());
    }

    #[test]
    fn what_is_said_wakes_it_once_and_what_stays_there_not_at_once_again() {
        let crew = WorkerCount::new().unwrap();
        let member = crew.join();
        let (mut reader, mut writer) = pipe().unwrap();
        let ear = reader.try_clone().unwrap();
        let mut lookout = WorkerWait::new(&crew, Some(ear.as_fd()), LONG);
        writer.write_all(b"ab").unwrap();
        assert!(lookout.wait(None));
        let heard = lookout.heard.unwrap();
        reader.read_exact(&mut [0]).unwrap();
        assert!(lookout.wait(None));
        assert!(lookout.heard.unwrap() - heard >= PAUSE);
        reader.read_exact(&mut [0]).unwrap();
        // It has all, and sleeps until it is due.
        let (heard, due) = (lookout.heard, Instant::now() + 2 * PAUSE);
        assert!(lookout.wait(Some(due)) && lookout.heard == heard && Instant::now() >= due);
        // The end is there for ever.
        drop(writer);
        assert!(lookout.wait(None) && lookout.heard > heard);
        lookout.ignore_peer();
        let (heard, due) = (lookout.heard, Instant::now() + SHORT);
        assert!(lookout.wait(Some(due)) && lookout.heard == heard && Instant::now() >= due);
        drop(member);
        assert!(!lookout.wait(None));
    }

    #[test]
    fn where_nothing_happens_it_wakes_up_by_the_clock() {
        let crew = WorkerCount::new().unwrap();
        let _member = crew.join();
        let (reader, mut writer) = pipe().unwrap();
        for ear in [None, Some(reader.as_fd())] {
            let mut lookout = WorkerWait::new(&crew, ear, SHORT);
            let next = lookout.next;
            assert!(lookout.wait(None) && lookout.heard.is_none());
            assert!(lookout.next >= next + SHORT);
        }
        // What it hears in between does not put that off.
        writer.write_all(b"a").unwrap();
        let mut lookout = WorkerWait::new(&crew, Some(reader.as_fd()), LONG);
        let next = lookout.next;
        assert!(lookout.wait(None) && lookout.heard.is_some());
        assert_eq!(lookout.next, next);
    }
}
