//! Waiting for the threads of a step, and for what the other side says meanwhile.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, write};

/// What was heard is looked at once in so long: not all of it may be taken in at a look.
const PAUSE: Duration = Duration::from_millis(10);

/// Threads that are at work, or are to be.
#[derive(Debug)]
pub(super) struct Crew {
    left: AtomicUsize,
    bell: OwnedFd,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Member<'c>(&'c Crew);

impl Crew {
    pub(super) fn new() -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.context("no file to be told by that threads are done: allow more (`ulimit -n`)")?;
        Ok(Self { left: AtomicUsize::new(0), bell })
    }

    /// One more. Who makes several holds one meanwhile.
    pub(super) fn join(&self) -> Member<'_> {
        self.left.fetch_add(1, Ordering::Relaxed);
        Member(self)
    }

    fn is_gone(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

impl Drop for Member<'_> {
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
pub(super) struct Lookout<'c> {
    crew: &'c Crew,
    /// Can be read where the other side has said something.
    ear: Option<BorrowedFd<'c>>,
    /// The longest time between two looks.
    tick: Duration,
    has_heard: bool,
}

impl<'c> Lookout<'c> {
    pub(super) fn new(crew: &'c Crew, ear: Option<BorrowedFd<'c>>, tick: Duration) -> Self {
        Self { crew, ear, tick, has_heard: false }
    }

    /// Sleeps until there is a reason to look; `false` once all threads are done.
    pub(super) fn wait(&mut self) -> bool {
        let mut left = self.tick;
        // What is there still was not taken in at the last look.
        if std::mem::take(&mut self.has_heard) {
            let pause = PAUSE.min(left);
            if self.sleep(None, pause) {
                return !self.crew.is_gone();
            }
            left -= pause;
        }
        self.has_heard = self.sleep(self.ear, left);
        !self.crew.is_gone()
    }

    /// Sleeps for so long, or until something happens: whether it does.
    fn sleep(&self, ear: Option<BorrowedFd<'_>>, time: Duration) -> bool {
        let bell = PollFd::new(&self.crew.bell, PollFlags::IN);
        let mut both = [bell.clone(), ear.map_or(bell, |ear| PollFd::from_borrowed_fd(ear, PollFlags::IN))];
        let began = Instant::now();
        match poll(&mut both, Timespec::try_from(time).ok().as_ref()) {
            Ok(count) => count > 0,
            // It may be the user who ends it.
            Err(Errno::INTR) => true,
            Err(error) => {
                log::debug!("poll: {error}");
                thread::sleep(PAUSE.min(time).saturating_sub(began.elapsed()));
                true
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
        let crew = Crew::new().unwrap();
        thread::scope(|scope| {
            let first = crew.join();
            let mut lookout = Lookout::new(&crew, None, LONG);
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
            assert!(!lookout.wait());
        });
        let _member = crew.join();
        assert!(!crew.is_gone());
    }

    #[test]
    fn what_is_said_wakes_it_and_what_stays_there_does_not_at_once_again() {
        let crew = Crew::new().unwrap();
        let member = crew.join();
        let (mut reader, mut writer) = pipe().unwrap();
        let ear = reader.try_clone().unwrap();
        let mut lookout = Lookout::new(&crew, Some(ear.as_fd()), LONG);
        writer.write_all(b"ab").unwrap();
        assert!(lookout.wait() && lookout.has_heard);
        reader.read_exact(&mut [0]).unwrap();
        let began = Instant::now();
        assert!(lookout.wait() && lookout.has_heard);
        assert!(began.elapsed() >= PAUSE);
        // The end is there for ever.
        drop(writer);
        reader.read_exact(&mut [0]).unwrap();
        assert!(lookout.wait() && lookout.has_heard);
        drop(member);
        assert!(!lookout.wait());
    }

    #[test]
    fn where_nothing_happens_it_wakes_up_by_the_clock() {
        let crew = Crew::new().unwrap();
        let _member = crew.join();
        let (reader, _writer) = pipe().unwrap();
        for ear in [None, Some(reader.as_fd())] {
            let mut lookout = Lookout::new(&crew, ear, SHORT);
            assert!(lookout.wait() && !lookout.has_heard);
        }
    }
}
