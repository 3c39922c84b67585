//! `struct ibv_qp_cap`: how much a queue pair holds.

use rdma_mummy_sys::ibv_qp_cap;

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
