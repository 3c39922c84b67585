//! The initiator of dynamic connections.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys::ibv_qp_ex;
use rdma_mummy_sys::mlx5dv::{
    self as sys, mlx5dv_dc_init_attr, mlx5dv_dc_init_attr__bindgen_ty_1, mlx5dv_dc_type, mlx5dv_dci_streams,
    mlx5dv_qp_init_attr, mlx5dv_qp_init_attr_mask as mask,
};

use super::address::DciFunctions;
use super::device::{explain, require};
use super::{DciStreams, DynamicallyConnected};
use crate::error::{Errno, VerbError};
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::queue_pair::{ExtendedQueuePair, QueuePairBuilder, QueuePairType, SendOperationFlags};

const VERB: &str = "mlx5dv_create_qp";

const MESSAGES_AND_MEMORY: SendOperationFlags = SendOperationFlags::Send
    .union(SendOperationFlags::SendWithImmediate)
    .union(SendOperationFlags::Write)
    .union(SendOperationFlags::WriteWithImmediate)
    .union(SendOperationFlags::Read);

impl ProtectionDomain {
    /// Creates a builder of initiators of dynamic connections (DCI). By default they support the operations of a
    /// reliable connection. They have no receive queue, so [`setup_max_recv_wr`](QueuePairBuilder::setup_max_recv_wr)
    /// must stay 0. By default, the completion queue of receives is that of sends.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device is not an mlx5 device, or libmlx5 is not installed; the hint reports which.
    pub fn create_dci_builder(self: &Arc<Self>) -> Result<QueuePairBuilder<DynamicallyConnected>, VerbError> {
        require(VERB, self.device_context())?;
        // SAFETY: the service's only build methods are those of initiators, which create only DCI queue pairs.
        let mut builder = unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::Driver]) };
        builder.setup_max_recv_wr(0).setup_max_recv_sge(0);
        Ok(builder)
    }
}

impl QueuePairBuilder<DynamicallyConnected> {
    /// `mlx5dv_create_qp(context, qp_attr, {MLX5DV_DCTYPE_DCI})` — creates an initiator.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the completion queue of sends is missing or belongs to another device, receives were requested, or a
    ///   value exceeds the device's limit.
    /// - `EOPNOTSUPP`: the device does not support dynamic connections or these operations. Or
    ///   [`assume_send_room`](QueuePairBuilder::assume_send_room), which libmlx5 requires, was not called.
    /// - `ENOMEM`: out of resources.
    ///
    /// # References
    ///
    /// [mlx5dv_create_qp(3)](https://man7.org/linux/man-pages/man3/mlx5dv_create_qp.3.html)
    #[doc(alias = "mlx5dv_create_qp")]
    #[doc(alias = "MLX5DV_DCTYPE_DCI")]
    pub fn build_dci(&self) -> Result<ExtendedQueuePair<DynamicallyConnected>, VerbError> {
        self.build_initiator(None)
    }

    /// `mlx5dv_create_qp` — creates an initiator with streams. Their numbers must not exceed the device's
    /// [`dci_streams`](super::Mlx5DeviceAttr::dci_streams). Requests with
    /// [`setup_dc_addr_stream`](crate::ibverbs::work_request::LocalBufferHandle::setup_dc_addr_stream) on different
    /// streams run concurrently.
    ///
    /// # Errors
    ///
    /// The errors are those of [`build_dci`](Self::build_dci). In addition, returns `EOPNOTSUPP` if libmlx5 is too old
    /// to support streams.
    ///
    /// # References
    ///
    /// [mlx5dv_create_qp(3)](https://man7.org/linux/man-pages/man3/mlx5dv_create_qp.3.html)
    #[doc(alias = "MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS")]
    pub fn build_dci_with_streams(
        &self,
        streams: DciStreams,
    ) -> Result<ExtendedQueuePair<DynamicallyConnected>, VerbError> {
        self.build_initiator(Some(streams))
    }

