//! Tasks and calls that wait for a connection.
//!
//! A waker runs code of the program, which may use the worker or drop the last handle to a connection. So this module
//! never calls or drops a waker under the worker's lock. [`Woken`] collects the wakers; dropping it, after the lock is
//! released, calls and drops them.

use std::mem;
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
    /// Whether the waiter is a task. A new task replaces an earlier one that waits for the same event. The other
    /// waiters are calls, which stay until they return.
    is_task: bool,
}

impl Waiters {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn has(&self, what: Awaited) -> bool {
        self.list.iter().any(|waiter| waiter.what == what)
    }

    pub(super) fn add_task(&mut self, what: Awaited, waker: &Waker, woken: &mut Woken) {
        match self.list.iter_mut().find(|waiter| waiter.is_task && waiter.what == what) {
            Some(known) if known.waker.will_wake(waker) => {}
            Some(known) => woken.add(mem::replace(&mut known.waker, waker.clone()), false),
            None => self.list.push(Waiter { what, waker: waker.clone(), is_task: true }),
        }
    }

    pub(super) fn add_call(&mut self, what: Awaited, waker: &Waker) {
        self.list.push(Waiter { what, waker: waker.clone(), is_task: false });
    }

    /// Removes a call that has returned. The waker may be dropped here, because it belongs to the library and runs no
    /// code of the program.
    pub(super) fn remove_call(&mut self, what: Awaited, waker: &Waker) {
        let is_it = |waiter: &Waiter| !waiter.is_task && waiter.what == what && waiter.waker.will_wake(waker);
        if let Some(at) = self.list.iter().position(is_it) {
            self.list.swap_remove(at);
        }
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
        self.list.drain(..).filter(|(_, is_due)| *is_due).for_each(|(waker, _)| waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use loom::sync::{Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// Models the descriptors that a sleeping call polls: the worker's, and the call's own event.
    #[derive(Default)]
    struct Descriptors {
        readable: Mutex<(bool, bool)>,
        changed: Condvar,
    }

    impl Descriptors {
        fn set(&self, change: impl FnOnce(&mut (bool, bool))) {
            change(&mut self.readable.lock().unwrap());
            self.changed.notify_all();
        }

        fn sleep(&self) {
            let mut readable = self.readable.lock().unwrap();
            while *readable == (false, false) {
                readable = self.changed.wait(readable).unwrap();
            }
            readable.1 = false;
        }
    }

    impl Wake for Descriptors {
        fn wake(self: Arc<Self>) {
            self.set(|readable| readable.1 = true);
        }
    }

    #[derive(Default)]
    struct Device {
        completions: u32,
        is_armed: bool,
    }

    #[derive(Default)]
    struct Core {
        inbox: u32,
        waiters: Waiters,
        woken: Woken,
    }

    struct Model {
        core: Mutex<Core>,
        device: Mutex<Device>,
        descriptors: Arc<Descriptors>,
    }

    impl Model {
        fn complete(&self) {
            let mut device = self.device.lock().unwrap();
            device.completions += 1;
            if mem::take(&mut device.is_armed) {
                self.descriptors.set(|readable| readable.0 = true);
            }
        }

        fn poll(&self, core: &mut Core) {
            let arrived = mem::take(&mut self.device.lock().unwrap().completions);
            core.inbox += arrived;
            if arrived != 0 {
                core.waiters.wake(Awaited::Message, &mut core.woken);
            }
        }

        /// Consumes the event, and requests another one. Returns false if an event is pending already.
        fn arm(&self) -> bool {
            let mut device = self.device.lock().unwrap();
            self.descriptors.set(|readable| readable.0 = false);
            device.is_armed = true;
            device.completions == 0
        }

        /// Models `Shared::drive_until` for a call that sleeps on the descriptor.
        fn receive(&self) {
            let waker = Waker::from(Arc::clone(&self.descriptors));
            loop {
                let mut core = self.core.lock().unwrap();
                self.poll(&mut core);
                let woken = mem::take(&mut core.woken);
                if core.inbox != 0 {
                    core.inbox -= 1;
                    drop(core);
                    return drop(woken);
                }
                if self.arm() {
                    core.waiters.add_call(Awaited::Message, &waker);
                    drop(core);
                    drop(woken);
                    self.descriptors.sleep();
                    self.core.lock().unwrap().waiters.remove_call(Awaited::Message, &waker);
                }
            }
        }

        /// Models `Handle::try_now` for a call that does not need the message.
        fn drive(&self) {
            let mut core = self.core.lock().unwrap();
            self.poll(&mut core);
            while !self.arm() {
                self.poll(&mut core);
            }
            let woken = mem::take(&mut core.woken);
            drop(core);
            drop(woken);
        }
    }

    /// Explores all interleavings, with up to three preemptions, of a sleeping call, a thread that drives the worker,
    /// and the device.
    #[test]
    fn no_interleaving_loses_a_wake_up() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (core, device) = (Mutex::default(), Mutex::default());
            let model = Arc::new(Model { core, device, descriptors: Arc::default() });
            let (driver, device) = (Arc::clone(&model), Arc::clone(&model));
            let threads = [thread::spawn(move || driver.drive()), thread::spawn(move || device.complete())];
            model.receive();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(model.core.lock().unwrap().waiters.is_empty());
        });
    }
}
