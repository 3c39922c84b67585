//! Resources that a worker's connections share: buffers, and the receives for which credits are leased.

use crate::memory::{Buf, Pool};

use super::FLOOR;

/// Number of segments that are taken from the pool at a time.
const AT_ONCE: usize = 16;
/// Number of spare segments that are kept outside the pool.
const SPARE: usize = 256;
/// Number of worker ticks between two checks for idle memory.
const IDLE: u32 = 20;

/// Buffers of a worker.
#[derive(Debug)]
pub(crate) struct Stock {
    pub(crate) pool: Pool,
    pub(crate) ledger: Ledger,
    /// Segments for SENDs, and other buffers that the device no longer uses.
    pub(crate) spare: Vec<Buf>,
    /// Segments to be posted as receives.
    pub(crate) receives: Vec<Buf>,
    /// Whether a connection waits for memory, and must be processed again soon.
    pub(crate) starved: bool,
    /// The number of buffers that peers may write to, and do not use.
    pub(crate) announced: usize,
    /// Whether memory was short since the last tick.
    pub(crate) is_short: bool,
    /// Number of turns that the worker has run.
    pub(crate) turn: u32,
    /// Length of a segment, in bytes, with the header.
    segment: usize,
    trims: u32,
}

impl Stock {
    pub(crate) fn new(pool: Pool) -> Stock {
        let segment = pool.segment_length();
        Stock {
            pool,
            ledger: Ledger::default(),
            spare: Vec::new(),
            receives: Vec::new(),
            starved: false,
            announced: 0,
            is_short: false,
            turn: 1,
            segment,
            trims: 0,
        }
    }

    /// Takes an empty segment. Returns `None` if the pool is exhausted.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Buf> {
        if self.spare.is_empty() {
            self.refill();
        }
        let mut segment = self.spare.pop()?;
        segment.clear();
        Some(segment)
    }

    /// Takes a segment that the program may keep. One is left to send with.
    #[inline]
    pub(crate) fn take_surplus(&mut self) -> Option<Buf> {
        if self.spare.len() < 2 && !self.refill_surplus() { None } else { self.take() }
    }

    #[inline(never)]
    fn refill_surplus(&mut self) -> bool {
        self.pool.segments(AT_ONCE, &mut self.spare);
        if self.spare.len() < 2 {
            self.spare.extend(self.pool.segment());
        }
        self.spare.len() >= 2
    }

    /// Takes a few segments from the pool.
    #[inline(never)]
    fn refill(&mut self) {
        self.pool.segments(AT_ONCE, &mut self.spare);
        self.starved |= self.spare.is_empty();
        self.is_short |= self.spare.is_empty();
    }

    /// Whether `take` has a segment.
    #[inline]
    pub(crate) fn has_segment(&mut self) -> bool {
        self.take().map(|segment| self.spare.push(segment)).is_some()
    }

    /// Whether no buffer is in use that will return to the pool, so that waiting for one makes no sense. Receives do not
    /// return, and announced buffers only if their peers agree.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.pool.outstanding() <= self.ledger.total as usize + self.spare.len() + self.announced
    }

    /// Whether `take` has two segments. If it has fewer, a connection waits for memory.
    pub(crate) fn has_surplus(&mut self) -> bool {
        let has = self.spare.len() >= 2 || self.refill_surplus();
        self.starved |= !has;
        self.is_short |= !has;
        has
    }

    /// Takes back a buffer that the device no longer uses. A buffer whose size is not that of a segment returns to its
    /// pool.
    #[inline]
    pub(crate) fn give(&mut self, buffer: Buf) {
        if buffer.is_segment(self.segment) {
            self.spare.push(buffer);
        }
    }

    /// Returns surplus segments to the pool, and memory that was idle for a while to the system.
    pub(crate) fn trim(&mut self) {
        self.is_short = false;
        self.spare.truncate(SPARE);
        if self.ledger.leased != 0 {
            // The segment that `add_receives` has left must not return to the system.
            self.has_segment();
        }
        self.trims = self.trims.wrapping_add(1);
        if self.trims.is_multiple_of(IDLE) {
            self.pool.give_back_idle();
        }
    }

    /// Takes a received segment back so that it can be posted again.
    #[inline]
    pub(crate) fn free(&mut self, mut segment: Buf) {
        segment.resize(self.segment);
        self.receives.push(segment);
    }

    /// Adds up to `count` receives. Returns for how many of them the pool had memory. A segment is left to send with,
    /// because receives never return.
    pub(crate) fn add_receives(&mut self, count: u32) -> u32 {
        if !self.has_segment() {
            return 0;
        }
        let mut added = 0;
        while added < count
            && let Some(segment) = self.pool.segment()
        {
            self.receives.push(segment);
            added += 1;
        }
        self.is_short |= added < count;
        self.ledger.total += added;
        added
    }
}

/// The number of receives, and how many of them are leased to peers as credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) total: u32,
    pub(crate) leased: u32,
}

impl Ledger {
    /// Leases the minimum number of credits to a new connection. Returns false if not enough receives are free.
    pub(crate) fn open(&mut self) -> bool {
        let enough = self.total - self.leased >= u32::from(FLOOR);
        if enough {
            self.leased += u32::from(FLOOR);
        }
        enough
    }

    /// Leases up to `wanted` more credits, and returns their number.
    pub(crate) fn lease(&mut self, wanted: u16) -> u16 {
        let granted = (self.total - self.leased).min(u32::from(wanted));
        self.leased += granted;
        u16::try_from(granted).unwrap_or(wanted)
    }

    pub(crate) fn release(&mut self, credits: u16) {
        self.leased -= u32::from(credits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_never_leases_more_credits_than_receives() {
        let mut ledger = Ledger { total: 12, leased: 0 };
        assert!(ledger.open());
        assert!(ledger.open());
        assert!(!ledger.open());
        assert_eq!(ledger.lease(9), 2);
        assert_eq!(ledger.lease(1), 0);
        ledger.release(7);
        assert_eq!(ledger, Ledger { total: 12, leased: 5 });
    }

    /// A received segment goes to the program, and a spare one replaces it. The program sends before it drops its own.
    #[test]
    fn receives_leave_a_segment_to_send_with() {
        let mut stock = Stock::new(Pool::on_heap(4096, 512 << 10));
        for _ in 0..1_000 {
            stock.add_receives(5);
            let replacement = stock.take_surplus();
            let received = replacement.and_then(|replacement| stock.receives.pop().map(|own| (own, replacement)));
            let received = received.map(|(own, replacement)| {
                stock.receives.push(replacement);
                own
            });
            let sent = stock.take().unwrap();
            drop(received);
            stock.give(sent);
        }
        stock.ledger.open();
        (0..3 * IDLE).for_each(|_| stock.trim());
        assert!(stock.take().is_some());
    }

    #[test]
    fn receives_are_limited_by_the_memory_of_the_pool() {
        let mut stock = Stock::new(Pool::on_heap(4096, 2 << 20));
        let added = stock.add_receives(1_000);
        assert!((400..=512).contains(&added), "{added}");
        assert_eq!(stock.ledger.total, added);
        stock.receives.clear();
        stock.spare.clear();
        assert_eq!(stock.pool.outstanding(), 0);
    }
}
