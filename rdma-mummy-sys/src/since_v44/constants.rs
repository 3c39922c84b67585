//! New values of existing enumerations, in addition to the bindings.

use crate::bindings::rdma_cma::rdma_cm_event_type;
use crate::bindings::verbs::*;

/// Flush: rdma-core 45.
impl ibv_wr_opcode {
    /// Makes remote writes globally visible, or persistent.
    pub const IBV_WR_FLUSH: ibv_wr_opcode = ibv_wr_opcode(14);
}

/// Flush: rdma-core 45.
impl ibv_wc_opcode {
    /// Completion of a flush.
    pub const IBV_WC_FLUSH: ibv_wc_opcode = ibv_wc_opcode(8);
}

/// Flush: rdma-core 45.
impl ibv_qp_create_send_ops_flags {
    /// Requests [`ibv_wr_flush`](super::ibv_wr_flush).
    pub const IBV_QP_EX_WITH_FLUSH: ibv_qp_create_send_ops_flags = ibv_qp_create_send_ops_flags(1 << 11);
}

/// Flush: rdma-core 45.
impl ibv_access_flags {
    /// A peer may flush the region so that every observer sees the data.
    pub const IBV_ACCESS_FLUSH_GLOBAL: ibv_access_flags = ibv_access_flags(1 << 8);
    /// A peer may flush the region so that the data survives a power loss.
    pub const IBV_ACCESS_FLUSH_PERSISTENT: ibv_access_flags = ibv_access_flags(1 << 9);
}

/// On-demand paging with operations added after rdma-core 44.
impl ibv_odp_transport_cap_bits {
    /// Flush.
    pub const IBV_ODP_SUPPORT_FLUSH: ibv_odp_transport_cap_bits = ibv_odp_transport_cap_bits(1 << 6);
    /// Atomic write.
    pub const IBV_ODP_SUPPORT_ATOMIC_WRITE: ibv_odp_transport_cap_bits = ibv_odp_transport_cap_bits(1 << 7);
}

/// Faster links.
impl ibv_port_cap_flags2 {
    /// 200 Gb/s per lane.
    pub const IBV_PORT_LINK_SPEED_XDR_SUP: ibv_port_cap_flags2 = ibv_port_cap_flags2(1 << 12);
}

/// Confidential computing: rdma-core 64.
impl ibv_parent_domain_init_attr_mask {
    /// The domain's objects may use memory that a confidential guest shares with the device.
    pub const IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC: ibv_parent_domain_init_attr_mask =
        ibv_parent_domain_init_attr_mask(1 << 2);
}

/// Events of librdmacm added in RDMACM_1.4.
impl rdma_cm_event_type {
    /// `rdma_resolve_addrinfo` found addresses: read them with `rdma_query_addrinfo`.
    pub const RDMA_CM_EVENT_ADDRINFO_RESOLVED: rdma_cm_event_type = rdma_cm_event_type(16);
    /// `rdma_resolve_addrinfo` found none.
    pub const RDMA_CM_EVENT_ADDRINFO_ERROR: rdma_cm_event_type = rdma_cm_event_type(17);
    /// Written by the program with `rdma_write_cm_event`.
    pub const RDMA_CM_EVENT_USER: rdma_cm_event_type = rdma_cm_event_type(18);
    /// Used by the library itself.
    pub const RDMA_CM_EVENT_INTERNAL: rdma_cm_event_type = rdma_cm_event_type(19);
}

/// `rdma_resolve_addrinfo`: resolves by name service (RDMACM_1.4).
pub const RAI_DNS: u32 = 0x20;
/// `rdma_resolve_addrinfo`: resolves by the subnet administrator (RDMACM_1.4).
pub const RAI_SA: u32 = 0x10;

/// `device_cap_flags_ex` (the kernel's `enum ib_uverbs_device_cap_flags`): flushes that make data visible to every
/// observer.
pub const IB_UVERBS_DEVICE_FLUSH_GLOBAL: u64 = 1 << 38;
/// `device_cap_flags_ex`: flushes that make data survive a power loss.
pub const IB_UVERBS_DEVICE_FLUSH_PERSISTENT: u64 = 1 << 39;
/// `device_cap_flags_ex`: atomic writes.
pub const IB_UVERBS_DEVICE_ATOMIC_WRITE: u64 = 1 << 40;

/// `ibv_wr_flush`, type: make the data visible to every observer.
pub const IBV_FLUSH_GLOBAL: u8 = 1;
/// `ibv_wr_flush`, type: make the data survive a power loss.
pub const IBV_FLUSH_PERSISTENT: u8 = 2;
/// `ibv_wr_flush`, level: the range given.
pub const IBV_FLUSH_RANGE: u8 = 0;
/// `ibv_wr_flush`, level: the whole region of the key; the range is ignored.
pub const IBV_FLUSH_MR: u8 = 1;

/// `ibv_query_qp_data_in_order`, flag: return a mask of the capabilities below instead of 0 or 1.
pub const IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS: u32 = 1 << 0;
/// `ibv_query_qp_data_in_order`, flag: query the device alone, regardless of the platform.
pub const IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY: u32 = 1 << 1;
/// `ibv_query_qp_data_in_order`, capability: a message is written in order.
pub const IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG: u32 = 1 << 0;
/// `ibv_query_qp_data_in_order`, capability: each aligned block of 128 bytes is written in order.
pub const IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES: u32 = 1 << 1;
