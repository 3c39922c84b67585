//! A queue pair with its places in memory: posts requests, and counts those that are done.

use anyhow::Result;
use sideway::ibverbs::queue_pair::{PostSendGuard, SendQueue};
use sideway::ibverbs::work_request::WorkRequestFlags;

use super::request::{Memory, Request, Slot};

/// Small messages go through so many bytes in a circle, and larger ones have one place: as perftest has it, so that figures compare.
const CIRCLE: u64 = 4096;
/// Where messages begin.
const GRAIN: u64 = 64;

/// The places of a lane's messages, which come round.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    slots: Box<[Slot]>,
    next: usize,
}

impl Places {
    /// Of messages of `size` bytes, at most so many of them from these addresses on.
    pub(crate) fn new(size: u64, local: u64, remote: u64) -> Self {
        let slots = Self::offsets(size, false).map(|at| Slot { local: local + at, remote: remote + at }).collect();
        Self { slots, next: 0 }
    }

    /// Where they begin.
    pub(crate) fn offsets(size: u64, is_one: bool) -> impl Iterator<Item = u64> {
        let step = size.max(GRAIN).next_multiple_of(GRAIN);
        let count = if size <= CIRCLE / 2 && !is_one { CIRCLE / step } else { 1 };
        (0..count).map(move |at| at * step)
    }

    /// One place.
    pub(crate) fn one(local: u64, remote: u64) -> Self {
        Self { slots: Box::new([Slot { local, remote }]), next: 0 }
    }

    /// The next place.
    #[inline]
    pub(crate) fn next(&mut self) -> Slot {
        let slot = self.slots[self.next];
        self.next += 1;
        if self.next == self.slots.len() {
            self.next = 0;
        }
        slot
    }
}

/// A queue pair that sends.
#[derive(Debug)]
pub(crate) struct QpDriver<'q, S, R> {
    send: &'q mut S,
    request: R,
    memory: Memory,
    places: Places,
    /// The upper half of the numbers of its requests.
    number: u64,
    /// Of so many requests the last is signaled.
    moderation: u32,
    until_signal: u32,
    /// Requests that were posted, and those of them that are known to be done.
    pub(crate) posted: u64,
    pub(crate) done: u64,
}

impl<'q, S: SendQueue, R: Request<Service = S::Service>> QpDriver<'q, S, R> {
    /// # Safety
    ///
    /// The memory at all the places is as [`Request::build`] asks, as long as requests of the lane are under way.
    pub(crate) unsafe fn new(
        send: &'q mut S,
        request: R,
        memory: Memory,
        places: Places,
        number: u32,
        moderation: u32,
    ) -> Self {
        let (number, moderation) = (u64::from(number) << 32, moderation.max(1));
        Self { send, request, memory, places, number, moderation, until_signal: moderation, posted: 0, done: 0 }
    }

    /// Requests that are under way, as far as it is known.
    #[inline]
    pub(crate) fn under_way(&self) -> u64 {
        self.posted.saturating_sub(self.done)
    }

    /// Posts so many requests together; the last of them is signaled where it is the last of all.
    #[inline]
    pub(crate) fn post(&mut self, count: u32, is_end: bool) -> Result<()> {
        let mut batch = self.send.start_post_send();
        for left in (0..count).rev() {
            self.posted += 1;
            self.until_signal -= 1;
            let flags = if self.until_signal == 0 || is_end && left == 0 {
                self.until_signal = self.moderation;
                WorkRequestFlags::Signaled
            } else {
                WorkRequestFlags::empty()
            };
            let wr_id = self.number | self.posted & 0xffff_ffff;
            let slot = self.places.next();
            // SAFETY: the promise of `new`.
            unsafe { self.request.build(batch.construct_wr(wr_id, flags), &self.memory, slot) };
        }
        Ok(batch.post()?)
    }

    /// A request of this number is done, and all before it where they have an order; how many that were. A number that no request has is of
    /// none.
    #[inline]
    pub(crate) fn finish(&mut self, wr_id: u64) -> u64 {
        // Each tells of itself alone where they have no order.
        let more =
            if R::IS_ORDERED { newly_done(wr_id, self.done, self.posted) } else { one_done(self.done, self.posted) };
        self.done += more;
        more
    }

    /// Whether what was posted last will be told of.
    pub(crate) fn is_told_of_last(&self) -> bool {
        self.until_signal == self.moderation
    }
}

/// How many requests are done that were not, now that the one of this number is.
#[inline]
fn newly_done(wr_id: u64, done: u64, posted: u64) -> u64 {
    // The lower half of the count, which is never 2^32 ahead.
    let more = u64::from((wr_id as u32).wrapping_sub(done as u32));
    if more > posted.saturating_sub(done) { 0 } else { more }
}

/// How many requests are done that were not, now that another one is: more than were posted are none.
#[inline]
fn one_done(done: u64, posted: u64) -> u64 {
    u64::from(done < posted)
}

/// Which lane a request was of.
#[inline]
pub(crate) fn lane_of(wr_id: u64) -> usize {
    (wr_id >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_no_request_has_counts_for_nothing() {
        assert_eq!(newly_done(7, 4, 9), 3);
        assert_eq!(newly_done(5 << 32 | 9, 4, 9), 5);
        // The count goes on where the number of a request begins anew.
        assert_eq!(newly_done(1, 0xffff_fffe, 0x1_0000_0005), 3);
        for wr_id in [3, 10, u64::MAX] {
            assert_eq!(newly_done(wr_id, 4, 9), 0, "{wr_id}");
        }
    }

    #[test]
    fn without_an_order_each_counts_for_itself() {
        // The third of four comes first: it says nothing of the two before it.
        assert_eq!([0, 1, 2, 3].map(|done| one_done(done, 4)), [1; 4]);
        assert_eq!(one_done(4, 4), 0);
    }

    #[test]
    fn small_messages_go_round_in_a_page_and_large_ones_stay() {
        let mut places = Places::new(2, 0x1000, 0x9000);
        let first: Vec<_> = (0..65).map(|_| places.next()).collect();
        assert_eq!(first[1], Slot { local: 0x1040, remote: 0x9040 });
        assert_eq!(first[63], Slot { local: 0x1fc0, remote: 0x9fc0 });
        assert_eq!(first[64], first[0]);
        let mut places = Places::new(100, 0, 0);
        assert_eq!([places.next().local, places.next().local], [0, 128]);
        for size in [2049, 1 << 20] {
            let mut places = Places::new(size, 64, 0);
            assert_eq!([places.next().local, places.next().local], [64, 64]);
        }
        let mut places = Places::new(2048, 0, 0);
        assert_eq!([places.next().local, places.next().local, places.next().local], [0, 2048, 0]);
    }
}
