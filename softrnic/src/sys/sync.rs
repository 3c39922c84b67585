//! The atomics and locks that run-downs, rings, wake-ups and deferred runs use. They are gathered here so that tests
//! can replace them by those of loom.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, TryLockError};

pub(crate) use crate::sys::unpoisoned;

/// How many times a run-down reads the number of users before it sleeps.
pub(crate) const SPINS: u32 = 200;
