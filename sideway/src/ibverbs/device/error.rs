//! Why there is no list, no such device, or no way to open it.

use std::{error, fmt};

use rdma_mummy_sys::load::LoadError;

use crate::error::{Errno, VerbError};

/// Why the devices could not be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GetDeviceListError {
    /// The library of the system could not be loaded; the text says what was tried and what to install.
    Load(LoadError),
    /// `ibv_get_device_list` failed.
    Verb(VerbError),
}

impl fmt::Display for GetDeviceListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Verb(error) => error.fmt(f),
        }
    }
}

// The text is that of the error inside, and so is its source.
impl error::Error for GetDeviceListError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Load(error) => error.source(),
            Self::Verb(error) => error.source(),
        }
    }
}

/// There is no device of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl fmt::Display for DeviceNotFoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no RDMA device is named `{}`; ", self.name)?;
        match self.available.as_slice() {
            [] => f.write_str("there is no RDMA device at all"),
            [only] => write!(f, "there is {only}"),
            names => write!(f, "there are {}", names.join(", ")),
        }
    }
}

impl error::Error for DeviceNotFoundError {}

/// A device could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenDeviceError {
    device: String,
    error: VerbError,
}

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

impl fmt::Display for OpenDeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.device, self.error)
    }
}

// The text has that of the error inside, and so the source is that one's.
impl error::Error for OpenDeviceError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.error.source()
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
