//! The C object of a shared receive queue.

use std::ptr::NonNull;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_srq, ibv_srq_attr};

use super::{SharedReceiveQueueAttribute, SharedReceiveQueueAttributeMask as Mask, SharedReceiveQueueType};
use crate::error::{Errno, VerbError};
use crate::ffi::{Attachment, Handle, check_errno};
use crate::ibverbs::completion::CompletionQueueCore;
use crate::ibverbs::device_context::{DeviceCapabilityFlags, DeviceContext};
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::xrc_domain::XrcDomain;

/// The C object with everything that must outlive it. The queue's owner, its queue pairs and its events share it.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueueCore {
    srq: NonNull<ibv_srq>,
    /// `None` once the queue is being destroyed.
    handle: Option<Handle<ibv_srq>>,
    srq_type: SharedReceiveQueueType,
    user_context: usize,
    // The objects from which the queue pair was created. Declared after the handle, because they must outlive it.
    parents: Parents,
}

/// The objects from which a shared receive queue is created.
#[derive(Debug)]
pub(super) struct Parents {
    pub(super) attachment: Option<Arc<dyn Attachment<ibv_srq>>>,
    pub(super) cq: Option<Arc<CompletionQueueCore>>,
    pub(super) xrcd: Option<Arc<XrcDomain>>,
    pub(super) pd: Arc<ProtectionDomain>,
}

