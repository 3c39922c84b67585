//! Lists of requests for the basic verbs: built in place, linked once, posted without an allocation.

use std::{fmt, ptr};

use libc::c_int;
use rdma_mummy_sys::{ibv_ops_wr, ibv_recv_wr, ibv_send_wr, ibv_sge};

use super::{FailedRequest, PostError, Refusal, RefusalReason, Ring};
use crate::error::{Errno, VerbError};
use crate::ffi::errno_of;

/// More requests of a queue, or entries of a request, than any driver takes. The requests are held in memory here too.
pub(crate) const MOST_REQUESTS: u32 = c_int::MAX as u32 >> 8;

/// A request that can stand in a list: `ibv_send_wr`, `ibv_recv_wr` or `ibv_ops_wr`.
pub(crate) trait ListedRequest: Copy {
    /// A request with nothing set.
    fn zeroed() -> Self;

    /// Its number.
    fn wr_id(&self) -> u64;

    /// The request behind it.
    fn next(&mut self) -> &mut *mut Self;

    /// Where its entries stand.
    fn sg_list(&mut self) -> &mut *mut ibv_sge;
}

macro_rules! listed_request {
    ($($Request:ty: $($list:ident).+),+) => {$(
        impl ListedRequest for $Request {
            fn zeroed() -> Self {
                // SAFETY: all-zero is legal: the struct has integers and pointers alone.
                unsafe { std::mem::zeroed() }
            }

            #[inline]
            fn wr_id(&self) -> u64 {
                self.wr_id
            }

            #[inline]
            fn next(&mut self) -> &mut *mut Self {
                &mut self.next
            }

            #[inline]
            fn sg_list(&mut self) -> &mut *mut ibv_sge {
                &mut self.$($list).+
            }
        }
    )+};
}

listed_request!(ibv_send_wr: sg_list, ibv_recv_wr: sg_list, ibv_ops_wr: tm.add.sg_list);

/// There is no memory for what this library holds of a queue: the system has none, or it would be too much
/// ([`Ring::new`]).
#[cold]
pub(crate) fn no_room(verb: &'static str, what: String) -> VerbError {
    VerbError::new(verb, Errno::ENOMEM).with_hint(format!(
        "no memory for {what}: ask for fewer (a list may have {} MiB)",
        Ring::<u8>::MOST_BYTES >> 20
    ))
}

/// The requests of a queue, each with its list and its successor written in.
///
/// In the ring they stand between two places that are no request and have a successor: before the first, which is the last of an
/// empty batch, and behind the last, which is that of a batch that was refused.
pub(crate) struct Requests<W> {
    ring: Ring<W>,
    #[expect(dead_code, reason = "the requests point into it")]
    sges: Ring<ibv_sge>,
    max_wr: usize,
    max_sge: usize,
    /// The last request.
    limit: *mut W,
    /// The last request that can have an entry: of all of them, or the place before the first.
    limit_with_entry: *mut W,
    /// The only request that has no successor: the last of the batch before, and of the next where that is as long.
    end: *mut W,
    refusals: Box<Refusals>,
}

/// Stands apart from the requests: functions that are not inlined get this alone, so that a compiler knows what the calls in a
/// loop leave as it is, and reads it once.
struct Refusals {
    /// Why a request too many is refused.
    overflow: RefusalReason,
    /// The first request of the batch that was refused.
    first: Option<Refusal>,
}

// SAFETY: the pointers are into the ring, which the requests own; using them is as safe as using that.
unsafe impl<W> Send for Requests<W> {}
// SAFETY: as for Send.
unsafe impl<W> Sync for Requests<W> {}

impl<W: ListedRequest> Requests<W> {
    /// `max_wr` requests with up to `max_sge` entries each, and room for at least one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, of this library and not of the verb: the error says so.
    pub(crate) fn new(verb: &'static str, max_wr: u32, max_sge: u32) -> Result<Self, VerbError> {
        let (max_wr, max_sge) = (max_wr as usize, max_sge as usize);
        // Inline data is named by an entry also where no other was asked for.
        let room = max_sge.max(1);
        let out_of_memory = || {
            no_room(verb, format!("{max_wr} requests of {room} entries, which this library holds ready to be posted"))
        };
        let entries = max_wr.checked_mul(room).ok_or_else(out_of_memory)?;
        let sges = Ring::new(ibv_sge { addr: 0, length: 0, lkey: 0 }, entries).ok_or_else(out_of_memory)?;
        let places = max_wr.checked_add(2).ok_or_else(out_of_memory)?;
        let ring = Ring::new(W::zeroed(), places).ok_or_else(out_of_memory)?;
        for index in 0..places {
            // SAFETY: the element exists and nobody else has its address.
            unsafe { *(*ring.at(index)).next() = ring.at(index + 1) };
        }
        for index in 0..max_wr {
            // SAFETY: as above.
            unsafe { *(*ring.at(index + 1)).sg_list() = sges.at(index * room) };
        }
        if max_wr > 0 {
            // SAFETY: as above.
            unsafe { *(*ring.at(max_wr)).next() = ptr::null_mut() };
        }
        Ok(Self {
            limit: ring.at(max_wr),
            limit_with_entry: ring.at(if max_sge == 0 { 0 } else { max_wr }),
            end: ring.at(max_wr),
            refusals: Box::new(Refusals { overflow: RefusalReason::BatchTooLong { limit: max_wr }, first: None }),
            ring,
            sges,
            max_wr,
            max_sge,
        })
    }

