//! The table of keys, and its free slots.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, OnceLock};

use super::slot::{Closed, Slot};
use crate::sys::unpoisoned;
use crate::wire::limits::{MAX_MR, MAX_MW};

/// The number of slots that are allocated together. Slots are never freed.
const CHUNK: u32 = 256;
/// The number of chunks. It is smaller for Miri, which visits all chunks for each reference to the table.
const CHUNKS: usize = if cfg!(miri) { 16 } else { ((MAX_MR + MAX_MW) / CHUNK + 1) as usize };
/// The minimum number of free slots before a slot is reused. It ensures that an old key stays invalid for a long time.
const REST: usize = 64;

/// All slots, by their index.
pub(super) struct Table {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    free: Mutex<Free>,
}

struct Free {
    resting: VecDeque<Closed>,
    /// The lowest index that was never used; 0 is reserved.
    next: u32,
}

impl Table {
    pub(super) const fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Mutex::new(Free { resting: VecDeque::new(), next: 1 }),
        }
    }

    #[inline]
    pub(super) fn find(&'static self, index: u32) -> Option<&'static Slot> {
        let chunk = self.chunks.get((index / CHUNK) as usize)?.get()?;
        chunk.get((index % CHUNK) as usize)
    }

    /// Takes a free slot, and gives it a key that differs from its last one.
    pub(super) fn take(&'static self) -> Option<Closed> {
        let mut free = unpoisoned(self.free.lock());
        let mut closed = match free.resting.len() {
            REST.. => free.resting.pop_front()?,
            _ => match self.fresh(free.next) {
                Some(closed) => {
                    free.next += 1;
                    closed
                }
                None => free.resting.pop_front()?,
            },
        };
        drop(free);
        closed.renew();
        Some(closed)
    }

    fn fresh(&'static self, index: u32) -> Option<Closed> {
        let start = index / CHUNK * CHUNK;
        let chunk = self.chunks.get((index / CHUNK) as usize)?;
        let chunk = chunk.get_or_init(|| (start..start + CHUNK).map(Slot::new).collect());
        let slot = chunk.get((index % CHUNK) as usize)?;
        // SAFETY: the only caller increments the index under the lock.
        Some(unsafe { slot.first() })
    }

    pub(super) fn give(&self, closed: Closed) {
        unpoisoned(self.free.lock()).resting.push_back(closed);
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}
