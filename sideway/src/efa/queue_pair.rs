//! Queue pairs for scalable reliable datagrams.

use std::mem;
use std::sync::Arc;

use rdma_mummy_sys::efadv::{self as sys, efadv_qp_init_attr};

use super::device::explain;
use super::{EfaDeviceCapabilityFlags as Capability, ScalableReliableDatagram};
use crate::error::VerbError;
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::queue_pair::{ExtendedQueuePair, QueuePairBuilder, QueuePairType, SendOperationFlags};

impl ProtectionDomain {
    /// A builder of queue pairs for scalable reliable datagrams (SRD).
    pub fn create_srd_qp_builder(self: &Arc<Self>) -> QueuePairBuilder<ScalableReliableDatagram> {
        // SAFETY: the service has no builder but `build_srd`, which makes nothing else of the type.
        unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::Driver]) }
    }
}

impl QueuePairBuilder<ScalableReliableDatagram> {
    /// `efadv_create_qp_ex(ibvctx, attr_ex, {EFADV_QP_DRIVER_TYPE_SRD}, inlen)` — makes a queue pair, for sends, and for reads
    /// and writes as the device has them, where nothing is asked for.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no completion queue, or one of another device; more of something than the device has.
    /// - `EOPNOTSUPP`: the device is not one of EFA, or libefa is not installed (the hint tells which); operations that the
    ///   device has not.
    /// - `ENOMEM`: out of resources.
    ///
    /// # References
    ///
    /// [efadv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/efadv_create_qp_ex.3.html)
    #[doc(alias = "efadv_create_qp_ex")]
    pub fn build_srd(&self) -> Result<ExtendedQueuePair<ScalableReliableDatagram>, VerbError> {
        const VERB: &str = "efadv_create_qp_ex";
        let device = self.protection_domain().device_context();
        let mut builder = self.clone();
        if !self.has_operations() {
            builder.setup_send_ops_flags(operations(device.query_efa_device()?.device_caps()));
        }
        // SAFETY: all-zero is legal: the struct has integers alone.
        let mut attr: efadv_qp_init_attr = unsafe { mem::zeroed() };
        attr.driver_qp_type = sys::EFADV_QP_DRIVER_TYPE_SRD;
        let size = size_of::<efadv_qp_init_attr>() as u32;
        // SAFETY: the library makes a queue pair for these datagrams of the attributes, in the domain and with the queues that
        // they name, or gives null. It is told the size of its struct. There is nothing to attach.
        let built = unsafe {
            builder.build_with(
                VERB,
                |context, attr_ex| sys::efadv_create_qp_ex(context, attr_ex, &mut attr, size),
                |_| Ok(()),
            )
        };
        built.map_err(|error| explain(error, device))
    }
}

/// All that the device has.
fn operations(capabilities: Capability) -> SendOperationFlags {
    let mut operations = SendOperationFlags::Send | SendOperationFlags::SendWithImmediate;
    if capabilities.contains(Capability::Read) {
        operations |= SendOperationFlags::Read;
    }
    if capabilities.contains(Capability::Write) {
        operations |= SendOperationFlags::Write | SendOperationFlags::WriteWithImmediate;
    }
    operations
}
