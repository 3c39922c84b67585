//! What was done.

use rdma_mummy_sys::ibv_wc_opcode as raw;

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_wc_opcode`: which operation a completion reports. Valid where the status is
    /// [`Success`](super::WorkCompletionStatus::Success).
    #[doc(alias = "ibv_wc_opcode")]
    pub enum WorkCompletionOperationType {
        /// A send, with or without immediate data.
        Send = raw::IBV_WC_SEND.0,
        /// A write, with or without immediate data.
        RdmaWrite = raw::IBV_WC_RDMA_WRITE.0,
        /// A read.
        RdmaRead = raw::IBV_WC_RDMA_READ.0,
        /// An atomic compare-and-swap.
        CompareAndSwap = raw::IBV_WC_COMP_SWAP.0,
        /// An atomic fetch-and-add.
        FetchAndAdd = raw::IBV_WC_FETCH_ADD.0,
        /// The bind of a memory window.
        BindMemoryWindow = raw::IBV_WC_BIND_MW.0,
        /// A local invalidation.
        LocalInvalidate = raw::IBV_WC_LOCAL_INV.0,
        /// A segmented send.
        TcpSegmentationOffload = raw::IBV_WC_TSO.0,
        /// A flush.
        Flush = 8,
        /// An atomic write of 8 bytes.
        AtomicWrite = raw::IBV_WC_ATOMIC_WRITE.0,
        /// A message was received.
        Receive = raw::IBV_WC_RECV.0,
        /// A peer's write with immediate data was received.
        ReceiveRdmaWithImmediate = raw::IBV_WC_RECV_RDMA_WITH_IMM.0,
        /// A tagged receive was added.
        TagMatchingAdd = raw::IBV_WC_TM_ADD.0,
        /// A tagged receive was removed.
        TagMatchingDelete = raw::IBV_WC_TM_DEL.0,
        /// The lists of tagged receives are in step.
        TagMatchingSync = raw::IBV_WC_TM_SYNC.0,
        /// A tagged message was received.
        TagMatchingReceive = raw::IBV_WC_TM_RECV.0,
        /// A message matched no tag.
        TagMatchingNoTag = raw::IBV_WC_TM_NO_TAG.0,
        /// The vendor's own, first of three.
        Driver1 = raw::IBV_WC_DRIVER1.0,
        /// The vendor's own, second of three.
        Driver2 = raw::IBV_WC_DRIVER2.0,
        /// The vendor's own, third of three.
        Driver3 = raw::IBV_WC_DRIVER3.0,
    }
}