    /// No requests: each is refused for this reason.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn refusing(verb: &'static str, reason: RefusalReason) -> Result<Self, VerbError> {
        let mut none = Self::new(verb, 0, 0)?;
        none.set_overflow(reason);
        Ok(none)
    }

    /// Sets why a request beyond the last one is refused.
    pub(crate) fn set_overflow(&mut self, reason: RefusalReason) {
        self.refusals.overflow = reason;
    }

    /// The request at this place, as the last batch has left it.
    pub(crate) fn get(&self, index: usize) -> Option<&W> {
        // SAFETY: the element exists, and nobody writes to it while the requests are borrowed.
        (index < self.max_wr).then(|| unsafe { &*self.ring.at(index + 1) })
    }

    /// The address of the request at this index, whether it exists or not.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> *mut W {
        self.ring.at(index).wrapping_add(1)
    }

    /// Requests.
    pub(crate) fn len(&self) -> usize {
        self.max_wr
    }

    /// Entries per request.
    pub(crate) fn max_sge(&self) -> usize {
        self.max_sge
    }

    /// Why a request too many is refused.
    pub(crate) fn overflow(&self) -> RefusalReason {
        self.refusals.overflow
    }

    /// The [number](Batch::last_number) of an empty batch.
    pub(crate) fn first_number(&self) -> usize {
        self.ring.at(0).addr() / size_of::<W>()
    }

    /// Begins a batch.
    #[inline]
    pub(crate) fn batch(&mut self) -> Batch<'_, W> {
        Batch { last: self.ring.at(0), requests: self }
    }

    /// Lets the list end at this place, if there is a request.
    #[inline]
    fn end_with(&mut self, last: *mut W) -> bool {
        if last == self.ring.at(0) || last > self.limit {
            return false;
        }
        // SAFETY: both are requests: `end` was `last` before, or is the last one of all.
        unsafe {
            *(*self.end).next() = self.end.wrapping_add(1);
            *(*last).next() = ptr::null_mut();
        }
        self.end = last;
        true
    }
}

/// A list under construction: two values, which a compiler keeps in registers.
pub(crate) struct Batch<'q, W> {
    requests: &'q mut Requests<W>,
    /// The last request in it, or one of the places beside the requests.
    last: *mut W,
}

impl<W: ListedRequest> Batch<'_, W> {
    /// The place of the next request; [`accept`](Self::accept) makes it part of the batch. `None` where the batch is refused,
    /// be it because it is too long.
    #[inline]
    pub(crate) fn reserve(&mut self, wr_id: u64) -> Option<*mut W> {
        if self.last < self.requests.limit {
            return Some(self.last.wrapping_add(1));
        }
        self.last = self.no_place(wr_id);
        None
    }

    /// The same for a request with one entry, where the queue was asked for requests with entries: one comparison for both.
    #[inline]
    pub(crate) fn reserve_with_entry(&mut self, wr_id: u64) -> Option<*mut W> {
        if self.last < self.requests.limit_with_entry {
            return Some(self.last.wrapping_add(1));
        }
        self.last = self.no_place(wr_id);
        None
    }

    /// Requests in it, where it was not refused.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        (self.last.addr() - self.requests.ring.at(0).addr()) / size_of::<W>()
    }

    /// Which place of all memory the last request has: one more than that of the request before. Their difference is an index, as
    /// all places are as far from a multiple of their size.
    #[inline]
    pub(crate) fn last_number(&self) -> usize {
        self.last.addr() / size_of::<W>()
    }

    /// Entries that a request may have.
    #[inline]
    pub(crate) fn max_sge(&self) -> usize {
        self.requests.max_sge
    }

    /// Takes the reserved request into the batch.
    #[inline]
    pub(crate) fn accept(&mut self) {
        self.last = self.last.wrapping_add(1);
    }

    /// Refuses the reserved request, and with it the batch.
    #[inline]
    pub(crate) fn refuse(&mut self, wr_id: u64, reason: RefusalReason) {
        let index = self.len();
        self.requests.refusals.note(index, wr_id, reason);
        self.last = self.requests.limit.wrapping_add(1);
    }

    /// The last of the batch that a request was refused in, for want of a place. One call and nothing else, so that a loop that
    /// posts stays small.
    #[inline(always)]
    fn no_place(&mut self, wr_id: u64) -> *mut W {
        let Requests { ring, limit, refusals, .. } = &mut *self.requests;
        refusals.no_place((ring.at(0), self.last, *limit), wr_id)
    }

    /// Hands the list to `post`, which gets its first request and the place for the one at fault.
    #[inline]
    pub(crate) fn post(
        self,
        verb: &'static str,
        post: impl FnOnce(*mut W, *mut *mut W) -> c_int,
    ) -> Result<(), PostError> {
        let Self { requests, last } = self;
        let first = requests.ring.at(1);
        let mut bad = ptr::null_mut();
        // SAFETY: a place of the ring. Those that are no request have a successor: one comparison for all that is not to be
        // posted as it stands.
        let ret = if unsafe { (*(*last).next()).is_null() } || requests.end_with(last) {
            post(first, &mut bad)
        } else {
            NOT_POSTED
        };
        if ret == 0 { Ok(()) } else { requests.refusals.explain(verb, ret, (first, last, requests.limit), bad) }
    }
}

