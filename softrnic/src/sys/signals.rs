//! Starts threads that block asynchronous signals, and determines whether the program restarts interrupted system calls.

use std::mem::MaybeUninit;
use std::ptr;

use rdma_mummy_sys::process::SYNCHRONOUS;
pub(crate) use rdma_mummy_sys::process::without_signals;

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
