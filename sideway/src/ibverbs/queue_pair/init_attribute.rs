//! What a queue pair is made with.

use rdma_mummy_sys::{ibv_qp_cap, ibv_qp_create_flags as raw, ibv_qp_create_send_ops_flags, ibv_qp_init_attr};

use super::QueuePairType;

/// What a queue pair was made with; the depths are what the device gave, at least what was asked for.
#[doc(alias = "ibv_qp_init_attr")]
#[derive(Clone, Copy, Debug)]
pub struct QueuePairInitAttribute {
    attr: ibv_qp_init_attr,
}

impl QueuePairInitAttribute {
    pub(crate) fn from_raw(attr: ibv_qp_init_attr) -> Self {
        Self { attr }
    }

    /// The transport service.
    pub fn qp_type(&self) -> QueuePairType {
        QueuePairType::from_raw(self.attr.qp_type.0)
    }

    /// Send requests that can be outstanding.
    pub fn max_send_wr(&self) -> u32 {
        self.attr.cap.max_send_wr
    }

    /// Receive requests that can be outstanding.
    pub fn max_recv_wr(&self) -> u32 {
        self.attr.cap.max_recv_wr
    }

    /// Entries of a send request's gather list.
    pub fn max_send_sge(&self) -> u32 {
        self.attr.cap.max_send_sge
    }

    /// Entries of a receive request's scatter list.
    pub fn max_recv_sge(&self) -> u32 {
        self.attr.cap.max_recv_sge
    }

    /// Bytes that a request can carry in itself.
    pub fn max_inline_data(&self) -> u32 {
        self.attr.cap.max_inline_data
    }

    /// Whether every send request is signaled.
    pub fn sq_sig_all(&self) -> bool {
        self.attr.sq_sig_all != 0
    }
}

/// The depths of a queue pair.
#[doc(alias = "ibv_qp_cap")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueuePairCapabilities {
    /// Send requests that can be outstanding.
    pub max_send_wr: u32,
    /// Receive requests that can be outstanding.
    pub max_recv_wr: u32,
    /// Entries of a send request's gather list.
    pub max_send_sge: u32,
    /// Entries of a receive request's scatter list.
    pub max_recv_sge: u32,
    /// Bytes that a send request can carry in itself.
    pub max_inline_data: u32,
}

impl From<ibv_qp_cap> for QueuePairCapabilities {
    fn from(cap: ibv_qp_cap) -> Self {
        let ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = cap;
        Self { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
    }
}

impl From<QueuePairCapabilities> for ibv_qp_cap {
    fn from(capabilities: QueuePairCapabilities) -> Self {
        let QueuePairCapabilities { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } =
            capabilities;
        Self { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
    }
}

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

bitflags::bitflags! {
    /// `enum ibv_qp_create_send_ops_flags`: the operations that an extended queue pair is built for.
    #[doc(alias = "ibv_qp_create_send_ops_flags")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SendOperationFlags: u64 {
        /// Write.
        const Write = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE.0 as u64;
        /// Write with immediate data.
        const WriteWithImmediate = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM.0 as u64;
        /// Send.
        const Send = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND.0 as u64;
        /// Send with immediate data.
        const SendWithImmediate = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND_WITH_IMM.0 as u64;
        /// Read.
        const Read = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_READ.0 as u64;
        /// Atomic compare-and-swap.
        const AtomicCompareAndSwap = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP.0 as u64;
        /// Atomic fetch-and-add.
        const AtomicFetchAndAdd = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD.0 as u64;
        /// Invalidation of a key of this side.
        const LocalInvalidate = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_LOCAL_INV.0 as u64;
        /// Bind of a memory window.
        const BindMemoryWindow = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_BIND_MW.0 as u64;
        /// Send that invalidates a key of the peer.
        const SendWithInvalidate = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND_WITH_INV.0 as u64;
        /// Segmented send of TCP payload.
        const TcpSegmentationOffload = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_TSO.0 as u64;
        /// Flush to visibility or persistence.
        const Flush = 1 << 11;
        /// Atomic write of 8 bytes.
        const AtomicWrite = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_WRITE.0 as u64;
        // Later rdma-core versions' operations pass through.
        const _ = !0;
    }
}

impl SendOperationFlags {
    /// Both atomics, which not every device has.
    pub(crate) const ATOMICS: Self = Self::AtomicCompareAndSwap.union(Self::AtomicFetchAndAdd);

    /// What a queue pair of this type is built for when nothing is asked: all that the transport defines for data.
    pub(crate) fn of_transport(qp_type: QueuePairType) -> Self {
        let send = Self::Send | Self::SendWithImmediate;
        let write = Self::Write | Self::WriteWithImmediate;
        match qp_type {
            QueuePairType::ReliableConnection | QueuePairType::ReliableConnectionExtendedSend => {
                send | write | Self::Read | Self::ATOMICS
            }
            QueuePairType::UnreliableConnection => send | write,
            QueuePairType::UnreliableDatagram => send,
            QueuePairType::RawPacket => Self::Send,
            _ => Self::empty(),
        }
    }
}
