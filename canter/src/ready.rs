//! The way to a sleeping core, for any thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::Error;
use crate::error::system;

/// Ends the sleep of a core.
#[derive(Debug)]
pub(crate) struct Rouser {
    asleep: AtomicBool,
    fd: OwnedFd,
}

impl Rouser {
    pub(crate) fn new() -> Result<Self, Error> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let fd = fd.map_err(|error| system("eventfd", error))?;
        Ok(Self { asleep: AtomicBool::new(false), fd })
    }

    /// The descriptor that is readable after [`rouse`](Self::rouse) of a sleeping core.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Ends the sleep. Whatever the core should find must be stored before, in sequentially consistent order.
    #[inline]
    pub(crate) fn rouse(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            // The counter is far from its limit, so this does not fail.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }

    /// From now on, [`rouse`](Self::rouse) makes the descriptor readable. The core then looks for work once more.
    pub(crate) fn fall_asleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        // Empty if the core woke for another reason.
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}
