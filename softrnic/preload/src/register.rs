//! Registering softrnic, once.

use std::sync::Once;

static REGISTERED: Once = Once::new();

/// Registers softrnic if no call has yet. It makes no thread and opens nothing, so that a process which forks, closes all its
/// descriptors or never calls a verb loses nothing.
#[inline]
pub(crate) fn ready() {
    REGISTERED.call_once(register);
}

#[cold]
fn register() {
    if let Err(error) = softrnic::register() {
        say(&error);
    }
}

/// The program knows nothing of softrnic, so that whoever started it has nobody else to hear this from.
#[expect(clippy::print_stderr, reason = "there is no program of ours that could say it")]
fn say(error: &softrnic::RegisterError) {
    eprintln!("softrnic: there are no soft devices: {error}");
}
