//! Registers softrnic once.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag instead of a `Once`, which would block forever in a child forked while another thread runs it.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers softrnic on the first call. Registration starts no thread and opens no file, so a process that forks,
/// closes all its descriptors or never calls a verb is not affected.
#[inline]
pub(crate) fn ready() {
    if !REGISTERED.load(Ordering::Acquire) {
        register();
    }
}

#[cold]
fn register() {
    // Concurrent callers wait in `register` for the first one; only one of them prints the error.
    let registered = softrnic::register();
    if !REGISTERED.swap(true, Ordering::AcqRel)
        && let Err(error) = registered
    {
        print_error(&error);
    }
}

/// Prints the error, because the program does not use softrnic's API and cannot report it.
#[expect(clippy::print_stderr, reason = "the calling program cannot report it")]
fn print_error(error: &softrnic::RegisterError) {
    eprintln!("softrnic: cannot add soft devices: {error}");
}
