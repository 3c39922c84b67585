//! What run-downs, rings, wake-ups and deferred runs are built from, so that tests can have these of `loom`.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, TryLockError};

pub(crate) use crate::sys::unpoisoned;

/// How often one who closes a gate looks before it sleeps.
pub(crate) const SPINS: u32 = 200;
