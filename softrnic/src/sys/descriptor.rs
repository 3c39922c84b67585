//! Descriptors of sessions and connections, which a child closes after `fork`, so that no listener or session outlives
//! the parent.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rdma_mummy_sys::load::gate;
use rustix::io::Errno;

use crate::sys::fork;

/// Table size, above the largest number of listeners, sessions and groups.
const CAPACITY: usize = 1 << 14;

/// All open descriptors, each plus one, so that zero means empty. The table has no lock, because another thread of the
/// parent might have held such a lock at the fork.
static OPEN: [AtomicI32; CAPACITY] = [const { AtomicI32::new(0) }; CAPACITY];

/// A descriptor that a child closes.
#[derive(Debug)]
pub(crate) struct Descriptor {
    descriptor: ManuallyDrop<OwnedFd>,
    place: usize,
    generation: u32,
}

impl Descriptor {
    /// Opens a descriptor with `make`. No other thread forks before the descriptor is in the table.
    pub(crate) fn open(make: impl FnOnce() -> Result<OwnedFd, Errno>) -> Result<Self, Errno> {
        let _hold = gate::hold();
        Self::new(make()?)
    }

    /// Adds an open descriptor. A child forked before this call keeps the descriptor open.
    pub(crate) fn new(descriptor: OwnedFd) -> Result<Self, Errno> {
        let value = descriptor.as_raw_fd() + 1;
        let start = value as usize;
        for offset in 0..CAPACITY {
            let place = (start + offset) % CAPACITY;
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
        // In a child, the descriptor is closed already, and its number may have been reused.
        if self.generation != fork::generation() {
            return;
        }
        let _hold = gate::hold();
        OPEN[self.place].store(0, Ordering::Relaxed);
        // SAFETY: the descriptor is no longer used. `rustix::io::close` is no cancellation point, unlike libc's.
        unsafe { rustix::io::close(self.descriptor.as_raw_fd()) };
    }
}

/// Closes all descriptors of the table in a child, which uses nothing of its parent.
pub(super) fn close_all() {
    for place in &OPEN {
        let value: RawFd = place.swap(0, Ordering::Relaxed);
        if value != 0 {
            // SAFETY: no other part of this process owns the number, and in a child, the owner does not close the
            // descriptor. The table may list a descriptor that was opened during the fork and that the child lacks;
            // `close` then fails.
            unsafe { libc::close(value - 1) };
        }
    }
}
