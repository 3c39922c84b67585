//! Descriptors of sessions and connections, which a child closes after `fork`, so that no listener or session outlives
//! the parent.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rdma_mummy_sys::load::gate;
use rdma_mummy_sys::process::generation;
use rustix::io::Errno;

/// The size of the table, which exceeds the largest number of listeners, sessions and groups.
const CAPACITY: usize = 1 << 14;

/// All open descriptors. Each entry is the descriptor plus one, and zero means that the entry is empty. The table has
/// no lock, because another thread of the parent might have held such a lock at the fork.
static OPEN: [AtomicI32; CAPACITY] = [const { AtomicI32::new(0) }; CAPACITY];

/// A descriptor that a child process closes after `fork`.
#[derive(Debug)]
pub(crate) struct Descriptor {
    descriptor: ManuallyDrop<OwnedFd>,
    place: usize,
    generation: u32,
}

impl Descriptor {
    /// Opens a descriptor with `make`. No other thread can fork until the descriptor is in the table.
    pub(crate) fn open(make: impl FnOnce() -> Result<OwnedFd, Errno>) -> Result<Self, Errno> {
        let _hold = gate::hold();
        Self::new(make()?)
    }

    /// Adds a descriptor that is already open to the table. If another thread forks before this call, the child keeps
    /// the descriptor open.
    pub(crate) fn new(descriptor: OwnedFd) -> Result<Self, Errno> {
        let value = descriptor.as_raw_fd() + 1;
        let start = value as usize;
        for offset in 0..CAPACITY {
            let place = (start + offset) % CAPACITY;
            if OPEN[place].compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                let descriptor = ManuallyDrop::new(descriptor);
                return Ok(Self { descriptor, place, generation: generation() });
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
        // In a child, the descriptor has already been closed, and another file may have its number.
        if self.generation != generation() {
            return;
        }
        let _hold = gate::hold();
        OPEN[self.place].store(0, Ordering::Relaxed);
        // SAFETY: the descriptor is no longer used. `rustix::io::close` is no cancellation point, unlike libc's.
        unsafe { rustix::io::close(self.descriptor.as_raw_fd()) };
    }
}

/// Closes all descriptors of the table. A child calls this function after `fork`, because the child uses no session and
/// no connection of its parent.
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
