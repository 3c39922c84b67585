//! Guards that keep an object in use until it is run down.

use std::sync::{Condvar, Mutex};

use super::fork::PerProcess;
use super::rundown::{Rundown, Waiting};

/// One use of the object, which ends when the guard is dropped.
#[derive(Debug)]
pub(crate) struct Guard(&'static Rundown);

impl Guard {
    /// Begins a use. Returns `None` during and after the run-down.
    #[inline]
    pub(crate) fn enter(rundown: &'static Rundown) -> Option<Self> {
        // The guard is created only after `enter` succeeds, because dropping a guard ends a use.
        rundown.enter(waiting).then(|| Self(rundown))
    }
}

impl Clone for Guard {
    fn clone(&self) -> Self {
        self.0.enter_again();
        Self(self.0)
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        self.0.leave(waiting);
    }
}

/// Refuses new uses and waits until the current ones have ended. Returns `false` if the object has already been run
/// down.
pub(crate) fn run_down(rundown: &'static Rundown) -> bool {
    rundown.close(waiting)
}

/// The mutex and the condition variable that all threads use to wait for a run-down.
fn waiting() -> &'static Waiting {
    static WAITING: PerProcess<Waiting> = PerProcess::new(new(), || Box::new(new()));

    const fn new() -> Waiting {
        Waiting { lock: Mutex::new(()), left: Condvar::new() }
    }
    WAITING.get()
}
