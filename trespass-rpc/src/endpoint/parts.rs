//! The attachments and targets of calls: their memory, the keys to it, and the bytes that are sent in frames.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;
use trespass::{OpenRegion, Region, RegionKey};

use super::{Command, Link, Reply};
use crate::memory::Memory;
use crate::wire::{Bulk, BulkKind};

/// For each attachment and target: the memory for which a key is requested, and whether the peer may write to it.
pub(crate) type Parts = SmallVec<[Option<(Region, Range<usize>, bool)>; 2]>;

/// An attachment or a target of a call of this side.
#[derive(Debug)]
pub(crate) struct Local {
    /// The memory with the bytes; `None` if the request itself contains them.
    pub(crate) memory: Option<(Memory, Range<usize>)>,
    pub(crate) is_target: bool,
    length: u64,
}

impl Local {
    pub(crate) fn new(memory: Memory, range: Range<usize>, is_target: bool) -> Self {
        let length = range.len() as u64;
        Self { memory: Some((memory, range)), is_target, length }
    }

    pub(crate) fn inline(length: usize) -> Self {
        Self { memory: None, is_target: false, length: length as u64 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// Returns the access that a key must grant: the region, the range in it, and whether the peer may write.
    pub(crate) fn opens(&self) -> Option<(Region, Range<usize>, bool)> {
        let (memory, range) = self.memory.as_ref().filter(|(_, range)| !range.is_empty())?;
        memory.region().map(|region| (region.clone(), range.clone(), self.is_target))
    }

    /// Returns the descriptor, with the key if one was granted.
    pub(crate) fn describe(&self, key: Option<&RegionKey>) -> Bulk {
        let kind = match (self.memory.is_some(), self.is_target, key.is_some()) {
            (false, ..) => BulkKind::Inline,
            (_, false, true) => BulkKind::Read,
            (_, false, false) => BulkKind::Pull,
            (_, true, true) => BulkKind::Write,
            (_, true, false) => BulkKind::Push,
        };
        let (address, key) = key.map_or((0, 0), RegionKey::parts);
        Bulk { kind, length: self.length, address, key }
    }
}

/// The keys to the memory of a call. Dropping this value revokes the keys; the memory stays allocated until they are
/// invalid.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(super) link: Arc<Link>,
    /// One entry for each requested key. An entry is `None` if the device had no key left.
    pub(super) open: Vec<Option<OpenRegion>>,
}

impl Keys {
    pub(crate) fn get(&self, index: usize) -> Option<RegionKey> {
        self.open.get(index)?.as_ref().map(OpenRegion::key)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let (link, open) = (Arc::clone(&self.link), std::mem::take(&mut self.open));
        let shared = Arc::clone(&self.link.shared);
        shared.command(Command::Revoke { link, open });
    }
}

/// A part of a `Memory` that is sent in frames.
pub(super) struct Job {
    pub(super) id: u32,
    pub(super) index: usize,
    pub(super) offset: u64,
    pub(super) memory: Memory,
    pub(super) rest: Range<usize>,
    /// Completes when all bytes were sent.
    pub(super) done: Option<Reply<()>>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("rest", &self.rest).finish_non_exhaustive()
    }
}

/// The reads of a handler whose bytes the peer sends in frames. The bytes of one read are requested at a time, in the
/// order of the reads.
#[derive(Debug, Default)]
pub(super) struct Reads {
    list: VecDeque<Expected>,
    next: u64,
}

/// The bytes for which a handler waits.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) number: u64,
    pub(super) index: usize,
    pub(super) from: u64,
    pub(super) memory: Memory,
    pub(super) part: Range<usize>,
    pub(super) filled: usize,
    pub(super) state: Expecting,
    /// Whether the handler no longer waits.
    pub(super) is_dropped: bool,
    /// Why the bytes could not be stored: there is no memory for them. The rest of them arrives nevertheless.
    pub(super) failed: Option<io::Error>,
    pub(super) waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expecting {
    /// Other bytes arrive first.
    Later,
    Now,
    Arrived,
    /// The peer no longer has the bytes.
    Gone,
}

impl Reads {
    pub(super) fn add(&mut self, index: usize, from: u64, memory: &Memory, part: Range<usize>) -> u64 {
        let number = self.next;
        self.next += 1;
        let (memory, state) = (memory.clone(), Expecting::Later);
        let (filled, is_dropped, failed, waker) = (0, false, None, None);
        self.list.push_back(Expected { number, index, from, memory, part, filled, state, is_dropped, failed, waker });
        number
    }

    pub(super) fn find(&mut self, number: u64) -> Option<&mut Expected> {
        self.list.iter_mut().find(|expected| expected.number == number)
    }

    /// The read whose bytes arrive now.
    pub(super) fn current(&mut self) -> Option<&mut Expected> {
        self.list.iter_mut().find(|expected| expected.state == Expecting::Now)
    }

    /// Begins the next read if no bytes are outstanding. Returns what to request: the attachment, the offset and the length.
    pub(super) fn begin(&mut self) -> Option<(usize, u64, u64)> {
        if self.current().is_some() {
            return None;
        }
        let next = self.list.iter_mut().find(|expected| expected.state == Expecting::Later)?;
        next.state = Expecting::Now;
        Some((next.index, next.from, next.part.len() as u64))
    }

    /// Removes a read. It may have a waker of the program, so the caller drops it after it has released the lock.
    pub(super) fn remove(&mut self, number: u64) -> Option<Expected> {
        let at = self.list.iter().position(|expected| expected.number == number)?;
        self.list.remove(at)
    }

    /// Ends all waits because the bytes will not arrive; returns the handler's wakers.
    pub(super) fn into_wakers(self) -> impl Iterator<Item = Waker> {
        self.list.into_iter().filter_map(|expected| expected.waker)
    }
}
