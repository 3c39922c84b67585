//! Waiting for events, by one or several threads.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdma_mummy_sys::program::Held;

use super::ConnectCause;
use super::deadline::Deadline;
use crate::rdmacm::communication_manager::{Event, EventChannel, EventKind, Identifier};

/// The shared state of the threads that wait on one channel. Each event wakes only one thread that waits on the
/// channel. So one thread takes the events and updates this state, and the other threads wait for these updates.
#[derive(Debug, Default)]
pub(super) struct Watch<S> {
    state: Mutex<State<S>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State<S> {
    is_led: bool,
    known: S,
}

/// The state, locked. The logger gets the lines after the lock is released.
struct Locked<'w, S> {
    state: MutexGuard<'w, State<S>>,
    _held: Held,
}

impl<S> Watch<S> {
    /// Waits until `look` finds something in the state. `learn` adds each event to the state.
    pub(super) fn wait<T>(
        &self,
        channel: &Arc<EventChannel>,
        deadline: &Deadline,
        mut look: impl FnMut(&mut S) -> Result<Option<T>, ConnectCause>,
        mut learn: impl FnMut(&mut S, Event),
    ) -> Result<T, ConnectCause> {
        let mut locked = self.lock();
        loop {
            if let Some(found) = look(&mut locked.state.known)? {
                return Ok(found);
            }
            if locked.state.is_led {
                deadline.check()?;
                // Each wait takes at most an hour, because the condition variable has a limited range.
                let left = deadline.left_or_max().min(Duration::from_secs(3600));
                (locked.state, _) =
                    self.changed.wait_timeout(locked.state, left).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            locked.state.is_led = true;
            drop(locked);
            let taken = next_event(channel, deadline);
            locked = self.lock();
            locked.state.is_led = false;
            self.changed.notify_all();
            learn(&mut locked.state.known, taken?);
        }
    }

    /// Calls `look` with the state while the lock is held.
    pub(super) fn lock_known<T>(&self, look: impl FnOnce(&mut S) -> T) -> T {
        look(&mut self.lock().state.known)
    }

    fn lock(&self) -> Locked<'_, S> {
        let held = Held::new();
        Locked { state: self.state.lock().unwrap_or_else(PoisonError::into_inner), _held: held }
    }
}

/// Waits for an event of the identifier that `pick` accepts. Returns an error if an event reports a failure.
pub(super) fn await_event<T>(
    id: &Arc<Identifier>,
    deadline: &Deadline,
    mut pick: impl FnMut(EventKind) -> Result<T, EventKind>,
) -> Result<T, ConnectCause> {
    let channel = id.event_channel();
    loop {
        let event = next_event(&channel, deadline)?;
        if !Arc::ptr_eq(event.cm_id(), id) {
            rdma_mummy_sys::log!(warn, "{event}: ignored an event of an identifier that no thread waits for");
            continue;
        }
        let (event_type, status) = (event.event_type(), event.status());
        let (_, kind) = event.into_parts();
        return Err(match pick(kind) {
            Ok(found) => return Ok(found),
            Err(EventKind::AddressError(status) | EventKind::RouteError(status))
                if status.errno().is_some_and(|errno| errno.raw() == libc::ETIMEDOUT) =>
            {
                // The kernel's time-out expired before the deadline of the program.
                deadline.passed()
            }
            Err(EventKind::AddressError(_) | EventKind::RouteError(_) | EventKind::ConnectError(_)) => {
                ConnectCause::Event { event_type, status }
            }
            Err(EventKind::Rejected(rejection)) => ConnectCause::Rejected(rejection),
            Err(EventKind::Unreachable(unreachable)) => ConnectCause::Unreachable(unreachable),
            Err(EventKind::Disconnected(_)) => ConnectCause::Disconnected,
            Err(EventKind::DeviceRemoval) => ConnectCause::DeviceRemoval,
            Err(EventKind::AddressChange | EventKind::TimewaitExit | EventKind::Other) => {
                rdma_mummy_sys::log!(debug, "{event_type}: ignored during connection setup");
                continue;
            }
            Err(_) => ConnectCause::Unexpected(event_type),
        });
    }
}

/// Returns the next event of a channel.
fn next_event(channel: &Arc<EventChannel>, deadline: &Deadline) -> Result<Event, ConnectCause> {
    channel.get_cm_event(deadline.left()).map_err(|error| match error.errno().raw() {
        libc::ETIMEDOUT if deadline.has_passed() => deadline.passed(),
        _ => ConnectCause::Verb(error),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use rdma_mummy_sys::program;

    use super::*;

    #[test]
    fn lines_reach_the_logger_after_the_lock_is_released() {
        let watch = Arc::new(Watch::<()>::default());
        let (of_line, (sender, is_free)) = (Arc::clone(&watch), channel());
        watch.lock_known(|()| program::log(move || sender.send(of_line.state.try_lock().is_ok()).unwrap()));
        assert!(is_free.recv().unwrap());
    }
}