    fn build_initiator(
        &self,
        streams: Option<DciStreams>,
    ) -> Result<ExtendedQueuePair<DynamicallyConnected>, VerbError> {
        if !self.has_no_receives() {
            return Err(VerbError::invalid(
                VERB,
                "an initiator of dynamic connections has no receive queue; leave setup_max_recv_wr and \
                setup_max_recv_sge at 0",
            ));
        }
        let mut builder = self.clone();
        builder.complete_receives_with_sends();
        if self.has_operations() {
            return builder.create_initiator(streams);
        }
        builder.setup_send_ops_flags(MESSAGES_AND_MEMORY | SendOperationFlags::ATOMICS);
        match builder.create_initiator(streams) {
            // Try again without atomics, because not every device supports them.
            Err(error) if error.errno().raw() == libc::EOPNOTSUPP => {
                builder.setup_send_ops_flags(MESSAGES_AND_MEMORY);
                // If the second attempt fails with the same errno, the atomics were not the reason.
                let built = builder.create_initiator(streams);
                built.map_err(|second| if second.errno() == error.errno() { error } else { second })
            }
            result => result,
        }
    }

    fn create_initiator(
        &self,
        streams: Option<DciStreams>,
    ) -> Result<ExtendedQueuePair<DynamicallyConnected>, VerbError> {
        // SAFETY: all zeros are a valid value, because the struct has only integers.
        let mut attr: mlx5dv_qp_init_attr = unsafe { mem::zeroed() };
        attr.comp_mask = mask::MLX5DV_QP_INIT_ATTR_MASK_DC.0.into();
        attr.dc_init_attr.dc_type = mlx5dv_dc_type::MLX5DV_DCTYPE_DCI;
        if let Some(DciStreams { log_num_concurrent, log_num_errored }) = streams {
            attr.comp_mask |= u64::from(mask::MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS.0);
            let dci_streams = mlx5dv_dci_streams { log_num_concurent: log_num_concurrent, log_num_errored };
            attr.dc_init_attr = mlx5dv_dc_init_attr {
                dc_type: mlx5dv_dc_type::MLX5DV_DCTYPE_DCI,
                __bindgen_anon_1: mlx5dv_dc_init_attr__bindgen_ty_1 { dci_streams },
            };
        }
        // SAFETY: the library creates an initiator from the attributes, in their domain and with their queues, or
        // returns null. Both structs are initialised according to their masks. The function `attach` only reads the
        // queue pair.
        let built = unsafe {
            self.build_with(
                VERB,
                |context, qp_attr| sys::mlx5dv_create_qp(context, qp_attr, &mut attr),
                |qp| attach(qp, streams.is_some()),
            )
        };
        built.map_err(|error| explain(error, self.protection_domain().device_context()))
    }
}

/// Looks up the functions that set addresses.
///
/// # Safety
///
/// `qp` was just created by `mlx5dv_create_qp`, with streams if `has_streams`.
unsafe fn attach(qp: NonNull<ibv_qp_ex>, has_streams: bool) -> Result<DciFunctions, VerbError> {
    // SAFETY: `qp` is a live mlx5 queue pair.
    let mlx5 = NonNull::new(unsafe { sys::mlx5dv_qp_ex_from_ibv_qp_ex(qp.as_ptr()) })
        .ok_or_else(|| missing("mlx5dv_qp_ex_from_ibv_qp_ex"))?;
    // SAFETY: the struct is a part of the queue pair. The first function exists in every version of the struct. A
    // library without the second field refuses streams, so the field is read only if the library has it.
    let (set_address, set_stream_address) = unsafe {
        let mlx5 = mlx5.as_ptr();
        ((*mlx5).wr_set_dc_addr, if has_streams { (*mlx5).wr_set_dc_addr_stream } else { None })
    };
    let set_address = set_address.ok_or_else(|| missing("wr_set_dc_addr"))?;
    if has_streams && set_stream_address.is_none() {
        return Err(missing("wr_set_dc_addr_stream"));
    }
    Ok(DciFunctions { qp: mlx5.as_ptr(), set_address, set_stream_address })
}

#[cold]
fn missing(function: &str) -> VerbError {
    VerbError::new(VERB, Errno::EOPNOTSUPP)
        .with_hint(format!("libmlx5 created the queue pair without the function {function}; upgrade rdma-core"))
}
