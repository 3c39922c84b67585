//! Protection domains and XRC domains. A domain contains no data; only its identity matters.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::usage::Usage;

/// `struct ibv_pd`: a QP can use only memory regions of its own domain. Two domains are equal if their numbers are
/// equal.
#[derive(Debug)]
pub(crate) struct Domain {
    number: u32,
    /// Counts the regions, windows, QPs, shared receive queues and address handles that use this domain. Parent domains
    /// are counted in the `usage` of the C object that they were created from.
    pub(crate) usage: Usage,
}

impl Domain {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), usage: Usage::default() }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
