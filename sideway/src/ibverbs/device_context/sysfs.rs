//! Attributes that the kernel exports only in files.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::fs;
use std::path::{Path, PathBuf};

use super::{GidType, LinkLayer};

/// Returns the nearest NUMA node, or `None` if the file is missing or contains -1.
pub(in crate::ibverbs) fn numa_node(device: &Path) -> Option<u32> {
    parse_numa_node(&fs::read_to_string(device.join("device/numa_node")).ok()?)
}

fn parse_numa_node(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// The attributes of one GID, in the device's `ports/PORT/gid_attrs`.
pub(super) struct GidAttributes {
    path: PathBuf,
    gid_index: u32,
}

impl GidAttributes {
    pub(super) fn new(device: &Path, port_num: u8, gid_index: u32) -> Self {
        Self { path: device.join("ports").join(port_num.to_string()).join("gid_attrs"), gid_index }
    }

    fn read(&self, folder: &str) -> Option<String> {
        // The kernel returns EINVAL when the file of an unused entry is read.
        fs::read_to_string(self.path.join(folder).join(self.gid_index.to_string())).ok()
    }

    pub(super) fn gid_type(&self, link_layer: LinkLayer) -> Option<GidType> {
        GidType::from_sysfs(&self.read("types")?, link_layer)
    }

    /// Returns the name of the network interface.
    pub(super) fn netdev_name(&self) -> Option<String> {
        self.read("ndevs").map(|text| text.trim().to_owned()).filter(|name| !name.is_empty())
    }
}

/// Returns the text of an array up to its first zero byte, or all of it. Invalid UTF-8 is replaced with U+FFFD.
pub(in crate::ibverbs) fn c_text(array: &[c_char]) -> Cow<'_, str> {
    // SAFETY: `c_char` has the size and alignment of `u8`, and all of its bit patterns are valid for `u8`.
    let bytes = unsafe { std::slice::from_raw_parts(array.as_ptr().cast::<u8>(), array.len()) };
    CStr::from_bytes_until_nul(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), CStr::to_string_lossy)
}

#[cfg(test)]
mod c_text_tests {
    use super::*;

    #[test]
    fn c_text_ends_at_zero_or_array_end() {
        let text = |bytes: &[u8]| c_text(&bytes.iter().map(|&byte| byte as c_char).collect::<Vec<_>>()).into_owned();
        assert_eq!(text(b"rxe_0\0junk"), "rxe_0");
        assert_eq!(text(b"rxe_0"), "rxe_0");
        assert_eq!(text(b"\0"), "");
        assert_eq!(text(b""), "");
        assert_eq!(text(b"a\xffb\0"), "a\u{fffd}b");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numa_node_minus_one_is_none() {
        assert_eq!(parse_numa_node("0\n"), Some(0));
        assert_eq!(parse_numa_node("1"), Some(1));
        assert_eq!(parse_numa_node("-1\n"), None);
        assert_eq!(parse_numa_node(""), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads files")]
    fn gid_attributes_come_from_files() {
        let folder = sideway_test_names::Folder::new();
        let device = folder.path();
        let attributes = device.join("ports/1/gid_attrs");
        for (folder, text) in [("types", "RoCE v2\n"), ("ndevs", "eth7\n")] {
            fs::create_dir_all(attributes.join(folder)).unwrap();
            fs::write(attributes.join(folder).join("3"), text).unwrap();
        }
        let third = GidAttributes::new(device, 1, 3);
        assert_eq!(third.gid_type(LinkLayer::Ethernet), Some(GidType::RoceV2));
        assert_eq!(third.netdev_name().as_deref(), Some("eth7"));
        let absent = GidAttributes::new(device, 2, 3);
        assert_eq!((absent.gid_type(LinkLayer::Ethernet), absent.netdev_name()), (None, None));
    }
}
