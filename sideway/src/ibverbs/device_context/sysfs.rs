//! Attributes of GIDs that the kernel exports only in files.

use std::fs;
use std::path::{Path, PathBuf};

use super::{GidType, LinkLayer};

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

#[cfg(test)]
mod tests {
    use super::*;

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
