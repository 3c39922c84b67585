//! Ending by a signal in good order.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use libc::c_int;

static CAME: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT and SIGTERM are noted, the first time; a second one ends the program at once.
pub(crate) fn note() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all-zero is legal: an empty mask, no flags, and the handler that is set below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as extern "C" fn(c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: the action is complete, and its handler does only what a signal handler may.
        let ret = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
        if ret != 0 {
            return Err(io::Error::last_os_error()).context("noting signals");
        }
    }
    Ok(())
}

/// Whether one came.
pub(crate) fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}

/// Nothing but an atomic store: it may interrupt anything.
extern "C" fn on_signal(_: c_int) {
    CAME.store(true, Ordering::Relaxed);
}
