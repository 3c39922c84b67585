//! `struct ibv_gid_entry`: an entry of a port's GID table, and its protocol.

use std::ffi::CStr;

use libc::{IF_NAMESIZE, c_char};
use rdma_mummy_sys::{ibv_gid_entry, ibv_gid_type};

use super::{Gid, LinkLayer};
use crate::error::Errno;
use crate::ffi::{last_errno, open_enum};

/// `struct ibv_gid_entry` — an entry of a port's GID table, with its protocol and its network interface.
#[doc(alias = "ibv_gid_entry")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GidEntry {
    gid: Gid,
    gid_index: u32,
    port_num: u32,
    gid_type: GidType,
    netdev_index: u32,
}

impl GidEntry {
    pub(crate) fn new(gid: Gid, gid_index: u32, port_num: u32, gid_type: GidType, netdev_index: u32) -> Self {
        Self { gid, gid_index, port_num, gid_type, netdev_index }
    }

    pub(crate) fn from_raw(entry: &ibv_gid_entry) -> Self {
        let gid_type = GidType::from_raw(entry.gid_type);
        Self::new(entry.gid.into(), entry.gid_index, entry.port_num, gid_type, entry.ndev_ifindex)
    }

    /// Returns the GID.
    pub fn gid(&self) -> Gid {
        self.gid
    }

    /// Returns the entry's index in its port's table, counted from 0. Pass it to
    /// [`setup_grh_src_gid_index`](crate::ibverbs::address::AddressHandleAttribute::setup_grh_src_gid_index).
    pub fn gid_index(&self) -> u32 {
        self.gid_index
    }

    /// Returns the port, from 1.
    pub fn port_num(&self) -> u32 {
        self.port_num
    }

    /// Returns the protocol.
    pub fn gid_type(&self) -> GidType {
        self.gid_type
    }

    /// Returns the index of the GID's network interface, or 0 if the GID has none, as with InfiniBand.
    pub fn netdev_index(&self) -> u32 {
        self.netdev_index
    }

    /// `if_indextoname(ifindex, ifname)` — returns the name of the GID's network interface, such as `eth0`.
    ///
    /// The index is looked up in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// Returns [`NetdevNameError::NoNetdev`] if the GID has no interface, and [`NetdevNameError::Lookup`] if the
    /// interface was removed or is in another network namespace.
    ///
    /// # References
    ///
    /// [if_indextoname(3)](https://man7.org/linux/man-pages/man3/if_indextoname.3.html)
    #[doc(alias = "if_indextoname")]
    pub fn netdev_name(&self) -> Result<String, NetdevNameError> {
        if self.netdev_index == 0 {
            return Err(NetdevNameError::NoNetdev);
        }
        let mut name: [c_char; IF_NAMESIZE] = [0; IF_NAMESIZE];
        // SAFETY: the buffer has the IF_NAMESIZE bytes that the function may write.
        let found = unsafe { libc::if_indextoname(self.netdev_index, name.as_mut_ptr()) };
        if found.is_null() {
            return Err(NetdevNameError::Lookup { netdev_index: self.netdev_index, errno: last_errno() });
        }
        // SAFETY: the function has succeeded, so the buffer holds a name that ends in a zero byte.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }
}

/// The name of a GID's network interface could not be determined.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetdevNameError {
    /// The GID has no network interface.
    #[error("this GID has no network interface")]
    NoNetdev,
    /// The calling thread's network namespace has no such interface.
    #[error("if_indextoname: {errno}: interface {netdev_index} was removed, or is in another network namespace")]
    Lookup {
        /// The interface's index.
        netdev_index: u32,
        /// The errno of `if_indextoname`.
        errno: Errno,
    },
}

crate::error::debug_is_text!(NetdevNameError);

open_enum! {
    /// `enum ibv_gid_type` — the protocol of packets sent from a GID.
    ///
    /// An address often has two entries in the table, one for each version of RoCE.
    #[doc(alias = "ibv_gid_type")]
    pub enum GidType {
        /// InfiniBand.
        InfiniBand = ibv_gid_type::IBV_GID_TYPE_IB.0 => "IB",
        /// RDMA over Ethernet, not routable.
        RoceV1 = ibv_gid_type::IBV_GID_TYPE_ROCE_V1.0 => "RoCE v1",
        /// RDMA over UDP over IP, routable.
        RoceV2 = ibv_gid_type::IBV_GID_TYPE_ROCE_V2.0 => "RoCE v2",
    }
}

impl GidType {
    /// Parses the text of `/sys/class/infiniband/DEVICE/ports/PORT/gid_attrs/types/INDEX`.
    ///
    /// The kernel uses the same text for InfiniBand and RoCE v1; the link layer distinguishes them.
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
mod gid_type_tests {
    use super::*;

    #[test]
    fn kernel_texts_are_parsed() {
        let read = GidType::from_sysfs;
        assert_eq!(read("RoCE v2\n", LinkLayer::Ethernet), Some(GidType::RoceV2));
        assert_eq!(read("IB/RoCE v1\n", LinkLayer::Ethernet), Some(GidType::RoceV1));
        assert_eq!(read("IB/RoCE v1", LinkLayer::InfiniBand), Some(GidType::InfiniBand));
        assert_eq!(read("IB/RoCE v1", LinkLayer::Unspecified), Some(GidType::InfiniBand));
        assert_eq!(read("RoCE v3\n", LinkLayer::Ethernet), None);
        assert_eq!(read("", LinkLayer::Ethernet), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(netdev_index: u32) -> GidEntry {
        GidEntry::new(Gid::default(), 3, 1, GidType::RoceV2, netdev_index)
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn netdev_name_returns_name_or_reason() {
        assert_eq!(entry(0).netdev_name(), Err(NetdevNameError::NoNetdev));
        let error = entry(u32::MAX).netdev_name().unwrap_err();
        assert!(matches!(error, NetdevNameError::Lookup { netdev_index: u32::MAX, .. }), "{error:?}");
        assert!(error.to_string().contains("4294967295"), "{error}");
    }

    #[test]
    fn unknown_gid_type_passes_through() {
        let gid = Gid { raw: [7; 16] }.into();
        let raw = ibv_gid_entry { gid, gid_index: 9, port_num: 2, gid_type: 77, ndev_ifindex: 5 };
        let entry = GidEntry::from_raw(&raw);
        assert_eq!(entry.gid_type().to_string(), "unknown (77)");
        assert_eq!((entry.gid_index(), entry.port_num(), entry.netdev_index()), (9, 2, 5));
        assert_eq!(entry.gid(), Gid { raw: [7; 16] });
    }
}
