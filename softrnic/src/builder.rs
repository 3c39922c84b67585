//! Which devices there are.

use std::env;
use std::sync::Mutex;

use rdma_mummy_sys::load::{gate, provider};
use thiserror::Error;

use crate::sys::{fork, unpoisoned};
use crate::verbs::{device, table};
use crate::{cm, wiring};

/// The environment variable that says which devices there are.
pub const DEVICES_VARIABLE: &str = "SOFTRNIC_DEVICES";
/// More devices than this are a mistake.
const MOST: usize = 1024;
/// The name under which `rdma-mummy-sys` has the provider.
const PROVIDER: &str = "softrnic";

/// The names of the devices that are registered, once there are any.
static REGISTERED: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Devices to register.
///
/// ```
/// softrnic::Builder::new().device("soft_a").device("soft_b").register()?;
/// # Ok::<(), softrnic::RegisterError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    names: Option<Vec<String>>,
}

impl Builder {
    /// Those that the environment variable `SOFTRNIC_DEVICES` says, which is names separated by commas, or how many: `2` stands
    /// for `soft0,soft1`, and `0` for none. Where it is not set, or empty, `soft0`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a device. Once a program names any, the environment is not asked.
    #[must_use]
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.names.get_or_insert_default().push(name.into());
        self
    }

    /// Makes the devices those of this process; the same ones again do nothing.
    ///
    /// # Errors
    ///
    /// [`RegisterError`], which says what to do: names that no device can have, or other devices registered before.
    pub fn register(self) -> Result<(), RegisterError> {
        let names = match self.names {
            Some(names) => checked(names)?,
            None => match env::var_os(DEVICES_VARIABLE) {
                Some(text) => named(&text.to_string_lossy())?,
                None => counted(1),
            },
        };
        // A child that another thread forks has all of it or nothing, and the lock is free there.
        let _hold = gate::hold();
        let mut registered = unpoisoned(REGISTERED.lock());
        match &*registered {
            Some(before) if *before == names => Ok(()),
            Some(before) => Err(RegisterError::Registered { devices: before.clone() }),
            None => {
                // Before the provider is known, so that every list has them.
                device::make(&names);
                fork::watch();
                // SAFETY: the functions of the table do what rdma-core documents for their names, and leave `_ops` of the devices
                // alone.
                unsafe {
                    provider::register(provider::Provider::new(PROVIDER, table::table()).with_rdmacm(cm::table()))
                }
                .map_err(RegisterError::Provider)?;
                wiring::connect();
                *registered = Some(names);
                Ok(())
            }
        }
    }
}

/// Registers the devices of [`Builder::new`]; where any are registered, it does nothing, whatever the environment says.
///
/// # Errors
///
/// What the environment says is not a list of devices, or another provider has the name `softrnic`.
pub fn register() -> Result<(), RegisterError> {
    // Whoever registered them has chosen.
    if is_registered() {
        return Ok(());
    }
    match Builder::new().register() {
        // Another thread has, meanwhile.
        Ok(()) | Err(RegisterError::Registered { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_registered() -> bool {
    let _hold = gate::hold();
    unpoisoned(REGISTERED.lock()).is_some()
}

/// Why devices cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// No device can have this name.
    #[error(
        "no device can be named {name:?}: choose a name of 1 to {} printable ASCII characters without `/`, `,` and spaces \
         (it comes from the program or from {DEVICES_VARIABLE})",
        device::NAME_SIZE - 1
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Two devices have this name.
    #[error("two devices are named {name:?}: choose another name for one of them")]
    Twice {
        /// The name.
        name: String,
    },
    /// What the environment says is a number, and not one of devices.
    #[error("{DEVICES_VARIABLE} is {text}, which is no number of devices: choose 0 to {MOST}, or names")]
    Number {
        /// What it says.
        text: String,
    },
    /// So many devices are a mistake.
    #[error("{count} devices are too many: choose at most {MOST}")]
    Many {
        /// How many were asked for.
        count: usize,
    },
    /// Other devices are registered in this process, which keeps them.
    #[error("the soft devices of this process are registered already ({}): register all of them at once", .devices.join(", "))]
    Registered {
        /// Their names.
        devices: Vec<String>,
    },
    /// The name `softrnic` is taken.
    #[error("{0}: does the program have two versions of the crate softrnic? Use one")]
    Provider(#[source] provider::RegisterError),
}

/// The devices that the environment says.
pub(crate) fn named(text: &str) -> Result<Vec<String>, RegisterError> {
    checked(parse(text)?)
}

/// Names, or how many.
fn parse(text: &str) -> Result<Vec<String>, RegisterError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(counted(1));
    }
    match text.parse::<usize>() {
        Ok(count) if count > MOST => Err(RegisterError::Many { count }),
        Ok(count) => Ok(counted(count)),
        Err(_) if is_number(text) => Err(RegisterError::Number { text: text.to_owned() }),
        Err(_names) => Ok(text.split(',').map(|name| name.trim().to_owned()).collect()),
    }
}

/// Also where it is below zero, or more than the machine counts.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn counted(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("soft{number}")).collect()
}

fn checked(names: Vec<String>) -> Result<Vec<String>, RegisterError> {
    if names.len() > MOST {
        return Err(RegisterError::Many { count: names.len() });
    }
    for (place, name) in names.iter().enumerate() {
        let fits = !name.is_empty() && name.len() < device::NAME_SIZE;
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
    fn the_environment_says_names_or_how_many() {
        assert_eq!(named("soft7").as_deref(), Ok(&["soft7".to_owned()][..]));
        assert_eq!(named(" a, b ,c").map(|names| names.join(" ")).as_deref(), Ok("a b c"));
        assert_eq!(named("3").map(|names| names.join(" ")).as_deref(), Ok("soft0 soft1 soft2"));
        assert_eq!(named("0"), Ok(Vec::new()));
        for nothing in ["", " \n"] {
            assert_eq!(named(nothing).map(|names| names.join(" ")).as_deref(), Ok("soft0"));
        }
        assert_eq!(named("1025"), Err(RegisterError::Many { count: 1025 }));
        for text in ["-1", "-0", "99999999999999999999999"] {
            assert_eq!(named(text), Err(RegisterError::Number { text: text.to_owned() }));
        }
        assert_eq!(named("-").map(|names| names.join(" ")).as_deref(), Ok("-"));
    }

    #[test]
    fn a_name_that_no_device_can_have_is_refused() {
        let long = "x".repeat(64);
        for name in [",", "a,,b", "a/b", "a b", "a\tb", "gerät", "..\0", &long] {
            assert!(matches!(named(name), Err(RegisterError::Name { .. })), "{name:?}");
        }
        assert!(named(&long[1..]).is_ok());
        assert_eq!(named("a,b,a"), Err(RegisterError::Twice { name: "a".to_owned() }));
        assert_eq!(checked(vec!["a,b".to_owned()]), Err(RegisterError::Name { name: "a,b".to_owned() }));
    }

    #[test]
    fn an_error_says_what_to_do() {
        let errors = [
            RegisterError::Name { name: String::from("a/b") },
            RegisterError::Twice { name: String::from("a") },
            RegisterError::Many { count: 5000 },
            RegisterError::Number { text: String::from("-1") },
            RegisterError::Registered { devices: counted(2) },
        ];
        let texts = [
            "1 to 63 printable",
            "choose another",
            "at most 1024",
            "is -1, which is no number of devices",
            "(soft0, soft1): register all of them at once",
        ];
        for (error, part) in errors.iter().zip(texts) {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
