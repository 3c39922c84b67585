//! Starts threads. The system may refuse one, for example because of `ulimit -u`; this is an error and no panic.

use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use anyhow::{Context, Result};

const REFUSED: &str = "cannot start a thread (raise `ulimit -u`, `ulimit -v` or the container's `pids.max`)";

/// Starts a thread.
pub(crate) fn start<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    Builder::new().spawn(run).context(REFUSED)
}

/// Starts a thread of a scope.
pub(crate) fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().spawn_scoped(scope, run).context(REFUSED)
}
