//! Transport services, states, and the state of path migration.

use rdma_mummy_sys::{ibv_mig_state, ibv_qp_state as raw, ibv_qp_type};

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_qp_state`: InfiniBand specification, volume 1, section 10.3.1.
    #[doc(alias = "ibv_qp_state")]
    pub enum QueuePairState {
        /// The queue pair was just created or reset. No requests may be posted.
        Reset = raw::IBV_QPS_RESET.0,
        /// Receives may be posted, but no requests are processed.
        Init = raw::IBV_QPS_INIT.0,
        /// RTR: the queue pair processes incoming packets.
        ReadyToReceive = raw::IBV_QPS_RTR.0,
        /// RTS: the queue pair also processes sends.
        ReadyToSend = raw::IBV_QPS_RTS.0,
        /// SQD: the device finishes the sends that it has begun, and begins no others.
        SendQueueDrain = raw::IBV_QPS_SQD.0,
        /// SQE: a send failed on an unreliable transport.
        SendQueueError = raw::IBV_QPS_SQE.0,
        /// All requests are flushed with an error.
        Error = raw::IBV_QPS_ERR.0,
        /// The state is unknown.
        Unknown = raw::IBV_QPS_UNKNOWN.0,
    }
}

open_enum! {
    /// `enum ibv_qp_type`: the transport service of a queue pair.
    #[doc(alias = "ibv_qp_type")]
    pub enum QueuePairType {
        /// RC: a reliable connection with one peer, in order and acknowledged. It supports all operations.
        ReliableConnection = ibv_qp_type::IBV_QPT_RC.0,
        /// UC: an unacknowledged connection with one peer. It supports sends and writes.
        UnreliableConnection = ibv_qp_type::IBV_QPT_UC.0,
        /// UD: datagrams of up to one MTU to any peer. It supports only sends.
        UnreliableDatagram = ibv_qp_type::IBV_QPT_UD.0,
        /// Raw packets with all their headers.
        RawPacket = ibv_qp_type::IBV_QPT_RAW_PACKET.0,
        /// The initiator of an XRC connection.
        ReliableConnectionExtendedSend = ibv_qp_type::IBV_QPT_XRC_SEND.0,
        /// The target of an XRC connection.
        ReliableConnectionExtendedRecv = ibv_qp_type::IBV_QPT_XRC_RECV.0,
        /// A type defined by the vendor.
        Driver = ibv_qp_type::IBV_QPT_DRIVER.0,
    }
}

open_enum! {
    /// `enum ibv_mig_state` — the state of a connection's migration to its alternate path.
    #[doc(alias = "ibv_mig_state")]
    pub enum PathMigrationState {
        /// The connection uses its primary path, which may be the former alternate path. Setting this state makes the
        /// queue pair migrate immediately.
        Migrated = ibv_mig_state::IBV_MIG_MIGRATED.0,
        /// Arming is requested. Set this state after you have set an alternate path.
        Rearm = ibv_mig_state::IBV_MIG_REARM.0,
        /// Both sides are armed, and migrate when the path fails. The device enters this state without a call.
        Armed = ibv_mig_state::IBV_MIG_ARMED.0,
    }
}