/// Stands for what the driver would say; any number but zero.
const NOT_POSTED: c_int = c_int::MIN;

impl<W> fmt::Debug for Requests<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("ring", &self.ring).field("max_sge", &self.max_sge).finish_non_exhaustive()
    }
}

impl<W> fmt::Debug for Batch<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Refusals {
    #[cold]
    #[inline(never)]
    fn note(&mut self, index: usize, wr_id: u64, reason: RefusalReason) {
        self.first = Some(Refusal { failed: FailedRequest { index: Some(index), wr_id }, reason });
    }

    /// Refuses a request behind `last`, which has no place, or none with an entry; the first refusal is the batch's. `before` is
    /// the place before the first request, `limit` the last request of all. Gives the last of a batch that is refused.
    #[cold]
    #[inline(never)]
    fn no_place<W>(&mut self, (before, last, limit): (*mut W, *mut W, *mut W), wr_id: u64) -> *mut W {
        let refused = limit.wrapping_add(1);
        if last != refused {
            let has_place = last < limit;
            let reason = if has_place { RefusalReason::TooManyEntries { given: 1, limit: 0 } } else { self.overflow };
            self.note((last.addr() - before.addr()) / size_of::<W>(), wr_id, reason);
        }
        refused
    }

    /// Why a batch from `first` to `last` was not posted, if it is an error. `limit` is the last request of all.
    #[cold]
    #[inline(never)]
    fn explain<W: ListedRequest>(
        &mut self,
        verb: &'static str,
        ret: c_int,
        (first, last, limit): (*mut W, *mut W, *mut W),
        bad: *mut W,
    ) -> Result<(), PostError> {
        let refusal = self.first.take();
        if last < first {
            // Empty; what a batch that was dropped had refused went with it.
            return Ok(());
        }
        if let Some(refusal) = refusal
            && last > limit
        {
            return Err(PostError::from_refusal(verb, refusal));
        }
        let places = (limit.addr() + size_of::<W>() - first.addr()) / size_of::<W>();
        // SAFETY: both are requests: the batch is neither empty nor refused.
        Err(unsafe { refused_by_driver(verb, ret, (first, last), bad, places) })
    }
}

/// Returns the error of a driver that refused the list from `first` to `last` and returned `bad`. The queue was built for `limit`
/// requests.
///
/// # Safety
///
/// Both are requests of one ring, in this order.
#[cold]
#[inline(never)]
pub(crate) unsafe fn refused_by_driver<W: ListedRequest>(
    verb: &'static str,
    ret: c_int,
    (first, last): (*mut W, *mut W),
    bad: *mut W,
    limit: usize,
) -> PostError {
    let distance = bad.addr().wrapping_sub(first.addr());
    let is_one = first <= bad && bad <= last && distance.is_multiple_of(size_of::<W>());
    let index = is_one.then_some(distance / size_of::<W>());
    let failed = index.map(|index| {
        // SAFETY: the request exists.
        let wr_id = unsafe { (*first.wrapping_add(index)).wr_id() };
        FailedRequest { index: Some(index), wr_id }
    });
    PostError::from_driver(verb, errno_of(ret), failed, index, Some(limit))
}
