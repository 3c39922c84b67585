//! Tasks and calls that wait for a connection.
//!
//! A waker runs code of the program, which may use the worker or drop the last handle to a connection. So this module
//! never calls, clones or drops a waker under the worker's lock. [`Woken`] collects the wakers; dropping it, after the lock is
//! released, calls and drops them. `tests/models` tests in all interleavings that no wake-up is lost.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use smallvec::SmallVec;

use super::Wait;

/// The event for which a task or a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A message or the end of the messages has arrived, or the connection is established.
    Message,
    /// Space to send is available, or a flush or another operation has completed.
    Room,
    /// Transfers have ended, or the key to a region has become invalid.
    Transfer,
}

impl From<Wait> for Awaited {
    fn from(wait: Wait) -> Awaited {
        match wait {
            Wait::Read => Awaited::Message,
            Wait::Write => Awaited::Room,
        }
    }
}

/// The tasks and calls that wait for one connection.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    list: Vec<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    what: Awaited,
    waker: Waker,
    /// The number of the call or future, which stays until it is removed or woken; or `None` for a task. A new task
    /// replaces an earlier one that waits for the same event.
    call: Option<u64>,
}

impl Waiters {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn has(&self, what: Awaited) -> bool {
        self.list.iter().any(|waiter| waiter.what == what)
    }

    /// Takes the waker, unless it is the one that waits already.
    pub(super) fn add_task(&mut self, what: Awaited, waker: &mut Option<Waker>, woken: &mut Woken) {
        let known = self.list.iter_mut().find(|waiter| waiter.call.is_none() && waiter.what == what);
        let is_known = |(known, new): (&&mut Waiter, &Waker)| known.waker.will_wake(new);
        if known.as_ref().zip(waker.as_ref()).is_some_and(is_known) {
            return;
        }
        let Some(waker) = waker.take() else { return };
        match known {
            Some(known) => woken.add(mem::replace(&mut known.waker, waker), false),
            None => self.list.push(Waiter { what, waker, call: None }),
        }
    }

    pub(super) fn add_call(&mut self, what: Awaited, waker: Waker, number: u64) {
        self.list.push(Waiter { what, waker, call: Some(number) });
    }

    /// Removes a call or a future that no longer waits. Returns its waker if it was not woken.
    pub(super) fn remove_call(&mut self, number: u64) -> Option<Waker> {
        let at = self.list.iter().position(|waiter| waiter.call == Some(number))?;
        Some(self.list.swap_remove(at).waker)
    }

    /// Moves all wakers that wait for one event to `woken`.
    pub(super) fn wake(&mut self, what: Awaited, woken: &mut Woken) {
        let mut at = 0;
        while let Some(waiter) = self.list.get(at) {
            if waiter.what == what {
                woken.push(self.list.swap_remove(at).waker);
            } else {
                at += 1;
            }
        }
    }

    pub(super) fn wake_all(&mut self, woken: &mut Woken) {
        self.list.drain(..).for_each(|waiter| woken.push(waiter.waker));
    }
}

/// A list of wakers. When the list is dropped, it calls the wakers and drops them.
#[derive(Debug, Default)]
pub(super) struct Woken {
    /// The wakers, each with whether to call it. A waker that was replaced is dropped without a call.
    list: SmallVec<[(Waker, bool); 4]>,
    /// Whether the list has a waker. Each turn reads this field, which is faster than reading the list's length.
    has_any: bool,
}

impl Woken {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.has_any
    }

    pub(super) fn push(&mut self, waker: Waker) {
        self.add(waker, true);
    }

    fn add(&mut self, waker: Waker, is_due: bool) {
        self.list.push((waker, is_due));
        self.has_any = true;
    }

    /// Moves the wakers of the other list here.
    pub(super) fn append(&mut self, other: &mut Woken) {
        self.list.append(&mut other.list);
        self.has_any |= mem::take(&mut other.has_any);
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        for (waker, is_due) in self.list.drain(..) {
            if is_due { call(waker) } else { guard(|| drop(waker)) }
        }
    }
}

/// Calls a waker. If it panics, only its own task suffers: this thread may be the worker's, and other wakers follow.
pub(super) fn call(waker: Waker) {
    guard(|| waker.wake());
}

/// Runs code of the program that must not unwind into this thread. The panic hook has reported the panic.
fn guard(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // Its drop could panic too.
        mem::forget(payload);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicU32);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Panics when it is called, or dropped.
    struct Broken;

    impl Wake for Broken {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Broken {
        fn drop(&mut self) {
            panic!("the receiver of this waker is gone");
        }
    }

    #[test]
    fn waker_that_panics_stops_no_other() {
        let counter = Arc::<Counter>::default();
        let mut woken = Woken::default();
        for _ in 0..3 {
            woken.push(Waker::from(Arc::new(Broken)));
            woken.add(Waker::from(Arc::new(Broken)), false);
            woken.push(Waker::from(Arc::clone(&counter)));
        }
        drop(woken);
        assert_eq!(counter.0.load(Ordering::Relaxed), 3);
    }
}
