//! The requests of the send queue. A slot and the memory of its vectors are reused for later requests.

use crate::qp::send::work::SendWork;

/// A queue of requests, whose memory grows with the largest number of requests that it has contained.
#[derive(Debug, Default)]
pub(in crate::qp) struct Ring {
    places: Vec<SendWork>,
    /// The slot of the oldest request.
    head: usize,
    length: usize,
}

impl Ring {
    pub(in crate::qp) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(in crate::qp) fn len(&self) -> usize {
        self.length
    }

    /// Adds a request with cleared fields.
    pub(in crate::qp) fn push(&mut self) -> &mut SendWork {
        if self.length == self.places.len() {
            self.grow();
        }
        let place = self.place(self.length);
        self.length += 1;
        let work = &mut self.places[place];
        work.clear();
        work
    }

    /// Removes the youngest `count` requests.
    pub(in crate::qp) fn truncate(&mut self, count: usize) {
        self.length = self.length.saturating_sub(count);
    }

    pub(in crate::qp) fn front(&self) -> Option<&SendWork> {
        (self.length > 0).then(|| &self.places[self.head])
    }

    /// Returns the request that is `index` places after the oldest one.
    #[inline]
    pub(in crate::qp) fn get(&self, index: usize) -> Option<&SendWork> {
        (index < self.length).then(|| &self.places[self.place(index)])
    }

    pub(in crate::qp) fn pop(&mut self) {
        if self.length > 0 {
            // The references that the request contains are dropped now, not when the slot is reused.
            self.places[self.head].bind = None;
            self.length -= 1;
            // If the queue is empty, it starts over at its first slot, which is probably in the cache.
            self.head = if self.length == 0 { 0 } else { self.place(1) };
        }
    }

    pub(in crate::qp) fn clear(&mut self) {
        while !self.is_empty() {
            self.pop();
        }
    }

    fn place(&self, index: usize) -> usize {
        let place = self.head + index;
        if place >= self.places.len() { place - self.places.len() } else { place }
    }

    fn grow(&mut self) {
        self.places.rotate_left(self.head);
        self.head = 0;
        let capacity = (self.places.len() * 2).max(8);
        self.places.resize_with(capacity, SendWork::default);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_queue_keeps_its_order() {
        let mut ring = Ring::default();
        let (mut next, mut oldest) = (0, 0);
        for round in 0..40 {
            for _ in 0..round % 7 + 1 {
                ring.push().wr_id = next;
                next += 1;
            }
            for _ in 0..round % 5 {
                if let Some(work) = ring.front() {
                    assert_eq!(work.wr_id, oldest);
                    oldest += 1;
                    ring.pop();
                }
            }
        }
        while let Some(work) = ring.front() {
            assert_eq!(work.wr_id, oldest);
            oldest += 1;
            ring.pop();
        }
        assert_eq!(oldest, next);
        assert!(ring.is_empty());
    }

    #[test]
    fn truncate_removes_the_youngest() {
        let mut ring = Ring::default();
        for wr_id in 0..3 {
            ring.push().wr_id = wr_id;
        }
        ring.truncate(2);
        ring.push().wr_id = 7;
        assert_eq!(ring.front().map(|work| work.wr_id), Some(0));
        ring.pop();
        assert_eq!(ring.front().map(|work| work.wr_id), Some(7));
        ring.clear();
        assert!(ring.front().is_none());
        ring.pop();
        ring.truncate(1);
        assert!(ring.is_empty());
    }

    #[test]
    fn reused_slot_is_cleared_and_keeps_its_memory() {
        let mut ring = Ring::default();
        let work = ring.push();
        work.is_signaled = true;
        work.inline.reserve(100);
        ring.pop();
        // The queue is empty, so the next request uses the same slot.
        let work = ring.push();
        assert!(!work.is_signaled);
        assert!(work.inline.capacity() >= 100);
    }
}
