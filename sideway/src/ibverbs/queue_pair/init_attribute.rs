//! The attributes with which a queue pair was built.

use rdma_mummy_sys::{ibv_qp_cap, ibv_qp_create_flags as raw, ibv_qp_create_send_ops_flags, ibv_qp_init_attr};

use super::QueuePairType;

/// The attributes with which a queue pair was built. The capacities are those that the driver chose, which are at least
/// as large as requested.
#[doc(alias = "ibv_qp_init_attr")]
#[derive(Clone, Copy, Debug)]
pub struct QueuePairInitAttribute {
    attr: ibv_qp_init_attr,
}

impl QueuePairInitAttribute {
    pub(crate) fn from_raw(attr: ibv_qp_init_attr) -> Self {
        Self { attr }
    }

    /// Returns the transport service.
    pub fn qp_type(&self) -> QueuePairType {
        QueuePairType::from_raw(self.attr.qp_type.0)
    }

    /// Returns the maximum number of outstanding send requests.
    pub fn max_send_wr(&self) -> u32 {
        self.attr.cap.max_send_wr
    }

    /// Returns the maximum number of outstanding receive requests.
    pub fn max_recv_wr(&self) -> u32 {
        self.attr.cap.max_recv_wr
    }

    /// Returns the maximum number of entries of a send request's gather list.
    pub fn max_send_sge(&self) -> u32 {
        self.attr.cap.max_send_sge
    }

    /// Returns the maximum number of entries of a receive request's scatter list.
    pub fn max_recv_sge(&self) -> u32 {
        self.attr.cap.max_recv_sge
    }

    /// Returns the maximum inline data of a request in bytes.
    pub fn max_inline_data(&self) -> u32 {
        self.attr.cap.max_inline_data
    }

    /// Whether every send request is signaled.
    pub fn sq_sig_all(&self) -> bool {
        self.attr.sq_sig_all != 0
    }
}

/// The capacities of a queue pair.
#[doc(alias = "ibv_qp_cap")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueuePairCapabilities {
    /// The maximum number of outstanding send requests.
    pub max_send_wr: u32,
    /// The maximum number of outstanding receive requests.
    pub max_recv_wr: u32,
    /// The maximum number of entries of a send request's gather list.
    pub max_send_sge: u32,
    /// The maximum number of entries of a receive request's scatter list.
    pub max_recv_sge: u32,
    /// The maximum inline data of a send request in bytes.
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
    /// `enum ibv_qp_create_flags`: additional features of a queue pair.
    #[doc(alias = "ibv_qp_create_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QueuePairCreateFlags: u32 {
        /// Datagrams to a multicast group do not loop back to the sending queue pair.
        const BlockSelfMulticastLoopback = raw::IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.0;
        /// Received packets keep their frame check sequence.
        const ScatterFcs = raw::IBV_QP_CREATE_SCATTER_FCS.0;
        /// The device removes the customer VLAN tag of received packets, and reports it in their completions.
        const CvlanStripping = raw::IBV_QP_CREATE_CVLAN_STRIPPING.0;
        /// Datagrams carry the number that was set with [`setup_source_qpn`](super::QueuePairBuilder::setup_source_qpn)
        /// instead of the number of the queue pair. That method also sets this flag.
        const SourceQpn = raw::IBV_QP_CREATE_SOURCE_QPN.0;
        /// The device pads its writes to memory to full cache lines.
        const PciWriteEndPadding = raw::IBV_QP_CREATE_PCI_WRITE_END_PADDING.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `enum ibv_qp_create_send_ops_flags`: the operations of an extended queue pair.
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
        /// Invalidation of a local key.
        const LocalInvalidate = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_LOCAL_INV.0 as u64;
        /// Bind of a memory window.
        const BindMemoryWindow = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_BIND_MW.0 as u64;
        /// Send that invalidates a key of the peer.
        const SendWithInvalidate = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND_WITH_INV.0 as u64;
        /// Segmented send of TCP payload.
        const TcpSegmentationOffload = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_TSO.0 as u64;
        /// A flush, which makes data visible or persistent.
        const Flush = 1 << 11;
        /// Atomic write of 8 bytes.
        const AtomicWrite = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_WRITE.0 as u64;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

impl SendOperationFlags {
    /// The two atomic operations, which not every device supports.
    pub(crate) const ATOMICS: Self = Self::AtomicCompareAndSwap.union(Self::AtomicFetchAndAdd);

    /// Returns the default operations of queue pairs of this type. These are all operations on data that the transport
    /// defines.
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
