//! Lists of requests for the basic verbs. The requests are linked once, built in place, and posted without an
//! allocation.

use std::{fmt, ptr};

use libc::c_int;
use rdma_mummy_sys::{ibv_ops_wr, ibv_recv_wr, ibv_send_wr, ibv_sge};

use super::{FailedRequest, PostError, Refusal, RefusalReason, Ring};
use crate::error::{Errno, VerbError};
use crate::ffi::errno_of;

/// The maximum number of requests of a queue. It exceeds the limits of all drivers. It is needed because this library
/// also allocates memory for the requests.
pub(crate) const MOST_REQUESTS: u32 = c_int::MAX as u32 >> 8;

/// A request of a linked list: `ibv_send_wr`, `ibv_recv_wr` or `ibv_ops_wr`.
pub(crate) trait ListedRequest: Copy {
    /// A request whose bytes are all zero.
    fn zeroed() -> Self;

    /// The request's number.
    fn wr_id(&self) -> u64;

    /// The pointer to the next request.
    fn next(&mut self) -> &mut *mut Self;

    /// The pointer to the request's entries.
    fn sg_list(&mut self) -> &mut *mut ibv_sge;
}

macro_rules! listed_request {
    ($($Request:ty: $($list:ident).+),+) => {$(
        impl ListedRequest for $Request {
            fn zeroed() -> Self {
                // SAFETY: zero is valid for the struct's integers and pointers.
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

/// Returns the error that this library cannot allocate the requests of a queue, because memory is exhausted or the
/// number exceeds the limit ([`Ring::new`]).
#[cold]
pub(crate) fn no_room(verb: &'static str, what: String) -> VerbError {
    VerbError::new(verb, Errno::ENOMEM).with_hint(format!(
        "no memory for {what}; request fewer (a list has at most {} MiB)",
        Ring::<u8>::MOST_BYTES >> 20
    ))
}

/// The requests of a queue. Each is linked to its entries and to the next request.
///
/// The ring has two more elements, which are not requests but also link to a next element. An empty batch ends with the
/// element before the first request; a refused batch ends with the element after the last request.
pub(crate) struct Requests<W> {
    ring: Ring<W>,
    #[expect(dead_code, reason = "the requests point into it")]
    sges: Ring<ibv_sge>,
    max_wr: usize,
    max_sge: usize,
    /// The last request.
    limit: *mut W,
    /// The last request that can have an entry. This is the last request, or the element before the first request if
    /// requests have no entries.
    limit_with_entry: *mut W,
    /// The only request without a successor. It is the last request of the previous batch. If the next batch has the
    /// same length, it is also the last request of that batch.
    end: *mut W,
    refusals: Box<Refusals>,
}

/// The refused request of a batch. This is a separate struct, so that functions that are not inlined receive only this
/// part. The compiler can then keep the fields of the requests in registers.
struct Refusals {
    /// The reason why a request beyond the last one is refused.
    overflow: RefusalReason,
    /// The first refused request of the batch.
    first: Option<Refusal>,
}

// SAFETY: the pointers refer to the ring, which the requests own.
unsafe impl<W> Send for Requests<W> {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl<W> Sync for Requests<W> {}

impl<W: ListedRequest> Requests<W> {
    /// Allocates `max_wr` requests with up to `max_sge` entries each. Each request has space for at least one entry.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if this library cannot allocate the memory. The error states that it does not come from the
    /// verb.
    pub(crate) fn new(verb: &'static str, max_wr: u32, max_sge: u32) -> Result<Self, VerbError> {
        let (max_wr, max_sge) = (max_wr as usize, max_sge as usize);
        // Inline data uses an entry, even if `max_sge` is zero.
        let room = max_sge.max(1);
        let out_of_memory =
            || no_room(verb, format!("{max_wr} requests of {room} entries, which this library allocates"));
        let entries = max_wr.checked_mul(room).ok_or_else(out_of_memory)?;
        let sges = Ring::new(ibv_sge { addr: 0, length: 0, lkey: 0 }, entries).ok_or_else(out_of_memory)?;
        let places = max_wr.checked_add(2).ok_or_else(out_of_memory)?;
        let ring = Ring::new(W::zeroed(), places).ok_or_else(out_of_memory)?;
        for index in 0..places {
            // SAFETY: the element exists, and nothing else has its address.
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

    /// Creates a list without requests, which refuses each request for this reason.
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

    /// Returns the request at this index, as the last batch left it.
    pub(crate) fn get(&self, index: usize) -> Option<&W> {
        // SAFETY: the element exists, and nothing writes to it while the requests are borrowed.
        (index < self.max_wr).then(|| unsafe { &*self.ring.at(index + 1) })
    }

    /// Returns the address of the request at this index, which need not exist.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> *mut W {
        self.ring.at(index).wrapping_add(1)
    }

    /// Returns the number of requests.
    pub(crate) fn len(&self) -> usize {
        self.max_wr
    }

    /// Returns the number of entries of a request.
    pub(crate) fn max_sge(&self) -> usize {
        self.max_sge
    }

    /// Returns why a request beyond the last one is refused.
    pub(crate) fn overflow(&self) -> RefusalReason {
        self.refusals.overflow
    }

    /// Returns the [number](Batch::last_number) of an empty batch.
    pub(crate) fn first_number(&self) -> usize {
        self.ring.at(0).addr() / size_of::<W>()
    }

    /// Starts a batch.
    #[inline]
    pub(crate) fn batch(&mut self) -> Batch<'_, W> {
        Batch { last: self.ring.at(0), requests: self }
    }

    /// Ends the list at `last`, and returns whether `last` is a request.
    #[inline]
    fn end_with(&mut self, last: *mut W) -> bool {
        if last == self.ring.at(0) || last > self.limit {
            return false;
        }
        // SAFETY: both are requests, because `end` was an earlier `last` or is the last request of the ring.
        unsafe {
            *(*self.end).next() = self.end.wrapping_add(1);
            *(*last).next() = ptr::null_mut();
        }
        self.end = last;
        true
    }
}

/// A list under construction. It consists of two values, which the compiler can keep in registers.
pub(crate) struct Batch<'q, W> {
    requests: &'q mut Requests<W>,
    /// The last request of the batch, or one of the two other elements.
    last: *mut W,
}

impl<W: ListedRequest> Batch<'_, W> {
    /// Returns the next request, which [`accept`](Self::accept) adds to the batch. `None` if the batch is refused, for
    /// example because it is too long.
    #[inline]
    pub(crate) fn reserve(&mut self, wr_id: u64) -> Option<*mut W> {
        if self.last < self.requests.limit {
            return Some(self.last.wrapping_add(1));
        }
        self.last = self.no_place(wr_id);
        None
    }

    /// Returns the next request like [`reserve`](Self::reserve), but refuses it if requests have no entries. One
    /// comparison checks both conditions.
    #[inline]
    pub(crate) fn reserve_with_entry(&mut self, wr_id: u64) -> Option<*mut W> {
        if self.last < self.requests.limit_with_entry {
            return Some(self.last.wrapping_add(1));
        }
        self.last = self.no_place(wr_id);
        None
    }

    /// Returns the number of requests, if the batch is not refused.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        (self.last.addr() - self.requests.ring.at(0).addr()) / size_of::<W>()
    }

    /// Returns the address of the last request divided by the size of a request. So consecutive requests have
    /// consecutive numbers.
    #[inline]
    pub(crate) fn last_number(&self) -> usize {
        self.last.addr() / size_of::<W>()
    }

    /// Returns the maximum number of entries of a request.
    #[inline]
    pub(crate) fn max_sge(&self) -> usize {
        self.requests.max_sge
    }

    /// Adds the reserved request to the batch.
    #[inline]
    pub(crate) fn accept(&mut self) {
        self.last = self.last.wrapping_add(1);
    }

    /// Refuses the reserved request, and therefore the batch.
    #[inline]
    pub(crate) fn refuse(&mut self, wr_id: u64, reason: RefusalReason) {
        let index = self.len();
        self.requests.refusals.note(index, wr_id, reason);
        self.last = self.requests.limit.wrapping_add(1);
    }

    /// Refuses a request for which there is no space. Returns the new `last`. The body is a single call of a cold
    /// function, so that loops that post stay small.
    #[inline(always)]
    fn no_place(&mut self, wr_id: u64) -> *mut W {
        let Requests { ring, limit, refusals, .. } = &mut *self.requests;
        refusals.no_place((ring.at(0), self.last, *limit), wr_id)
    }

    /// Passes the list to `post`. The arguments are the first request, and the place for the pointer to a failed
    /// request.
    #[inline]
    pub(crate) fn post(
        self,
        verb: &'static str,
        post: impl FnOnce(*mut W, *mut *mut W) -> c_int,
    ) -> Result<(), PostError> {
        let Self { requests, last } = self;
        let first = requests.ring.at(1);
        let mut bad = ptr::null_mut();
        // SAFETY: `last` is an element of the ring. The elements that are not requests have a successor, so one
        // comparison detects every batch that cannot be posted as it is.
        let ret = if unsafe { (*(*last).next()).is_null() } || requests.end_with(last) {
            post(first, &mut bad)
        } else {
            NOT_POSTED
        };
        if ret == 0 { Ok(()) } else { requests.refusals.explain(verb, ret, (first, last, requests.limit), bad) }
    }
}

/// The value that replaces the driver's result if the driver was not called. It can be any number except zero.
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

    /// Refuses the request after `last`, which does not exist or cannot have an entry. If the batch was already
    /// refused, its first reason is kept. `before` is the element before the first request, and `limit` is the last
    /// request. Returns the `last` of a refused batch.
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

    /// Returns the error of a batch from `first` to `last` that was not posted. An empty batch is not an error. `limit`
    /// is the last request of the ring.
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
            // The batch is empty. A refusal of an earlier batch that was dropped is ignored.
            return Ok(());
        }
        if let Some(refusal) = refusal
            && last > limit
        {
            return Err(PostError::from_refusal(verb, refusal));
        }
        let places = (limit.addr() + size_of::<W>() - first.addr()) / size_of::<W>();
        // SAFETY: both are requests, because the batch is neither empty nor refused.
        Err(unsafe { refused_by_driver(verb, ret, (first, last), bad, places) })
    }
}

/// Returns the error of a driver that refused the list from `first` to `last` and returned `bad`. The queue was built
/// for `limit` requests.
///
/// # Safety
///
/// `first` and `last` are requests of one ring, in this order.
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
