//! `struct ibv_gid_entry`: one line of the GID table of a port.

use std::ffi::CStr;

use libc::{IF_NAMESIZE, c_char};
use rdma_mummy_sys::ibv_gid_entry;

use super::{Gid, GidType};
use crate::error::Errno;
use crate::ffi::last_errno;

/// `struct ibv_gid_entry` — one entry of the GID table of a port, with its protocol and its network interface.
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

    /// The GID.
    pub fn gid(&self) -> Gid {
        self.gid
    }

    /// Where it stands in the table of its port, from 0: what
    /// [`setup_grh_src_gid_index`](super::AddressHandleAttribute::setup_grh_src_gid_index) takes.
    pub fn gid_index(&self) -> u32 {
        self.gid_index
    }

    /// The port, from 1.
    pub fn port_num(&self) -> u32 {
        self.port_num
    }

    /// The protocol.
    pub fn gid_type(&self) -> GidType {
        self.gid_type
    }

    /// The index of the network interface behind the GID; 0 where there is none, as with InfiniBand.
    pub fn netdev_index(&self) -> u32 {
        self.netdev_index
    }

    /// `if_indextoname(ifindex, ifname)` — the name of the network interface behind the GID, such as `eth0`.
    ///
    /// The index is looked up in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`NetdevNameError::NoNetdev`] where no interface is behind the GID, and [`NetdevNameError::Lookup`] where the
    /// interface has gone or is in another network namespace.
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
        // SAFETY: the function has succeeded, and so has written a name that ends in a zero byte into the buffer.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }
}

/// Why the network interface behind a GID has no name to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetdevNameError {
    /// No network interface is behind the GID.
    #[error("no network interface is behind this GID")]
    NoNetdev,
    /// The network namespace of the calling thread has no such interface.
    #[error("if_indextoname: {errno}: interface {netdev_index} has gone or is in another network namespace")]
    Lookup {
        /// The index of the interface.
        netdev_index: u32,
        /// What `if_indextoname` gave.
        errno: Errno,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(netdev_index: u32) -> GidEntry {
        GidEntry::new(Gid::default(), 3, 1, GidType::RoceV2, netdev_index)
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn interfaces_are_named_or_the_reason_is() {
        assert_eq!(entry(0).netdev_name(), Err(NetdevNameError::NoNetdev));
        let error = entry(u32::MAX).netdev_name().unwrap_err();
        assert!(matches!(error, NetdevNameError::Lookup { netdev_index: u32::MAX, .. }), "{error:?}");
        assert!(error.to_string().contains("4294967295"), "{error}");
    }

    #[test]
    fn an_unknown_type_passes_through() {
        let gid = Gid { raw: [7; 16] }.into();
        let raw = ibv_gid_entry { gid, gid_index: 9, port_num: 2, gid_type: 77, ndev_ifindex: 5 };
        let entry = GidEntry::from_raw(&raw);
        assert_eq!(entry.gid_type().to_string(), "unknown (77)");
        assert_eq!((entry.gid_index(), entry.port_num(), entry.netdev_index()), (9, 2, 5));
        assert_eq!(entry.gid(), Gid { raw: [7; 16] });
    }
}
