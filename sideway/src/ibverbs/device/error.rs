//! Why there is no list, no such device, or no way to open it.

use rdma_mummy_sys::load::LoadError;

use crate::error::{Errno, VerbError};

/// Why the devices could not be listed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GetDeviceListError {
    /// The library of the system could not be loaded; the text says what was tried and what to install.
    #[error(transparent)]
    Load(LoadError),
    /// `ibv_get_device_list` failed.
    #[error(transparent)]
    Verb(VerbError),
}

/// There is no device of this name.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no RDMA device is named `{name}`; {}", list(.available))]
pub struct DeviceNotFoundError {
    name: String,
    available: Vec<String>,
}

impl DeviceNotFoundError {
    #[cold]
    pub(super) fn new(name: &str, available: Vec<String>) -> Self {
        Self { name: name.to_owned(), available }
    }

    /// The name that was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names that there are.
    pub fn available(&self) -> &[String] {
        &self.available
    }
}

fn list(available: &[String]) -> String {
    match available {
        [] => "there is no RDMA device at all".to_owned(),
        [only] => format!("there is {only}"),
        names => format!("there are {}", names.join(", ")),
    }
}

/// A device could not be opened.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{device}: {error}")]
pub struct OpenDeviceError {
    device: String,
    error: VerbError,
}

crate::error::debug_is_text!(GetDeviceListError, DeviceNotFoundError, OpenDeviceError);

impl OpenDeviceError {
    #[cold]
    pub(super) fn new(device: String, uverbs_name: &str, error: VerbError) -> Self {
        let error = match hint(error.errno(), uverbs_name) {
            Some(hint) => error.with_hint(hint),
            None => error,
        };
        Self { device, error }
    }

    /// The name of the device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// What the library gave.
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
        libc::EACCES | libc::EPERM => Some(format!("the user must be able to read and write {file}")),
        libc::ENOENT => Some(format!("{file} does not exist; in a container, it must be passed in")),
        libc::ENODEV | libc::ENXIO | libc::EIO => Some("the device has been removed or is being reset".to_owned()),
        libc::EMFILE | libc::ENFILE => Some("too many files are open (`ulimit -n`)".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_found_names_those_that_are() {
        let text = |names: &[&str]| {
            DeviceNotFoundError::new("mlx5_9", names.iter().map(|&name| name.to_owned()).collect()).to_string()
        };
        assert_eq!(text(&[]), "no RDMA device is named `mlx5_9`; there is no RDMA device at all");
        assert_eq!(text(&["rxe_0"]), "no RDMA device is named `mlx5_9`; there is rxe_0");
        assert_eq!(text(&["rxe_0", "siw_0"]), "no RDMA device is named `mlx5_9`; there are rxe_0, siw_0");
    }

    #[test]
    fn a_device_that_does_not_open_names_its_file() {
        let error = |errno| VerbError::new("ibv_open_device", Errno::from_raw(errno));
        let text = OpenDeviceError::new("rxe_0".to_owned(), "uverbs0", error(libc::EACCES)).to_string();
        assert_eq!(
            text,
            "rxe_0: ibv_open_device: EACCES (Permission denied): the user must be able to read and write \
             /dev/infiniband/uverbs0"
        );
        let text = OpenDeviceError::new("soft_0".to_owned(), "", error(libc::EACCES)).to_string();
        assert_eq!(text, "soft_0: ibv_open_device: EACCES (Permission denied)");
    }
}
