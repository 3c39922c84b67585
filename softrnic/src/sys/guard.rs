//! Uses of something that is run down before it is changed: a guard for each use.

use std::sync::{Condvar, Mutex};

use super::fork::PerProcess;
use super::rundown::{Rundown, Waiting};

/// One use, until this is dropped.
#[derive(Debug)]
pub(crate) struct Guard(&'static Rundown);

impl Guard {
    /// Begins a use; `None` while it is run down.
    #[inline]
    pub(crate) fn enter(rundown: &'static Rundown) -> Option<Self> {
        // Made only after it has entered: dropping one leaves.
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

/// Refuses new uses and waits until there is none. `false` if another thread has done so before.
pub(crate) fn run_down(rundown: &'static Rundown) -> bool {
    rundown.close(waiting)
}

/// Threads that run anything down wait on these.
fn waiting() -> &'static Waiting {
    static WAITING: PerProcess<Waiting> = PerProcess::new(new(), || Box::new(new()));

    const fn new() -> Waiting {
        Waiting { lock: Mutex::new(()), left: Condvar::new() }
    }
    WAITING.get()
}
