//! The files of the devices in `/sys` and `/dev`, for programs that read them in addition to using the C API.
//!
//! [`files`] describes them from the answers of the verbs. The folders are those of the kernel for a device that belongs
//! to no bus. There are no counters, because the device counts nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_char};
use std::fmt::Write;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::device::{self, Device};
use super::gid;
use super::port::{self, PKEY, PORT};
use super::query_device;

/// The folder of the devices.
const DEVICES: &str = "/sys/devices/virtual/softrnic";
/// The version of the kernel's interface to user space.
const ABI_VERSION: u32 = 6;

/// A file that the process can always open, but whose reads fail with `EINVAL`, like those of the attributes of an empty
/// entry in the kernel's GID table.
const INVALID: &str = "/proc/self/ns/net";

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum File {
    /// A regular file with this text.
    Text(String),
    /// A symbolic link to this path.
    Link(String),
    /// A link to a character device that any user may read and write.
    CharacterDevice,
}

static SERVED: AtomicBool = AtomicBool::new(false);

/// Declares that this process serves [`files`], so that the devices name them. Must precede the registration.
#[doc(hidden)]
pub fn serve_files() {
    SERVED.store(true, Ordering::Relaxed);
}

pub(crate) fn are_served() -> bool {
    SERVED.load(Ordering::Relaxed)
}

/// Returns the files of all devices, with absolute paths. Their folders contain nothing else, except for
/// `/sys/class/infiniband`, `/sys/class/infiniband_verbs` and `/dev/infiniband`, which may contain other devices.
#[doc(hidden)]
#[must_use]
pub fn files() -> Vec<(String, File)> {
    let mut files = Files(Vec::new());
    for device in device::all() {
        files.add_device(device);
    }
    if !files.0.is_empty() {
        files.text("/sys/class/infiniband_verbs/abi_version".to_owned(), ABI_VERSION);
    }
    files.0
}

/// A list of files.
struct Files(Vec<(String, File)>);

impl Files {
    /// Adds a file with one line.
    fn text(&mut self, path: String, line: impl std::fmt::Display) {
        self.0.push((path, File::Text(format!("{line}\n"))));
    }

    fn link(&mut self, path: String, to: String) {
        self.0.push((path, File::Link(to)));
    }

    fn add_device(&mut self, device: &Device) {
        let (name, verbs_name) = (text(device.name()), device.verbs_name());
        let folder = format!("{DEVICES}/{name}");
        let (rdma, verbs) = (format!("{folder}/infiniband/{name}"), format!("{folder}/infiniband_verbs/{verbs_name}"));
        for (class, name) in [("infiniband", &name), ("infiniband_verbs", &verbs_name)] {
            let to = format!("../../devices/virtual/softrnic/{}/{class}/{name}", text(device.name()));
            self.link(format!("/sys/class/{class}/{name}"), to);
        }
        self.0.push((format!("/dev/infiniband/{verbs_name}"), File::CharacterDevice));

        let attributes = query_device::attributes(device);
        self.text(format!("{folder}/vendor"), format_args!("{:#06x}", attributes.vendor_id));
        self.text(format!("{folder}/device"), format_args!("{:#06x}", attributes.vendor_part_id));
        // All processors reach the device equally well.
        self.text(format!("{folder}/numa_node"), -1);
        for interface in gid::all(device).iter().map(|(_, address)| address.interface_index).collect::<BTreeSet<_>>() {
            if let Some(interface) = interface_name(interface) {
                self.link(format!("{folder}/net/{interface}"), format!("/sys/class/net/{interface}"));
            }
        }

        self.text(format!("{verbs}/ibdev"), &name);
        self.text(format!("{verbs}/abi_version"), 1);
        // The device of the file in /dev.
        self.text(format!("{verbs}/dev"), "1:3");
        self.link(format!("{verbs}/device"), "../..".to_owned());

        self.link(format!("{rdma}/device"), "../..".to_owned());
        self.text(format!("{rdma}/node_type"), device.kind().node_text);
        self.text(format!("{rdma}/node_desc"), &name);
        self.text(format!("{rdma}/node_guid"), groups(&attributes.node_guid.to_ne_bytes()));
        self.text(format!("{rdma}/sys_image_guid"), groups(&attributes.sys_image_guid.to_ne_bytes()));
        // SAFETY: the version ends with a zero byte.
        let version = unsafe { CStr::from_ptr(attributes.fw_ver.as_ptr()) };
        self.text(format!("{rdma}/fw_ver"), text(version.to_bytes()));
        self.text(format!("{rdma}/hw_rev"), attributes.hw_ver);
        self.text(format!("{rdma}/hca_type"), "softrnic");
        self.text(format!("{rdma}/board_id"), "softrnic");
        self.add_port(device, &format!("{rdma}/ports/{PORT}"));
    }

