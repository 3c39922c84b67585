//! Drives a queue pair and its memory slots: posts requests and counts their completions.

use anyhow::Result;
use sideway::ibverbs::queue_pair::PostSendGuard;
use sideway::ibverbs::work_request::WorkRequestFlags;

use crate::list_queue::{ListQueue, Signals};
use crate::request::{Memory, Request, Slot};

/// Small messages use slots within this number of bytes in turn. A larger message always uses the same slot. perftest
/// does the same, so the figures of both programs can be compared.
const ROTATION: u64 = 4096;
/// Alignment of messages.
const ALIGNMENT: u64 = 64;

/// Returns the offsets of the slots for messages of `size` bytes from the first slot. With `is_one`, there is only one
/// slot.
pub fn slot_offsets(size: u64, is_one: bool) -> impl Iterator<Item = u64> {
    let step = size.max(ALIGNMENT).next_multiple_of(ALIGNMENT);
    let count = if size <= ROTATION / 2 && !is_one { ROTATION / step } else { 1 };
    (0..count).map(move |at| at * step)
}

/// The slots for the messages of a queue pair, which are used in turn.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    slots: Box<[Slot]>,
    next: usize,
}

impl Places {
    /// Creates slots for messages of `size` bytes. `local` and `remote` are the addresses of the first slot.
    pub(crate) fn new(size: u64, local: u64, remote: u64) -> Self {
        let slots = slot_offsets(size, false).map(|at| Slot { local: local + at, remote: remote + at }).collect();
        Self { slots, next: 0 }
    }

    /// Creates a single slot.
    pub(crate) fn one(local: u64, remote: u64) -> Self {
        Self { slots: Box::new([Slot { local, remote }]), next: 0 }
    }

    /// Whether all slots are used equally often if a list of `length` requests is posted many times and its requests
    /// always use the same slots.
    fn divide(&self, length: u32) -> bool {
        (length as usize).is_multiple_of(self.slots.len())
    }

    /// Returns the next slot.
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

/// How a queue pair posts its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posting {
    /// One in `moderation` requests is signaled.
    pub(crate) moderation: u32,
    /// Number of requests in the list that is built once, if the queue supports lists. With 0, each request is built
    /// when it is posted.
    pub(crate) list: u32,
    /// Whether the messages use all slots in turn. Otherwise, if a list has two or more requests, each of them always
    /// uses the same slot, as in perftest.
    pub(crate) visits_all: bool,
}

/// A queue pair that sends, as the loops use it.
pub(crate) trait Drive {
    /// Returns the number of requests that were posted.
    fn posted(&self) -> u64;

    /// Returns the number of requests that are in flight, as far as is known.
    fn in_flight(&self) -> u64;

    /// Whether the last posted request is signaled.
    fn is_last_signaled(&self) -> bool;

    /// Posts the list as often as `room` has space for it. Returns the number of requests posted. Does nothing if the
    /// requests of the list change their slots, or if any request except the last is signaled.
    fn post_lists(&mut self, room: u64) -> Result<u64>;

    /// Posts `count` requests together. With `is_end`, the last request is signaled in any case.
    fn post(&mut self, count: u32, is_end: bool) -> Result<()>;

    /// Counts the request with this `wr_id` as completed. If requests complete in order, also counts all earlier
    /// requests. Returns how many requests were counted, which is 0 if no request has this `wr_id`.
    fn finish(&mut self, wr_id: u64) -> u64;
}

/// A queue pair of any type. Loops for this type serve the operations whose own cost per message matters less.
pub(crate) type AnyDriver<'q> = Box<dyn Drive + 'q>;

impl Drive for AnyDriver<'_> {
    fn posted(&self) -> u64 {
        (**self).posted()
    }

    fn in_flight(&self) -> u64 {
        (**self).in_flight()
    }

    fn is_last_signaled(&self) -> bool {
        (**self).is_last_signaled()
    }

    fn post_lists(&mut self, room: u64) -> Result<u64> {
        (**self).post_lists(room)
    }

    fn post(&mut self, count: u32, is_end: bool) -> Result<()> {
        (**self).post(count, is_end)
    }

    fn finish(&mut self, wr_id: u64) -> u64 {
        (**self).finish(wr_id)
    }
}

/// A queue pair that sends, together with its requests and memory slots.
#[derive(Debug)]
pub(crate) struct QpDriver<'q, S: ListQueue, R> {
    send: &'q mut S,
    request: &'q R,
    list: Option<S::List<'q>>,
    /// Number of requests in the list.
    length: u32,
    /// Whether the requests of the list change to other slots before each post.
    moves: bool,
    memory: Memory,
    places: Places,
    /// The number of the queue pair, in the upper half of a `wr_id`.
    number: u64,
    /// One in `moderation` requests is signaled.
    moderation: u32,
    until_signal: u32,
    /// Number of requests that were posted, and number of requests that are known to have completed.
    posted: u64,
    done: u64,
}

/// Returns which requests of the next list are signaled.
macro_rules! signals {
    ($qp:expr) => {
        Signals { first: $qp.until_signal, every: $qp.moderation, before: $qp.number | $qp.posted & 0xffff_ffff }
    };
}

