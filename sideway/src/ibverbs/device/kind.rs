//! What kind of a device a device is.

use rdma_mummy_sys::{ibv_node_type as node, ibv_transport_type as transport};

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_transport_type` — the family of protocols that a device speaks. RoCE counts as InfiniBand.
    #[doc(alias = "ibv_transport_type")]
    pub enum TransportType {
        /// Not known to the library.
        Unknown = transport::IBV_TRANSPORT_UNKNOWN.0,
        /// InfiniBand, RoCE.
        InfiniBand = transport::IBV_TRANSPORT_IB.0,
        /// iWARP: RDMA over TCP.
        IWarp = transport::IBV_TRANSPORT_IWARP.0 => "iWARP",
        /// Cisco usNIC.
        Usnic = transport::IBV_TRANSPORT_USNIC.0 => "usNIC",
        /// Cisco usNIC over UDP.
        UsnicUdp = transport::IBV_TRANSPORT_USNIC_UDP.0 => "usNIC UDP",
        /// A protocol of its own, such as that of EFA.
        Unspecified = transport::IBV_TRANSPORT_UNSPECIFIED.0 => "unspecified",
    }
}

open_enum! {
    /// `enum ibv_node_type` — the role of a device.
    #[doc(alias = "ibv_node_type")]
    #[doc(alias = "ibv_node_type_str")]
    pub enum NodeType {
        /// Not known to the library.
        Unknown = node::IBV_NODE_UNKNOWN.0,
        /// An InfiniBand or RoCE adapter.
        ChannelAdapter = node::IBV_NODE_CA.0 => "channel adapter",
        /// An InfiniBand switch.
        Switch = node::IBV_NODE_SWITCH.0 => "switch",
        /// An InfiniBand router.
        Router = node::IBV_NODE_ROUTER.0 => "router",
        /// An iWARP adapter.
        RdmaNic = node::IBV_NODE_RNIC.0 => "RDMA NIC",
        /// Cisco usNIC.
        Usnic = node::IBV_NODE_USNIC.0 => "usNIC",
        /// Cisco usNIC over UDP.
        UsnicUdp = node::IBV_NODE_USNIC_UDP.0 => "usNIC UDP",
        /// Another, such as EFA.
        Unspecified = node::IBV_NODE_UNSPECIFIED.0 => "unspecified",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_one_is_a_known_value_and_others_print() {
        assert_eq!(TransportType::from_raw(-1i32 as u32), TransportType::Unknown);
        assert_eq!(NodeType::from_raw(u32::MAX), NodeType::Unknown);
        assert_eq!(TransportType::from_raw(9).to_string(), "unknown (9)");
    }
}
