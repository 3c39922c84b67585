//! Posting receives.

use std::fmt;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_recv_wr, ibv_srq, ibv_wq};

use super::batch::{Batch, Requests};
use super::{PostRecvError, RefusalReason, ScatterGatherEntry, SetScatterGatherEntry};
use crate::error::VerbError;
use crate::ffi::Sealed;
use crate::ibverbs::memory_region::LocalKey;
use crate::ibverbs::queue_pair::QueuePairCore;

/// The receive queue of a queue pair. One thread at a time can post to it.
#[derive(Debug)]
pub struct ReceiveQueue {
    qp: *mut ibv_qp,
    requests: Requests<ibv_recv_wr>,
    core: Arc<QueuePairCore>,
}

// SAFETY: the queue owns its requests. Any thread may post to a queue pair, and `&mut` permits only one thread at a
// time.
unsafe impl Send for ReceiveQueue {}
// SAFETY: a shared reference to the queue only gives access to the core, which is `Sync`.
unsafe impl Sync for ReceiveQueue {}

impl ReceiveQueue {
    /// Creates a queue for batches of up to `max_wr` requests with up to `max_sge` entries each.
    pub(crate) fn new(
        verb: &'static str,
        core: &Arc<QueuePairCore>,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<Self, VerbError> {
        let requests = Requests::new(verb, max_wr, max_sge)?;
        Ok(Self { qp: core.raw(), requests, core: Arc::clone(core) })
    }

    /// Creates a queue for a queue pair without receives. It rejects each request for this reason.
    pub(crate) fn refusing(
        verb: &'static str,
        core: &Arc<QueuePairCore>,
        reason: RefusalReason,
    ) -> Result<Self, VerbError> {
        let requests = Requests::refusing(verb, reason)?;
        Ok(Self { qp: core.raw(), requests, core: Arc::clone(core) })
    }

    /// Starts a batch of receives.
    #[inline]
    pub fn start_post_recv(&mut self) -> PostRecvGuard<'_> {
        // SAFETY: the queue pair is live as long as the core, and the guard borrows the queue.
        unsafe { PostRecvGuard::new(self.qp, &mut self.requests) }
    }

    /// Whether receives can be posted to this queue.
    pub(crate) fn holds_requests(&self) -> bool {
        self.requests.len() > 0
    }

    /// Whether the queue pair has a shared receive queue.
    pub(crate) fn shares(&self) -> bool {
        self.requests.overflow() == RefusalReason::ReceivesAreShared
    }

    pub(crate) fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}

/// The C object to which receives are posted.
pub trait ReceiveTarget: Sealed + Copy {
    /// The verb that posts the receives.
    #[doc(hidden)]
    const VERB: &'static str;

    /// Posts a list.
    ///
    /// # Safety
    ///
    /// The target is live, `first` is the start of a terminated list of requests, and `bad` can be written.
    #[doc(hidden)]
    unsafe fn post(self, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int;
}

impl Sealed for *mut ibv_qp {}
impl Sealed for *mut ibv_srq {}
impl Sealed for *mut ibv_wq {}

impl ReceiveTarget for *mut ibv_qp {
    const VERB: &'static str = "ibv_post_recv";

    #[inline]
    unsafe fn post(self, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { sys::ibv_post_recv(self, first, bad) }
    }
}

impl ReceiveTarget for *mut ibv_srq {
    const VERB: &'static str = "ibv_post_srq_recv";

    #[inline]
    unsafe fn post(self, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { sys::ibv_post_srq_recv(self, first, bad) }
    }
}

impl ReceiveTarget for *mut ibv_wq {
    const VERB: &'static str = "ibv_post_wq_recv";

    #[inline]
    unsafe fn post(self, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { sys::ibv_post_wq_recv(self, first, bad) }
    }
}

/// A batch of receives under construction. Dropping it discards the batch.
#[derive(Debug)]
pub struct PostRecvGuard<'q, T = *mut ibv_qp> {
    target: T,
    batch: Batch<'q, ibv_recv_wr>,
}

impl<'q, T: ReceiveTarget> PostRecvGuard<'q, T> {
    /// Starts a batch.
    ///
    /// # Safety
    ///
    /// The target is live for `'q`, and accepts receives with as many entries as `requests` holds.
    #[inline]
    pub(crate) unsafe fn new(target: T, requests: &'q mut Requests<ibv_recv_wr>) -> Self {
        Self { target, batch: requests.batch() }
    }

