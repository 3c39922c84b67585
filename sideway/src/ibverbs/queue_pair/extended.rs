//! The queue pair that `ibv_create_qp_ex` creates. A batch is posted with `ibv_wr_start`, calls for each request, and
//! `ibv_wr_complete`.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_qp_ex;

use super::common::AsQueuePairCore;
use super::pair::SendQueue;
use super::send_context::SendContext;
use super::{Connected, QueuePairCore, Service};
use crate::ffi::errno_of;
use crate::ibverbs::work_request::{
    HoldsFor, PostSendError, PostSendGuard, SendData, SendOperation, SendSink, WorkRequestFlags,
};

/// The send queue of an extended queue pair. One thread at a time can post to it.
#[derive(Debug)]
pub struct ExtendedSendQueue<T = Connected> {
    qp: NonNull<ibv_qp_ex>,
    core: Arc<QueuePairCore>,
    service: PhantomData<T>,
}

// SAFETY: any thread may post to a queue pair, and `&mut` permits only one thread at a time.
unsafe impl<T: Service> Send for ExtendedSendQueue<T> {}
// SAFETY: a shared reference to the send queue only gives access to the core, which is `Sync`.
unsafe impl<T: Service> Sync for ExtendedSendQueue<T> {}

impl<T: Service> ExtendedSendQueue<T> {
    /// Wraps the send queue of `core`.
    ///
    /// # Safety
    ///
    /// `qp` is the extended queue pair of `core`, and has the service `T`. None of its functions from
    /// `wr_atomic_cmp_swp` to `wr_abort` is null. The queue pair has no other send queue object.
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
        // SAFETY: the queue pair is live as long as the core, and `&mut self` excludes another guard. A forgotten guard
        // (`mem::forget`) leaves its batch open. libibverbs does not define what a second start then does. The drivers
        // mlx5, efa, hns and soft-RoCE lock the queue in the start, and so they deadlock. If mlx5 takes no lock, it
        // aborts the process.
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
    /// 1 if the batch has no request yet, otherwise 0. This is a whole word for the same reason as in
    /// [`ExtendedPoller`](crate::ibverbs::completion::ExtendedPoller).
    empty: usize,
    queue: PhantomData<(&'q mut (), T)>,
}

// SAFETY: only `post`, which consumes the guard, and the guard's drop use the batch.
unsafe impl<'q, T: Service> HoldsFor<'q> for ExtendedPostSendGuard<'q, T> {}

impl<T: Service> SendSink for ExtendedPostSendGuard<'_, T> {
    #[inline]
    unsafe fn emit<O: SendOperation, D: SendData>(&mut self, wr_id: u64, flags: u32, operation: O, data: D) {
        let qp = self.qp.as_ptr();
        // SAFETY: the batch is open, and no function is null (`ExtendedSendQueue::new`). The caller upholds the
        // contract for the memory.
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
            // The batch is empty. Dropping the guard ends it without a doorbell.
            return Ok(());
        }
        let guard = ManuallyDrop::new(self);
        // SAFETY: the batch is open and ends here, because the guard is not dropped any more.
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
            // Also discard a recorded error of the batch. SAFETY: the queue pair is live, and this guard still owns its
            // send queue.
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
