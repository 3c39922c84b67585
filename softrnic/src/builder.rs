//! Selects and registers the soft devices.

use std::sync::Mutex;
use std::{env, io};

use rdma_mummy_sys::load::{gate, provider};
use thiserror::Error;

use crate::net::roce::management;
use crate::sys::{fork, unpoisoned};
use crate::verbs::limits::Profile;
use crate::verbs::{completion_event, device, files, table};
use crate::{cm, control, wiring};

/// Name of the environment variable that lists the devices to register. [`Builder::new`] describes its format.
pub const DEVICES_VARIABLE: &str = "SOFTRNIC_DEVICES";
/// Name of the environment variable that selects a [`Profile`]: `connectx`.
pub const PROFILE_VARIABLE: &str = "SOFTRNIC_PROFILE";
/// Maximum number of devices. A larger number is probably a mistake, so it is rejected.
const MAX_DEVICES: usize = 1024;
/// Name of the provider in `rdma-mummy-sys`.
const PROVIDER: &str = "softrnic";

/// Names and profile of the registered devices; `None` before the registration.
static REGISTERED: Mutex<Option<(Vec<String>, Option<Profile>)>> = Mutex::new(None);

/// A list of soft devices to register.
///
/// ```
/// softrnic::Builder::new().device("soft_a").device("soft_b").register()?;
/// # Ok::<(), softrnic::RegisterError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    names: Option<Vec<String>>,
    profile: Option<Profile>,
}

impl Builder {
    /// Creates a builder that reads its devices from the environment variable `SOFTRNIC_DEVICES`. Its value is a list
    /// of names separated by commas, or a number of devices. `2` means `soft0,soft1` and `0` means none. If the
    /// variable is absent or empty, the list is `soft0,softiw0`. Devices whose names begin with `softiw` are iWARP
    /// devices, which reach other hosts over TCP. Those that begin with `softroce` are RoCEv2 devices, which reach other
    /// hosts over UDP.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a device. A builder with at least one device ignores the environment.
    #[must_use]
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.names.get_or_insert_default().push(name.into());
        self
    }

    /// Gives the RoCE devices the limits that [`Profile`] lists, so that requests beyond them fail. By default, the
    /// environment variable `SOFTRNIC_PROFILE` selects the profile; if it is absent or empty, there is none. iWARP
    /// devices ignore the profile.
    ///
    /// ```
    /// use softrnic::{Builder, Profile};
    ///
    /// Builder::new().like(Profile::ConnectX).register()?;
    /// # Ok::<(), softrnic::RegisterError>(())
    /// ```
    #[must_use]
    pub fn like(mut self, profile: Profile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Registers the devices in this process. Registering the same devices again has no effect.
    ///
    /// # Errors
    ///
    /// Returns a [`RegisterError`] if a name or the value of `SOFTRNIC_PROFILE` is invalid, or if this process has
    /// already registered other devices, or the same devices with another profile. The message of the error contains a
    /// remedy.
    pub fn register(self) -> Result<(), RegisterError> {
        let names = match self.names {
            Some(names) => checked(names)?,
            None => match env::var_os(DEVICES_VARIABLE) {
                Some(text) => from_variable(&text.to_string_lossy())?,
                None => default_names(),
            },
        };
        let profile = match (self.profile, env::var_os(PROFILE_VARIABLE)) {
            (None, Some(text)) => profile_named(&text.to_string_lossy())?,
            (profile, _) => profile,
        };
        let asked = (names, profile);
        // A fork waits until this guard is dropped. A child therefore inherits an unlocked mutex, and a registration
        // that is either complete or has not begun.
        let _hold = gate::hold();
        let mut registered = unpoisoned(REGISTERED.lock());
        match &*registered {
            Some(before) if *before == asked => Ok(()),
            Some((names, _)) => Err(RegisterError::Registered { devices: names.clone() }),
            None => {
                // The devices are created before the provider is registered, so that every device list contains them.
                device::make(&asked.0, files::are_served(), asked.1);
                fork::watch();
                // SAFETY: each function of the table behaves as rdma-core documents it, and does not write `_ops` of
                // the devices.
                unsafe {
                    let provider = provider::Provider::new(PROVIDER, table::table()).with_rdmacm(cm::table());
                    provider::register(provider.with_wait(completion_event::wait))
                }
                .map_err(RegisterError::Provider)?;
                wiring::connect();
                management::set_manager(cm::manage_roce);
                control::socket::enable();
                *registered = Some(asked);
                Ok(())
            }
        }
    }
}

