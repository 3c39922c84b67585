//! Registers softrnic once.

use std::sync::atomic::{AtomicBool, Ordering};

/// This is a flag instead of a `Once`. If the process forked while another thread ran a `Once`, the child would block
/// in it forever.
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
    // If several threads call this function at the same time, they wait in `register` for the first one. Only one of
    // them prints the error.
    let registered = softrnic::register();
    if !REGISTERED.swap(true, Ordering::AcqRel)
        && let Err(error) = registered
    {
        print_error(&error);
    }
}

/// The error is printed here, because the program does not use the API of softrnic and cannot report the error itself.
#[expect(clippy::print_stderr, reason = "the calling program cannot report it")]
fn print_error(error: &softrnic::RegisterError) {
    eprintln!("softrnic: cannot add soft devices: {error}");
}
