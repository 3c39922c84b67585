//! Tests the wakers of a connection in all interleavings, with a limited number of preemptions, of a sleeping call, a
//! thread that drives the worker, and the device. No interleaving may lose a wake-up.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../../trespass/src/worker/waiters.rs"]
#[expect(dead_code, reason = "the test uses a part of it")]
mod waiters;

use std::mem;
use std::sync::Arc;
use std::task::{Wake, Waker};

use loom::sync::{Condvar, Mutex};
use loom::thread;

use self::waiters::{Awaited, Waiters, Woken};

/// The parameter of `poll`, which the file under test converts.
#[expect(dead_code, reason = "the test waits for messages")]
enum Wait {
    Read,
    Write,
}

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
                core.waiters.add_call(Awaited::Message, waker.clone(), 1);
                drop(core);
                drop(woken);
                self.descriptors.sleep();
                drop(self.core.lock().unwrap().waiters.remove_call(1));
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
