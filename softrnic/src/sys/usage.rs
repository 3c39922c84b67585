//! Which objects are in use by others, and so cannot be destroyed (`EBUSY`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the objects that stand on this one.
#[derive(Debug, Default)]
pub(crate) struct Usage(Arc<AtomicUsize>);

/// One object that stands on another, until it is dropped.
#[derive(Debug)]
pub(crate) struct Use(Arc<AtomicUsize>);

impl Usage {
    /// One more.
    pub(crate) fn begin(&self) -> Use {
        self.0.fetch_add(1, Ordering::Relaxed);
        Use(Arc::clone(&self.0))
    }

    pub(crate) fn is_used(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
