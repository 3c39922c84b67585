//! The descriptor of a non-blocking stream, which is readable when a read or a write should be retried.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};

use crate::worker::Wait;

/// One eventfd for reads and writes. A call clears only what it was woken for: a write must not hide that a read is due.
#[derive(Debug)]
pub(super) struct Ready {
    directions: [Arc<Direction>; 2],
}

#[derive(Debug)]
struct Event {
    fd: OwnedFd,
    /// Whether a read is due, and whether a write is.
    due: [AtomicBool; 2],
}

/// Reads, or writes.
#[derive(Debug)]
struct Direction {
    event: Arc<Event>,
    what: Wait,
}

impl Ready {
    /// # Errors
    ///
    /// The process has no descriptors left.
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let event = Arc::new(Event { fd, due: Default::default() });
        let directions = [Wait::Read, Wait::Write].map(|what| Arc::new(Direction { event: Arc::clone(&event), what }));
        Ok(Self { directions })
    }

    /// Clears the event of a read or a write, which is about to be retried. Returns the waker that raises it again.
    pub(super) fn retry(&self, what: Wait) -> Waker {
        let direction = &self.directions[what as usize];
        let Event { fd, due } = &*direction.event;
        due[what as usize].store(false, Ordering::SeqCst);
        let is_due = || due.iter().any(|due| due.load(Ordering::SeqCst));
        if !is_due() {
            _ = rustix::io::read(fd, &mut [0; 8]);
            // An event that was raised meanwhile must not be lost.
            if is_due() {
                direction.event.raise();
            }
        }
        Waker::from(Arc::clone(direction))
    }
}

impl Event {
    fn raise(&self) {
        // The write fails only if the counter is full, and then the eventfd is readable already.
        _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }
}

impl Wake for Direction {
    fn wake(self: Arc<Self>) {
        self.event.due[self.what as usize].store(true, Ordering::SeqCst);
        self.event.raise();
    }
}

impl AsFd for Ready {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directions[0].event.fd.as_fd()
    }
}
