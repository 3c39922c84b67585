//! Reading the GIDs of a port: a single GID, a GID with its attributes, or the whole table.
//!
//! The verbs that return attributes were added in rdma-core 32. For older libraries and drivers, this module combines
//! `ibv_query_gid` with the kernel's files.

use std::ffi::CString;
use std::mem::zeroed;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_gid_entry;

use super::query::look_up;
use super::sysfs::GidAttributes;
use super::{DeviceContext, Gid, GidEntry, GidType, LinkLayer, PortAttr};
use crate::error::{Errno, VerbError};
use crate::ffi::{check_errno, errno_of};
use crate::ibverbs::device::DeviceInfo;

/// The length of the longest possible table, because GID indices have 16 bits. A larger number that a driver reports is
/// reduced to this.
const LONGEST_TABLE: u32 = 1 << 16;

impl DeviceContext {
    /// `ibv_query_gid(context, port_num, index, gid)` — reads an entry of the GID table of a port.
    ///
    /// An unused entry reads as [zero](Gid::is_zero).
    ///
    /// # Errors
    ///
    /// Returns the errno of the library if the port or the index does not exist. The error lists the existing ports and
    /// indices.
    ///
    /// # References
    ///
    /// [ibv_query_gid(3)](https://man7.org/linux/man-pages/man3/ibv_query_gid.3.html)
    #[doc(alias = "ibv_query_gid")]
    pub fn query_gid(&self, port_num: u8, gid_index: u32) -> Result<Gid, VerbError> {
        let Ok(index) = c_int::try_from(gid_index) else {
            let error = VerbError::new("ibv_query_gid", Errno::EINVAL);
            return Err(self.explain_gid(error, port_num, gid_index));
        };
        let mut gid = Gid::default().into();
        // SAFETY: the context is open as long as `self` lives, and the call may write to `gid`.
        let found = look_up("ibv_query_gid", || unsafe { sys::ibv_query_gid(self.raw(), port_num, index, &mut gid) });
        found.map_err(|error| self.explain_gid(error, port_num, gid_index))?;
        Ok(gid.into())
    }

    /// `ibv_query_gid_ex(context, port_num, gid_index, entry, 0)` — reads an entry of a port's GID table, with its
    /// protocol and network interface.
    ///
    /// # Errors
    ///
    /// Returns `ENODATA` if the entry is unused. The other errors are those of [`query_gid`](Self::query_gid).
    ///
    /// # References
    ///
    /// [ibv_query_gid_ex(3)](https://man7.org/linux/man-pages/man3/ibv_query_gid_ex.3.html)
    #[doc(alias = "ibv_query_gid_ex")]
    pub fn query_gid_ex(&self, port_num: u8, gid_index: u32) -> Result<GidEntry, VerbError> {
        let mut entry = zero_entry();
        // SAFETY: the context is open as long as `self` lives, and the call may write to `entry`.
        let ret = unsafe { sys::ibv_query_gid_ex(self.raw(), port_num.into(), gid_index, &mut entry, 0) };
        match check_errno("ibv_query_gid_ex", ret) {
            Ok(()) => Ok(GidEntry::from_raw(&entry)),
            Err(error) if is_unsupported(error.errno()) => {
                let link_layer = self.query_port(port_num)?.link_layer();
                let entry = self.gid_entry_of_files(port_num, gid_index, link_layer)?;
                entry.ok_or_else(|| self.explain_gid(no_data(), port_num, gid_index))
            }
            Err(error) => Err(self.explain_gid(error, port_num, gid_index)),
        }
    }

    /// Returns the protocol of an entry of a port's GID table. This is the type that
    /// [`query_gid_ex`](Self::query_gid_ex) returns for the entry.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`query_gid_ex`](Self::query_gid_ex).
    #[doc(alias = "ibv_query_gid_type")]
    pub fn query_gid_type(&self, port_num: u8, gid_index: u32) -> Result<GidType, VerbError> {
        self.query_gid_ex(port_num, gid_index).map(|entry| entry.gid_type())
    }

