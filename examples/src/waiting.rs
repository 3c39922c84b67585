//! Waits for completions and descriptors, for a limited time.

use std::io;
use std::os::fd::RawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sideway::ibverbs::completion::{GenericCompletionQueue, GenericWorkCompletion, PollCompletionQueueError};

use crate::Timeout;

/// Waits for the next completion and returns what `take` reads from it. At most one request may be outstanding: further
/// completions of the same poll are lost.
///
/// # Errors
///
/// Nothing completed in time, or the queue is broken.
pub fn wait_for_one<T>(
    cq: &mut GenericCompletionQueue,
    timeout: Timeout,
    take: impl FnOnce(&GenericWorkCompletion<'_>) -> T,
) -> Result<T> {
    let deadline = Deadline::after(timeout);
    loop {
        match cq.start_poll() {
            Ok(mut poller) => {
                if let Some(completion) = poller.next()? {
                    return Ok(take(&completion));
                }
            }
            Err(PollCompletionQueueError::CompletionQueueEmpty) => thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
        deadline.left("no request completed")?;
    }
}

/// Waits until one of the descriptors is readable or has failed, a signal arrives, or the deadline passes. The caller
/// then checks all of them.
///
/// # Errors
///
/// The errors of `poll(2)`, except an interruption by a signal.
pub fn wait_readable(fds: &[RawFd], deadline: Option<Instant>) -> io::Result<()> {
    let entry = |&fd: &RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries: Vec<_> = fds.iter().map(entry).collect();
    let count = libc::nfds_t::try_from(entries.len()).map_err(io::Error::other)?;
    let milliseconds = deadline.map_or(-1, |deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that the last wait does not spin.
        i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    // SAFETY: the pointer is to `count` initialized entries, which are borrowed only for the call.
    match unsafe { libc::poll(entries.as_mut_ptr(), count, milliseconds) } {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
        _ => Ok(()),
    }
}

/// A point in time at which a wait ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    limit: Timeout,
    end: Option<Instant>,
}

impl Deadline {
    /// The deadline that is `limit` from now. A time beyond the range of the clock means no limit.
    pub fn after(limit: Timeout) -> Self {
        Self { limit, end: limit.0.and_then(|limit| Instant::now().checked_add(limit)) }
    }

    /// Returns the time of the deadline; `None` means never.
    pub fn end(&self) -> Option<Instant> {
        self.end
    }

    /// Whether the deadline has passed.
    pub fn is_over(&self) -> bool {
        self.end.is_some_and(|end| end <= Instant::now())
    }

    /// The time left; `None` means no limit.
    ///
    /// # Errors
    ///
    /// No time is left. The error's text begins with `what`, for example `no request completed`.
    pub fn left(&self, what: &str) -> Result<Option<Duration>> {
        match (self.rest(), self.limit.0) {
            (Ok(left), _) => Ok(left),
            (Err(error), None) => Err(error.into()),
            (Err(_), Some(limit)) => bail!("{what} within {} s; raise --timeout", limit.as_secs_f64()),
        }
    }

    /// Like [`left`](Self::left), with an I/O error.
    ///
    /// # Errors
    ///
    /// `TimedOut`: no time is left.
    pub fn rest(&self) -> io::Result<Option<Duration>> {
        match self.end.map(|end| end.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}
