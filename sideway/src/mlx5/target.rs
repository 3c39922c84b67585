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
    /// A builder of targets of dynamic connections (DCT). A target has no queues of its own: what arrives goes to a shared
    /// receive queue and completes on the queue of the receives.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the device is not one of mlx5, or libmlx5 is not installed: the hint tells which.
    pub fn create_dct_builder(self: &Arc<Self>) -> Result<QueuePairBuilder<DynamicallyConnectedTarget>, VerbError> {
        require(VERB, self.device_context())?;
        // SAFETY: the service has no requests.
        Ok(unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::Driver]) })
    }
}

impl QueuePairBuilder<DynamicallyConnectedTarget> {
    /// `mlx5dv_create_qp(context, qp_attr, {MLX5DV_DCTYPE_DCT, dct_access_key})` — makes a target that takes its receives from
    /// the shared receive queue of [`setup_srq`](QueuePairBuilder::setup_srq). Initiators name it by its number, which it has
    /// once it is [ready to receive](crate::ibverbs::queue_pair::QueuePairState::ReadyToReceive), and by `access_key` (host byte
    /// order).
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no shared receive queue, no queue for the completions of receives, or an object of another device.
    /// - `EOPNOTSUPP`: the device has no dynamic connections.
    /// - `ENOMEM`: out of resources.
    ///
    /// # References
    ///
    /// [mlx5dv_create_qp(3)](https://man7.org/linux/man-pages/man3/mlx5dv_create_qp.3.html)
    #[doc(alias = "mlx5dv_create_qp")]
    #[doc(alias = "MLX5DV_DCTYPE_DCT")]
    pub fn build_dct(&self, access_key: u64) -> Result<TargetQueuePair, VerbError> {
        if !self.has_srq() {
            return Err(VerbError::invalid(VERB, "a target has no receives of its own: call setup_srq"));
        }
        // SAFETY: all-zero is legal: the struct has integers alone.
        let mut attr: mlx5dv_qp_init_attr = unsafe { mem::zeroed() };
        attr.comp_mask = mask::MLX5DV_QP_INIT_ATTR_MASK_DC.0.into();
        attr.dc_init_attr = mlx5dv_dc_init_attr {
            dc_type: mlx5dv_dc_type::MLX5DV_DCTYPE_DCT,
            __bindgen_anon_1: mlx5dv_dc_init_attr__bindgen_ty_1 { dct_access_key: access_key },
        };
        // SAFETY: the library makes a target of the attributes, in the domain and with the queues that they name, or gives null.
        // Both structs are complete for their masks.
        let built = unsafe {
            self.build_target_with(VERB, |context, qp_attr| sys::mlx5dv_create_qp(context, qp_attr, &mut attr))
        };
        built.map_err(|error| explain(error, self.protection_domain().device_context()))
    }
}
