//! Blocks of QP numbers that belong to this process alone. The process claims another block when it needs more numbers.

use std::sync::Mutex;

use crate::sys::unpoisoned;
use crate::wire::packet::{BLOCK, MAX_NUMBER, MULTICAST_NUMBER};
use crate::wire::transport::Routes;

/// The minimum number of blocks that the process claims before it reuses numbers.
const MIN_BLOCKS: usize = 4;

/// The blocks that the process has claimed, and the next QP number.
#[derive(Debug)]
pub(super) struct Blocks(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    owned: Vec<u32>,
    /// The next number, as the index of its block and the offset in this block.
    block: usize,
    place: u32,
}

impl Blocks {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Inner { owned: Vec::new(), block: 0, place: 0 }))
    }

    /// Whether a number belongs to this process.
    pub(super) fn has(&self, number: u32) -> bool {
        unpoisoned(self.0.lock()).owned.contains(&(number / BLOCK))
    }

    /// Returns the first block, or `None` if no block can be claimed.
    pub(super) fn first(&self, routes: &dyn Routes) -> Option<u32> {
        let mut inner = unpoisoned(self.0.lock());
        if inner.owned.is_empty() {
            inner.grow(routes, 0);
        }
        inner.owned.first().copied()
    }

    /// Returns the next free number. `in_use` is how many numbers are in use. Returns `None` if all numbers are in use
    /// and no further block can be claimed.
    pub(super) fn number(&self, routes: &dyn Routes, in_use: usize, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
        unpoisoned(self.0.lock()).number(routes, in_use, is_taken)
    }
}

impl Inner {
    fn number(&mut self, routes: &dyn Routes, in_use: usize, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
        // This loop tries each number of the claimed blocks, and then those of one new block.
        for _ in 0..=(self.owned.len() + 1) * BLOCK as usize {
            if self.block >= self.owned.len() {
                self.grow(routes, in_use);
            }
            let block = *self.owned.get(self.block)?;
            let number = block * BLOCK + self.place;
            self.place += 1;
            if self.place == BLOCK {
                (self.block, self.place) = (self.block + 1, 0);
            }
            if number > 1 && number < MULTICAST_NUMBER && !is_taken(number) {
                return Some(number);
            }
        }
        None
    }

    /// Claims another block after the last one, or starts over at the first block.
    fn grow(&mut self, routes: &dyn Routes, in_use: usize) {
        let has_enough = self.owned.len() >= MIN_BLOCKS && in_use < self.owned.len() * BLOCK as usize / 2;
        // A QP number has 24 bits, so blocks of larger numbers cannot be used.
        let claimed = if has_enough { None } else { routes.claim().filter(|block| *block <= MAX_NUMBER / BLOCK) };
        match claimed {
            Some(block) if !self.owned.contains(&block) => self.owned.push(block),
            _ => (self.block, self.place) = (0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::sys::errno::Errno;
    use crate::wire::address::Gid;
    use crate::wire::transport::Carrier;

    /// Routes with a fixed number of blocks, of which block 7 is the first.
    #[derive(Debug)]
    struct LimitedRoutes {
        claimed_count: AtomicU32,
        most: u32,
    }

    impl Routes for LimitedRoutes {
        fn claim(&self) -> Option<u32> {
            let claimed_count = self.claimed_count.load(Ordering::Relaxed);
            (claimed_count < self.most).then(|| 7 + self.claimed_count.fetch_add(1, Ordering::Relaxed))
        }
        fn carrier(&self, _: u32) -> Option<Arc<dyn Carrier>> {
            None
        }
        fn reach(&self, _: u32) -> Result<(), Errno> {
            Ok(())
        }
        fn group(&self, _group: Gid) -> Vec<Arc<dyn Carrier>> {
            Vec::new()
        }
        fn joined(&self, _group: Gid) {}
        fn left(&self, _group: Gid) {}
        fn settle(&self) {}
    }

    fn limited(most: u32) -> LimitedRoutes {
        LimitedRoutes { claimed_count: AtomicU32::new(0), most }
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of numbers")]
    fn numbers_are_reused_after_several_blocks() {
        let (blocks, routes) = (Blocks::new(), limited(100));
        let round = MIN_BLOCKS * BLOCK as usize;
        let numbers: Vec<_> = (0..round).map(|_| blocks.number(&routes, 0, |_| false).unwrap()).collect();
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), round);
        assert!(numbers.iter().all(|number| blocks.has(*number)));
        assert_eq!(blocks.number(&routes, 0, |_| false), Some(numbers[0]));
        assert_eq!((blocks.first(&routes), Blocks::new().first(&limited(0))), (Some(7), None));
        assert!(!blocks.has(6 * BLOCK) && !blocks.has(100 * BLOCK));
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of numbers")]
    fn full_blocks_are_followed_by_another_if_available() {
        let (blocks, routes, mut taken) = (Blocks::new(), limited(2), BTreeSet::new());
        while let Some(number) = blocks.number(&routes, taken.len(), |number| taken.contains(&number)) {
            assert!(taken.insert(number));
        }
        assert_eq!(taken.len(), 2 * BLOCK as usize);
        taken.remove(&(8 * BLOCK + 5));
        assert_eq!(blocks.number(&routes, taken.len(), |number| taken.contains(&number)), Some(8 * BLOCK + 5));
        assert_eq!(Blocks::new().number(&limited(0), 0, |_| false), None);
    }
}
