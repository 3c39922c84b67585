//! A queue pair that is the target of others and has no queues to post to.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_context, ibv_qp, ibv_qp_init_attr_ex};

use super::common::AsQueuePairCore;
use super::{QueuePairBuilder, QueuePairCore, QueuePairType, Service};
use crate::error::VerbError;
use crate::ffi::check_pointer;

/// A queue pair that others address, and that has no queues of its own: what arrives goes to a shared receive queue. It is
/// changed and asked as any other.
#[derive(Debug)]
pub struct TargetQueuePair {
    core: Arc<QueuePairCore>,
}

impl<T: Service> QueuePairBuilder<T> {
    /// Makes a queue pair without queues by a function of a vendor's, such as `mlx5dv_create_qp` for the target of dynamic
    /// connections. `verb` is its name for errors. No requests, lists or inline data are asked for, whatever the builder was
    /// told; completions of sends, of which there are none, go where those of receives go, unless another queue was given.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no queue for the completions of receives, or one of another device.
    /// - where `create` gives null, errno tells why.
    ///
    /// # Safety
    ///
    /// - `create` does as `ibv_create_qp_ex` with the attributes it is given, of which it may change what it documents: it keeps
    ///   `qp_context` (null), the domain and the completion queues, and returns null, or a queue pair that is nobody else's.
    /// - It reads no object that goes before the queue pair does: see [`setup_kept`](Self::setup_kept).
    pub unsafe fn build_target_with(
        &self,
        verb: &'static str,
        create: impl FnOnce(*mut ibv_context, &mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
    ) -> Result<TargetQueuePair, VerbError> {
        let parents = self.target_parents(verb)?;
        let mut attr = self.attributes_ex(&parents);
        // Of the struct's integers, zero asks for nothing.
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (0, 0);
        (attr.cap.max_send_sge, attr.cap.max_recv_sge, attr.cap.max_inline_data) = (0, 0, 0);
        let qp = create(self.pd.device_context().raw(), &mut attr);
        let qp = check_pointer(verb, qp).map_err(|error| self.explain(error))?;
        // SAFETY: just made from these, and without a context.
        Ok(TargetQueuePair { core: unsafe { self.adopt(qp, None, parents) } })
    }
}

impl TargetQueuePair {
    /// The transport service.
    pub fn qp_type(&self) -> QueuePairType {
        self.core.qp_type()
    }

    /// `ibv_destroy_qp(qp)` — destroys the queue pair and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// `EBUSY` where asynchronous events hold the queue pair, which then goes with the last of them; else the driver's errno,
    /// and the queue pair is leaked.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and not destroyed; its `qp_context` stays as it is.
    pub unsafe fn qp(&self) -> NonNull<ibv_qp> {
        self.core.as_non_null()
    }
}

impl AsQueuePairCore for TargetQueuePair {
    fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}
