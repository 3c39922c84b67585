//! The requests of a queue that have not completed, in order.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::{ptr, slice};

/// A ring that the posting thread fills and the polling thread empties. If a program posts to a queue pair from several
/// threads, two requests of the same moment may be in another order than in the device.
#[derive(Debug)]
pub(super) struct Flight {
    entries: AtomicPtr<Entry>,
    /// The number of entries, a power of two, less one.
    mask: AtomicU64,
    /// The number of all requests that were posted, and of those that are done.
    posted: AtomicU64,
    done: AtomicU64,
}

#[derive(Debug, Default)]
struct Entry {
    wr_id: AtomicU64,
    at: AtomicU64,
    what: AtomicU64,
}

/// A request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) wr_id: u64,
    /// When it was posted.
    pub(super) at: u64,
    pub(super) opcode: u8,
    pub(super) is_signaled: bool,
    pub(super) bytes: u64,
}

/// How many of the last requests are searched.
const SEARCHED: u64 = 1 << 14;

impl Flight {
    pub(super) const fn new() -> Self {
        Self {
            entries: AtomicPtr::new(ptr::null_mut()),
            mask: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    /// Empties the ring, with space for `requests`.
    pub(super) fn start(&self, requests: u32) {
        let count = u64::from(requests.clamp(1, 1 << 20)).next_power_of_two();
        self.posted.store(0, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        if self.entries.load(Ordering::Relaxed).is_null() || self.mask.load(Ordering::Relaxed) + 1 < count {
            // Leaked, because another thread may still read the ring of the queue pair that had this record.
            let entries: Box<[Entry]> = (0..count).map(|_| Entry::default()).collect();
            self.entries.store(Box::leak(entries).as_mut_ptr(), Ordering::Release);
            self.mask.store(count - 1, Ordering::Release);
        }
    }

    fn entry(&self, index: u64) -> Option<&Entry> {
        let mask = self.mask.load(Ordering::Acquire);
        let entries = self.entries.load(Ordering::Acquire);
        if entries.is_null() {
            return None;
        }
        // SAFETY: `start` stores the pointer of a larger array before its mask, so the array has at least as many entries
        // as the mask read before; arrays are never freed.
        let entries = unsafe { slice::from_raw_parts(entries, mask as usize + 1) };
        entries.get((index & mask) as usize)
    }

    /// Adds a request before the device has it.
    #[inline]
    pub(super) fn push(&self, request: Request) {
        let index = self.posted.fetch_add(1, Ordering::AcqRel);
        if let Some(entry) = self.entry(index) {
            entry.wr_id.store(request.wr_id, Ordering::Relaxed);
            entry.at.store(request.at, Ordering::Relaxed);
            let what = request.bytes << 9 | u64::from(request.opcode) << 1 | u64::from(request.is_signaled);
            entry.what.store(what, Ordering::Release);
        }
    }

    /// Takes the last `count` requests back, which the device refused.
    pub(super) fn take_back(&self, count: u64) {
        self.posted.fetch_sub(count, Ordering::AcqRel);
    }

    /// The number of requests in flight.
    pub(super) fn len(&self) -> u64 {
        self.posted.load(Ordering::Acquire).saturating_sub(self.done.load(Ordering::Acquire))
    }

    fn at(&self, index: u64) -> Option<Request> {
        let entry = self.entry(index)?;
        let what = entry.what.load(Ordering::Acquire);
        Some(Request {
            wr_id: entry.wr_id.load(Ordering::Relaxed),
            at: entry.at.load(Ordering::Relaxed),
            opcode: (what >> 1 & 0xff) as u8,
            is_signaled: what & 1 != 0,
            bytes: what >> 9,
        })
    }

    /// Whether the next request, signaled or not, has this `wr_id`.
    pub(super) fn is_next(&self, wr_id: u64) -> bool {
        let (posted, done) = (self.posted.load(Ordering::Acquire), self.done.load(Ordering::Acquire));
        done < posted && self.at(done).is_some_and(|request| request.wr_id == wr_id)
    }

    /// The requests in flight that are searched.
    fn searched(&self) -> impl Iterator<Item = (u64, Request)> {
        let posted = self.posted.load(Ordering::Acquire);
        // Older ones are overwritten. An unknown request must not cost a search through a large queue for each completion.
        let oldest = posted.saturating_sub((self.mask.load(Ordering::Acquire) + 1).min(SEARCHED));
        let done = self.done.load(Ordering::Acquire).max(oldest);
        (done..posted).filter_map(|index| Some((index, self.at(index)?)))
    }

    /// Whether a request that reports its success is in flight.
    pub(super) fn has_signaled(&self) -> bool {
        self.searched().any(|(_, request)| request.is_signaled)
    }

    /// Whether a request with this `wr_id` is in flight.
    pub(super) fn has(&self, wr_id: u64) -> bool {
        self.searched().any(|(_, request)| request.wr_id == wr_id)
    }

    /// Whether there was none.
    pub(super) fn is_unused(&self) -> bool {
        self.posted.load(Ordering::Acquire) == 0
    }

    /// The request of a completion; the requests before it are done too. A success is that of the next signaled request. A
    /// failure is that of the next request with this `wr_id`, signaled or not.
    pub(super) fn complete(&self, wr_id: u64, is_success: bool) -> Option<Request> {
        let next = self.searched().find(|(_, request)| request.is_signaled).filter(|_| is_success);
        let found = next.filter(|(_, request)| request.wr_id == wr_id);
        let (index, request) = found.or_else(|| self.searched().find(|(_, request)| request.wr_id == wr_id))?;
        self.done.store(index + 1, Ordering::Release);
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(wr_id: u64, is_signaled: bool) -> Request {
        Request { wr_id, at: wr_id * 10, opcode: 2, is_signaled, bytes: 1 << 40 }
    }

    fn flight(requests: &[Request]) -> Flight {
        let flight = Flight::new();
        flight.start(8);
        requests.iter().for_each(|request| flight.push(*request));
        flight
    }

    #[test]
    fn success_is_that_of_the_next_signaled_request() {
        let flight = flight(&[request(7, false), request(7, true), request(7, true)]);
        assert_eq!(flight.complete(7, true), Some(request(7, true)));
        assert_eq!(flight.len(), 1);
        assert_eq!(flight.complete(7, true), Some(request(7, true)));
        assert_eq!(flight.complete(7, true), None);
    }

    #[test]
    fn failure_may_be_that_of_an_unsignaled_request() {
        let flight = flight(&[request(1, false), request(2, false), request(3, true)]);
        assert_eq!(flight.complete(2, false), Some(request(2, false)));
        assert_eq!(flight.complete(3, false), Some(request(3, true)));
        assert_eq!(flight.len(), 0);
    }

    #[test]
    fn refused_requests_leave_and_the_ring_wraps() {
        let flight = flight(&[request(1, true), request(2, true)]);
        flight.take_back(1);
        assert_eq!(flight.len(), 1);
        assert_eq!(flight.complete(1, true), Some(request(1, true)));
        for round in 0..100 {
            flight.push(request(round, true));
            assert_eq!(flight.complete(round, true), Some(request(round, true)));
        }
    }

    #[test]
    fn unknown_request_is_not_found() {
        let flight = flight(&[request(1, true)]);
        assert_eq!(flight.complete(9, true), None);
        assert_eq!(flight.len(), 1);
    }
}
