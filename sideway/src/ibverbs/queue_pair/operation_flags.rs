//! Which operations an extended queue pair is built for.

use rdma_mummy_sys::ibv_qp_create_send_ops_flags as raw;

use super::QueuePairType;

bitflags::bitflags! {
    /// `enum ibv_qp_create_send_ops_flags`: the operations that an extended queue pair is built for.
    #[doc(alias = "ibv_qp_create_send_ops_flags")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SendOperationFlags: u64 {
        /// Write.
        const Write = raw::IBV_QP_EX_WITH_RDMA_WRITE.0 as u64;
        /// Write with immediate data.
        const WriteWithImmediate = raw::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM.0 as u64;
        /// Send.
        const Send = raw::IBV_QP_EX_WITH_SEND.0 as u64;
        /// Send with immediate data.
        const SendWithImmediate = raw::IBV_QP_EX_WITH_SEND_WITH_IMM.0 as u64;
        /// Read.
        const Read = raw::IBV_QP_EX_WITH_RDMA_READ.0 as u64;
        /// Atomic compare-and-swap.
        const AtomicCompareAndSwap = raw::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP.0 as u64;
        /// Atomic fetch-and-add.
        const AtomicFetchAndAdd = raw::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD.0 as u64;
        /// Invalidation of a key of this side.
        const LocalInvalidate = raw::IBV_QP_EX_WITH_LOCAL_INV.0 as u64;
        /// Bind of a memory window.
        const BindMemoryWindow = raw::IBV_QP_EX_WITH_BIND_MW.0 as u64;
        /// Send that invalidates a key of the peer.
        const SendWithInvalidate = raw::IBV_QP_EX_WITH_SEND_WITH_INV.0 as u64;
        /// Segmented send of TCP payload.
        const TcpSegmentationOffload = raw::IBV_QP_EX_WITH_TSO.0 as u64;
        /// Flush to visibility or persistence.
        const Flush = 1 << 11;
        /// Atomic write of 8 bytes.
        const AtomicWrite = raw::IBV_QP_EX_WITH_ATOMIC_WRITE.0 as u64;
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
