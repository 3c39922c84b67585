//! Which objects are in use by others, and so cannot be destroyed (`EBUSY`); and how many of a kind there can be in the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::errno::Errno;

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

/// Counts objects up to a limit.
#[derive(Debug)]
pub(crate) struct Quota {
    used: AtomicU32,
    limit: u32,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share(&'static Quota);

impl Quota {
    pub(crate) const fn new(limit: u32) -> Self {
        Self { used: AtomicU32::new(0), limit }
    }

    /// One more; `ENOMEM` where there are as many as there can be.
    pub(crate) fn take(&'static self) -> Result<Share, Errno> {
        self.count().map(|()| Share(self))
    }

    /// One more, which the caller counts down.
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
    fn no_more_than_the_limit_are_given() {
        static QUOTA: Quota = Quota::new(2);
        let first = QUOTA.take().expect("the first");
        let second = QUOTA.take().expect("the second");
        assert_eq!(QUOTA.take().map(drop), Err(Errno::NO_MEMORY));
        drop(first);
        let third = QUOTA.take().expect("there is room again");
        assert_eq!(QUOTA.take().map(drop), Err(Errno::NO_MEMORY));
        drop((second, third));
        assert_eq!(QUOTA.used.load(Ordering::Relaxed), 0);
    }
}