    /// `ibv_query_gid_table(context, entries, max_entries, 0)` — reads all used entries of the GID tables of all ports.
    ///
    /// # Errors
    ///
    /// Returns the errno of this verb, or of the preceding queries of the ports and table sizes.
    ///
    /// # References
    ///
    /// [ibv_query_gid_table(3)](https://man7.org/linux/man-pages/man3/ibv_query_gid_table.3.html)
    #[doc(alias = "ibv_query_gid_table")]
    pub fn query_gid_table(&self) -> Result<Vec<GidEntry>, VerbError> {
        let ports = self.ports()?;
        let capacity: usize = ports.iter().map(|(_, port)| table_length(port) as usize).sum();
        if capacity == 0 {
            return Ok(Vec::new());
        }
        let mut entries = vec![zero_entry(); capacity];
        // SAFETY: the context is open as long as `self` lives, and the array has space for the entries.
        let ret = unsafe { sys::ibv_query_gid_table(self.raw(), entries.as_mut_ptr(), entries.len(), 0) };
        match usize::try_from(ret) {
            Ok(count) => Ok(entries.iter().take(count).map(GidEntry::from_raw).collect()),
            Err(_) => {
                let errno = errno_of(c_int::try_from(ret).unwrap_or(c_int::MIN));
                if !is_unsupported(errno) {
                    return Err(VerbError::new("ibv_query_gid_table", errno));
                }
                self.gid_table_of_files(&ports)
            }
        }
    }

    /// Returns all ports with their attributes.
    fn ports(&self) -> Result<Vec<(u8, PortAttr)>, VerbError> {
        let count = u8::try_from(self.query_device()?.phys_port_cnt()).unwrap_or(u8::MAX);
        (1..=count).map(|port_num| Ok((port_num, self.query_port(port_num)?))).collect()
    }

    fn gid_table_of_files(&self, ports: &[(u8, PortAttr)]) -> Result<Vec<GidEntry>, VerbError> {
        let mut entries = Vec::new();
        for (port_num, port) in ports {
            for gid_index in 0..table_length(port) {
                entries.extend(self.gid_entry_of_files(*port_num, gid_index, port.link_layer())?);
            }
        }
        Ok(entries)
    }

    /// Reads one entry without the extended verbs. Returns `None` if the entry is unused.
    fn gid_entry_of_files(
        &self,
        port_num: u8,
        gid_index: u32,
        link_layer: LinkLayer,
    ) -> Result<Option<GidEntry>, VerbError> {
        let gid = self.query_gid(port_num, gid_index)?;
        if gid.is_zero() {
            return Ok(None);
        }
        let attributes = self.sysfs_path().map(|path| GidAttributes::new(&path, port_num, gid_index));
        let gid_type = attributes.as_ref().and_then(|attributes| attributes.gid_type(link_layer));
        // Without the kernel's files, the link layer leaves at most two possible types. Kernels before 4.5 support only
        // the first of them.
        let gid_type = gid_type.unwrap_or(match link_layer {
            LinkLayer::Ethernet => GidType::RoceV1,
            _ => GidType::InfiniBand,
        });
        let netdev = attributes.and_then(|attributes| attributes.netdev_name());
        let netdev_index = netdev.map_or(0, |name| interface_index(&name));
        Ok(Some(GidEntry::new(gid, gid_index, port_num.into(), gid_type, netdev_index)))
    }

    /// Adds the list of ports or indices to the error if the requested one does not exist.
    #[cold]
    fn explain_gid(&self, error: VerbError, port_num: u8, gid_index: u32) -> VerbError {
        let error = self.explain_port(error, port_num);
        if error.hint().is_some() {
            return error;
        }
        match self.query_port(port_num).map(|port| port.gid_tbl_len()) {
            Ok(length) if gid_index >= length => {
                error.with_hint(format!("there is no GID index {gid_index}; use an index below {length}"))
            }
            Ok(_) if error.errno().raw() == libc::ENODATA => error.with_hint(format!(
                "GID index {gid_index} of port {port_num} is not in use; choose one that \
                    query_gid_table returns"
            )),
            _ => error,
        }
    }
}

fn zero_entry() -> ibv_gid_entry {
    // SAFETY: the structure consists of integers, for which zero is valid.
    unsafe { zeroed() }
}

fn table_length(port: &PortAttr) -> u32 {
    port.gid_tbl_len().min(LONGEST_TABLE)
}

fn no_data() -> VerbError {
    VerbError::new("ibv_query_gid_ex", Errno::ENODATA)
}

/// Whether the library, the driver or the kernel lacks the verb.
fn is_unsupported(errno: Errno) -> bool {
    matches!(errno.raw(), libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT | libc::ENOTTY)
}

/// Returns the index of the network interface with this name, or 0 if there is none.
fn interface_index(name: &str) -> u32 {
    // SAFETY: the name ends in a zero byte and is only read.
    CString::new(name).map_or(0, |name| unsafe { libc::if_nametoindex(name.as_ptr()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn interface_index_follows_from_name() {
        assert_eq!(interface_index("no such interface"), 0);
        assert_eq!(interface_index("zero\0byte"), 0);
    }

    #[test]
    fn only_missing_verbs_fall_back_to_files() {
        assert!(is_unsupported(Errno::EOPNOTSUPP));
        assert!(!is_unsupported(Errno::EINVAL));
        assert!(!is_unsupported(Errno::ENODEV));
    }
}
