//! Registers softrnic once, and marks the threads that are in its functions.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// This is a flag instead of a `Once`. If the process forked while another thread ran a `Once`, the child would block
/// in it forever.
static REGISTERED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is in a function of this library.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A thread is in a function of this library, which may call the system's library. Its own calls of the C library then
/// reach the C library itself: `files` and `dlopen` serve only the program.
pub(crate) struct Inside {
    before: bool,
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// Marks that a jump takes the thread out of all functions of this library, without dropping [`Inside`].
pub(crate) fn leave() {
    INSIDE.set(false);
}

pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Registers softrnic on the first call. Registration starts no thread and opens no file, so a process that forks,
/// closes all its descriptors or never calls a verb is not affected.
#[inline]
pub(crate) fn ready() -> Inside {
    let inside = Inside { before: INSIDE.replace(true) };
    if !REGISTERED.load(Ordering::Acquire) {
        register();
    }
    inside
}

#[cold]
fn register() {
    // If several threads call this function at the same time, they wait in `register` for the first one. Only one of
    // them prints the error.
    softrnic::serve_files();
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
