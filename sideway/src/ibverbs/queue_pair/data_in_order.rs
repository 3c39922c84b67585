//! `ibv_query_qp_data_in_order`: the order in which data appears in memory.

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_wr_opcode;
use rdma_mummy_sys::since_v44 as raw;

use super::QueuePairCore;
use crate::ibverbs::work_request::WorkRequestOperationType;

bitflags::bitflags! {
    /// Flags of the query. Libraries before rdma-core 45 do not support these flags, and may return the empty set if
    /// one of them is set.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct DataInOrderFlags: u32 {
        /// The result may contain any flag of [`DataInOrder`]. Without this flag, it contains at most
        /// [`WholeMessage`](DataInOrder::WholeMessage).
        const ReturnCapabilities = raw::IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS;
        /// The query considers only the device, and not the rest of the machine.
        const DeviceOnly = raw::IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// Guarantees about the order in which data appears in memory. The empty set guarantees nothing.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct DataInOrder: u32 {
        /// The device writes a message from its first byte to its last.
        const WholeMessage = raw::IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG;
        /// The device writes each aligned block of 128 bytes from its first byte to its last.
        const Aligned128Bytes = raw::IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

impl QueuePairCore {
    pub(crate) fn query_data_in_order(
        &self,
        operation: WorkRequestOperationType,
        flags: DataInOrderFlags,
    ) -> DataInOrder {
        // SAFETY: the queue pair is live as long as the core.
        let ret = unsafe { sys::ibv_query_qp_data_in_order(self.raw(), ibv_wr_opcode(operation.raw()), flags.bits()) };
        // If the driver returns an error, nothing is guaranteed.
        DataInOrder::from_bits_retain(u32::try_from(ret).unwrap_or(0))
    }
}
