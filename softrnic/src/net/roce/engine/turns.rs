//! The turns of softrnic's thread.

use std::time::Instant;

use super::Engine;
use crate::net::attendance::Checks;
use crate::sys::socket_set::SocketSet;
use crate::sys::thread::{Next, Task};

/// What the thread does for the engine.
pub(super) struct Turns {
    engine: &'static Engine,
    sockets: &'static SocketSet,
    checks: Checks,
}

impl Turns {
    pub(super) fn new(engine: &'static Engine, sockets: &'static SocketSet) -> Self {
        Self { engine, sockets, checks: Checks::new(Instant::now()) }
    }
}

impl Task for Turns {
    fn turn(&mut self) -> Next {
        let Self { engine, sockets, .. } = *self;
        let now = Instant::now();
        if engine.attendance.check(sockets, &mut self.checks, now) {
            engine.receive(!sockets.is_attended());
        }
        let due = engine.run_due(now);
        let check = engine.attendance.is_checked().then_some(self.checks.next);
        Next::from(due.into_iter().chain(check).min())
    }
}
