//! The queue pair of `ibv_create_qp_ex`: posting with `ibv_wr_start`, one call per operation, and `ibv_wr_complete`.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_qp_ex;

use super::common::AsQueuePairCore;
use super::missing_operation::SendContext;
use super::pair::SendQueue;
use super::{Connected, QueuePairCore, Service};
use crate::ffi::errno_of;
use crate::ibverbs::work_request::{
    HoldsFor, PostSendError, PostSendGuard, SendData, SendOperation, SendSink, WorkRequestFlags,
};

/// The send queue of an extended queue pair, for one thread at a time.
#[derive(Debug)]
pub struct ExtendedSendQueue<T = Connected> {
    qp: NonNull<ibv_qp_ex>,
    core: Arc<QueuePairCore>,
    service: PhantomData<T>,
}

// SAFETY: any thread may post to a queue pair, and `&mut` allows one at a time.
unsafe impl<T: Service> Send for ExtendedSendQueue<T> {}
// SAFETY: a shared send queue only gives access to the core.
unsafe impl<T: Service> Sync for ExtendedSendQueue<T> {}

impl<T: Service> ExtendedSendQueue<T> {
    /// Wraps the send queue of `core`.
    ///
    /// # Safety
    ///
    /// `qp` is the extended queue pair of `core`, with the service `T`. None of its functions from `wr_atomic_cmp_swp`
    /// to `wr_abort` is null, and it has no other send queue.
    pub(super) unsafe fn new(qp: NonNull<ibv_qp_ex>, core: &Arc<QueuePairCore>) -> Self {
        Self { qp, core: Arc::clone(core), service: PhantomData }
    }
}

impl<T: Service> SendQueue for ExtendedSendQueue<T> {
    type Service = T;
    type Guard<'q> = ExtendedPostSendGuard<'q, T>;

    /// Starts a batch of sends. Until the guard is posted or dropped, the driver may hold a lock of the queue.
    #[doc(alias = "ibv_wr_start")]
    #[inline]
    fn start_post_send(&mut self) -> ExtendedPostSendGuard<'_, T> {
        // SAFETY: the queue pair is live as long as the core, and `&mut self` excludes another guard. A forgotten one
        // (`mem::forget`) leaves its batch open. libibverbs does not define a second start. mlx5, efa, hns and
        // soft-RoCE lock the queue in it, and so deadlock, or abort the process if there is no lock (mlx5).
        unsafe { sys::ibv_wr_start(self.qp.as_ptr()) };
        ExtendedPostSendGuard { qp: self.qp, empty: 1, queue: PhantomData }
    }
}

impl<T: Service> AsQueuePairCore for ExtendedSendQueue<T> {
    fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}

/// A batch of sends under construction. Dropping it discards the batch (`ibv_wr_abort`).
#[doc(alias = "ibv_wr_abort")]
pub struct ExtendedPostSendGuard<'q, T = Connected> {
    qp: NonNull<ibv_qp_ex>,
    /// 1 if the batch has no request yet, otherwise 0. A whole word, as in
    /// [`ExtendedPoller`](crate::ibverbs::completion::ExtendedPoller).
    empty: usize,
    queue: PhantomData<(&'q mut (), T)>,
}

// SAFETY: the batch is used by `post`, which consumes the guard, or by its drop.
unsafe impl<'q, T: Service> HoldsFor<'q> for ExtendedPostSendGuard<'q, T> {}

impl<T: Service> SendSink for ExtendedPostSendGuard<'_, T> {
    #[inline]
    unsafe fn emit<O: SendOperation, D: SendData>(&mut self, wr_id: u64, flags: u32, operation: O, data: D) {
        let qp = self.qp.as_ptr();
        // SAFETY: the batch is open; no function is null (`ExtendedSendQueue::new`); the caller upholds the contract
        // for the memory.
        unsafe {
            (*qp).wr_id = wr_id;
            (*qp).wr_flags = flags | D::FLAGS;
            if T::PACKETS && flags & WorkRequestFlags::IpChecksum.bits() != 0 {
                SendContext::expect_checksums(qp);
            }
            operation.begin(qp);
            data.give(qp);
        }
        self.empty = 0;
    }
}

impl<T: Service> PostSendGuard for ExtendedPostSendGuard<'_, T> {
    type Service = T;

    #[inline]
    fn post(self) -> Result<(), PostSendError> {
        if self.empty != 0 {
            // Dropping discards the batch without a call of the device.
            return Ok(());
        }
        let guard = ManuallyDrop::new(self);
        // SAFETY: the batch is open and ends here: the guard is not dropped any more.
        let ret = unsafe { sys::ibv_wr_complete(guard.qp.as_ptr()) };
        if ret == 0 { Ok(()) } else { Err(failure(guard.qp, ret)) }
    }
}

impl<T> Drop for ExtendedPostSendGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the batch is open and ends here.
        unsafe { sys::ibv_wr_abort(self.qp.as_ptr()) }
        if self.empty == 0 {
            // Discard any error of the batch too. SAFETY: the queue pair is live, and this guard still owns its send
            // queue.
            let _ = unsafe { SendContext::take_refusal(self.qp.as_ptr()) };
        }
    }
}

#[cold]
fn failure(qp: NonNull<ibv_qp_ex>, ret: c_int) -> PostSendError {
    const VERB: &str = "ibv_wr_complete";
    // SAFETY: the queue pair is live, and the caller owns its send queue.
    match unsafe { SendContext::take_refusal(qp.as_ptr()) } {
        Some(refusal) => PostSendError::from_refusal(VERB, refusal),
        None => {
            // SAFETY: as above.
            let limit = unsafe { SendContext::max_send_wr(qp.as_ptr()) };
            PostSendError::from_driver(VERB, errno_of(ret), None, None, limit)
        }
    }
}

impl<T> fmt::Debug for ExtendedPostSendGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtendedPostSendGuard").field("empty", &(self.empty != 0)).finish_non_exhaustive()
    }
}
