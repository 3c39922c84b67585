//! The end of the process by `exit` or a return of `main`. The system closes the sockets of a process that ends; this
//! library ends its streams.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::inside::Inside;
use crate::rdma;
use crate::table;

/// The thread that ends the process.
static ENDING: AtomicI32 = AtomicI32::new(0);
/// Whether the program has a file of C for a stream.
static HAS_FILES: AtomicBool = AtomicBool::new(false);

/// The system calls it after all functions that the program has registered with `atexit`: those may use the streams.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

fn this_thread() -> c_int {
    // SAFETY: has no preconditions.
    unsafe { libc::gettid() }
}

extern "C" fn end() {
    if HAS_FILES.load(Ordering::Relaxed) {
        // SAFETY: a null pointer stands for all files.
        unsafe { libc::fflush(ptr::null_mut()) };
    }
    // A signal handler that ends the process may have interrupted a call that holds locks.
    let Some(_inside) = Inside::enter() else { return };
    let mut streams = table::streams().peekable();
    if streams.peek().is_some() {
        ENDING.store(this_thread(), Ordering::Relaxed);
        streams.for_each(|stream| stream.end());
        rdma::drain();
    }
}

/// Writes what the files of C hold before the streams end.
pub(super) fn flush_files() {
    HAS_FILES.store(true, Ordering::Relaxed);
}

/// A call has failed. If another thread ends the process, this one goes no further: with TCP, it would not see that the
/// connection ends.
#[cold]
pub(super) fn stay_if_ending() {
    let ending = ENDING.load(Ordering::Relaxed);
    while ending != 0 && ending != this_thread() {
        // SAFETY: has no preconditions.
        unsafe { libc::pause() };
    }
}
