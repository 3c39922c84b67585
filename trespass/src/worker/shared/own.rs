//! The worker's own thread, which drives the worker while no call and no task does.

use std::mem;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::{Shared, Sleeper};

/// How long the worker's own thread pauses after a call has driven the worker.
const AWAY: Duration = Duration::from_millis(2);
/// After this number of consecutive checks that find waiting calls but no new one, the worker's own thread sleeps until
/// no call waits.
const PATIENCE: u32 = 50;
/// How long a task may leave an event unprocessed before the worker's own thread processes it.
const LATE: Duration = Duration::from_millis(10);
impl Shared {
    /// The loop of the worker's own thread.
    pub(super) fn drive(&self) {
        let mut core = self.lock();
        let (mut seen, mut patience, mut turns, mut busy) = (0, 0, 0, 0);
        while !core.is_over || core.worker.connections() != 0 {
            if core.waiting != 0 || core.begun != seen && core.aside == 0 {
                patience = if core.begun == seen { patience + 1 } else { 0 };
                seen = core.begun;
                core.own_is_away = patience >= PATIENCE;
                let is_away = core.own_is_away;
                drop(core);
                if is_away {
                    thread::park();
                    patience = 0;
                } else {
                    thread::park_timeout(AWAY);
                }
                core = self.lock();
                core.own_is_away = false;
                continue;
            }
            patience = 0;
            if core.task_turns != mem::replace(&mut turns, core.task_turns) && self.has_task.load(Ordering::Relaxed) {
                // A task drives the worker. This thread only makes the turns that are due without events.
                let time = core.worker.time_left();
                core.own_due = core.worker.due();
                drop(core);
                self.sleep_until(&Sleeper::default(), &self.kick, time);
                thread::park_timeout(LATE);
                core = self.lock();
                continue;
            }
            if core.worker.turn() != 0 {
                if core.worker.has_woken() {
                    core = self.relock(core);
                }
                core = self.take_turns(core, &mut busy);
                continue;
            }
            busy = 0;
            let time = match core.worker.prepare() {
                Ok(Duration::ZERO) => continue,
                Ok(time) => time,
                Err(error) => {
                    rdma_mummy_sys::log!(error, "the worker's own thread has stopped: {error}");
                    AWAY
                }
            };
            core.own_sleeps = true;
            core.own_due = core.worker.due();
            let sleeper = core.worker.sleeper();
            drop(core);
            self.sleep_until(&sleeper, &self.kick, time);
            core = self.lock();
            core.own_sleeps = false;
        }
    }
}
