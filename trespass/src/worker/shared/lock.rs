//! The lock of a worker, which threads take in turns.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use rdma_mummy_sys::program::Held;

use super::{Core, Handle, Shared};
use crate::worker::Worker;
use crate::worker::waiters::Woken;

/// The number of turns with events after which a thread lets others use the worker, and the longest time that it waits
/// for one of them to begin.
const TURNS: u32 = 16;
const MOST_PAUSE: Duration = Duration::from_micros(200);

/// A worker that is locked. After the lock is released, the logger gets the lines, and the wakers that have become due are
/// called and dropped.
pub(super) struct Locked<'s> {
    core: MutexGuard<'s, Core>,
    /// Fields are dropped in order, so these are dropped after the lock is released.
    _held: Held,
    woken: Woken,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.core.worker.has_woken() {
            self.woken = self.core.worker.take_woken();
        }
    }
}

impl Deref for Locked<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

/// Locks a mutex, unless this takes longer than `most`.
pub(super) fn within<T>(most: Duration, mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let begun = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(locked) => return Some(locked),
            Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
            Err(TryLockError::WouldBlock) if begun.elapsed() >= most => return None,
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
}

impl Handle {
    /// Runs code that changes nothing that is sent. Unlike `with`, this calls no waker: a waker may call it to wait again.
    pub(crate) fn with_quietly<T>(&self, act: impl FnOnce(&mut Worker) -> T) -> io::Result<T> {
        self.shared.generation.check()?;
        Ok(act(&mut self.shared.lock().worker))
    }
}

impl Shared {
    pub(super) fn lock(&self) -> Locked<'_> {
        let held = Held::new();
        let core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.wanting.fetch_add(1, Ordering::Relaxed);
                let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
                self.wanting.fetch_sub(1, Ordering::Relaxed);
                self.served.fetch_add(1, Ordering::Relaxed);
                core
            }
        };
        Locked { core, _held: held, woken: Woken::default() }
    }

    /// Locks the worker, unless this takes longer than `most`.
    pub(super) fn lock_within(&self, most: Duration) -> Option<Locked<'_>> {
        let held = Held::new();
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let core = within(most, &self.core);
        self.wanting.fetch_sub(1, Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
        Some(Locked { core: core?, _held: held, woken: Woken::default() })
    }

    /// Releases the lock for a moment.
    pub(super) fn relock<'c>(&'c self, core: Locked<'c>) -> Locked<'c> {
        drop(core);
        std::hint::spin_loop();
        self.lock()
    }

    /// Releases the lock after some turns in sequence, if other threads wait for it. std's mutex is not fair: without the
    /// pause, this thread would take the lock again before the threads that wait for it run.
    pub(super) fn take_turns<'c>(&'c self, core: Locked<'c>, turns: &mut u32) -> Locked<'c> {
        *turns += 1;
        if *turns < TURNS || self.wanting.load(Ordering::Relaxed) == 0 {
            return core;
        }
        *turns = 0;
        drop(core);
        let (served, until) = (self.served.load(Ordering::Relaxed), Instant::now() + MOST_PAUSE);
        while self.wanting.load(Ordering::Relaxed) != 0
            && self.served.load(Ordering::Relaxed) == served
            && Instant::now() < until
        {
            thread::yield_now();
        }
        self.lock()
    }
}
