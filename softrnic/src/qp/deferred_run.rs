//! Deferred work under contention: a thread whose `try_lock` fails sets a flag, and the holder of the lock runs the
//! work after unlocking. The bits of a second word describe the work.
//!
//! Atomics and locks come from `sync`, so that a test can replace them by loom's (`tests/models`).

use crate::sys::sync::{AtomicBool, AtomicU8, Mutex, MutexGuard, Ordering, TryLockError, fence};

/// Requests a run of the work. It runs now if the lock is free; otherwise the holder of the lock runs it after
/// unlocking. The closure `run` calls [`run`]. Returns whether the work ran on this thread.
#[inline]
pub(super) fn request(flag: &AtomicBool, run: impl FnOnce() -> bool) -> bool {
    // A swap instead of a store, so that the thread that clears the flag sees the earlier writes of all threads that
    // set it.
    flag.swap(true, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    run()
}

/// Releases the lock, and runs the work if another thread requested it while the lock was held. The closure `run` calls
/// [`run`].
#[inline]
pub(super) fn unlock<T>(held: MutexGuard<'_, T>, run: impl FnOnce() -> bool) {
    drop(held);
    // Either this load sees the flag, or the thread that set it finds the lock free.
    fence(Ordering::SeqCst);
    run();
}

/// Calls `work` with the guarded value while the flag is set and the lock is free. Returns whether `work` was called.
#[inline]
pub(super) fn run<T>(flag: &AtomicBool, lock: &Mutex<T>, mut work: impl FnMut(&mut T)) -> bool {
    let mut has_run = false;
    while flag.load(Ordering::SeqCst) {
        let mut held = match lock.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return has_run,
        };
        // A swap instead of a store, so that this thread sees the earlier writes of the thread that set the flag.
        flag.swap(false, Ordering::SeqCst);
        work(&mut held);
        drop(held);
        fence(Ordering::SeqCst);
        has_run = true;
    }
    has_run
}

/// Sets a bit that describes the work. The caller then calls [`request`].
pub(super) fn set(pending: &AtomicU8, kind: u8) {
    pending.fetch_or(kind, Ordering::SeqCst);
}

/// Returns the bits that were set since the last call, and clears them.
#[inline]
pub(super) fn take(pending: &AtomicU8) -> u8 {
    if pending.load(Ordering::Relaxed) == 0 { 0 } else { pending.swap(0, Ordering::SeqCst) }
}
