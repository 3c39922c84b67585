//! Registering softrnic, once.

use std::sync::atomic::{AtomicBool, Ordering};

/// Not a `Once`: a child that is forked while another thread is in it would wait for ever.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers softrnic if no call has yet. It makes no thread and opens nothing, so that a process which forks, closes all its
/// descriptors or never calls a verb loses nothing.
#[inline]
pub(crate) fn ready() {
    if !REGISTERED.load(Ordering::Acquire) {
        register();
    }
}

#[cold]
fn register() {
    // Of threads that come at once each waits until it is done, and one says what is wrong.
    let registered = softrnic::register();
    if !REGISTERED.swap(true, Ordering::AcqRel)
        && let Err(error) = registered
    {
        say(&error);
    }
}

/// The program knows nothing of softrnic, so that whoever started it has nobody else to hear this from.
#[expect(clippy::print_stderr, reason = "there is no program of ours that could say it")]
fn say(error: &softrnic::RegisterError) {
    eprintln!("softrnic: there are no soft devices: {error}");
}
