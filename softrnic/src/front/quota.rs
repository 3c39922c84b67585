//! How many objects of a kind there can be in the process.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::engine::errno::Errno;

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
        let more = |used| (used < self.limit).then_some(used + 1);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Share(self)),
            Err(_) => Err(Errno::NO_MEMORY),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
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
