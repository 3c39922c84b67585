//! `struct ibv_wq`: posting to a work queue, changing it, and what it keeps alive.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_recv_wr, ibv_wq};

use super::{WorkQueueAttribute, WorkQueueState};
use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_errno};
use crate::ibverbs::completion::CompletionQueueCore;
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::work_request::{PostRecvGuard, Requests};

/// A receive work queue, which one thread at a time posts to. An indirection table that names it keeps its C object alive.
#[doc(alias = "ibv_wq")]
#[derive(Debug)]
pub struct WorkQueue {
    wq: *mut ibv_wq,
    requests: Requests<ibv_recv_wr>,
    core: Arc<WorkQueueCore>,
}

// SAFETY: the queue owns its requests; posting to a work queue is allowed from any thread, and `&mut` keeps it to one.
unsafe impl Send for WorkQueue {}
// SAFETY: a shared work queue gives access to its numbers and its state, which is read atomically.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// A queue whose C object has the function `post_recv`, and takes requests as large as these.
    pub(super) fn new(requests: Requests<ibv_recv_wr>, core: Arc<WorkQueueCore>) -> Self {
        Self { wq: core.raw(), requests, core }
    }

    /// Begins a batch of receives.
    ///
    /// Receives are taken in any state but processed in [`Ready`](WorkQueueState::Ready) alone.
    #[doc(alias = "ibv_post_wq_recv")]
    #[inline]
    pub fn start_post_recv(&mut self) -> PostRecvGuard<'_, *mut ibv_wq> {
        // SAFETY: the work queue is live as long as the core, has the function (`new`), and is borrowed by the guard.
        unsafe { PostRecvGuard::new(self.wq, &mut self.requests) }
    }

    /// `ibv_modify_wq(wq, attr)` — changes the state or the flags. Going to Reset forgets all receives; their memory is the
    /// program's again.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the queue is not in the state that was given as the current one, or cannot go from there to the state
    ///   asked for.
    /// - `EOPNOTSUPP`: flags that cannot be changed.
    ///
    /// # References
    ///
    /// [ibv_modify_wq(3)](https://man7.org/linux/man-pages/man3/ibv_modify_wq.3.html)
    #[doc(alias = "ibv_modify_wq")]
    pub fn modify(&mut self, attribute: &WorkQueueAttribute) -> Result<(), VerbError> {
        let mut attr = *attribute.raw();
        // SAFETY: the work queue is live as long as the core, and the attributes can be read during the call.
        let ret = unsafe { sys::ibv_modify_wq(self.core.raw(), &mut attr) };
        check_errno("ibv_modify_wq", ret).map_err(|error| match attribute.target() {
            Some(target) if error.errno().raw() == libc::EINVAL => {
                error.with_hint(format!("the queue is in {:?} and {target:?} was asked for", self.state()))
            }
            _ => error,
        })
    }

    /// The state that the last successful [`modify`](Self::modify) left.
    pub fn state(&self) -> WorkQueueState {
        // SAFETY: the queue is live as long as the core, and the field is an aligned word. A driver may write it at any time,
        // in C: an atomic load gives the old state or the new one.
        let state = unsafe { AtomicU32::from_ptr((&raw mut (*self.core.raw()).state).cast()) };
        WorkQueueState::from_raw(state.load(Ordering::Relaxed))
    }

    /// The number of the queue.
    pub fn wq_number(&self) -> u32 {
        self.core.wq_number()
    }

    /// `ibv_destroy_wq(wq)` — destroys the queue and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// `EBUSY` where an indirection table or asynchronous events hold the queue, which goes with the last of them then; else the
    /// driver's errno, and the queue is leaked.
    ///
    /// # References
    ///
    /// [ibv_create_wq(3)](https://man7.org/linux/man-pages/man3/ibv_create_wq.3.html)
    #[doc(alias = "ibv_destroy_wq")]
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// The device that the queue is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.core.context()
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, not destroyed, and not posted to while a guard is out; its functions stay as they
    /// are.
    pub unsafe fn wq(&self) -> NonNull<ibv_wq> {
        self.core.wq
    }

    pub(super) fn core(&self) -> &Arc<WorkQueueCore> {
        &self.core
    }
}

