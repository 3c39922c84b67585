//! A descriptor for event loops, which is readable while a call is due that would not block.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};

use crate::worker::Wait;

/// One eventfd for both directions: receiving and accepting are reads, and sending is a write. A call changes only its own
/// direction: a write must not hide that a read is due.
#[derive(Debug)]
pub(crate) struct Ready {
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
        let ready = Self { directions };
        // What has arrived before was not signalled.
        ready.set(Wait::Read, true);
        Ok(ready)
    }

    /// Sets whether a read or a write is due.
    pub(super) fn set(&self, what: Wait, is_due: bool) {
        let Event { fd, due } = &*self.directions[what as usize].event;
        let was_due = due[what as usize].swap(is_due, Ordering::SeqCst);
        let any_is_due = || due.iter().any(|due| due.load(Ordering::SeqCst));
        if is_due && !was_due {
            self.directions[what as usize].event.raise();
        } else if !any_is_due() {
            // Also if it was not due: a waker may raise the event after its direction was found due and served.
            _ = rustix::io::read(fd, &mut [0; 8]);
            // An event that was raised meanwhile must not be lost.
            if any_is_due() {
                self.directions[what as usize].event.raise();
            }
        }
    }

    /// Returns the waker that makes a read or a write due.
    pub(super) fn waker(&self, what: Wait) -> Waker {
        Waker::from(Arc::clone(&self.directions[what as usize]))
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
