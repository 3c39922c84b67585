//! Transport services, states, and the state of path migration.

use rdma_mummy_sys::{ibv_mig_state, ibv_qp_state as raw, ibv_qp_type};

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_qp_state`: InfiniBand specification, volume 1, section 10.3.1.
    #[doc(alias = "ibv_qp_state")]
    pub enum QueuePairState {
        /// Just created: nothing may be posted.
        Reset = raw::IBV_QPS_RESET.0,
        /// Receives may be posted; nothing is processed.
        Init = raw::IBV_QPS_INIT.0,
        /// RTR: incoming packets are processed.
        ReadyToReceive = raw::IBV_QPS_RTR.0,
        /// RTS: sends are processed as well.
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
        /// RC: in order, acknowledged, one peer; all operations.
        ReliableConnection = ibv_qp_type::IBV_QPT_RC.0,
        /// UC: one peer, not acknowledged; sends and writes.
        UnreliableConnection = ibv_qp_type::IBV_QPT_UC.0,
        /// UD: datagrams of up to one MTU to any peer; sends.
        UnreliableDatagram = ibv_qp_type::IBV_QPT_UD.0,
        /// Raw packets with all their headers.
        RawPacket = ibv_qp_type::IBV_QPT_RAW_PACKET.0,
        /// XRC, initiator.
        ReliableConnectionExtendedSend = ibv_qp_type::IBV_QPT_XRC_SEND.0,
        /// XRC, target.
        ReliableConnectionExtendedRecv = ibv_qp_type::IBV_QPT_XRC_RECV.0,
        /// A type defined by the vendor.
        Driver = ibv_qp_type::IBV_QPT_DRIVER.0,
    }
}

open_enum! {
    /// `enum ibv_mig_state` — the state of a connection's migration to its alternate path.
    #[doc(alias = "ibv_mig_state")]
    pub enum PathMigrationState {
        /// The connection uses its path, which may be the former alternate one. Setting this state makes the queue pair
        /// migrate now.
        Migrated = ibv_mig_state::IBV_MIG_MIGRATED.0,
        /// Arming is requested. Set this state after an alternate path.
        Rearm = ibv_mig_state::IBV_MIG_REARM.0,
        /// Both sides are armed, and migrate when the path fails. The device enters this state itself.
        Armed = ibv_mig_state::IBV_MIG_ARMED.0,
    }
}
