//! Posting receives.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_recv_wr, ibv_sge};

use super::{FailedRequest, PostRecvError, Refusal, RefusalReason, Ring, ScatterGatherEntry, SetScatterGatherEntry};
use crate::ffi::errno_of;
use crate::ibverbs::memory_region::LocalKey;
use crate::ibverbs::queue_pair::QueuePairCore;

/// The receive queue of a queue pair, which one thread at a time posts to.
#[derive(Debug)]
pub struct ReceiveQueue {
    qp: *mut ibv_qp,
    /// Requests, each with its list and its successor written in; only the last of a batch points nowhere, while it is
    /// posted.
    requests: Ring<ibv_recv_wr>,
    #[expect(dead_code, reason = "the requests point into it")]
    sges: Ring<ibv_sge>,
    max_sge: usize,
    core: Arc<QueuePairCore>,
}

// SAFETY: the queue owns its requests; posting to a queue pair is allowed from any thread, and `&mut` keeps it to one.
unsafe impl Send for ReceiveQueue {}
// SAFETY: a shared receive queue gives access to the core alone.
unsafe impl Sync for ReceiveQueue {}

impl ReceiveQueue {
    /// For batches of up to `max_wr` requests with up to `max_sge` entries each.
    pub(crate) fn new(core: &Arc<QueuePairCore>, max_wr: u32, max_sge: u32) -> Self {
        let (max_wr, max_sge) = (max_wr as usize, max_sge as usize);
        let sges = Ring::new(ibv_sge { addr: 0, length: 0, lkey: 0 }, max_wr * max_sge);
        let requests =
            Ring::new(ibv_recv_wr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 }, max_wr);
        for index in 0..max_wr {
            // SAFETY: the element exists and nobody else has its address.
            unsafe {
                (*requests.at(index)).sg_list = sges.at(index * max_sge);
                (*requests.at(index)).next = requests.at(index + 1);
            }
        }
        Self { qp: core.raw(), requests, sges, max_sge, core: Arc::clone(core) }
    }

    /// Begins a batch of receives.
    #[inline]
    pub fn start_post_recv(&mut self) -> PostRecvGuard<'_> {
        PostRecvGuard { queue: self, len: 0, refusal: None }
    }

    pub(crate) fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}

/// A batch of receives under construction. Dropping it takes the batch back.
pub struct PostRecvGuard<'q> {
    queue: &'q mut ReceiveQueue,
    len: usize,
    refusal: Option<Refusal>,
}

impl PostRecvGuard<'_> {
    /// Begins a request. `wr_id` comes back in its completion.
    #[inline]
    pub fn construct_wr(&mut self, wr_id: u64) -> RecvWorkRequestHandle<'_> {
        RecvWorkRequestHandle { queue: self.queue, len: &mut self.len, refusal: &mut self.refusal, wr_id }
    }

    /// `ibv_post_recv(qp, wr, bad_wr)` — hands the batch to the device. An empty batch is no error and touches nothing.
    ///
    /// # Errors
    ///
    /// [`PostRecvError`] tells which request is at fault, and how many before it were posted.
    ///
    /// # References
    ///
    /// [ibv_post_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post(self) -> Result<(), PostRecvError> {
        if let Some(refusal) = self.refusal {
            return Err(PostRecvError::from_refusal("ibv_post_recv", refusal));
        }
        if self.len == 0 {
            return Ok(());
        }
        let requests = &self.queue.requests;
        let first = requests.at(0);
        let last = requests.at(self.len - 1);
        let mut bad = ptr::null_mut();
        // SAFETY: the requests up to `last` exist (`construct_wr` counted them) and form a list that ends there; the QP
        // is live as long as the core.
        let ret = unsafe {
            (*last).next = ptr::null_mut();
            let ret = sys::ibv_post_recv(self.queue.qp, first, &mut bad);
            (*last).next = last.wrapping_add(1);
            ret
        };
        if ret == 0 { Ok(()) } else { Err(self.failure(ret, bad)) }
    }

    #[cold]
    fn failure(&self, ret: c_int, bad: *const ibv_recv_wr) -> PostRecvError {
        let index = self.queue.requests.index_of(bad).filter(|&index| index < self.len);
        // SAFETY: the element exists.
        let failed = index.map(|index| unsafe {
            FailedRequest { index: Some(index), wr_id: (*self.queue.requests.at(index)).wr_id }
        });
        PostRecvError::from_driver("ibv_post_recv", errno_of(ret), failed, index.unwrap_or(0))
    }
}

impl fmt::Debug for PostRecvGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostRecvGuard").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A receive whose buffer is to be said, which puts it into the batch. Dropped, it leaves no trace.
#[must_use = "a receive without a buffer is not posted"]
pub struct RecvWorkRequestHandle<'g> {
    queue: &'g mut ReceiveQueue,
    len: &'g mut usize,
    refusal: &'g mut Option<Refusal>,
    wr_id: u64,
}

impl RecvWorkRequestHandle<'_> {
    /// No buffer: for messages of length zero and for the immediate data of writes.
    #[inline]
    pub fn setup_no_data(self) {
        // SAFETY: an empty list names no memory.
        unsafe { self.setup_sge_list(&[]) }
    }

    #[cold]
    fn refuse(self, reason: RefusalReason) {
        let failed = FailedRequest { index: Some(*self.len), wr_id: self.wr_id };
        self.refusal.get_or_insert(Refusal { failed, reason });
    }
}

impl SetScatterGatherEntry for RecvWorkRequestHandle<'_> {
    #[inline]
    unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.setup_sge_list(&[ScatterGatherEntry::new(lkey.into(), addr, length)]) }
    }

    #[inline]
    unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry]) {
        let index = *self.len;
        if index >= self.queue.requests.len() {
            let limit = self.queue.requests.len();
            return self.refuse(RefusalReason::BatchTooLong { limit });
        }
        if list.len() > self.queue.max_sge {
            let limit = self.queue.max_sge;
            return self.refuse(RefusalReason::TooManyEntries { given: list.len(), limit });
        }
        let wr = self.queue.requests.at(index);
        // SAFETY: the request exists, its list has room for `max_sge` entries, and an entry is an ibv_sge.
        unsafe {
            (*wr).wr_id = self.wr_id;
            (*wr).num_sge = list.len() as c_int;
            (*wr).sg_list.copy_from_nonoverlapping(list.as_ptr().cast(), list.len());
        }
        *self.len = index + 1;
    }
}

impl fmt::Debug for RecvWorkRequestHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvWorkRequestHandle").field("wr_id", &self.wr_id).finish_non_exhaustive()
    }
}