/// Registers the devices that [`Builder::new`] selects. If this process has already registered devices, this function
/// ignores the environment and has no effect.
///
/// # Errors
///
/// Returns an error if the value of `SOFTRNIC_DEVICES` or `SOFTRNIC_PROFILE` is invalid, or if another provider is
/// named `softrnic`.
pub fn register() -> Result<(), RegisterError> {
    // An earlier registration has already selected the devices.
    if is_registered() {
        return Ok(());
    }
    match Builder::new().register() {
        // `Registered`: another thread has registered other devices in the meantime.
        Ok(()) | Err(RegisterError::Registered { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_registered() -> bool {
    let _hold = gate::hold();
    unpoisoned(REGISTERED.lock()).is_some()
}

/// The reason why devices cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// A device name is invalid.
    #[error(
        "cannot register device {name:?}: a name has 1 to {} printable ASCII characters and no `/`, `,` or space, and is \
         not `.` or `..`; \
         change it in {DEVICES_VARIABLE} or in the program",
        device::NAME_SIZE - 1
    )]
    Name {
        /// The invalid name.
        name: String,
    },
    /// Two devices have the same name.
    #[error("cannot register device {name:?}: another device has this name; rename one of them")]
    Twice {
        /// The duplicate name.
        name: String,
    },
    /// The value of `SOFTRNIC_DEVICES` is a number that is out of range.
    #[error(
        "invalid {DEVICES_VARIABLE} {text}: the number of devices is out of range; choose 0 to {MAX_DEVICES}, or names"
    )]
    Number {
        /// The value of the variable.
        text: String,
    },
    /// The value of `SOFTRNIC_PROFILE` names no profile.
    #[error("invalid {PROFILE_VARIABLE} {text}: no such profile; choose connectx, or unset it")]
    Profile {
        /// The value of the variable.
        text: String,
    },
    /// The list contains too many devices.
    #[error("cannot register {count} devices: the limit is {MAX_DEVICES}; choose fewer")]
    Many {
        /// The number of devices in the list.
        count: usize,
    },
    /// This process has already registered other devices, or these with another profile. They stay registered.
    #[error(
        "cannot register devices: this process has registered others, or with another profile ({}); register all of them at once",
        .devices.join(", ")
    )]
    Registered {
        /// The names of the registered devices.
        devices: Vec<String>,
    },
    /// Another provider already has the name `softrnic`.
    #[error("cannot register devices: {0}; link one version of the crate softrnic only")]
    Provider(#[source] provider::RegisterError),
}

impl From<RegisterError> for io::Error {
    fn from(error: RegisterError) -> Self {
        let kind = match error {
            RegisterError::Registered { .. } | RegisterError::Provider(_) => io::ErrorKind::AlreadyExists,
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Parses the value of `SOFTRNIC_PROFILE`.
fn profile_named(text: &str) -> Result<Option<Profile>, RegisterError> {
    match text.trim() {
        "" => Ok(None),
        "connectx" => Ok(Some(Profile::ConnectX)),
        other => Err(RegisterError::Profile { text: other.to_owned() }),
    }
}

/// Parses and checks the value of `SOFTRNIC_DEVICES`.
pub(crate) fn from_variable(text: &str) -> Result<Vec<String>, RegisterError> {
    checked(parse_names(text)?)
}

/// Parses either a number of devices or a list of their names.
fn parse_names(text: &str) -> Result<Vec<String>, RegisterError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(default_names());
    }
    match text.parse::<usize>() {
        Ok(count) if count > MAX_DEVICES => Err(RegisterError::Many { count }),
        Ok(count) => Ok(numbered(count)),
        Err(_) if is_number(text) => Err(RegisterError::Number { text: text.to_owned() }),
        Err(_names) => Ok(text.split(',').map(|name| name.trim().to_owned()).collect()),
    }
}

/// Whether the text is an integer. Negative integers and integers that exceed `usize` count too.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn default_names() -> Vec<String> {
    vec![String::from("soft0"), String::from("softiw0")]
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("soft{number}")).collect()
}