    /// Starts a request. Its completion contains `wr_id`.
    #[inline]
    pub fn construct_wr(&mut self, wr_id: u64) -> RecvWorkRequestHandle<'_, 'q> {
        RecvWorkRequestHandle { batch: &mut self.batch, wr_id }
    }

    /// `ibv_post_recv(qp, wr, bad_wr)` (`ibv_post_srq_recv`, `ibv_post_wq_recv`) — posts the batch. Posting an empty
    /// batch does nothing.
    ///
    /// # Errors
    ///
    /// [`PostRecvError`] names the request at fault, and the number of requests posted before it.
    ///
    /// # References
    ///
    /// [ibv_post_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html),
    /// [ibv_post_srq_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_srq_recv.3.html)
    #[doc(alias = "ibv_post_recv")]
    #[doc(alias = "ibv_post_srq_recv")]
    #[doc(alias = "ibv_post_wq_recv")]
    #[inline]
    pub fn post(self) -> Result<(), PostRecvError> {
        // SAFETY: the target is live as long as the queue that the batch borrows (`new`), and the batch's list of
        // requests is valid during the call.
        self.batch.post(T::VERB, |first, bad| unsafe { self.target.post(first, bad) })
    }
}

/// A receive whose buffer must be set next. Setting the buffer adds the receive to the batch. Dropping the handle adds
/// nothing to the batch.
#[must_use = "a receive without a buffer is not posted"]
pub struct RecvWorkRequestHandle<'g, 'q> {
    batch: &'g mut Batch<'q, ibv_recv_wr>,
    wr_id: u64,
}

impl RecvWorkRequestHandle<'_, '_> {
    /// Sets no buffer. This is for messages of length zero, and for the immediate data of writes.
    #[inline]
    pub fn setup_no_data(self) {
        // SAFETY: an empty list names no memory.
        unsafe { self.setup_sge_list(&[]) }
    }

    /// Sets one range of registered memory.
    ///
    /// # Safety
    ///
    /// The contract of [`SetScatterGatherEntry::setup_sge`] applies.
    #[inline]
    pub unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32) {
        let Some(wr) = self.batch.reserve_with_entry(self.wr_id) else { return };
        // SAFETY: the request exists, and its list has space for an entry.
        unsafe {
            (*wr).wr_id = self.wr_id;
            (*wr).num_sge = 1;
            (*wr).sg_list.write(ScatterGatherEntry::new(lkey.into(), addr, length).raw());
        }
        self.batch.accept();
    }

    /// Sets several ranges, which a message fills in order.
    ///
    /// # Safety
    ///
    /// The contract of [`SetScatterGatherEntry::setup_sge`] applies to each entry.
    #[inline]
    pub unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry]) {
        let Some(wr) = self.batch.reserve(self.wr_id) else { return };
        let limit = self.batch.max_sge();
        if list.len() > limit {
            return self.batch.refuse(self.wr_id, RefusalReason::TooManyEntries { given: list.len(), limit });
        }
        // SAFETY: the request exists, its list has space for `max_sge` entries, and an entry is an ibv_sge.
        unsafe {
            (*wr).wr_id = self.wr_id;
            (*wr).num_sge = list.len() as c_int;
            (*wr).sg_list.copy_from_nonoverlapping(list.as_ptr().cast(), list.len());
        }
        self.batch.accept();
    }
}

impl Sealed for RecvWorkRequestHandle<'_, '_> {}

impl SetScatterGatherEntry for RecvWorkRequestHandle<'_, '_> {
    #[inline]
    unsafe fn setup_sge(self, lkey: impl Into<LocalKey>, addr: u64, length: u32) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { RecvWorkRequestHandle::setup_sge(self, lkey, addr, length) }
    }

    #[inline]
    unsafe fn setup_sge_list(self, list: &[ScatterGatherEntry]) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { RecvWorkRequestHandle::setup_sge_list(self, list) }
    }
}

impl fmt::Debug for RecvWorkRequestHandle<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvWorkRequestHandle").field("wr_id", &self.wr_id).finish_non_exhaustive()
    }
}
