//! The state of a receive queue that its lock protects.

use std::collections::VecDeque;
use std::ptr;

use crate::srq::ReceiveWork;
use crate::sys::cpu;
use crate::sys::errno::Errno;

/// How many bytes of the next receive are prefetched, which are enough for a short message.
const PREFETCHED: usize = 128;

/// The posted receives, and the vectors of completed ones for reuse.
#[derive(Debug)]
pub(super) struct Ring {
    waiting: VecDeque<ReceiveWork>,
    /// Completed receives with empty vectors.
    spare: Vec<ReceiveWork>,
    capacity: u32,
    /// The limit below which the event is raised. Zero disarms the event.
    limit: u32,
}

impl Ring {
    pub(super) fn new(capacity: u32) -> Self {
        Self { waiting: VecDeque::new(), spare: Vec::new(), capacity, limit: 0 }
    }

    pub(super) fn post(&mut self, fill: impl FnOnce(&mut ReceiveWork) -> Result<(), Errno>) -> Result<(), Errno> {
        if self.waiting.len() >= self.capacity as usize {
            return Err(Errno::NO_MEMORY);
        }
        let mut work = self.spare.pop().unwrap_or_default();
        let filled = fill(&mut work);
        match filled {
            Ok(()) => self.waiting.push_back(work),
            Err(_) => self.recycle(work),
        }
        filled
    }

    /// Takes the oldest receive, and prefetches the memory of the next one: in a long queue, no message has used it for
    /// some time.
    pub(super) fn take(&mut self) -> Option<ReceiveWork> {
        let work = self.waiting.pop_front();
        if let Some(piece) = self.waiting.front().and_then(|next| next.pieces.first()) {
            cpu::prefetch(ptr::without_provenance::<u8>(piece.address as usize), PREFETCHED);
        }
        work
    }

    /// Returns an unused receive. If another receive was posted in the meantime, the queue may exceed its capacity by
    /// one.
    pub(super) fn give_back(&mut self, work: ReceiveWork) {
        self.waiting.push_front(work);
    }

    pub(super) fn recycle(&mut self, mut work: ReceiveWork) {
        if self.waiting.len() + self.spare.len() < self.capacity as usize {
            work.pieces.clear();
            self.spare.push(work);
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns whether the queue contains fewer receives than the limit. If it does, the limit is disarmed.
    pub(super) fn is_below_limit(&mut self) -> bool {
        let is_below = self.waiting.len() < self.limit as usize;
        if is_below {
            self.limit = 0;
        }
        is_below
    }

    pub(super) fn change(&mut self, capacity: Option<u32>, limit: Option<u32>) -> Result<(), Errno> {
        let (capacity, limit) = (capacity.unwrap_or(self.capacity), limit.unwrap_or(self.limit));
        let spare_count = (capacity as usize).checked_sub(self.waiting.len()).ok_or(Errno::INVALID)?;
        if limit > capacity {
            return Err(Errno::INVALID);
        }
        (self.capacity, self.limit) = (capacity, limit);
        self.spare.truncate(spare_count);
        Ok(())
    }
}
