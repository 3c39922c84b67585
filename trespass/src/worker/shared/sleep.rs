//! Sleeps of calls, and of the worker's own thread.

use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use super::super::event::Event;
use super::super::waiters::Awaited;
use super::super::{ConnectionId, Sleeper, Source};
use super::Shared;
use super::lock::Locked;
use super::wake::this_thread;

/// If a sleep was shorter than this, later calls spin longer before they sleep.
pub(super) const SHORT: Duration = Duration::from_micros(200);

impl Shared {
    /// Sleeps on the worker's descriptor. If another thread drives the worker during this time and consumes the event,
    /// the call is woken.
    pub(super) fn sleep<'c>(
        &'c self,
        mut core: Locked<'c>,
        id: ConnectionId,
        what: Awaited,
        most: Duration,
    ) -> (Locked<'c>, io::Result<()>) {
        // Registers the call first, so that `prepare` wakes the call if it can continue.
        let call = core.worker.register_call(Source::Connection(id, what), self.nudge_waker.clone());
        let time = match core.worker.prepare() {
            Ok(time) if time != Duration::ZERO => time.min(most),
            other => {
                drop(core.worker.remove_call(call));
                return (core, other.map(|_| ()));
            }
        };
        core.call_sleeps = true;
        if core.own_sleeps {
            self.kick.set();
        }
        let sleeper = core.worker.sleeper();
        drop(core);
        let begun = Instant::now();
        self.sleep_until(&sleeper, &self.nudge, time);
        let mut core = self.lock();
        core.spin = next_spin(core.spin, self.spin, begun.elapsed());
        drop(core.worker.remove_call(call));
        core.call_sleeps = false;
        (core, Ok(()))
    }

    /// Waits until the thread that sleeps on the descriptor wakes this call.
    pub(super) fn park<'c>(
        &'c self,
        mut core: Locked<'c>,
        id: ConnectionId,
        what: Awaited,
        most: Duration,
    ) -> (Locked<'c>, io::Result<()>) {
        let (this, waker) = (thread::current(), this_thread());
        // Registers the call first: `rearm` may consume the event for which the call waits, and then wakes the call.
        let call = core.worker.register_call(Source::Connection(id, what), waker.clone());
        core.worker.post_all();
        if let Err(error) = core.rearm() {
            drop(core.worker.remove_call(call));
            return (core, Err(error));
        }
        core.parked.push(this.clone());
        drop(core);
        thread::park_timeout(most);
        let mut core = self.lock();
        drop(core.worker.remove_call(call));
        core.parked.retain(|thread| thread.id() != this.id());
        (core, Ok(()))
    }

    /// Sleeps until the worker's descriptor or an event is readable.
    pub(super) fn sleep_until(&self, sleeper: &Sleeper, event: &Event, time: Duration) {
        // A signal may end the sleep early; this is harmless.
        if matches!(sleeper.sleep([self.fd.as_fd(), event.as_fd()], time), Ok([_, true])) {
            event.clear();
        }
    }
}

/// Returns how long to spin, given the length of the last sleep. If both sides slept for each message, every round trip
/// would include two wake-ups, which take longer than the transfer of the message. Therefore the spin becomes longer
/// after a short sleep.
pub(super) fn next_spin(spin: Duration, least: Duration, slept: Duration) -> Duration {
    if slept < SHORT { (spin * 2).min(least * 8) } else { least }
}
