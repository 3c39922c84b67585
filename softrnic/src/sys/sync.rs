//! The primitives of run-downs, rings, wake-ups and deferred runs, so that tests can replace them by loom's.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, TryLockError};

pub(crate) use crate::sys::unpoisoned;

/// How often a run-down polls the user count before it sleeps.
pub(crate) const SPINS: u32 = 200;
