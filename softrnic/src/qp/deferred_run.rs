//! Deferred runs under contention: a thread whose `try_lock` fails sets a flag, and the holder of the lock runs the work after
//! unlocking. Beside the flag stand bits of what the work is about.
//!
//! What this is built from comes from `sync`, so that a test can have it of `loom` (`tests/loom`).

use crate::sys::sync::{AtomicBool, AtomicU8, Mutex, MutexGuard, Ordering, TryLockError, fence};

/// Requests a run, here or after the lock is released: `run` calls [`run`]. Whether it ran here.
#[inline]
pub(super) fn request(flag: &AtomicBool, run: impl FnOnce() -> bool) -> bool {
    // Exchanged rather than stored, here too: the thread that clears the flag sees what each thread did before it set it.
    flag.swap(true, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    run()
}

/// Releases the lock, and runs what was requested meanwhile: `run` calls [`run`].
#[inline]
pub(super) fn unlock<T>(held: MutexGuard<'_, T>, run: impl FnOnce() -> bool) {
    drop(held);
    // Either the load sees the flag, or the thread that set it sees the lock free.
    fence(Ordering::SeqCst);
    run();
}

/// Calls `work` with what the lock guards, if the flag is set and the lock is free; whether it did.
#[inline]
pub(super) fn run<T>(flag: &AtomicBool, lock: &Mutex<T>, mut work: impl FnMut(&mut T)) -> bool {
    let mut has_run = false;
    while flag.load(Ordering::SeqCst) {
        let mut held = match lock.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return has_run,
        };
        // Exchanged rather than stored: what the thread that set the flag did before is seen here.
        flag.swap(false, Ordering::SeqCst);
        work(&mut held);
        drop(held);
        fence(Ordering::SeqCst);
        has_run = true;
    }
    has_run
}

/// Sets a bit of what a run is about. To be called before [`request`].
pub(super) fn set(pending: &AtomicU8, kind: u8) {
    pending.fetch_or(kind, Ordering::SeqCst);
}

/// Takes the bits that were set since the last call.
#[inline]
pub(super) fn take(pending: &AtomicU8) -> u8 {
    if pending.load(Ordering::Relaxed) == 0 { 0 } else { pending.swap(0, Ordering::SeqCst) }
}
