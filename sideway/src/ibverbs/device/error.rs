//! Errors of listing, finding and opening devices.

use rdma_mummy_sys::load::LoadError;

use crate::error::{Errno, VerbError};

/// The error of listing the devices.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GetDeviceListError {
    /// The system's libibverbs could not be loaded. The text lists the paths that were tried and the packages to
    /// install.
    #[error(transparent)]
    Load(LoadError),
    /// `ibv_get_device_list` failed.
    #[error(transparent)]
    Verb(VerbError),
}

/// The error of a search for a device: no device has this name.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no RDMA device is named `{name}`{}", list(.available))]
pub struct DeviceNotFoundError {
    name: String,
    available: Vec<String>,
}

impl DeviceNotFoundError {
    #[cold]
    pub(super) fn new(name: &str, available: Vec<String>) -> Self {
        Self { name: name.to_owned(), available }
    }

    /// Returns the name that was searched for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the names of the available devices.
    pub fn available(&self) -> &[String] {
        &self.available
    }
}

fn list(available: &[String]) -> String {
    match available {
        [] => ": there are no devices; load the NIC's driver, or register softrnic".to_owned(),
        [only] => format!("; choose {only}"),
        names => format!("; choose one of {}", names.join(", ")),
    }
}

/// The error of opening a device.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{device}: {error}")]
pub struct OpenDeviceError {
    device: String,
    error: VerbError,
}

crate::error::debug_is_text!(GetDeviceListError, DeviceNotFoundError, OpenDeviceError);

impl OpenDeviceError {
    #[cold]
    pub(in crate::ibverbs) fn new(device: String, uverbs_name: &str, error: VerbError) -> Self {
        let error = match hint(error.errno(), uverbs_name) {
            Some(hint) => error.with_hint(hint),
            None => error,
        };
        Self { device, error }
    }

    /// Returns the device's name.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns the library's error.
    pub fn verb_error(&self) -> &VerbError {
        &self.error
    }
}

fn hint(errno: Errno, uverbs_name: &str) -> Option<String> {
    if uverbs_name.is_empty() {
        return None;
    }
    let file = format!("/dev/infiniband/{uverbs_name}");
    match errno.raw() {
        libc::EACCES | libc::EPERM => Some(format!("grant the user read and write access to {file}")),
        libc::ENOENT => Some(format!("{file} does not exist; in a container, pass it in with --device")),
        libc::ENODEV | libc::ENXIO | libc::EIO => Some(
            "the device was removed or is being reset; list the devices \
            again"
                .to_owned(),
        ),
        libc::EMFILE | libc::ENFILE => Some("too many open files; raise `ulimit -n`".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_not_found_error_lists_available_names() {
        let text = |names: &[&str]| {
            DeviceNotFoundError::new("mlx5_9", names.iter().map(|&name| name.to_owned()).collect()).to_string()
        };
        assert_eq!(
            text(&[]),
            "no RDMA device is named `mlx5_9`: there are no devices; load the NIC's driver, or \
            register softrnic"
        );
        assert_eq!(text(&["rxe_0"]), "no RDMA device is named `mlx5_9`; choose rxe_0");
        assert_eq!(text(&["rxe_0", "siw_0"]), "no RDMA device is named `mlx5_9`; choose one of rxe_0, siw_0");
    }

    #[test]
    fn open_device_error_names_device_file() {
        let error = |errno| VerbError::new("ibv_open_device", Errno::from_raw(errno));
        let text = OpenDeviceError::new("rxe_0".to_owned(), "uverbs0", error(libc::EACCES)).to_string();
        assert_eq!(
            text,
            "rxe_0: ibv_open_device: EACCES (Permission denied): grant the user read and write access to \
            /dev/infiniband/uverbs0"
        );
        let text = OpenDeviceError::new("soft_0".to_owned(), "", error(libc::EACCES)).to_string();
        assert_eq!(text, "soft_0: ibv_open_device: EACCES (Permission denied)");
    }
}
