//! The target of dynamic connections.

use std::mem;
use std::sync::Arc;

use rdma_mummy_sys::mlx5dv::{
    self as sys, mlx5dv_dc_init_attr, mlx5dv_dc_init_attr__bindgen_ty_1, mlx5dv_dc_type, mlx5dv_qp_init_attr,
    mlx5dv_qp_init_attr_mask as mask,
};

use super::DynamicallyConnectedTarget;
use super::device::{explain, require};
use crate::error::VerbError;
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::queue_pair::{QueuePairBuilder, QueuePairType, TargetQueuePair};

const VERB: &str = "mlx5dv_create_qp";

impl ProtectionDomain {
    /// Creates a builder of targets of dynamic connections (DCT). A target has no queues of its own. Its receives come
    /// from a shared receive queue, and complete on the completion queue of receives.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device is not an mlx5 device, or libmlx5 is not installed; the hint reports which.
    pub fn create_dct_builder(self: &Arc<Self>) -> Result<QueuePairBuilder<DynamicallyConnectedTarget>, VerbError> {
        require(VERB, self.device_context())?;
        // SAFETY: the service has no requests.
        Ok(unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::Driver]) })
    }
}

impl QueuePairBuilder<DynamicallyConnectedTarget> {
    /// `mlx5dv_create_qp(context, qp_attr, {MLX5DV_DCTYPE_DCT, dct_access_key})` — creates a target that takes its
    /// receives from the shared receive queue that was set with [`setup_srq`](QueuePairBuilder::setup_srq). Initiators
    /// select the target by `access_key` (host byte order) and by its number, which is assigned when it becomes [ready
    /// to receive](crate::ibverbs::queue_pair::QueuePairState::ReadyToReceive).
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the shared receive queue or the completion queue of receives is missing, or an object belongs to
    ///   another device.
    /// - `EOPNOTSUPP`: the device does not support dynamic connections.
    /// - `ENOMEM`: out of resources.
    ///
    /// # References
    ///
    /// [mlx5dv_create_qp(3)](https://man7.org/linux/man-pages/man3/mlx5dv_create_qp.3.html)
    #[doc(alias = "mlx5dv_create_qp")]
    #[doc(alias = "MLX5DV_DCTYPE_DCT")]
    pub fn build_dct(&self, access_key: u64) -> Result<TargetQueuePair, VerbError> {
        if !self.has_srq() {
            return Err(VerbError::invalid(VERB, "a target has no receive queue of its own; call setup_srq"));
        }
        // SAFETY: all zeros are a valid value, because the struct has only integers.
        let mut attr: mlx5dv_qp_init_attr = unsafe { mem::zeroed() };
        attr.comp_mask = mask::MLX5DV_QP_INIT_ATTR_MASK_DC.0.into();
        attr.dc_init_attr = mlx5dv_dc_init_attr {
            dc_type: mlx5dv_dc_type::MLX5DV_DCTYPE_DCT,
            __bindgen_anon_1: mlx5dv_dc_init_attr__bindgen_ty_1 { dct_access_key: access_key },
        };
        // SAFETY: the library creates a target from the attributes, in their domain and with their queues, or returns
        // null. Both structs are initialised according to their masks.
        let built = unsafe {
            self.build_target_with(VERB, |context, qp_attr| sys::mlx5dv_create_qp(context, qp_attr, &mut attr))
        };
        built.map_err(|error| explain(error, self.protection_domain().device_context()))
    }
}
