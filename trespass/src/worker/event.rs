//! Descriptors that end the sleep of a loop that drives a worker.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd, which is readable after [`Event::set`] until [`Event::clear`]. As a waker, it sets itself.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// # Errors
    ///
    /// The process or the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable.
    pub fn set(&self) {
        // The write fails only if the counter is full, and then the eventfd is readable already.
        _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor no longer readable.
    pub fn clear(&self) {
        _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.set();
    }
}

/// A worker's descriptor in a runtime of tokio.
#[cfg(feature = "tokio")]
#[derive(Debug)]
pub struct Readable(tokio::io::unix::AsyncFd<OwnedFd>);

#[cfg(feature = "tokio")]
impl Readable {
    /// Registers the descriptor with the current runtime. `extra` creates what else needs the runtime.
    ///
    /// # Errors
    ///
    /// The runtime has no I/O, or lacks what `extra` needs.
    pub fn new<T>(fd: OwnedFd, extra: impl FnOnce() -> T + std::panic::UnwindSafe) -> io::Result<(Self, T)> {
        use tokio::io::Interest;
        use tokio::io::unix::AsyncFd;

        // tokio reports what is missing only by a panic.
        #[expect(deprecated, reason = "the replacement is unsafe; `OwnedFd` fulfils its condition")]
        let made = std::panic::catch_unwind(|| (AsyncFd::with_interest(fd, Interest::READABLE), extra()));
        let (fd, extra) = made.map_err(|_| {
            let text =
                "cannot drive the worker: the tokio runtime has no I/O or no timers; call enable_all() on its builder";
            io::Error::new(io::ErrorKind::Unsupported, text)
        })?;
        Ok((Self(fd?), extra))
    }

    /// Whether an event has made the descriptor readable since the last call. If not, the task is woken by the next event.
    pub fn poll(&self, context: &mut std::task::Context<'_>) -> bool {
        use std::task::Poll;

        match self.0.poll_read_ready(context) {
            Poll::Ready(Ok(mut ready)) => {
                ready.clear_ready();
                true
            }
            Poll::Ready(Err(error)) => {
                rdma_mummy_sys::log!(error, "cannot wait for the worker's descriptor: {error}");
                true
            }
            Poll::Pending => false,
        }
    }
}
