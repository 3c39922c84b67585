//! Signals: threads that take none, and what the program wants of system calls that one interrupts.

use std::mem::MaybeUninit;
use std::{io, ptr};

/// Those of mistakes, which come from what a thread does, and so never while it waits.
const OF_MISTAKES: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
const LAST: libc::c_int = 64;

/// Whether they go on (`SA_RESTART`), which `poll(2)` never does by itself. Which signal it was is not told: where a program has
/// handlers of both kinds, they do not.
pub(crate) fn are_restarted() -> bool {
    (1..=LAST).filter(|signal| !OF_MISTAKES.contains(signal)).all(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the action can be written, and none is set. Signals that there are not are refused.
        if unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } != 0 {
            return true;
        }
        // SAFETY: it was written, since the call succeeded.
        let action = unsafe { action.assume_init() };
        let has_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !has_handler || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Starts a thread with all signals blocked: they are the program's. A new thread has the mask of the one that starts it.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = block_signals()?;
    let started = start();
    if let Some(before) = before {
        // SAFETY: it is a mask that the kernel gave; none is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    }
    started
}

/// Blocks all signals in this thread, and gives what was blocked before.
fn block_signals() -> io::Result<Option<libc::sigset_t>> {
    // Miri knows no signals.
    if cfg!(miri) {
        return Ok(None);
    }
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is room for a set, which `sigfillset` fills in before `pthread_sigmask` reads it, and `before` is room for
    // the set that it stores.
    let result = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
    };
    match result {
        // SAFETY: the call has not failed, and so has stored the mask.
        0 => Ok(Some(unsafe { before.assume_init() })),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
