//! Starts threads that block asynchronous signals, and determines whether the program restarts interrupted system calls.

use std::mem::MaybeUninit;
use std::{io, ptr};

/// Synchronous signals. A thread's own instructions raise these signals, so none occurs while the thread waits.
const SYNCHRONOUS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
const LAST: libc::c_int = 64;

/// Whether the program asked that interrupted calls restart (`SA_RESTART`). `poll(2)` itself never restarts. The kernel
/// does not report which signal interrupted a call, so the result is false if some handlers restart calls and others do
/// not.
pub(crate) fn are_restarted() -> bool {
    (1..=LAST).filter(|signal| !SYNCHRONOUS.contains(signal)).all(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: `action` is writable, and no new action is given. Invalid signal numbers are refused.
        if unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } != 0 {
            return true;
        }
        // SAFETY: the successful call has written `action`.
        let action = unsafe { action.assume_init() };
        let has_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !has_handler || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Starts a thread that blocks all signals except the synchronous ones, because the program's own threads must handle
/// them. A new thread inherits the signal mask of the thread that creates it.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = block_signals()?;
    let started = start();
    if let Some(before) = before {
        // SAFETY: the mask came from the kernel, and no old mask is requested.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    }
    started
}

/// Blocks signals in this thread and returns the previous mask. If a thread blocked a synchronous signal, the system
/// would end the process without the program's handler, which may print the cause.
fn block_signals() -> io::Result<Option<libc::sigset_t>> {
    // Miri does not support signals.
    if cfg!(miri) {
        return Ok(None);
    }
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` has space for a set, and `sigfillset` fills the set before the other calls read it. `before` has
    // space for the set that the last call stores.
    let result = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        SYNCHRONOUS.iter().for_each(|signal| _ = libc::sigdelset(all.as_mut_ptr(), *signal));
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
    };
    match result {
        // SAFETY: the successful call has stored the mask.
        0 => Ok(Some(unsafe { before.assume_init() })),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