/// The C object with everything that must outlive it. The queue's owner, its tables and its events share it.
#[derive(Debug)]
pub(crate) struct WorkQueueCore {
    wq: NonNull<ibv_wq>,
    /// Taken by who destroys the queue.
    handle: Option<Handle<ibv_wq>>,
    // Behind the handle: they must outlive it.
    #[expect(dead_code, reason = "kept for as long as the work queue lives")]
    cq: Arc<CompletionQueueCore>,
    pd: Arc<ProtectionDomain>,
}

// SAFETY: the handle may move and be shared (see there), and the pointer is that of the same object.
unsafe impl Send for WorkQueueCore {}
// SAFETY: as for Send.
unsafe impl Sync for WorkQueueCore {}

impl WorkQueueCore {
    /// Takes a new queue over.
    ///
    /// # Safety
    ///
    /// `wq` was just made in `pd` with `cq`, and is nobody else's.
    pub(super) unsafe fn adopt(
        wq: NonNull<ibv_wq>,
        pd: Arc<ProtectionDomain>,
        cq: Arc<CompletionQueueCore>,
    ) -> Arc<Self> {
        // SAFETY: the caller's promise; this is the verb for it.
        let handle = Some(unsafe { Handle::new(wq, destroy_wq, "ibv_destroy_wq") });
        let core = Arc::new(Self { wq, handle, cq, pd });
        core.context().objects().work_queues.insert(wq, &core);
        core
    }

    pub(super) fn raw(&self) -> *mut ibv_wq {
        self.wq.as_ptr()
    }

    pub(super) fn wq_number(&self) -> u32 {
        // SAFETY: the queue is live as long as the core, and the number never changes.
        unsafe { (*self.raw()).wq_num }
    }

    pub(super) fn context(&self) -> &Arc<DeviceContext> {
        self.pd.device_context()
    }

    /// Destroys the queue and reports. Where others hold it, it lives on, and is destroyed by the last of them.
    fn close(self: Arc<Self>) -> Result<(), VerbError> {
        match Arc::into_inner(self) {
            Some(mut core) => core.destroy(),
            None => Err(VerbError::new("ibv_destroy_wq", Errno::EBUSY)
                .with_hint("an indirection table or events hold the queue: it goes with the last of them")),
        }
    }

    fn destroy(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        // Where it fails, the queue lives on.
        if let Err(error) = handle.close() {
            self.pd.keep_parent_domain();
            return Err(error);
        }
        self.context().objects().work_queues.remove(self.wq);
        Ok(())
    }
}

impl Drop for WorkQueueCore {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            log::warn!("{error}; the work queue is leaked");
        }
    }
}

unsafe extern "C" fn destroy_wq(wq: *mut ibv_wq) -> libc::c_int {
    // SAFETY: called by the handle, once, with its own object.
    unsafe { sys::ibv_destroy_wq(wq) }
}

/// A hold on a work queue: it can be named, not posted to, which is for its owner. It keeps the queue's C object alive;
/// [`WorkQueue::close`] tells. Where it is the last to hold the object, dropping it destroys the queue.
#[derive(Clone, Debug)]
pub struct WorkQueueRef {
    queue: Arc<WorkQueueCore>,
}

impl WorkQueueRef {
    pub(crate) fn new(queue: Arc<WorkQueueCore>) -> Self {
        Self { queue }
    }

    /// Whether this is that work queue.
    pub fn is_of(&self, queue: &WorkQueue) -> bool {
        Arc::ptr_eq(&self.queue, queue.core())
    }

    /// The number of the queue.
    pub fn wq_number(&self) -> u32 {
        self.queue.wq_number()
    }

    /// The device that the queue is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.queue.context()
    }
}