    fn add_port(&mut self, device: &Device, folder: &str) {
        let attributes = port::attributes(device.kind(), device.condition().is_down());
        let mut text = |name: &str, line: &dyn std::fmt::Display| self.text(format!("{folder}/{name}"), line);
        text("state", &format_args!("{}: ACTIVE", attributes.state.0));
        text("phys_state", &format_args!("{}: LinkUp", attributes.phys_state));
        text("rate", &format_args!("{} Gb/sec (4X EDR)", port::SPEED / 10));
        text("link_layer", &"Ethernet");
        text("lid", &format_args!("{:#x}", attributes.lid));
        text("sm_lid", &format_args!("{:#x}", attributes.sm_lid));
        text("lid_mask_count", &attributes.lmc);
        text("sm_sl", &attributes.sm_sl);
        text("cap_mask", &format_args!("{:#010x}", attributes.port_cap_flags));
        text("pkeys/0", &format_args!("{PKEY:#06x}"));
        let addresses: BTreeMap<_, _> = gid::all(device).into_iter().collect();
        for index in 0..usize::try_from(attributes.gid_tbl_len).unwrap_or(0) {
            let address = addresses.get(&index);
            let ip = address.map_or(Ipv6Addr::UNSPECIFIED, |address| address.ip);
            self.text(format!("{folder}/gids/{index}"), groups(&ip.octets()));
            let (types, ndevs) =
                (format!("{folder}/gid_attrs/types/{index}"), format!("{folder}/gid_attrs/ndevs/{index}"));
            let Some(address) = address else {
                self.link(types, INVALID.to_owned());
                self.link(ndevs, INVALID.to_owned());
                continue;
            };
            self.text(types, device.kind().gid_type_text);
            if let Some(interface) = interface_name(address.interface_index) {
                self.text(ndevs, interface);
            }
        }
    }
}

/// Writes bytes as groups of four hexadecimal digits, as the kernel writes GUIDs and GIDs.
fn groups(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (place, pair) in bytes.chunks(2).enumerate() {
        let separator = if place == 0 { "" } else { ":" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{:02x}{:02x}", pair[0], pair.get(1).unwrap_or(&0));
    }
    text
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn interface_name(index: u32) -> Option<String> {
    let mut name = [0 as c_char; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the largest size that the function writes.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the function has written a name and its terminator.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::kind::GID_TABLE_LENGTH;

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn files_have_the_format_of_the_kernels() {
        crate::register().unwrap();
        let files = files();
        let file = |path: &str| files.iter().find(|(of, _)| of == path).map(|(_, file)| file.clone());
        let line = |path: &str| match file(&format!("{DEVICES}/{path}")) {
            Some(File::Text(text)) => text,
            other => panic!("{path}: {other:?}"),
        };
        let soft = "soft0/infiniband/soft0";
        assert_eq!(line(&format!("{soft}/node_type")), "1: CA\n");
        assert_eq!(line(&format!("{soft}/ports/1/state")), "4: ACTIVE\n");
        assert_eq!(line(&format!("{soft}/ports/1/phys_state")), "5: LinkUp\n");
        assert_eq!(line(&format!("{soft}/ports/1/rate")), "100 Gb/sec (4X EDR)\n");
        assert_eq!(line(&format!("{soft}/ports/1/lid")), "0x0\n");
        assert_eq!(line(&format!("{soft}/ports/1/pkeys/0")), "0xffff\n");
        let loopback = "0000:0000:0000:0000:0000:ffff:7f00:0001\n";
        let index = (0..10).find(|index| line(&format!("{soft}/ports/1/gids/{index}")) == loopback).unwrap();
        assert_eq!(line(&format!("{soft}/ports/1/gid_attrs/types/{index}")), "RoCE v2\n");
        assert_eq!(line(&format!("{soft}/ports/1/gid_attrs/ndevs/{index}")), "lo\n");
        let last = GID_TABLE_LENGTH - 1;
        assert_eq!(line(&format!("{soft}/ports/1/gids/{last}")), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        for attribute in ["types", "ndevs"] {
            let path = format!("{DEVICES}/{soft}/ports/1/gid_attrs/{attribute}/{last}");
            assert_eq!(file(&path), Some(File::Link(INVALID.to_owned())));
        }
        assert_eq!(file(&format!("{DEVICES}/{soft}/ports/1/gids/{}", GID_TABLE_LENGTH)), None);
        assert_eq!(line(&format!("{soft}/node_guid")).len(), "0000:0000:0000:0000\n".len());
        assert_eq!(line("soft0/numa_node"), "-1\n");
        assert_eq!(line("softiw0/infiniband/softiw0/node_type"), "4: RNIC\n");
        assert_eq!(line("softiw0/infiniband/softiw0/ports/1/gid_attrs/types/0"), "IB/RoCE v1\n");
        let first = line(&format!("{soft}/ports/1/gid_attrs/ndevs/0"));
        assert_eq!(line("softiw0/infiniband/softiw0/ports/1/gid_attrs/ndevs/0"), first);
        assert_eq!(file(&format!("{DEVICES}/soft0/net/lo")), Some(File::Link("/sys/class/net/lo".to_owned())));

        let verbs = device::all().next().unwrap().verbs_name();
        assert_eq!(line(&format!("soft0/infiniband_verbs/{verbs}/ibdev")), "soft0\n");
        assert_eq!(file(&format!("/dev/infiniband/{verbs}")), Some(File::CharacterDevice));
        let to = "../../devices/virtual/softrnic/soft0/infiniband/soft0".to_owned();
        assert_eq!(file("/sys/class/infiniband/soft0"), Some(File::Link(to)));
        let mut paths: Vec<_> = files.iter().map(|(path, _)| path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), files.len(), "each path once");
    }
}
