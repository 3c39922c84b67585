//! The transport services.

use rdma_mummy_sys::ibv_qp_type as raw;

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_qp_type`: the transport service of a queue pair.
    #[doc(alias = "ibv_qp_type")]
    pub enum QueuePairType {
        /// RC: in order, acknowledged, one peer; all operations.
        ReliableConnection = raw::IBV_QPT_RC.0,
        /// UC: one peer, not acknowledged; sends and writes.
        UnreliableConnection = raw::IBV_QPT_UC.0,
        /// UD: datagrams of up to one MTU to any peer; sends.
        UnreliableDatagram = raw::IBV_QPT_UD.0,
        /// Packets with all their headers.
        RawPacket = raw::IBV_QPT_RAW_PACKET.0,
        /// XRC, the initiator's side.
        ReliableConnectionExtendedSend = raw::IBV_QPT_XRC_SEND.0,
        /// XRC, the target's side.
        ReliableConnectionExtendedRecv = raw::IBV_QPT_XRC_RECV.0,
        /// The vendor's own.
        Driver = raw::IBV_QPT_DRIVER.0,
    }
}
