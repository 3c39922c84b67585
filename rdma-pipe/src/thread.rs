//! Threads. The system may refuse one, for example because of `ulimit -u`; this is an error and no panic.

use std::io;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::error::{Error, Kind, Result, reason};

/// Starts a thread of a scope.
///
/// # Errors
///
/// The system has no more threads for this user.
pub(crate) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().spawn_scoped(scope, run).map_err(|error| refused(&error))
}

/// The error of a thread that the system refused.
pub(crate) fn refused(error: &io::Error) -> Error {
    let text =
        format!("cannot start a thread: {}; raise the limits of processes and memory (ulimit -u, -v)", reason(error));
    Error::new(Kind::File, text)
}
