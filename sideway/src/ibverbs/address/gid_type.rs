//! `enum ibv_gid_type`: what protocol a GID stands for.

use rdma_mummy_sys::ibv_gid_type as raw;

use crate::ffi::open_enum;
use crate::ibverbs::device_context::LinkLayer;

open_enum! {
    /// `enum ibv_gid_type` — the protocol that packets from a GID are sent with.
    ///
    /// The same address often stands in the table twice, once for each version of RoCE.
    #[doc(alias = "ibv_gid_type")]
    pub enum GidType {
        /// InfiniBand.
        InfiniBand = raw::IBV_GID_TYPE_IB.0 => "IB",
        /// RDMA over Ethernet, not routable.
        RoceV1 = raw::IBV_GID_TYPE_ROCE_V1.0 => "RoCE v1",
        /// RDMA over UDP over IP, routable.
        RoceV2 = raw::IBV_GID_TYPE_ROCE_V2.0 => "RoCE v2",
    }
}

impl GidType {
    /// Reads the text of `/sys/class/infiniband/DEVICE/ports/PORT/gid_attrs/types/INDEX`.
    ///
    /// The kernel has one text for InfiniBand and RoCE v1, and the link layer tells which it is.
    pub(crate) fn from_sysfs(text: &str, link_layer: LinkLayer) -> Option<Self> {
        match text.trim() {
            "RoCE v2" => Some(Self::RoceV2),
            "IB/RoCE v1" if link_layer == LinkLayer::Ethernet => Some(Self::RoceV1),
            "IB/RoCE v1" => Some(Self::InfiniBand),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_texts_are_read() {
        let read = GidType::from_sysfs;
        assert_eq!(read("RoCE v2\n", LinkLayer::Ethernet), Some(GidType::RoceV2));
        assert_eq!(read("IB/RoCE v1\n", LinkLayer::Ethernet), Some(GidType::RoceV1));
        assert_eq!(read("IB/RoCE v1", LinkLayer::InfiniBand), Some(GidType::InfiniBand));
        assert_eq!(read("IB/RoCE v1", LinkLayer::Unspecified), Some(GidType::InfiniBand));
        assert_eq!(read("RoCE v3\n", LinkLayer::Ethernet), None);
        assert_eq!(read("", LinkLayer::Ethernet), None);
    }
}
