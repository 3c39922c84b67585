//! The link of a queue pair.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Indices of links by the numbers of their queue pairs, which the device chooses: looked up for each received message.
#[derive(Debug, Default)]
pub(super) struct NumberMap(HashMap<u32, u32, BuildHasherDefault<Spread>>);

impl NumberMap {
    pub(super) fn insert(&mut self, number: u32, index: u32) {
        self.0.insert(number, index);
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.0.remove(&number);
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<u32> {
        self.0.get(&number).copied()
    }
}

/// A multiplication. Peers do not choose the numbers, so it need not resist them.
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
