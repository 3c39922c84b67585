//! A queue pair that is the target of other queue pairs and has no queues.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_context, ibv_qp, ibv_qp_init_attr_ex};

use super::common::AsQueuePairCore;
use super::{QueuePairBuilder, QueuePairCore, QueuePairType, Service};
use crate::error::VerbError;
use crate::ffi::check_pointer;

/// A queue pair that has no queues of its own. Peers address it, and a shared receive queue receives their messages. It
/// can be modified and queried like any other queue pair.
#[derive(Debug)]
pub struct TargetQueuePair {
    core: Arc<QueuePairCore>,
}

impl<T: Service> QueuePairBuilder<T> {
    /// Builds a queue pair without queues, with a vendor's function such as `mlx5dv_create_qp` for the target of
    /// dynamic connections. `verb` is the function's name for errors. The queue pair has no capacity for requests,
    /// lists or inline data, regardless of the builder's settings. The send completion queue receives no completions.
    /// By default it is the receive completion queue.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the receive completion queue is missing, or a completion queue belongs to another device.
    /// - If `create` returns null, the errno that it set.
    ///
    /// # Safety
    ///
    /// - `create` behaves like `ibv_create_qp_ex` with the given attributes. It may change the attributes that its
    ///   documentation names, except `qp_context` (which is null), the domain and the completion queues. It changes no
    ///   other attributes. It returns null or a new queue pair that no other code owns.
    /// - The new queue pair uses no object that is destroyed before it; see [`setup_kept`](Self::setup_kept).
    #[cfg_attr(not(feature = "mlx5"), expect(dead_code, reason = "mlx5 uses it"))]
    pub(crate) unsafe fn build_target_with(
        &self,
        verb: &'static str,
        create: impl FnOnce(*mut ibv_context, &mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
    ) -> Result<TargetQueuePair, VerbError> {
        let parents = self.target_parents(verb)?;
        let mut attr = self.attributes_ex(&parents);
        // Zero integers in the struct request no resources.
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (0, 0);
        (attr.cap.max_send_sge, attr.cap.max_recv_sge, attr.cap.max_inline_data) = (0, 0, 0);
        let qp = create(self.pd.device_context().raw(), &mut attr);
        let qp = check_pointer(verb, qp).map_err(|error| self.explain(error))?;
        // SAFETY: the queue pair was just created from these parents, without a context.
        Ok(TargetQueuePair { core: unsafe { self.adopt(qp, None, parents) } })
    }
}

impl TargetQueuePair {
    /// Returns the transport service.
    pub fn qp_type(&self) -> QueuePairType {
        self.core.qp_type()
    }

    /// `ibv_destroy_qp(qp)` — destroys the queue pair. This method returns an error of the verb, whereas drop only logs
    /// it.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if asynchronous events still reference the queue pair. The queue pair is then destroyed when the
    /// last reference is dropped. Otherwise returns the driver's errno, and the queue pair is leaked.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives. Do not destroy it, and do not change its `qp_context`.
    pub unsafe fn qp(&self) -> NonNull<ibv_qp> {
        self.core.as_non_null()
    }
}

impl AsQueuePairCore for TargetQueuePair {
    fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}
