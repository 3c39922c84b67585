//! The map from queue pair numbers to links.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from queue pair numbers, which the device chooses, to indices of links. The backend uses it to find the link
/// of each received message.
#[derive(Debug)]
pub(super) struct NumberMap {
    /// A cache: for each value of the lowest bits, the link that was added last.
    newest: [(u32, u32); PLACES],
    all: HashMap<u32, u32, BuildHasherDefault<Spread>>,
}

const PLACES: usize = 256;
/// An invalid number: valid ones have 24 bits.
const NONE: (u32, u32) = (u32::MAX, 0);

impl Default for NumberMap {
    fn default() -> Self {
        Self { newest: [NONE; PLACES], all: HashMap::default() }
    }
}

impl NumberMap {
    pub(super) fn insert(&mut self, number: u32, index: u32) {
        self.all.insert(number, index);
        self.newest[number as usize % PLACES] = (number, index);
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.all.remove(&number);
        let place = &mut self.newest[number as usize % PLACES];
        if place.0 == number {
            *place = NONE;
        }
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<u32> {
        let (newest, index) = self.newest[number as usize % PLACES];
        if newest == number { Some(index) } else { self.all.get(&number).copied() }
    }
}

/// A hash by multiplication. Peers do not choose the numbers, so it need not resist attacks.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_share_a_place_keep_their_links() {
        let mut map = NumberMap::default();
        let (first, second) = (5, 5 + PLACES as u32);
        map.insert(first, 1);
        map.insert(second, 2);
        assert_eq!((map.get(first), map.get(second), map.get(6)), (Some(1), Some(2), None));
        map.remove(second);
        assert_eq!((map.get(first), map.get(second)), (Some(1), None));
        map.remove(first);
        assert_eq!(map.get(first), None);
    }
}
