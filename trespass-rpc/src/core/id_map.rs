//! Maps whose keys are call numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are call numbers. The credits limit the number of entries, so a peer that chooses colliding numbers
/// gains little.
pub(crate) type IdMap<V> = HashMap<u32, V, BuildHasherDefault<IdHasher>>;

/// Hashes a number by multiplication. This takes a few instructions; the standard hasher needs about a hundred.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(32);
    }

    fn write(&mut self, bytes: &[u8]) {
        // Keys are `u32`; other types are hashed byte by byte.
        bytes.iter().for_each(|byte| self.write_u32(self.0 as u32 ^ u32::from(*byte)));
    }
}
