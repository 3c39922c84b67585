//! The border between a program and its devices: every call passes here, is observed, and may be refused.
//!
//! * [`control`]: the loaded functions, as a table in front of all providers.
//! * [`context`], [`posting`], [`extended_qp`], [`completion`], [`extended_cq`]: the functions that programs call
//!   through pointers in objects, which [`adopt`] replaces.
//! * [`queue_pair`], [`flight`], [`table`], [`original`]: the records of objects, and the driver's functions in them.
//! * [`line`], [`held`], [`saved`], [`altered`], [`waker`]: completions that faults hold back or lose.
//! * [`show`], [`outcome`]: arguments and results as text.

mod adopt;
mod altered;
mod completion;
mod context;
mod control;
mod extended_cq;
mod extended_qp;
mod flight;
mod held;
mod line;
mod original;
mod outcome;
mod posting;
mod queue_pair;
mod saved;
mod shared_queue;
mod show;
mod table;
mod waker;

use std::sync::OnceLock;

use rdma_mummy_sys::load::front::{self, InstallError};
use rdma_mummy_sys::load::provider::Provider;

use crate::count::PairSummary;

/// Puts the border in front of all providers, once. Devices that were opened before stay without it.
pub(crate) fn install() -> Result<(), InstallError> {
    static INSTALLED: OnceLock<Result<(), InstallError>> = OnceLock::new();
    let install = || {
        let front =
            Provider::new("lens", control::ibverbs()).with_rdmacm(control::rdmacm()).with_driver(context::driver);
        // SAFETY: each function passes the call on, or fails as the manual page of its name documents.
        unsafe { front::install(front) }
    };
    INSTALLED.get_or_init(install).clone()
}

/// The counts of all queue pairs, as values.
pub(crate) fn pair_summaries() -> Vec<PairSummary> {
    adopt::PAIRS.all().into_iter().map(queue_pair::QueuePair::summary).collect()
}

/// Raises the events of completions that were held back. Returns the time of the next one.
pub(crate) fn wake(now: u64) -> Option<u64> {
    held::wake(now)
}

/// Whether completions are held back. Programs that wait for them are woken.
pub(crate) fn release() -> bool {
    held::release();
    held::holds_completions()
}

/// Forgets what the lens before has followed, and the places in the order of creation.
pub(crate) fn start() {
    adopt::PAIRS.all().iter().for_each(|pair| pair.forget());
    adopt::SHARED_QUEUES.all().iter().for_each(|shared| shared.faults.forget());
}

/// Sets the counts of all queue pairs to zero.
pub(crate) fn start_counts() {
    adopt::PAIRS.all().iter().for_each(|pair| pair.counts.start());
}

/// Why a schedule cannot make calls of this verb fail.
pub(crate) fn check_verb(name: &str) -> Result<(), String> {
    match control::can_fail(name) {
        Some(true) => Ok(()),
        Some(false) => Err(format!("{name} cannot fail: it returns no error")),
        None => Err(format!("`{name}` is no verb whose calls are seen here; requests are `posts` and `receives`")),
    }
}
