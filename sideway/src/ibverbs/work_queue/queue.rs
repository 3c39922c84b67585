//! `struct ibv_wq`: posting to a work queue, modifying it, and its parents.

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

/// A receive work queue. One thread at a time can post to it. An indirection table that names the queue keeps the
/// queue's C object alive.
#[doc(alias = "ibv_wq")]
#[derive(Debug)]
pub struct WorkQueue {
    wq: *mut ibv_wq,
    requests: Requests<ibv_recv_wr>,
    core: Arc<WorkQueueCore>,
}

// SAFETY: the queue owns its requests. Any thread may post to a work queue, and `&mut` permits only one thread at a
// time.
unsafe impl Send for WorkQueue {}
// SAFETY: a shared reference to the queue gives access only to its numbers and to its state, which is read atomically.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// Wraps a queue. Its C object has the function `post_recv`, and accepts requests as large as `requests`.
    pub(super) fn new(requests: Requests<ibv_recv_wr>, core: Arc<WorkQueueCore>) -> Self {
        Self { wq: core.raw(), requests, core }
    }

    /// Starts a batch of receives.
    ///
    /// Receives can be posted in any state, but are processed only in [`Ready`](WorkQueueState::Ready).
    #[doc(alias = "ibv_post_wq_recv")]
    #[inline]
    pub fn start_post_recv(&mut self) -> PostRecvGuard<'_, *mut ibv_wq> {
        // SAFETY: the work queue is live as long as the core, has the function (`new`), and the guard borrows it.
        unsafe { PostRecvGuard::new(self.wq, &mut self.requests) }
    }

    /// `ibv_modify_wq(wq, attr)` — changes the state or the flags. A transition to Reset discards all receives. After
    /// that, the program may reuse their memory.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the queue is not in the state that was set as the current one, or the transition is invalid.
    /// - `EOPNOTSUPP`: the flags cannot be changed.
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
            Some(target) if error.errno().raw() == libc::EINVAL => error
                .with_hint(format!("cannot move the queue from {:?} to {target:?}; go through Reset", self.state())),
            _ => error,
        })
    }

    /// Returns the state after the last successful [`modify`](Self::modify).
    pub fn state(&self) -> WorkQueueState {
        // SAFETY: the queue is live as long as the core, and the field is an aligned word. A driver may write it in C
        // code at any time, so an atomic load returns either the old or the new state.
        let state = unsafe { AtomicU32::from_ptr((&raw mut (*self.core.raw()).state).cast()) };
        WorkQueueState::from_raw(state.load(Ordering::Relaxed))
    }

    /// Returns the queue's number.
    pub fn wq_number(&self) -> u32 {
        self.core.wq_number()
    }

    /// `ibv_destroy_wq(wq)` — destroys the queue. This method returns an error of the verb, whereas drop only logs it.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if an indirection table or asynchronous events still reference the queue. The queue is then
    /// destroyed when the last reference is dropped. Otherwise returns the driver's errno, and the queue is leaked.
    ///
    /// # References
    ///
    /// [ibv_create_wq(3)](https://man7.org/linux/man-pages/man3/ibv_create_wq.3.html)
    #[doc(alias = "ibv_destroy_wq")]
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// Returns the queue's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.core.context()
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives. Do not destroy it, do not post to it while a guard exists, and do not
    /// change its functions.
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
    /// `None` once the queue is being destroyed.
    handle: Option<Handle<ibv_wq>>,
    // The objects from which the queue pair was created. Declared after the handle, because they must outlive it.
    #[expect(dead_code, reason = "held only while the work queue lives")]
    cq: Arc<CompletionQueueCore>,
    pd: Arc<ProtectionDomain>,
}

// SAFETY: the handle is `Send` and `Sync` (see `Handle`), and the pointer is that of the same object.
unsafe impl Send for WorkQueueCore {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for WorkQueueCore {}

impl WorkQueueCore {
    /// Takes ownership of a new queue.
    ///
    /// # Safety
    ///
    /// `wq` was just created in `pd` with `cq`, and has no other owner.
    pub(super) unsafe fn adopt(
        wq: NonNull<ibv_wq>,
        pd: Arc<ProtectionDomain>,
        cq: Arc<CompletionQueueCore>,
    ) -> Arc<Self> {
        // SAFETY: by the contract of this function, `wq` is new and has no other owner, and this verb destroys it.
        let handle = Some(unsafe { Handle::new(wq, destroy_wq, "ibv_destroy_wq") });
        let core = Arc::new(Self { wq, handle, cq, pd });
        core.context().objects().insert(wq, &core);
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

    /// Destroys the queue. If other objects reference it, dropping the last reference destroys it.
    fn close(self: Arc<Self>) -> Result<(), VerbError> {
        match Arc::into_inner(self) {
            Some(mut core) => core.destroy(),
            None => Err(VerbError::new("ibv_destroy_wq", Errno::EBUSY)
                .with_hint("an indirection table or events reference the queue; the last of them destroys it")),
        }
    }

    fn destroy(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        // If the verb fails, the queue continues to exist.
        if let Err(error) = handle.close() {
            self.pd.keep_parent_domain();
            return Err(error);
        }
        self.context().objects().remove(self.wq);
        Ok(())
    }
}

impl Drop for WorkQueueCore {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            rdma_mummy_sys::log!(warn, "{error}; the work queue is leaked");
        }
    }
}

unsafe extern "C" fn destroy_wq(wq: *mut ibv_wq) -> libc::c_int {
    // SAFETY: the handle calls this function once, with its own object.
    unsafe { sys::ibv_destroy_wq(wq) }
}

/// A reference to a work queue. It identifies the queue, but only the owner of the queue can post to it. While the
/// reference exists, it keeps the queue's C object alive, and [`WorkQueue::close`] returns `EBUSY`. Dropping the last
/// reference destroys the queue.
#[derive(Clone, Debug)]
pub struct WorkQueueRef {
    queue: Arc<WorkQueueCore>,
}

impl WorkQueueRef {
    pub(crate) fn new(queue: Arc<WorkQueueCore>) -> Self {
        Self { queue }
    }

    /// Whether this references the given work queue.
    pub fn is_of(&self, queue: &WorkQueue) -> bool {
        Arc::ptr_eq(&self.queue, queue.core())
    }

    /// Returns the queue's number.
    pub fn wq_number(&self) -> u32 {
        self.queue.wq_number()
    }

    /// Returns the queue's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.queue.context()
    }
}
