//! Descriptors of sessions and connections that a child closes after `fork`: a listener or a session that it kept would outlive its
//! parent.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rdma_mummy_sys::load::gate;
use rustix::io::Errno;

use crate::sys::fork;

/// More than there can be of listeners, sessions and groups.
const MOST: usize = 1 << 14;

/// All that are open, each plus one; no lock, as a child has no use for one that another thread of its parent held.
static OPEN: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

/// A descriptor that a child closes.
#[derive(Debug)]
pub(crate) struct Descriptor {
    descriptor: ManuallyDrop<OwnedFd>,
    place: usize,
    generation: u32,
}

impl Descriptor {
    /// What `make` opens; no other thread forks before it is among those that a child closes.
    pub(crate) fn open(make: impl FnOnce() -> Result<OwnedFd, Errno>) -> Result<Self, Errno> {
        let _hold = gate::hold();
        Self::new(make()?)
    }

    /// One that is open. A child that was forked since then has it too.
    pub(crate) fn new(descriptor: OwnedFd) -> Result<Self, Errno> {
        let value = descriptor.as_raw_fd() + 1;
        let start = value as usize;
        for offset in 0..MOST {
            let place = (start + offset) % MOST;
            if OPEN[place].compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                let descriptor = ManuallyDrop::new(descriptor);
                return Ok(Self { descriptor, place, generation: fork::generation() });
            }
        }
        Err(Errno::MFILE)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // A child has closed it, and the number may be something else's by now.
        if self.generation != fork::generation() {
            return;
        }
        let _hold = gate::hold();
        OPEN[self.place].store(0, Ordering::Relaxed);
        // SAFETY: it is not used any more. This is no cancellation point, as libc's is.
        unsafe { rustix::io::close(self.descriptor.as_raw_fd()) };
    }
}

/// Closes all of them: in a child, in which nothing of its parent's is used any more.
pub(super) fn close_all() {
    for place in &OPEN {
        let value: RawFd = place.swap(0, Ordering::Relaxed);
        if value != 0 {
            // Of one that was opened while the process was forked the child may know, and not have it.
            // SAFETY: it is no other's in this process, and its owner does not close it in a child.
            unsafe { libc::close(value - 1) };
        }
    }
}
