//! What a queue pair is to do beside its service.

use rdma_mummy_sys::ibv_qp_create_flags as raw;

bitflags::bitflags! {
    /// `enum ibv_qp_create_flags`: what a queue pair is to do beside its service.
    #[doc(alias = "ibv_qp_create_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QueuePairCreateFlags: u32 {
        /// Datagrams to a multicast group do not come back to the queue pair that sent them.
        const BlockSelfMulticastLoopback = raw::IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.0;
        /// Received packets keep their frame check sequence.
        const ScatterFcs = raw::IBV_QP_CREATE_SCATTER_FCS.0;
        /// The customer VLAN tag is taken off received packets, and reported in their completions.
        const CvlanStripping = raw::IBV_QP_CREATE_CVLAN_STRIPPING.0;
        /// Datagrams carry the number given with
        /// [`setup_source_qpn`](super::QueuePairBuilder::setup_source_qpn) instead of their own. Set by that.
        const SourceQpn = raw::IBV_QP_CREATE_SOURCE_QPN.0;
        /// Writes to memory are padded to full cache lines.
        const PciWriteEndPadding = raw::IBV_QP_CREATE_PCI_WRITE_END_PADDING.0;
        // Later rdma-core versions' flags pass through.
        const _ = !0;
    }
}
