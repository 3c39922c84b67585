//! A table of objects that are identified by numbers of 24 bits.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::packet::MULTICAST_NUMBER;

/// The objects by their numbers of 24 bits. The numbers are greater than 1 and less than the number of multicast
/// datagrams.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    entries: RwLock<FxHashMap<u32, T>>,
    /// The number that was assigned last, or zero if none was assigned.
    last: AtomicU32,
}

impl<T> Numbered<T> {
    pub(super) const fn new() -> Self {
        Self { entries: RwLock::new(FxHashMap::with_hasher(FxBuildHasher)), last: AtomicU32::new(0) }
    }

    /// Returns the next free number after the last one, so a number is reused only after all others. The first number
    /// is random, so a number that comes from another process or an earlier run is probably not in use in this process.
    pub(super) fn number(&self, most: u32) -> Result<u32, Errno> {
        let entries = unpoisoned(self.entries.read());
        if entries.len() >= most as usize {
            return Err(Errno::NO_MEMORY);
        }
        if self.last.load(Ordering::Relaxed) == 0 {
            // This number is random, and not close to either end of the range.
            let random = (RandomState::new().hash_one(0) & 0x7f_ffff) as u32 + 0x100;
            let _ = self.last.compare_exchange(0, random, Ordering::Relaxed, Ordering::Relaxed);
        }
        let after = |last| if last + 1 >= MULTICAST_NUMBER { 2 } else { last + 1 };
        loop {
            let update = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)));
            let number = after(update.unwrap_or_else(|last| last));
            if !entries.contains_key(&number) {
                return Ok(number);
            }
        }
    }

    pub(super) fn count(&self) -> usize {
        unpoisoned(self.entries.read()).len()
    }

    pub(super) fn has(&self, number: u32) -> bool {
        unpoisoned(self.entries.read()).contains_key(&number)
    }

    /// Calls `get` for each object, and returns the results.
    pub(super) fn all<U>(&self, get: impl FnMut(&T) -> Option<U>) -> Vec<U> {
        unpoisoned(self.entries.read()).values().filter_map(get).collect()
    }

    pub(super) fn enter(&self, number: u32, entry: T) {
        unpoisoned(self.entries.write()).insert(number, entry);
    }

    pub(super) fn leave(&self, number: u32) {
        let entry = unpoisoned(self.entries.write()).remove(&number);
        // The entry must be dropped only after the lock is released.
        drop(entry);
    }

    pub(super) fn find<U>(&self, number: u32, get: impl FnOnce(&T) -> Option<U>) -> Option<U> {
        unpoisoned(self.entries.read()).get(&number).and_then(get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_and_skip_used_ones() {
        let numbered = Numbered::new();
        let first = numbered.number(10).unwrap();
        assert!(first > 1 && first < MULTICAST_NUMBER);
        numbered.enter(first, ());
        assert_eq!(numbered.number(10).unwrap(), first + 1);
        numbered.last.store(MULTICAST_NUMBER - 2, Ordering::Relaxed);
        assert_eq!(numbered.number(10).unwrap(), MULTICAST_NUMBER - 1);
        assert_eq!(numbered.number(10).unwrap(), 2);
        numbered.last.store(first - 1, Ordering::Relaxed);
        assert_eq!(numbered.number(10).unwrap(), first + 1);
    }

    #[test]
    fn numbers_beyond_the_limit_are_refused() {
        let numbered = Numbered::new();
        for _ in 0..3 {
            let number = numbered.number(3).unwrap();
            numbered.enter(number, ());
        }
        assert_eq!(numbered.number(3), Err(Errno::NO_MEMORY));
        let (&number, ()) = numbered.entries.read().unwrap().iter().next().unwrap();
        assert_eq!(numbered.find(number, |()| Some(number)), Some(number));
        numbered.leave(number);
        assert_eq!(numbered.find(number, |()| Some(number)), None);
        assert!(numbered.number(3).is_ok());
    }
}
