//! Wakes threads that sleep on a descriptor, and threads that are parked.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd, which is readable after [`Event::set`] until [`Event::clear`].
#[derive(Debug)]
pub(super) struct Event(OwnedFd);

impl Event {
    pub(super) fn new() -> io::Result<Event> {
        Ok(Event(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn set(&self) {
        // The write fails only if the counter is full, and then the eventfd is readable already.
        _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.set();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns the calling thread as a waker.
pub(crate) fn this_thread() -> Waker {
    let new = || Waker::from(Arc::new(Unpark(thread::current())));
    thread_local!(static WAKER: OnceCell<Waker> = const { OnceCell::new() });
    // While the thread exits, a connection in another thread-local may still wait for its end.
    WAKER.try_with(|waker| waker.get_or_init(new).clone()).unwrap_or_else(|_| new())
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
