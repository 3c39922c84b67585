//! Usage counts and limits. A usage count prevents the destruction of an object that is in use (`EBUSY`). A limit
//! applies to the number of objects in a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::errno::Errno;

/// Counts the dependents of an object.
#[derive(Debug, Default)]
pub(crate) struct Usage(Arc<AtomicUsize>);

/// One dependent of an object. The use ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Use(Arc<AtomicUsize>);

impl Usage {
    /// Adds a dependent.
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

/// Counts objects up to a limit.
#[derive(Debug)]
pub(crate) struct Quota {
    used: AtomicU32,
    limit: u32,
}

/// One counted object. The count decreases when this value is dropped.
#[derive(Debug)]
pub(crate) struct Share(&'static Quota);

impl Quota {
    pub(crate) const fn new(limit: u32) -> Self {
        Self { used: AtomicU32::new(0), limit }
    }

    /// Counts one more object. Returns `ENOMEM` if the limit is reached.
    pub(crate) fn take(&'static self) -> Result<Share, Errno> {
        self.count().map(|()| Share(self))
    }

    /// Counts one more object like [`take`](Self::take), but the caller must decrease the count.
    pub(crate) fn count(&self) -> Result<(), Errno> {
        let more = |used| (used < self.limit).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map(drop).map_err(|_| Errno::NO_MEMORY)
    }

    pub(crate) fn count_down(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.count_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_refuses_more_than_the_limit() {
        static QUOTA: Quota = Quota::new(2);
        let first = QUOTA.take().expect("the first");
        let second = QUOTA.take().expect("the second");
        assert_eq!(QUOTA.take().map(drop), Err(Errno::NO_MEMORY));
        drop(first);
        let third = QUOTA.take().expect("a slot is free again");
        assert_eq!(QUOTA.take().map(drop), Err(Errno::NO_MEMORY));
        drop((second, third));
        assert_eq!(QUOTA.used.load(Ordering::Relaxed), 0);
    }
}