fn checked(names: Vec<String>) -> Result<Vec<String>, RegisterError> {
    if names.len() > MAX_DEVICES {
        return Err(RegisterError::Many { count: names.len() });
    }
    for (place, name) in names.iter().enumerate() {
        // A device has a folder of its name.
        let fits = !["", ".", ".."].contains(&name.as_str()) && name.len() < device::NAME_SIZE;
        if !fits || !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b',') {
            return Err(RegisterError::Name { name: name.clone() });
        }
        if names[..place].contains(name) {
            return Err(RegisterError::Twice { name: name.clone() });
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_holds_names_or_a_number() {
        assert_eq!(from_variable("soft7").as_deref(), Ok(&["soft7".to_owned()][..]));
        assert_eq!(from_variable(" a, b ,c").map(|names| names.join(" ")).as_deref(), Ok("a b c"));
        assert_eq!(from_variable("3").map(|names| names.join(" ")).as_deref(), Ok("soft0 soft1 soft2"));
        assert_eq!(from_variable("0"), Ok(Vec::new()));
        for empty in ["", " \n"] {
            assert_eq!(from_variable(empty).map(|names| names.join(" ")).as_deref(), Ok("soft0 softiw0"));
        }
        assert_eq!(from_variable("1025"), Err(RegisterError::Many { count: 1025 }));
        for text in ["-1", "-0", "99999999999999999999999"] {
            assert_eq!(from_variable(text), Err(RegisterError::Number { text: text.to_owned() }));
        }
        assert_eq!(from_variable("-").map(|names| names.join(" ")).as_deref(), Ok("-"));
    }

    #[test]
    fn profile_is_selected_by_its_name() {
        assert_eq!(profile_named(" connectx\n"), Ok(Some(Profile::ConnectX)));
        assert_eq!(profile_named(""), Ok(None));
        let error = profile_named("mlx4").unwrap_err().to_string();
        assert_eq!(error, "invalid SOFTRNIC_PROFILE mlx4: no such profile; choose connectx, or unset it");
    }

    #[test]
    fn invalid_name_is_refused() {
        let long = "x".repeat(64);
        for name in [",", "a,,b", "a/b", "a b", "a\tb", "gerät", "..\0", "..", &long] {
            assert!(matches!(from_variable(name), Err(RegisterError::Name { .. })), "{name:?}");
        }
        assert!(from_variable(&long[1..]).is_ok());
        assert_eq!(from_variable("a,b,a"), Err(RegisterError::Twice { name: "a".to_owned() }));
        assert_eq!(checked(vec!["a,b".to_owned()]), Err(RegisterError::Name { name: "a,b".to_owned() }));
    }

    #[test]
    fn error_names_its_remedy() {
        let errors = [
            RegisterError::Name { name: String::from("a/b") },
            RegisterError::Twice { name: String::from("a") },
            RegisterError::Many { count: 5000 },
            RegisterError::Number { text: String::from("-1") },
            RegisterError::Registered { devices: numbered(2) },
        ];
        let texts = [
            "1 to 63 printable ASCII characters",
            "rename one of them",
            "the limit is 1024; choose fewer",
            "invalid SOFTRNIC_DEVICES -1: the number of devices is out of range",
            "(soft0, soft1); register all of them at once",
        ];
        for (error, part) in errors.iter().zip(texts) {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
