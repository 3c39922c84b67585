//! The queue pair of `ibv_create_qp_ex`, posted to by `ibv_wr_start`, one call an operation, `ibv_wr_complete`.

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

/// The send queue of an extended queue pair, which one thread at a time posts to.
#[derive(Debug)]
pub struct ExtendedSendQueue<T = Connected> {
    qp: NonNull<ibv_qp_ex>,
    core: Arc<QueuePairCore>,
    service: PhantomData<T>,
}

// SAFETY: posting to a queue pair is allowed from any thread, and `&mut` keeps it to one at a time.
unsafe impl<T: Service> Send for ExtendedSendQueue<T> {}
// SAFETY: a shared send queue gives access to the core alone.
unsafe impl<T: Service> Sync for ExtendedSendQueue<T> {}

impl<T: Service> ExtendedSendQueue<T> {
    /// The send queue of `core`.
    ///
    /// # Safety
    ///
    /// `qp` is the extended queue pair of `core`, of the service `T`; none of its functions from `wr_atomic_cmp_swp` to `wr_abort` is null,
    /// and there is no other send queue of it.
    pub(super) unsafe fn new(qp: NonNull<ibv_qp_ex>, core: &Arc<QueuePairCore>) -> Self {
        Self { qp, core: Arc::clone(core), service: PhantomData }
    }
}

impl<T: Service> SendQueue for ExtendedSendQueue<T> {
    type Service = T;
    type Guard<'q> = ExtendedPostSendGuard<'q, T>;

    /// Begins a batch of sends. Until the guard is posted or dropped, the driver may hold a lock of the queue.
    #[doc(alias = "ibv_wr_start")]
    #[inline]
    fn start_post_send(&mut self) -> ExtendedPostSendGuard<'_, T> {
        // SAFETY: the queue pair is live as long as the core, and `&mut self` says that no guard is out. One that was forgotten
        // (`mem::forget`) leaves its batch begun. libibverbs does not say what comes of a second beginning; mlx5, efa,
        // hns and soft-RoCE take the queue's lock in it, and so wait for themselves for ever, or end the process where
        // there is no lock (mlx5).
        unsafe { sys::ibv_wr_start(self.qp.as_ptr()) };
        ExtendedPostSendGuard { qp: self.qp, empty: 1, queue: PhantomData }
    }
}

impl<T: Service> AsQueuePairCore for ExtendedSendQueue<T> {
    fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}

/// A batch of sends under construction. Dropping it takes the batch back (`ibv_wr_abort`).
#[doc(alias = "ibv_wr_abort")]
pub struct ExtendedPostSendGuard<'q, T = Connected> {
    qp: NonNull<ibv_qp_ex>,
    /// 1 until there is a request. A whole word, as in [`ExtendedPoller`](crate::ibverbs::completion::ExtendedPoller).
    empty: usize,
    queue: PhantomData<(&'q mut (), T)>,
}

// SAFETY: the batch is used by `post`, which takes the guard, or by its drop.
unsafe impl<'q, T: Service> HoldsFor<'q> for ExtendedPostSendGuard<'q, T> {}

impl<T: Service> SendSink for ExtendedPostSendGuard<'_, T> {
    #[inline]
    unsafe fn emit<O: SendOperation, D: SendData>(&mut self, wr_id: u64, flags: u32, operation: O, data: D) {
        let qp = self.qp.as_ptr();
        // SAFETY: the batch was begun and has not ended; no function is null (`ExtendedSendQueue::new`); gathered memory
        // is the caller's promise.
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
            // Dropping takes the batch back, and the device hears nothing.
            return Ok(());
        }
        let guard = ManuallyDrop::new(self);
        // SAFETY: the batch was begun and ends here: the guard is not dropped any more.
        let ret = unsafe { sys::ibv_wr_complete(guard.qp.as_ptr()) };
        if ret == 0 { Ok(()) } else { Err(failure(guard.qp, ret)) }
    }
}

impl<T> Drop for ExtendedPostSendGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the batch was begun and ends here.
        unsafe { sys::ibv_wr_abort(self.qp.as_ptr()) }
        if self.empty == 0 {
            // What was refused goes with the batch. SAFETY: the queue pair is live, and its send queue is still ours.
            let _ = unsafe { SendContext::take_refusal(self.qp.as_ptr()) };
        }
    }
}

#[cold]
fn failure(qp: NonNull<ibv_qp_ex>, ret: c_int) -> PostSendError {
    const VERB: &str = "ibv_wr_complete";
    // SAFETY: the queue pair is live, and its send queue is the caller's.
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
