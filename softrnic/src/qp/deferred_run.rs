//! A note for whoever has a lock: who cannot have it now leaves one, and goes; and what comes by mail for who reads it.
//!
//! What this is built from comes from `sync`, so that a test can have it of `loom` (`tests/loom`).

use crate::sys::sync::{AtomicBool, AtomicU8, Mutex, MutexGuard, Ordering, TryLockError, fence};

/// Leaves one, which is read here or where the lock is held: `read` calls [`read`].
#[inline]
pub(super) fn leave(note: &AtomicBool, read: impl FnOnce()) {
    // Exchanged rather than stored, here too: of several who leave one, whoever takes it away sees what each of them
    // left.
    note.swap(true, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    read();
}

/// Lets go of the lock, and does what others have left to do: `read` calls [`read`].
#[inline]
pub(super) fn unlock<T>(held: MutexGuard<'_, T>, read: impl FnOnce()) {
    drop(held);
    // Either the load sees the note, or who left it sees the lock free.
    fence(Ordering::SeqCst);
    read();
}

/// Has `run` called with what the lock guards, where there is a note and the lock is free.
#[inline]
pub(super) fn read<T>(note: &AtomicBool, lock: &Mutex<T>, mut run: impl FnMut(&mut T)) {
    while note.load(Ordering::SeqCst) {
        let mut held = match lock.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Exchanged rather than stored: whoever left the note that is taken away here, what it left is seen.
        note.swap(false, Ordering::SeqCst);
        run(&mut held);
        drop(held);
        fence(Ordering::SeqCst);
    }
}

/// Mail has come of this kind, a bit. A note is to be left afterwards.
pub(super) fn post(mail: &AtomicU8, kind: u8) {
    mail.fetch_or(kind, Ordering::SeqCst);
}

/// The kinds of mail that have come since the last call.
#[inline]
pub(super) fn take_mail(mail: &AtomicU8) -> u8 {
    if mail.load(Ordering::Relaxed) == 0 { 0 } else { mail.swap(0, Ordering::SeqCst) }
}
