//! The properties of a device, whether it is open or not: its names, node type and transport.

use std::path::PathBuf;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::load::provider::ProviderId;
use rdma_mummy_sys::{ibv_node_type as node, ibv_transport_type as transport};

use super::sysfs::{self, c_text};
use crate::ffi::open_enum;
use crate::ibverbs::guid::Guid;

/// Seals the trait `DeviceInfo`.
pub(in crate::ibverbs) mod sealed {
    use rdma_mummy_sys::ibv_device;

    /// A device whose C object lives as long as the value. The methods of [`DeviceInfo`](super::DeviceInfo) rely on
    /// this.
    pub trait Device {
        /// Returns the C object.
        fn device(&self) -> *mut ibv_device;
    }
}

/// The properties of a device, which may be open ([`DeviceContext`](crate::ibverbs::device_context::DeviceContext)) or
/// not ([`Device`](super::Device)).
pub trait DeviceInfo: sealed::Device {
    /// `ibv_get_device_name(device)` — returns the device's kernel name, such as `mlx5_0`.
    ///
    /// Invalid UTF-8 is replaced with U+FFFD.
    #[doc(alias = "ibv_get_device_name")]
    fn name(&self) -> String {
        // SAFETY: the device is live as long as `self` lives, and its strings do not change.
        c_text(unsafe { &(*self.device()).name }).into_owned()
    }

    /// `ibv_get_device_guid(device)` — returns the device's GUID, or zero if it is unknown.
    #[doc(alias = "ibv_get_device_guid")]
    fn guid(&self) -> Guid {
        // SAFETY: the device is live as long as `self` lives.
        Guid::from_be(unsafe { sys::ibv_get_device_guid(self.device()) })
    }

    /// `ibv_get_device_index(device)` — returns the device's index in the kernel, or `None` if the kernel or the
    /// library is too old to report it.
    #[doc(alias = "ibv_get_device_index")]
    fn index(&self) -> Option<u32> {
        // SAFETY: the device is live as long as `self` lives.
        u32::try_from(unsafe { sys::ibv_get_device_index(self.device()) }).ok()
    }

    /// `transport_type`: returns the device's family of protocols.
    fn transport_type(&self) -> TransportType {
        // SAFETY: the device is live as long as `self` lives, and the field does not change.
        TransportType::from_raw(unsafe { (*self.device()).transport_type.0 } as u32)
    }

    /// `node_type`: returns the device's role.
    fn node_type(&self) -> NodeType {
        // SAFETY: the device is live as long as `self` lives, and the field does not change.
        NodeType::from_raw(unsafe { (*self.device()).node_type.0 } as u32)
    }

    /// `dev_name`: returns the name of the device file in `/dev/infiniband`, such as `uverbs0`. The name is empty if
    /// the kernel does not know the device.
    fn uverbs_name(&self) -> String {
        // SAFETY: the device is live as long as `self` lives, and its strings do not change.
        c_text(unsafe { &(*self.device()).dev_name }).into_owned()
    }

    /// `ibdev_path`: returns the device's sysfs directory, such as `/sys/class/infiniband/mlx5_0`, or `None` if the
    /// kernel does not know the device.
    #[doc(alias = "ibdev_path")]
    fn sysfs_path(&self) -> Option<PathBuf> {
        // SAFETY: the device is live as long as `self` lives, and its strings do not change.
        let path = c_text(unsafe { &(*self.device()).ibdev_path });
        path.starts_with('/').then(|| PathBuf::from(path.as_ref()))
    }

    /// Returns the name under which the device's provider is registered in this process, such as `softrnic`, or `None`
    /// for a device of the system's libibverbs.
    fn provider(&self) -> Option<&'static str> {
        // SAFETY: the device is live as long as `self` lives.
        unsafe { ProviderId::of_device(self.device()) }.map(ProviderId::name)
    }

    /// Returns the NUMA node nearest to the device, or `None` if the kernel does not report it, as for software
    /// devices.
    fn numa_node(&self) -> Option<u32> {
        sysfs::numa_node(&self.sysfs_path()?)
    }
}

open_enum! {
    /// `enum ibv_transport_type` — a device's family of protocols. RoCE devices belong to the InfiniBand family.
    #[doc(alias = "ibv_transport_type")]
    pub enum TransportType {
        /// Unknown to the library.
        Unknown = transport::IBV_TRANSPORT_UNKNOWN.0,
        /// InfiniBand, RoCE.
        InfiniBand = transport::IBV_TRANSPORT_IB.0,
        /// iWARP: RDMA over TCP.
        IWarp = transport::IBV_TRANSPORT_IWARP.0 => "iWARP",
        /// Cisco usNIC.
        Usnic = transport::IBV_TRANSPORT_USNIC.0 => "usNIC",
        /// Cisco usNIC over UDP.
        UsnicUdp = transport::IBV_TRANSPORT_USNIC_UDP.0 => "usNIC UDP",
        /// A vendor protocol, such as EFA's.
        Unspecified = transport::IBV_TRANSPORT_UNSPECIFIED.0 => "unspecified",
    }
}

open_enum! {
    /// `enum ibv_node_type` — a device's role.
    #[doc(alias = "ibv_node_type")]
    #[doc(alias = "ibv_node_type_str")]
    pub enum NodeType {
        /// Unknown to the library.
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
        /// Other, such as EFA.
        Unspecified = node::IBV_NODE_UNSPECIFIED.0 => "unspecified",
    }
}

#[cfg(test)]
mod kind_tests {
    use super::*;

    #[test]
    fn negative_and_unknown_types_print() {
        assert_eq!(TransportType::from_raw(-1i32 as u32), TransportType::Unknown);
        assert_eq!(NodeType::from_raw(u32::MAX), NodeType::Unknown);
        assert_eq!(TransportType::from_raw(9).to_string(), "unknown (9)");
    }
}
