//! What the program wants of system calls that a signal interrupts.

use std::mem::MaybeUninit;
use std::ptr;

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