// SAFETY: the handle is `Send` and `Sync` (see `Handle`), and the pointer gives access to nothing else.
unsafe impl Send for SharedReceiveQueueCore {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for SharedReceiveQueueCore {}

impl SharedReceiveQueueCore {
    /// Takes ownership of a new queue.
    ///
    /// # Safety
    ///
    /// `srq` was just created from all of `parents`, with this type, and has no other owner.
    pub(super) unsafe fn adopt(
        srq: NonNull<ibv_srq>,
        srq_type: SharedReceiveQueueType,
        user_context: usize,
        parents: Parents,
    ) -> Arc<Self> {
        // SAFETY: by the contract of this function, `srq` is new and has no other owner. ibv_destroy_srq destroys it.
        let handle = Some(unsafe { Handle::new(srq, sys::ibv_destroy_srq, "ibv_destroy_srq") });
        let core = Arc::new(Self { srq, handle, srq_type, user_context, parents });
        core.context().objects().insert(srq, &core);
        core
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_srq {
        self.srq.as_ptr()
    }

    pub(super) fn as_non_null(&self) -> NonNull<ibv_srq> {
        self.srq
    }

    pub(crate) fn context(&self) -> &Arc<DeviceContext> {
        self.parents.pd.device_context()
    }

    pub(crate) fn srq_type(&self) -> SharedReceiveQueueType {
        self.srq_type
    }

    /// Returns the number set by the program.
    pub(crate) fn user_context(&self) -> usize {
        self.user_context
    }

    pub(crate) fn modify(&self, attribute: &SharedReceiveQueueAttribute) -> Result<(), VerbError> {
        const VERB: &str = "ibv_modify_srq";
        let mut attr = *attribute.raw();
        // SAFETY: the queue is live, and the attributes are initialised according to their mask.
        let ret = unsafe { sys::ibv_modify_srq(self.raw(), &mut attr, attribute.mask().bits() as c_int) };
        check_errno(VERB, ret).map_err(|error| self.explain_modify(error, attribute))
    }

    /// Rejects a size that exceeds the device's limit, before memory for that number of requests is allocated.
    pub(super) fn check_size(&self, attribute: &SharedReceiveQueueAttribute) -> Result<(), VerbError> {
        let asked = attribute.max_wr();
        match self.context().query_device() {
            Ok(device) if asked > device.max_srq_wr() => Err(VerbError::invalid(
                "ibv_modify_srq",
                format!("{asked} receives exceed the device's limit of {}; request less", device.max_srq_wr()),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn query(&self) -> Result<SharedReceiveQueueAttribute, VerbError> {
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 0 };
        // SAFETY: the queue is live, and the call may write to the attributes.
        check_errno("ibv_query_srq", unsafe { sys::ibv_query_srq(self.raw(), &mut attr) })?;
        Ok(SharedReceiveQueueAttribute::from_raw(attr))
    }

    pub(crate) fn srq_number(&self) -> Result<u32, VerbError> {
        let mut number = 0;
        // SAFETY: the queue is live, and the call may write to the number.
        check_errno("ibv_get_srq_num", unsafe { sys::ibv_get_srq_num(self.raw(), &mut number) }).map_err(|error| {
            match error.errno().raw() {
                libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint(
                    "the driver does not report this queue's number; only senders on XRC queue pairs need it",
                ),
                _ => error,
            }
        })?;
        Ok(number)
    }

    /// Destroys the queue. If other objects still reference it, the last of them destroys it.
    pub(super) fn close(self: Arc<Self>) -> Result<(), VerbError> {
        match Arc::into_inner(self) {
            Some(mut core) => match core.destroy()? {
                End::Gone => Ok(()),
                End::LeftBehind => {
                    Err(held("the queue's completion queue references it; dropping that destroys the queue"))
                }
            },
            None => Err(held("queue pairs or events reference the queue; the last of them destroys it")),
        }
    }

    fn destroy(&mut self) -> Result<End, VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(End::Gone) };
        if let Some(attachment) = self.parents.attachment.take() {
            attachment.detach(self.srq);
        }
        let mut left = Left { handle: Some(handle), xrcd: self.parents.xrcd.take(), pd: Arc::clone(&self.parents.pd) };
        match self.parents.cq.take().map(Arc::try_unwrap) {
            // A completion names its shared receive queue, and drivers (mlx5) keep the pointer to that queue from one
            // step of a poll to the next. A poll may be open on this thread or another one, so the queue must not be
            // destroyed now.
            Some(Err(cq)) => {
                cq.leave_behind(Box::new(left));
                Ok(End::LeftBehind)
            }
            // No code polls the completion queue any more, so the queue can be destroyed.
            Some(Ok(_)) | None => left.destroy().map(|()| End::Gone),
        }
    }

    /// Adds the probable cause to the error.
    #[cold]
    fn explain_modify(&self, error: VerbError, attribute: &SharedReceiveQueueAttribute) -> VerbError {
        let mask = attribute.mask();
        match error.errno().raw() {
            libc::EINVAL | libc::ENOMEM | libc::EOPNOTSUPP | libc::ENOSYS => {}
            _ => return error,
        }
        if mask.contains(Mask::MaxWr)
            && let Ok(device) = self.context().query_device()
            && !device.device_cap_flags().contains(DeviceCapabilityFlags::SharedReceiveQueueResize)
        {
            return error
                .with_hint("the device cannot resize shared receive queues; build the queue with its final size");
        }
        if mask.contains(Mask::Limit) {
            let holds = if mask.contains(Mask::MaxWr) {
                Some(attribute.max_wr())
            } else {
                self.query().ok().map(|found| found.max_wr())
            };
            if let Some(holds) = holds
                && attribute.limit() > holds
            {
                return error.with_hint(format!(
                    "the limit {} exceeds the queue's {holds} receives; use a smaller limit",
                    attribute.limit()
                ));
            }
        }
        if mask.contains(Mask::MaxWr) && error.errno().raw() == libc::EINVAL {
            return error.with_hint("the smaller queue may not hold all outstanding receives; request more");
        }
        error
    }
}

#[cold]
fn held(hint: &'static str) -> VerbError {
    VerbError::new("ibv_destroy_srq", Errno::EBUSY).with_hint(hint)
}

/// The outcome of destroying a queue without references.
enum End {
    Gone,
    /// The shared receive queue is destroyed later, together with its completion queue.
    LeftBehind,
}

/// A queue without references.
struct Left {
    handle: Option<Handle<ibv_srq>>,
    // The objects from which the queue pair was created. Declared after the handle, because they must outlive it.
    xrcd: Option<Arc<XrcDomain>>,
    pd: Arc<ProtectionDomain>,
}

impl Left {
    fn destroy(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        let srq = handle.as_non_null();
        // If the verb fails, the queue continues to exist.
        handle.close().inspect_err(|_| self.pd.keep_parent_domain())?;
        // Events could name the queue until it was destroyed, so it is removed only now.
        self.pd.device_context().objects().remove(srq);
        self.xrcd = None;
        Ok(())
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            rdma_mummy_sys::log!(warn, "{error}; the shared receive queue is leaked");
        }
    }
}

impl Drop for SharedReceiveQueueCore {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            rdma_mummy_sys::log!(warn, "{error}; the shared receive queue is leaked");
        }
    }
}