impl<'q, S: ListQueue, R: Request<Service = S::Service>> QpDriver<'q, S, R> {
    /// # Safety
    ///
    /// The memory of all slots must meet the requirements of [`Request::build`] while requests of the queue pair are in
    /// flight.
    pub(crate) unsafe fn new(
        send: &'q mut S,
        request: &'q R,
        memory: Memory,
        places: Places,
        number: u32,
        Posting { moderation, list: length, visits_all }: Posting,
    ) -> Result<Self> {
        let (number, moderation) = (u64::from(number) << 32, moderation.max(1));
        let moves = !places.divide(length) && (length == 1 || visits_all);
        // A prepared list copies inline data when it is built. The requests of such a list could therefore not use
        // other addresses later, nor send contents that are written later.
        let list = if length == 0 || memory.is_inline {
            None
        } else {
            let mut slots = places.clone();
            // SAFETY: the caller guarantees that the memory of all slots meets the requirements.
            unsafe { send.keep(request, &memory, (0..length).map(|_| slots.next()), number)? }
        };
        let until_signal = moderation;
        let (posted, done) = (0, 0);
        Ok(Self { send, request, list, length, moves, memory, places, number, moderation, until_signal, posted, done })
    }

    #[inline(never)]
    fn build_and_post(&mut self, count: u32, is_end: bool) -> Result<()> {
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
            // SAFETY: the caller of `new` guarantees that the memory of all slots meets the requirements.
            unsafe { self.request.build(batch.construct_wr(wr_id, flags), &self.memory, slot) };
        }
        Ok(batch.post()?)
    }
}

impl<S: ListQueue, R: Request<Service = S::Service>> Drive for QpDriver<'_, S, R> {
    #[inline]
    fn posted(&self) -> u64 {
        self.posted
    }

    #[inline]
    fn in_flight(&self) -> u64 {
        self.posted.saturating_sub(self.done)
    }

    fn is_last_signaled(&self) -> bool {
        self.until_signal == self.moderation
    }

    #[inline(always)]
    fn post_lists(&mut self, room: u64) -> Result<u64> {
        match &mut self.list {
            Some(list) if !self.moves => {
                // SAFETY: the caller of `new` guarantees that the memory of all slots meets the requirements.
                let count = unsafe { self.send.post_lists(list, signals!(self), room)? };
                self.posted += count;
                Ok(count)
            }
            _ => Ok(0),
        }
    }

    #[inline(always)]
    fn post(&mut self, count: u32, is_end: bool) -> Result<()> {
        match &mut self.list {
            // A prepared list cannot signal its last request in addition, so such a request is built below.
            Some(list) if count == self.length && (!is_end || self.moderation == 1) => {
                if self.moves {
                    // SAFETY: the list was built for this operation, and the caller of `new` guarantees the memory.
                    unsafe { S::move_list::<R>(list, || self.places.next())? };
                }
                let signals = signals!(self);
                self.posted += u64::from(count);
                // SAFETY: the caller of `new` guarantees that the memory of all slots meets the requirements.
                self.until_signal = unsafe { self.send.post_list(list, signals)? };
                Ok(())
            }
            _ => self.build_and_post(count, is_end),
        }
    }

    #[inline]
    fn finish(&mut self, wr_id: u64) -> u64 {
        // If requests complete in any order, a completion covers only its own request.
        let more =
            if R::IS_ORDERED { newly_done(wr_id, self.done, self.posted) } else { one_done(self.done, self.posted) };
        self.done += more;
        more
    }
}

/// Returns how many more requests have completed now that the request with this `wr_id` has completed.
#[inline]
fn newly_done(wr_id: u64, done: u64, posted: u64) -> u64 {
    // Compares the lower halves of the counts. Fewer than 2^32 requests are in flight, so this is not ambiguous.
    let more = u64::from((wr_id as u32).wrapping_sub(done as u32));
    if more > posted.saturating_sub(done) { 0 } else { more }
}

/// Returns 1 for one more completed request, or 0 if all posted requests have already completed.
#[inline]
fn one_done(done: u64, posted: u64) -> u64 {
    u64::from(done < posted)
}

/// Returns the index of the queue pair among those of its thread.
#[inline]
pub(crate) fn qp_index(wr_id: u64) -> usize {
    (wr_id >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_wr_id_counts_nothing() {
        assert_eq!(newly_done(7, 4, 9), 3);
        assert_eq!(newly_done(5 << 32 | 9, 4, 9), 5);
        // The count continues when the number in the `wr_id` overflows.
        assert_eq!(newly_done(1, 0xffff_fffe, 0x1_0000_0005), 3);
        for wr_id in [3, 10, u64::MAX] {
            assert_eq!(newly_done(wr_id, 4, 9), 0, "{wr_id}");
        }
    }

    #[test]
    fn unordered_completion_counts_one() {
        // If the third of four requests completes first, the first two are still in flight.
        assert_eq!([0, 1, 2, 3].map(|done| one_done(done, 4)), [1; 4]);
        assert_eq!(one_done(4, 4), 0);
    }

    #[test]
    fn small_messages_rotate_in_a_page_and_large_ones_do_not() {
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
