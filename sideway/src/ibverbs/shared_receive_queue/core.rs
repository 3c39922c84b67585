//! The C object behind a shared receive queue.

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
    /// Taken by who destroys the queue.
    handle: Option<Handle<ibv_srq>>,
    srq_type: SharedReceiveQueueType,
    user_context: usize,
    // Behind the handle: they must outlive it.
    parents: Parents,
}

/// What a shared receive queue is made from.
#[derive(Debug)]
pub(super) struct Parents {
    pub(super) attachment: Option<Arc<dyn Attachment<ibv_srq>>>,
    pub(super) cq: Option<Arc<CompletionQueueCore>>,
    pub(super) xrcd: Option<Arc<XrcDomain>>,
    pub(super) pd: Arc<ProtectionDomain>,
}

// SAFETY: the handle may move and be shared (see there), and nothing else is reached through the pointer.
unsafe impl Send for SharedReceiveQueueCore {}
// SAFETY: as for Send.
unsafe impl Sync for SharedReceiveQueueCore {}

impl SharedReceiveQueueCore {
    /// Takes a new queue over.
    ///
    /// # Safety
    ///
    /// `srq` was just made from `parents`, all of them, with this type, and is nobody else's.
    pub(super) unsafe fn adopt(
        srq: NonNull<ibv_srq>,
        srq_type: SharedReceiveQueueType,
        user_context: usize,
        parents: Parents,
    ) -> Arc<Self> {
        // SAFETY: the caller's promise; ibv_destroy_srq is the verb for it.
        let handle = Some(unsafe { Handle::new(srq, sys::ibv_destroy_srq, "ibv_destroy_srq") });
        let core = Arc::new(Self { srq, handle, srq_type, user_context, parents });
        core.context().objects().shared_receive_queues.insert(srq, &core);
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

    /// The number that the program gave the queue.
    pub(crate) fn user_context(&self) -> usize {
        self.user_context
    }

    pub(crate) fn modify(&self, attribute: &SharedReceiveQueueAttribute) -> Result<(), VerbError> {
        const VERB: &str = "ibv_modify_srq";
        let mut attr = *attribute.raw();
        // SAFETY: the queue is live, and the attributes are complete for the mask.
        let ret = unsafe { sys::ibv_modify_srq(self.raw(), &mut attr, attribute.mask().bits() as c_int) };
        check_errno(VERB, ret).map_err(|error| self.explain_modify(error, attribute))
    }

    /// Refuses a size that the device does not have, before there is memory for so many requests.
    pub(super) fn check_size(&self, attribute: &SharedReceiveQueueAttribute) -> Result<(), VerbError> {
        let asked = attribute.max_wr();
        match self.context().query_device() {
            Ok(device) if asked > device.max_srq_wr() => Err(VerbError::invalid(
                "ibv_modify_srq",
                format!("{asked} receives are asked for and the device has {}", device.max_srq_wr()),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn query(&self) -> Result<SharedReceiveQueueAttribute, VerbError> {
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 0 };
        // SAFETY: the queue is live, and the attributes are there to be filled.
        check_errno("ibv_query_srq", unsafe { sys::ibv_query_srq(self.raw(), &mut attr) })?;
        Ok(SharedReceiveQueueAttribute::from_raw(attr))
    }

    pub(crate) fn srq_number(&self) -> Result<u32, VerbError> {
        let mut number = 0;
        // SAFETY: the queue is live, and the number is there to be filled.
        check_errno("ibv_get_srq_num", unsafe { sys::ibv_get_srq_num(self.raw(), &mut number) }).map_err(|error| {
            match error.errno().raw() {
                libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint(
                    "the device or its driver tells no number of this queue; only senders on XRC queue pairs need it",
                ),
                _ => error,
            }
        })?;
        Ok(number)
    }

    /// Destroys the queue and reports. Where others hold it, it lives on, and is destroyed by the last of them.
    pub(super) fn close(self: Arc<Self>) -> Result<(), VerbError> {
        match Arc::into_inner(self) {
            Some(mut core) => match core.destroy()? {
                End::Gone => Ok(()),
                End::LeftBehind => {
                    Err(held("the completion queue that the queue was made with holds it: it goes with that"))
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
            // A completion names such a queue, and drivers (mlx5) hold on to it from one step of a poll to the next. The poll may
            // be under way, on this thread or another.
            Some(Err(cq)) => {
                cq.leave_behind(Box::new(left));
                Ok(End::LeftBehind)
            }
            // Nobody polls any more. A completion queue of ours alone is dropped behind it.
            Some(Ok(_)) | None => left.destroy().map(|()| End::Gone),
        }
    }

    /// Says what was probably wrong.
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
            return error.with_hint(
                "the device does not resize shared receive queues: make the queue as large as it will have to be",
            );
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
                return error
                    .with_hint(format!("the limit is {} and the queue holds {holds} receives", attribute.limit()));
            }
        }
        if mask.contains(Mask::MaxWr) && error.errno().raw() == libc::EINVAL {
            return error.with_hint("perhaps more receives are outstanding than the smaller queue would hold");
        }
        error
    }
}

#[cold]
fn held(hint: &'static str) -> VerbError {
    VerbError::new("ibv_destroy_srq", Errno::EBUSY).with_hint(hint)
}

/// What became of a queue that nobody holds any more.
enum End {
    Gone,
    /// Its completion queue destroys it.
    LeftBehind,
}

/// What is left of a queue that nobody holds any more.
struct Left {
    handle: Option<Handle<ibv_srq>>,
    // Behind the handle: they must outlive it.
    xrcd: Option<Arc<XrcDomain>>,
    pd: Arc<ProtectionDomain>,
}

impl Left {
    fn destroy(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        let srq = handle.as_non_null();
        // Where it fails, the queue lives on.
        handle.close().inspect_err(|_| self.pd.keep_parent_domain())?;
        // Until now events could name it.
        self.pd.device_context().objects().shared_receive_queues.remove(srq);
        self.xrcd = None;
        Ok(())
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            log::warn!("{error}; the shared receive queue is leaked");
        }
    }
}

impl Drop for SharedReceiveQueueCore {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            log::warn!("{error}; the shared receive queue is leaked");
        }
    }
}
