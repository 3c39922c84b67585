//! Lists of requests for the basic verbs: built in place, linked once, posted without an allocation.

use std::fmt;

use libc::c_int;
use rdma_mummy_sys::{ibv_ops_wr, ibv_recv_wr, ibv_send_wr, ibv_sge};

use super::{FailedRequest, PostError, Refusal, RefusalReason, Ring};
use crate::error::{Errno, VerbError};
use crate::ffi::errno_of;

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

/// The requests of a queue, each with its list and its successor written in; only the last of a batch points nowhere,
/// while it is posted.
pub(crate) struct Requests<W> {
    ring: Ring<W>,
    #[expect(dead_code, reason = "the requests point into it")]
    sges: Ring<ibv_sge>,
    max_sge: usize,
    /// Why a request too many is refused.
    overflow: RefusalReason,
    /// The first request of the batch that was refused.
    refusal: Option<Refusal>,
}

impl<W: ListedRequest> Requests<W> {
    /// `max_wr` requests with up to `max_sge` entries each, and room for at least one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(verb: &'static str, max_wr: u32, max_sge: u32) -> Result<Self, VerbError> {
        let (max_wr, max_sge) = (max_wr as usize, max_sge as usize);
        // Inline data is named by an entry also where no other was asked for.
        let room = max_sge.max(1);
        let out_of_memory = || VerbError::new(verb, Errno::from_raw(libc::ENOMEM));
        let entries = max_wr.checked_mul(room).ok_or_else(out_of_memory)?;
        let sges = Ring::new(ibv_sge { addr: 0, length: 0, lkey: 0 }, entries).ok_or_else(out_of_memory)?;
        let ring = Ring::new(W::zeroed(), max_wr).ok_or_else(out_of_memory)?;
        for index in 0..max_wr {
            // SAFETY: the element exists and nobody else has its address.
            unsafe {
                *(*ring.at(index)).sg_list() = sges.at(index * room);
                *(*ring.at(index)).next() = ring.at(index + 1);
            }
        }
        let overflow = RefusalReason::BatchTooLong { limit: max_wr };
        Ok(Self { ring, sges, max_sge, overflow, refusal: None })
    }

    /// No requests: each is refused for this reason.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn refusing(verb: &'static str, reason: RefusalReason) -> Result<Self, VerbError> {
        Ok(Self { overflow: reason, ..Self::new(verb, 0, 0)? })
    }

    /// The request at this place, as the last batch has left it.
    pub(crate) fn get(&self, index: usize) -> Option<&W> {
        // SAFETY: the element exists, and nobody writes to it while the requests are borrowed.
        (index < self.ring.len()).then(|| unsafe { &*self.ring.at(index) })
    }

    /// Requests.
    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Why a request too many is refused.
    pub(crate) fn overflow(&self) -> RefusalReason {
        self.overflow
    }

    /// Begins a batch.
    #[inline]
    pub(crate) fn batch(&mut self) -> Batch<'_, W> {
        Batch { requests: self, len: 0 }
    }
}

/// A list under construction.
pub(crate) struct Batch<'q, W> {
    requests: &'q mut Requests<W>,
    /// How many requests it has; `REFUSED` once one was refused, and then it stays so.
    len: usize,
}

const REFUSED: usize = usize::MAX;

impl<W: ListedRequest> Batch<'_, W> {
    /// The place of the next request and its index; [`accept`](Self::accept) makes it part of the batch. `None` where the
    /// batch is refused, be it because it is too long.
    #[inline]
    pub(crate) fn reserve(&mut self, wr_id: u64) -> Option<(usize, *mut W)> {
        if self.len < self.requests.ring.len() {
            return Some((self.len, self.requests.ring.at(self.len)));
        }
        self.refuse(wr_id, self.requests.overflow);
        None
    }

    /// Requests in it, where it was not refused.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Entries that a request may have.
    #[inline]
    pub(crate) fn max_sge(&self) -> usize {
        self.requests.max_sge
    }

    /// Takes the reserved request into the batch.
    #[inline]
    pub(crate) fn accept(&mut self) {
        self.len += 1;
    }

    /// Refuses a request, and with it the batch.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&mut self, wr_id: u64, reason: RefusalReason) {
        if self.len != REFUSED {
            let failed = FailedRequest { index: Some(self.len), wr_id };
            self.requests.refusal = Some(Refusal { failed, reason });
            self.len = REFUSED;
        }
    }

    /// Hands the list to `post`, which gets its first request and the place for the one at fault.
    #[inline]
    pub(crate) fn post(
        self,
        verb: &'static str,
        post: impl FnOnce(*mut W, *mut *mut W) -> c_int,
    ) -> Result<(), PostError> {
        let ring = &self.requests.ring;
        // One comparison for both: an empty batch and a refused one have no last request.
        let last = self.len.wrapping_sub(1);
        if last >= ring.len() {
            return nothing_to_post(verb, self.requests, self.len);
        }
        let mut bad = std::ptr::null_mut();
        let end = ring.at(last);
        // SAFETY: the requests up to `last` exist and form a list; it ends there while it is posted.
        let ret = unsafe {
            *(*end).next() = std::ptr::null_mut();
            let ret = post(ring.at(0), &mut bad);
            *(*end).next() = end.wrapping_add(1);
            ret
        };
        if ret == 0 { Ok(()) } else { Err(failure(verb, ring, self.len, ret, bad)) }
    }
}

impl<W> fmt::Debug for Requests<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("ring", &self.ring).field("max_sge", &self.max_sge).finish_non_exhaustive()
    }
}

impl<W> fmt::Debug for Batch<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len).field("refusal", &self.requests.refusal).finish_non_exhaustive()
    }
}

#[cold]
fn nothing_to_post<W>(verb: &'static str, requests: &mut Requests<W>, len: usize) -> Result<(), PostError> {
    match requests.refusal.take() {
        Some(refusal) if len == REFUSED => Err(PostError::from_refusal(verb, refusal)),
        // Empty; what a batch that was dropped had refused went with it.
        _ => Ok(()),
    }
}

#[cold]
fn failure<W: ListedRequest>(verb: &'static str, ring: &Ring<W>, len: usize, ret: c_int, bad: *const W) -> PostError {
    let index = ring.index_of(bad).filter(|&index| index < len);
    // SAFETY: the element exists.
    let failed = index.map(|index| unsafe { FailedRequest { index: Some(index), wr_id: (*ring.at(index)).wr_id() } });
    PostError::from_driver(verb, errno_of(ret), failed, index)
}
