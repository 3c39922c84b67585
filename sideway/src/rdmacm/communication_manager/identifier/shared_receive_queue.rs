//! The shared receive queue of an identifier.

use std::ptr::{self, NonNull};
use std::sync::{Arc, PoisonError};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_context, ibv_srq, ibv_srq_init_attr_ex};

use super::Identifier;
use super::device::require_device;
use crate::error::VerbError;
use crate::ffi::Attachment;
use crate::ibverbs::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueBuilder, SharedReceiveQueueCore};

const EX: &str = "rdma_create_srq_ex";

impl Identifier {
    /// `rdma_create_srq_ex(id, srq_init_attr_ex)` — creates a shared receive queue from the builder. Queue pairs that
    /// are later [created through the identifier](Self::create_qp) use this queue if their builder has no shared
    /// receive queue.
    ///
    /// The builder's domain must belong to [`get_device_context`](Self::get_device_context). The queue keeps the
    /// identifier alive. When the queue is destroyed (`rdma_destroy_srq` in C, which reports no errors), it is first
    /// removed from the identifier.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier has no device, its device is not that of the builder's domain, or it already has a
    ///   shared receive queue.
    /// - Otherwise the errors of [`SharedReceiveQueueBuilder::build_ex`].
    ///
    /// # References
    ///
    /// [rdma_create_srq(3)](https://man7.org/linux/man-pages/man3/rdma_create_srq.3.html)
    #[doc(alias = "rdma_create_srq")]
    #[doc(alias = "rdma_create_srq_ex")]
    #[doc(alias = "rdma_destroy_srq")]
    pub fn create_srq(self: &Arc<Self>, builder: &SharedReceiveQueueBuilder) -> Result<SharedReceiveQueue, VerbError> {
        let context = require_device(EX, self.get_device_context())?;
        if builder.context().raw() != context.raw() {
            return Err(VerbError::invalid(
                EX,
                "the protection domain belongs to another device context than the identifier; allocate it from \
                Identifier::get_device_context",
            ));
        }
        let create = |_: *mut ibv_context, attr: &mut ibv_srq_init_attr_ex| {
            self.with(|id| {
                // SAFETY: the identifier is live, locked, and on the device of the domain. The builder has initialised
                // the attributes.
                unsafe {
                    if !(*id).srq.is_null() {
                        *libc::__errno_location() = libc::EINVAL;
                        return ptr::null_mut();
                    }
                    match sys::rdma_create_srq_ex(id, attr) {
                        0 => (*id).srq,
                        _ => ptr::null_mut(),
                    }
                }
            })
        };
        let attachment = Arc::clone(self) as Arc<dyn Attachment<ibv_srq>>;
        // SAFETY: the function creates the queue with the attributes. The identifier stores the address of the queue,
        // and is the attachment.
        let srq = unsafe { builder.build_ex_by(EX, create, Some(attachment)) }?;
        *self.srq.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(srq.core());
        Ok(srq)
    }

    /// Returns the queue that was created through the identifier, if it still exists.
    pub(super) fn made_srq(&self) -> Option<Arc<SharedReceiveQueueCore>> {
        self.srq.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

impl Attachment<ibv_srq> for Identifier {
    fn detach(&self, srq: NonNull<ibv_srq>) {
        self.with(|id| {
            // SAFETY: the identifier is live and locked.
            unsafe {
                if (*id).srq == srq.as_ptr() {
                    (*id).srq = ptr::null_mut();
                }
            }
        });
    }
    fn apart(&self, run: &mut dyn FnMut()) {
        self.with(|_| run());
    }
}
