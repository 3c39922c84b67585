//! The states of a queue pair.

use rdma_mummy_sys::ibv_qp_state as raw;

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_qp_state`: InfiniBand specification, volume 1, section 10.3.1.
    #[doc(alias = "ibv_qp_state")]
    pub enum QueuePairState {
        /// Just made: nothing may be posted.
        Reset = raw::IBV_QPS_RESET.0,
        /// Receives may be posted; nothing is processed.
        Init = raw::IBV_QPS_INIT.0,
        /// RTR: incoming packets are processed.
        ReadyToReceive = raw::IBV_QPS_RTR.0,
        /// RTS: sends are processed as well.
        ReadyToSend = raw::IBV_QPS_RTS.0,
        /// SQD: sends that were begun are finished, no further one is begun.
        SendQueueDrain = raw::IBV_QPS_SQD.0,
        /// SQE: a send failed on an unreliable transport.
        SendQueueError = raw::IBV_QPS_SQE.0,
        /// All requests are flushed with an error.
        Error = raw::IBV_QPS_ERR.0,
        /// The state is not known.
        Unknown = raw::IBV_QPS_UNKNOWN.0,
    }
}
