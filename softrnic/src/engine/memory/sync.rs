//! What gates are built from.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicU64, Ordering};
pub(super) use std::sync::{Condvar, Mutex};

pub(super) use crate::engine::unpoisoned;

/// How often one who closes looks before it sleeps.
pub(super) const SPINS: u32 = 200;
