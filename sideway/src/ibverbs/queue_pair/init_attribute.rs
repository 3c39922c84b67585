//! `struct ibv_qp_init_attr`, as a query returns it.

use rdma_mummy_sys::ibv_qp_init_attr;

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
